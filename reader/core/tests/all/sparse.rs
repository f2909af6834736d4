//! Headers that promise far more than their files take on disk: they get an error, not memory.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::common::{Scratch, Spec, page_file, seal_page, write_index, write_manifest};
use crate::deleted::deletion::Deletion;
use indexmill_core::directory::Directory;
use indexmill_core::graph::Graph;
use indexmill_core::ids::Ids;
use indexmill_core::living::Living;
use indexmill_core::manifest;
use indexmill_core::pagefile::PageFile;
use indexmill_core::{Error, Index};

const PAGE: u64 = 4096;

/// A page file with a section "a" of so many pages that are holes; see [`write_holes`].
fn write_sparse(path: &Path, pages: u64, value: u8) {
    write_holes(path, b"TEST", &[], "a", pages, value);
}

/// A page file of this kind with fields and a section of so many pages that are holes. Checksums are bytes of one value;
/// those of value 0 are a hole, too.
fn write_holes(path: &Path, kind: &[u8; 4], fields: &[(&str, u64)], section: &str, pages: u64, value: u8) {
    let mut header = page_file(kind, &[0; 16], fields, &[(section, vec![0; 4096])])[..4096].to_vec();
    let checksum_pages = (4 * pages).div_ceil(PAGE);
    let file_bytes = (1 + pages + checksum_pages + 1) * PAGE;
    header[40..48].copy_from_slice(&file_bytes.to_le_bytes());
    for (i, entry) in [[1, pages, pages * PAGE], [1 + pages, checksum_pages, 4 * pages]].into_iter().enumerate() {
        let words = entry.map(u64::to_le_bytes).concat();
        header[64 + 40 * i + 16..][..24].copy_from_slice(&words);
    }
    seal_page(&mut header);
    let file = File::create(path).unwrap();
    file.set_len(file_bytes).unwrap();
    file.write_all_at(&header, 0).unwrap();
    let (piece, mut crc) = (vec![value; 4096], 0);
    for page in 0..checksum_pages {
        crc = crc32c::crc32c_append(crc, &piece);
        if value > 0 {
            file.write_all_at(&piece, (1 + pages + page) * PAGE).unwrap();
        }
    }
    let mut footer = vec![0u8; 4096];
    footer[..8].copy_from_slice(b"IMILLEND");
    footer[8..16].copy_from_slice(&file_bytes.to_le_bytes());
    footer[16..20].copy_from_slice(&crc.to_le_bytes());
    seal_page(&mut footer);
    file.write_all_at(&footer, file_bytes - PAGE).unwrap();
}

/// Most memory that this process has taken so far, in MiB.
#[cfg(target_os = "linux")]
fn peak_mib() -> u64 {
    status_mib("VmHWM:")
}

/// Memory that this process takes now, in MiB.
#[cfg(target_os = "linux")]
fn taken_mib() -> u64 {
    status_mib("VmRSS:")
}

#[cfg(target_os = "linux")]
fn status_mib(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
fn checksums_that_are_a_hole_are_refused() {
    let scratch = Scratch::new();
    let path = scratch.0.join("hole.imx");
    write_sparse(&path, 1 << 22, 0);
    let file = PageFile::open(&path, b"TEST").unwrap();
    let error = file.load_checksums(&mut || false).unwrap_err().to_string();
    assert!(error.contains("hole.imx: page 4194305: expected checksums, got zeros alone"), "{error}");
    let error = file.read_alone(&file.section("a", None).unwrap(), &mut || false).unwrap_err().to_string();
    assert!(error.contains("hole.imx: page 1: expected CRC32C 00000000"), "{error}");
}

#[test]
fn few_pages_of_zeros_may_have_checksums_of_zero() {
    let scratch = Scratch::new();
    let path = scratch.0.join("few.imx");
    write_sparse(&path, 1023, 0);
    assert_eq!(PageFile::open(&path, b"TEST").unwrap().load_checksums(&mut || false).unwrap(), [0; 1023]);
}

#[test]
#[cfg(target_os = "linux")]
fn a_section_of_holes_takes_no_memory_before_its_pages_are_checked() {
    let scratch = Scratch::new();
    let path = scratch.0.join("holes.imx");
    write_sparse(&path, 1 << 19, 0x5a);
    let file = PageFile::open(&path, b"TEST").unwrap();
    let (checksums, section) = (file.load_checksums(&mut || false).unwrap(), file.section("a", Some(2 << 30)).unwrap());
    assert_eq!(checksums.len(), 1 << 19);
    let before = peak_mib();
    for read in [file.read_section(&section, &checksums, &mut || false), file.read_alone(&section, &mut || false)] {
        let error = read.unwrap_err().to_string();
        assert!(error.contains("holes.imx: page 1: expected CRC32C 5a5a5a5a"), "{error}");
    }
    let more = peak_mib() - before;
    assert!(more < 1024, "{more} MiB for a section of 2 GiB that is not there");
}

#[test]
#[cfg(target_os = "linux")]
fn a_simulated_device_copies_no_file_before_its_header_was_checked() {
    let written = write_index(Spec { n: 20, ..Spec::default() });
    let (path, large) = (written.path().join("graph.imx"), 4u64 << 30);
    let named = |bytes: u64| format!("\"name\": \"graph.imx\", \"bytes\": {bytes},");
    let sound = named(fs::metadata(&path).unwrap().len());
    let manifest = fs::read_to_string(written.path().join("manifest.json")).unwrap();
    let (body, _) = manifest.split_once("  \"digest\"").unwrap();
    assert!(body.contains(&sound));
    write_manifest(written.path(), &body.replace(&sound, &named(large)));
    File::options().write(true).open(&path).unwrap().set_len(large).unwrap();
    let before = peak_mib();
    let engine = concat!("simulated:", env!("CARGO_MANIFEST_DIR"), "/tests/data/quick-device.json");
    let error = Index::open(written.path(), engine).err().unwrap();
    assert!(matches!(error, Error::Corrupt(_)) && error.to_string().contains("size of the file"), "{error}");
    let more = peak_mib() - before;
    assert!(more < 1024, "{more} MiB for a file of 4 GiB that is not there");
}

#[test]
#[cfg(target_os = "linux")]
fn slots_of_vector_ids_take_no_memory_before_their_pages_are_checked() {
    let scratch = Scratch::new();
    let (path, pages) = (scratch.0.join("ids.imx"), 1u64 << 20);
    let n = pages * 1024;
    write_holes(&path, b"IDMP", &[("n_vertices", n), ("id_type", 0)], "vector_ids", pages, 0x5a);
    let ids = Ids::open(&Directory::open(&scratch.0).unwrap(), n).unwrap();
    let before = peak_mib();
    let error = ids.inverse(&mut || false).unwrap_err().to_string();
    assert!(error.contains("ids.imx: page 1: expected CRC32C 5a5a5a5a"), "{error}");
    let more = peak_mib() - before;
    assert!(more < 1024, "{more} MiB for the slots of {n} vector ids that are not there");
}

#[test]
#[cfg(target_os = "linux")]
fn deletions_take_memory_where_slots_are_deleted() {
    let written = write_index(Spec { n: 20, ..Spec::default() });
    let (n, gone) = (u32::MAX, 1 << 31);
    Deletion::new(n as usize, &[gone]).write(written.path());
    let directory = Directory::open(written.path()).unwrap();
    let manifest = manifest::read(&directory).unwrap();
    let before = taken_mib();
    let living = Living::open(&directory, &manifest, n, &mut || false).unwrap().unwrap();
    let more = taken_mib().saturating_sub(before);
    assert!(more < 256, "{more} MiB for a deleted slot of {n}");
    let (slots, others) = (living.slots(), [0, gone - 1, gone + 1, n - 1]);
    assert_eq!((living.n_deleted(), slots.len(), slots.contains(gone)), (1, n - 1, false));
    assert!(others.into_iter().all(|slot| slots.contains(slot)) && !slots.contains(n));
}

#[test]
fn more_dimensions_than_any_vector_has_are_refused() {
    let written = write_index(Spec { n: 20, ..Spec::default() });
    let path = written.path().join("graph.imx");
    let sound = fs::read(&path).unwrap();
    let at = sound.windows(4).position(|bytes| bytes == b"dim\0").unwrap() + 16;
    for dim in [0u64, 65_537, 1 << 32, u64::MAX] {
        let mut bytes = sound.clone();
        bytes[at..at + 8].copy_from_slice(&dim.to_le_bytes());
        seal_page(&mut bytes[..4096]);
        fs::write(&path, bytes).unwrap();
        let error = Graph::open(&Directory::open(written.path()).unwrap(), &mut || false).unwrap_err().to_string();
        let words = format!("graph.imx: field \"dim\" in the header: expected 1..65536, got {dim};");
        assert!(error.contains(&words), "{error}");
    }
}
