//! Checksums and sizes that fit their content, whatever the content is.

use indexmill_core::manifest::hex;
use indexmill_core::pagefile::PAGE_BYTES;
use sha2::{Digest, Sha256};

use crate::common::seal_page;

const TABLE_OFFSET: usize = 64;
const SECTION_BYTES: usize = 40;
const MAX_SECTIONS: u16 = 16;

/// A page file of a header page and data pages: appends section "crc" and the footer, seals the header.
pub fn page_file(mut pages: Vec<u8>, fitted: bool) -> Vec<u8> {
    let data = &pages[PAGE_BYTES..];
    let mut checksums: Vec<u8> = data.chunks(PAGE_BYTES).flat_map(|page| crc32c::crc32c(page).to_le_bytes()).collect();
    let payload = checksums.len() as u64;
    checksums.resize(checksums.len().next_multiple_of(PAGE_BYTES), 0);
    let file_bytes = (pages.len() + checksums.len() + PAGE_BYTES) as u64;
    let header = &mut pages[..PAGE_BYTES];
    if fitted {
        fit(header, payload, file_bytes);
    }
    seal_page(header);
    let mut footer = [0u8; PAGE_BYTES];
    footer[..8].copy_from_slice(b"IMILLEND");
    footer[8..16].copy_from_slice(&file_bytes.to_le_bytes());
    footer[16..20].copy_from_slice(&crc32c::crc32c(&checksums).to_le_bytes());
    seal_page(&mut footer);
    pages.extend(checksums);
    pages.extend(footer);
    pages
}

/// Sets the size of the file, the size of the last section, and the place of every section.
fn fit(header: &mut [u8], crc_payload: u64, file_bytes: u64) {
    header[40..48].copy_from_slice(&file_bytes.to_le_bytes());
    let n_sections = u16::from_le_bytes([header[36], header[37]]).min(MAX_SECTIONS) as usize;
    let mut first_page = 1u64;
    for i in 0..n_sections {
        let entry = &mut header[TABLE_OFFSET + i * SECTION_BYTES + 16..][..24];
        if i + 1 == n_sections {
            entry[16..].copy_from_slice(&crc_payload.to_le_bytes());
        }
        let payload = u64::from_le_bytes(*entry[16..].first_chunk().expect("8 bytes"));
        let pages = payload.div_ceil(PAGE_BYTES as u64);
        entry[..8].copy_from_slice(&first_page.to_le_bytes());
        entry[8..16].copy_from_slice(&pages.to_le_bytes());
        first_page = first_page.saturating_add(pages);
    }
}

/// A manifest with the text `body` before its digest.
pub fn manifest(body: &[u8]) -> Vec<u8> {
    let digest = format!("  \"digest\": \"{}\"\n}}\n", hex(&Sha256::digest(body)));
    [body, digest.as_bytes()].concat()
}
