//! Reading everything: every byte against its checksums, then every value against its meaning.
//!
//! Each file is streamed once for the SHA-256 in the manifest, the digest that enters the build id and the CRC32C of
//! each page; a second pass over sound files checks what checksums cannot: that numbers stay in their ranges. Memory: 4
//! bytes a page, n / 8 bytes, all codes of a graph, and the memory of the open index; see `lsh` for hash tables and `ivf`
//! for inverted lists.

mod damage;
mod graph;
mod ids;
mod ivf;
mod lsh;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use self::damage::note;
use crate::directory::{Directory, OPEN_ATTEMPTS};
use crate::error::{Error, Result};
use crate::interrupt::{Stop, go_on};
use crate::living;
use crate::manifest::{self, FileEntry, Kind, Manifest, hex};
use crate::memory::resize;
use crate::pagefile::{PAGE_BYTES, PageFile, check_page};
use crate::vectors::VECTORS_FILE;

/// Bytes of the header that the build id leaves out, because it decides them: itself and the header's CRC.
const MASKED: [std::ops::Range<usize>; 2] = [16..32, PAGE_BYTES - 4..PAGE_BYTES];
const CHUNK_BYTES: usize = 256 * PAGE_BYTES;
/// Most damaged pages that are named for one file.
const MAX_NAMED_PAGES: usize = 20;

/// One message for each damage found in the index at `path`; none if it is sound. An index that is replaced meanwhile
/// and deleted is followed by the one that replaced it.
pub fn verify(path: &Path) -> Vec<String> {
    verify_unless(path, &mut || false).unwrap_or_else(|error| vec![error.to_string()])
}

/// As [`verify`]. `interrupted` is asked now and then; once it says true this ends with [`Error::Interrupted`], its only
/// error.
pub fn verify_unless(path: &Path, interrupted: Stop<'_>) -> Result<Vec<String>> {
    let mut damages = Vec::new();
    for _ in 0..OPEN_ATTEMPTS {
        let directory = match Directory::open(path) {
            Ok(directory) => directory,
            Err(error) => return Ok(vec![error.to_string()]),
        };
        damages = check(&directory, interrupted)?;
        if damages.is_empty() || !directory.is_replaced() {
            break;
        }
    }
    Ok(damages)
}

fn check(directory: &Directory, interrupted: Stop<'_>) -> Result<Vec<String>> {
    let manifest = match manifest::read(directory) {
        Ok(manifest) => manifest,
        Err(error) => return Ok(vec![error.to_string()]),
    };
    let mut damages = Vec::new();
    let mut lines = String::new();
    for entry in &manifest.files {
        let checked = check_file(directory, entry, &manifest, &mut damages, interrupted);
        let checked = checked.map(|digest| {
            if !manifest.is_of_deletions(&entry.name) {
                lines += &format!("{} {digest}\n", entry.name);
            }
        });
        note(&mut damages, checked)?;
    }
    if damages.is_empty() {
        let build_id = hex(&Sha256::digest(lines.as_bytes()));
        if build_id != manifest.build_id {
            let file = directory.join(manifest::MANIFEST_NAME);
            damages.push(Error::corrupt(&file, "build_id", build_id, &manifest.build_id).to_string());
        }
        match manifest.kind {
            Kind::Graph => graph::check(directory, &mut damages, interrupted)?,
            Kind::Lsh => note(&mut damages, lsh::check(directory, interrupted))?,
            Kind::Ivf => note(&mut damages, ivf::check(directory, interrupted))?,
        }
    }
    Ok(damages)
}

/// Streams one file; returns the digest that enters the build id. Damages go to `damages` or are the error.
fn check_file(
    directory: &Directory,
    entry: &FileEntry,
    manifest: &Manifest,
    damages: &mut Vec<String>,
    interrupted: Stop<'_>,
) -> Result<String> {
    let (path, mut file) = (directory.join(&entry.name), manifest::open_listed(directory, entry)?);
    let is_page_file = entry.name.ends_with(".imx");
    let mut pages = open_page_file(directory, &entry.name, manifest, interrupted)?;
    let (mut whole, mut masked) = (Sha256::new(), Sha256::new());
    let mut chunk = Vec::new();
    resize(&path, &mut chunk, CHUNK_BYTES, 0)?;
    let mut page = 0u64;
    loop {
        go_on(interrupted)?;
        let n = read_full(&path, &mut file, &mut chunk)?;
        if n == 0 {
            break;
        }
        whole.update(&chunk[..n]);
        if let Some(checks) = &mut pages {
            checks.chunk(&path, page, &chunk[..n], damages);
        }
        if is_page_file && page == 0 && n >= PAGE_BYTES {
            MASKED.iter().for_each(|range| chunk[range.clone()].fill(0));
        }
        masked.update(&chunk[..n]);
        page += (n / PAGE_BYTES) as u64;
    }
    let found = hex(&whole.finalize());
    let damaged_pages = pages.map_or(0, |checks| checks.damaged);
    if damaged_pages > MAX_NAMED_PAGES {
        damages.push(format!("{}: {damaged_pages} damaged pages in all", path.display()));
    }
    if found != entry.sha256 && damaged_pages == 0 {
        return Err(Error::corrupt(&path, "SHA-256 of the file", &entry.sha256, found));
    }
    Ok(if entry.build_id.is_some() { found } else { hex(&masked.finalize()) })
}

/// The checksums of a page file of a known kind, after checking its build id.
fn open_page_file(
    directory: &Directory,
    name: &str,
    manifest: &Manifest,
    interrupted: Stop<'_>,
) -> Result<Option<PageChecks>> {
    let kind = match name {
        "graph.imx" => b"GRPH",
        "codes.imx" => b"CODE",
        "entries.imx" => b"ENTR",
        "ids.imx" => b"IDMP",
        manifest::NAVIGATION_FILE => b"NAVI",
        VECTORS_FILE => b"VECT",
        "functions.imx" => b"LSHF",
        "tables.imx" | "added-tables.imx" => b"LSHT",
        "buckets.imx" | "added-buckets.imx" => b"LSHB",
        "centroids.imx" => b"CENT",
        name if name.starts_with("batch-") && name.ends_with(".imx") => b"IVFB",
        name if manifest.is_of_deletions(name) => living::KIND,
        _ => return Ok(None),
    };
    let file = PageFile::open_in(directory, name, kind)?;
    manifest.check_build_id(&file.path, &file.header.build_id)?;
    Ok(Some(PageChecks { checksums: file.load_checksums(interrupted)?, damaged: 0 }))
}

/// Compares data pages with section "crc". Header, footer and that section were checked when it was loaded.
struct PageChecks {
    checksums: Vec<u32>,
    damaged: usize,
}

impl PageChecks {
    fn chunk(&mut self, path: &Path, first_page: u64, chunk: &[u8], damages: &mut Vec<String>) {
        for (i, page) in chunk.chunks_exact(PAGE_BYTES).enumerate() {
            let number = first_page + i as u64;
            let Some(&want) = (number as usize).checked_sub(1).and_then(|i| self.checksums.get(i)) else { continue };
            if let Err(error) = check_page(path, number, page, want) {
                self.damaged += 1;
                if self.damaged <= MAX_NAMED_PAGES {
                    damages.push(error.to_string());
                }
            }
        }
    }
}

/// Fills `chunk` as far as the file goes.
fn read_full(path: &Path, file: &mut File, chunk: &mut [u8]) -> Result<usize> {
    let mut n = 0;
    while n < chunk.len() {
        match file.read(&mut chunk[n..]) {
            Ok(0) => break,
            Ok(got) => n += got,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::io(path, "read", e)),
        }
    }
    Ok(n)
}
