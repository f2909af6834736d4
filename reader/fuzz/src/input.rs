//! How the bytes of a fuzzer become files.
//!
//! The first byte holds flags; its two lowest bits say how a page file is encoded:
//!
//! | mode | the rest of the input |
//! |---|---|
//! | [`RAW`] | the file |
//! | [`PAGES`] | pages: `u16 length`, that many bytes, zeros up to byte 4092, and 4 more bytes |
//! | [`SEALED`] | header and data pages: `u16 length`, that many bytes, zeros; checksums and footer are computed |
//! | [`FITTED`] | the same; the places of all sections and the size of the file are computed, too |
//!
//! The first two exercise the frame: magics, sizes and checksums. With the others a mutation reaches what follows the
//! frame, and a page costs the fuzzer its content alone.
//!
//! A directory is a list of parts in the order of [`PARTS`], [`LSH_PARTS`] or [`IVF_PARTS`], each `u16 length` and an input
//! as above without its flags; a part that is empty or missing is a missing file.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use indexmill_core::directory::Directory;
use indexmill_core::manifest::MANIFEST_NAME;
use indexmill_core::pagefile::PAGE_BYTES;
use indexmill_core::{Error, Result};

use crate::common::{Scratch, write_directory};
use crate::seal;

/// Mode: a file as it is.
pub const RAW: u8 = 0;
/// Mode: pages as they are.
pub const PAGES: u8 = 1;
/// Mode: checksums are computed.
pub const SEALED: u8 = 2;
/// Mode: checksums, sections and sizes are computed.
pub const FITTED: u8 = 3;
const MODE: u8 = 3;
/// Flag: a sealed or fitted directory has the manifest of its parts, not one made for its files.
pub const OWN_MANIFEST: u8 = 4;

/// Files of a directory, in the order of its parts; new ones go to the end, which keeps the old seeds valid.
pub const PARTS: [&str; 8] =
    [MANIFEST_NAME, "codes.imx", "entries.imx", "graph.imx", "ids.imx", "navigation.imx", "vectors.imx", DELETED];

/// Files of a directory of kind "lsh", with those of added tables.
pub const LSH_PARTS: [&str; 9] = [
    MANIFEST_NAME,
    "buckets.imx",
    "functions.imx",
    "ids.imx",
    "tables.imx",
    "vectors.imx",
    "added-buckets.imx",
    "added-tables.imx",
    DELETED,
];

/// Files of a directory of kind "ivf".
pub const IVF_PARTS: [&str; 8] = [
    MANIFEST_NAME,
    "batch-000000.imx",
    "batch-000001.imx",
    "centroids.imx",
    "ids.imx",
    "vectors.imx",
    "batch-000002.imx",
    DELETED,
];

/// A file of deletions.
pub const DELETED: &str = "deleted-000002.imx";

/// Pages of one file at most: a fuzzer learns nothing from larger ones.
const MAX_PAGES: usize = 64;

/// The flags of an input and the bytes behind them.
pub fn split_flags(data: &[u8]) -> (u8, &[u8]) {
    data.split_first().map_or((0, data), |(&flags, rest)| (flags, rest))
}

/// Takes `u16 length` and that many bytes (fewer at the end) from the front of `data`.
pub fn take_block<'a>(data: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = data.split_first_chunk::<2>()?;
    let (block, rest) = rest.split_at(rest.len().min(u16::from_le_bytes(*length) as usize));
    *data = rest;
    Some(block)
}

/// Appends what [`take_block`] takes.
pub fn put_block(out: &mut Vec<u8>, block: &[u8]) {
    out.extend((block.len() as u16).to_le_bytes());
    out.extend(block);
}

/// Bytes of a page file.
pub fn page_file(flags: u8, data: &[u8]) -> Vec<u8> {
    match flags & MODE {
        RAW => data.to_vec(),
        PAGES => whole_pages(data),
        mode => seal::page_file(padded_pages(data), mode == FITTED),
    }
}

/// Pages with their last four bytes; an input that ends within a page cuts the file there.
fn whole_pages(mut data: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    for page in 1..=MAX_PAGES {
        let Some(block) = take_block(&mut data) else { break };
        file.extend_from_slice(&block[..block.len().min(PAGE_BYTES - 4)]);
        let Some((tail, rest)) = data.split_first_chunk::<4>() else { break };
        file.resize(page * PAGE_BYTES - 4, 0);
        file.extend_from_slice(tail);
        data = rest;
    }
    file
}

/// Pages padded with zeros, at least one.
fn padded_pages(mut data: &[u8]) -> Vec<u8> {
    let mut pages = Vec::new();
    for page in 1..=MAX_PAGES {
        let Some(block) = take_block(&mut data) else { break };
        pages.extend_from_slice(&block[..block.len().min(PAGE_BYTES)]);
        pages.resize(page * PAGE_BYTES, 0);
    }
    pages.resize(pages.len().max(PAGE_BYTES), 0);
    pages
}

/// Whether checksums are computed.
fn is_sealed(flags: u8) -> bool {
    flags & MODE >= SEALED
}

/// Bytes of a manifest: a sealed one is told by the text before its digest.
pub fn manifest(flags: u8, data: &[u8]) -> Vec<u8> {
    if is_sealed(flags) { seal::manifest(data) } else { data.to_vec() }
}

/// A directory of its own in memory, where the system has one, that goes away when it is dropped.
pub fn scratch() -> Scratch {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let name = format!("indexmill-fuzz-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = base.join(name);
    fs::create_dir_all(&path).expect("a place for the inputs");
    Scratch(path)
}

/// Writes the page file `name` into a directory of its own; returns the directory, also as it was opened, and the file.
pub fn write_page_file(name: &str, data: &[u8]) -> (Scratch, Directory, PathBuf) {
    let (flags, data) = split_flags(data);
    let scratch = scratch();
    let path = scratch.0.join(name);
    fs::write(&path, page_file(flags, data)).expect("a place for the inputs");
    let directory = Directory::open(&scratch.0).expect("it was just made");
    (scratch, directory, path)
}

/// Writes a directory of the files `names`, the manifest first.
pub fn write_parts(names: &[&'static str], flags: u8, mut data: &[u8]) -> Scratch {
    let scratch = scratch();
    let mut parts: Vec<(&str, &[u8])> = names.iter().map_while(|&name| Some((name, take_block(&mut data)?))).collect();
    parts.retain(|(_, part)| !part.is_empty());
    let files = parts.iter().filter(|(name, _)| *name != MANIFEST_NAME);
    let mut files: Vec<(&str, Vec<u8>)> = files.map(|&(name, part)| (name, page_file(flags, part))).collect();
    if is_sealed(flags) {
        write_directory(&scratch.0, &mut files);
    } else {
        files.iter().for_each(|(name, bytes)| write(&scratch.0, name, bytes));
    }
    let is_own = !is_sealed(flags) || flags & OWN_MANIFEST != 0;
    if let Some((name, part)) = parts.first().filter(|(name, _)| is_own && *name == MANIFEST_NAME) {
        write(&scratch.0, name, &manifest(flags, part));
    }
    scratch
}

fn write(directory: &Path, name: &str, bytes: &[u8]) {
    fs::write(directory.join(name), bytes).expect("a place for the inputs");
}

/// Passes a result on, if an error about bytes names the file or directory at `path`.
pub fn named<T>(path: &Path, result: Result<T>) -> Result<T> {
    if let Err(
        error @ (Error::Corrupt(_) | Error::TooOld(_) | Error::TooNew(_) | Error::Foreign(_) | Error::Io { .. }),
    ) = &result
    {
        let text = error.to_string();
        assert!(text.contains(&*path.to_string_lossy()), "an error that does not name {}: {text}", path.display());
    }
    result
}
