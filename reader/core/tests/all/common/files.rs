//! Bytes of page files and manifests.

use std::fs;
use std::path::Path;

use indexmill_core::pagefile::PageFile;
use sha2::{Digest, Sha256};

pub fn le<const N: usize>(values: impl IntoIterator<Item = [u8; N]>) -> Vec<u8> {
    values.into_iter().flatten().collect()
}

/// Rows padded to `row_bytes`, none across a border of pages unless it is longer than a page.
pub fn rows_in_pages(rows: impl Iterator<Item = Vec<u8>>, row_bytes: usize) -> Vec<u8> {
    let mut payload: Vec<u8> = Vec::new();
    for mut row in rows {
        row.resize(row_bytes, 0);
        if payload.len() % 4096 + row_bytes > 4096 {
            payload.resize(payload.len().next_multiple_of(4096), 0);
        }
        payload.extend(row);
    }
    payload.resize(payload.len().next_multiple_of(4096), 0);
    payload
}

/// Nodes with codes: as many as fit a page behind a checksum, or one in pages of its own.
pub fn blocks_with_checksums(rows: impl Iterator<Item = Vec<u8>>, row_bytes: usize) -> Vec<u8> {
    let rows: Vec<Vec<u8>> = rows.collect();
    let mut payload = Vec::new();
    for (number, group) in rows.chunks((4092 / row_bytes).max(1)).enumerate() {
        let mut block = vec![0u8; 4];
        for row in group {
            let end = block.len() + row_bytes;
            block.extend(row);
            block.resize(end, 0);
        }
        block.resize(block.len().next_multiple_of(4096), 0);
        let own = crc32c::crc32c(&block[4..]) ^ number as u32;
        block[..4].copy_from_slice(&own.to_le_bytes());
        payload.extend(block);
    }
    payload
}

/// Bytes of a page file.
pub fn page_file(kind: &[u8; 4], build_id: &[u8], fields: &[(&str, u64)], sections: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut table = Vec::new();
    let mut data = Vec::new();
    for (name, payload) in sections {
        table.push((*name, 1 + data.len() as u64 / 4096, payload.len() as u64));
        data.extend_from_slice(payload);
        data.resize(data.len().next_multiple_of(4096), 0);
    }
    let mut crcs = le(data.chunks(4096).map(|page| crc32c::crc32c(page).to_le_bytes()));
    table.push(("crc", 1 + data.len() as u64 / 4096, crcs.len() as u64));
    crcs.resize(crcs.len().next_multiple_of(4096), 0);
    let size = (2 * 4096 + data.len() + crcs.len()) as u64;

    let mut header = vec![0u8; 4096];
    header[..8].copy_from_slice(b"\x89IMILL\r\n");
    header[8..12].copy_from_slice(kind);
    header[12..14].copy_from_slice(&1u16.to_le_bytes());
    header[14..16].copy_from_slice(&1u16.to_le_bytes());
    header[16..32].copy_from_slice(build_id);
    header[32..36].copy_from_slice(&4096u32.to_le_bytes());
    header[36..38].copy_from_slice(&(table.len() as u16).to_le_bytes());
    header[38..40].copy_from_slice(&(fields.len() as u16).to_le_bytes());
    header[40..48].copy_from_slice(&size.to_le_bytes());
    for (i, (name, first, payload)) in table.iter().enumerate() {
        let at = 64 + 40 * i;
        header[at..at + name.len()].copy_from_slice(name.as_bytes());
        header[at + 16..at + 40].copy_from_slice(&le([*first, payload.div_ceil(4096), *payload].map(u64::to_le_bytes)));
    }
    for (i, (name, value)) in fields.iter().enumerate() {
        let at = 64 + 40 * table.len() + 24 * i;
        header[at..at + name.len()].copy_from_slice(name.as_bytes());
        header[at + 16..at + 24].copy_from_slice(&value.to_le_bytes());
    }
    seal_page(&mut header);
    let mut footer = vec![0u8; 4096];
    footer[..8].copy_from_slice(b"IMILLEND");
    footer[8..16].copy_from_slice(&size.to_le_bytes());
    footer[16..20].copy_from_slice(&crc32c::crc32c(&crcs).to_le_bytes());
    seal_page(&mut footer);
    [header, data, crcs, footer].concat()
}

/// Puts the CRC of a header or footer page in its place.
pub fn seal_page(page: &mut [u8]) {
    let crc = crc32c::crc32c(&page[..4092]);
    page[4092..4096].copy_from_slice(&crc.to_le_bytes());
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Stamps build ids into `files` and writes them with their manifest: that of the second generation if one of them has
/// deletions, which came after the build.
pub fn write_directory(path: &Path, files: &mut [(&str, Vec<u8>)]) {
    files.sort_by_key(|(name, _)| name.to_string());
    let is_of_deletions = |name: &str| name.starts_with("deleted-");
    let mut lines = String::new();
    for (name, bytes) in files.iter().filter(|(name, _)| !is_of_deletions(name)) {
        let mut masked = bytes.clone();
        masked[16..32].fill(0);
        masked[4092..4096].fill(0);
        lines += &format!("{name} {}\n", hex(&Sha256::digest(&masked)));
    }
    let build_id = Sha256::digest(lines.as_bytes());
    let mut entries = Vec::new();
    for (name, bytes) in files.iter_mut() {
        bytes[16..32].copy_from_slice(&build_id[..16]);
        seal_page(&mut bytes[..4096]);
        fs::write(path.join(*name), &*bytes).unwrap();
        let digest = hex(&Sha256::digest(&*bytes));
        entries.push(format!("{{\"name\": \"{name}\", \"bytes\": {}, \"sha256\": \"{digest}\"}}", bytes.len()));
    }
    let has = |wanted: &str| files.iter().any(|(name, _)| *name == wanted);
    let kind = if has("tables.imx") {
        "lsh"
    } else if has("centroids.imx") {
        "ivf"
    } else {
        "graph"
    };
    let (mut version, mut deletions) = ("\"major\": 1, \"minor\": 1", String::new());
    if let Some((name, _)) = files.iter().find(|(name, _)| is_of_deletions(name)) {
        let count = PageFile::open(&path.join(name), b"DELS").and_then(|file| file.field("n_deleted")).unwrap_or(1);
        version = "\"major\": 3, \"minor\": 0";
        deletions = format!(
            "  \"generation\": 2,\n  \
             \"deleted\": {{\"file\": \"{name}\", \"vectors\": {count}, \"previous\": 1}},\n"
        );
    }
    let body = format!(
        "{{\n  \"format\": {{\"name\": \"indexmill\", {version}}},\n  \"kind\": \"{kind}\",\n{deletions}  \
         \"build_id\": \"{}\",\n  \"files\": [{}],\n",
        hex(&build_id),
        entries.join(", ")
    );
    write_manifest(path, &body);
}

/// Writes a manifest whose text before the digest is `body`.
pub fn write_manifest(path: &Path, body: &str) {
    let digest = hex(&Sha256::digest(body.as_bytes()));
    fs::write(path.join("manifest.json"), format!("{body}  \"digest\": \"{digest}\"\n}}\n")).unwrap();
}
