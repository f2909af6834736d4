//! Bad bytes give an error that names the place: never a panic, never a wrong answer.

use std::fs;
use std::path::Path;

use crate::common::ivf::{IvfSpec, PQ, write_ivf};
use crate::common::{Random, Spec, page_file, seal_page, write_directory, write_index, write_manifest};
use indexmill_core::codes::CodeTable;
use indexmill_core::graph::navigation::NavigationSearch;
use indexmill_core::graph::{Entry, Policy, SearchParams};
use indexmill_core::pagefile::PageFile;
use indexmill_core::search::{Queries, Values};
use indexmill_core::verify::verify;
use indexmill_core::{Error, Index, IvfIndex, Result};

const FILES: [&str; 6] = ["codes.imx", "entries.imx", "graph.imx", "ids.imx", "navigation.imx", "manifest.json"];
/// All but the manifest.
const PAGE_FILES: &[&str] = FILES.split_at(5).0;

/// Opens, searches for a few vectors and looks up ids: everything a caller does with an index.
fn use_index(path: &Path) -> Result<()> {
    let index = Index::open(path, "pread")?;
    let dim = index.graph.user_dim();
    let n = index.graph.layout().n_vertices;
    let floats = vec![0.5f32; 2 * dim];
    let bytes = vec![1u8; 2 * dim];
    let signed = vec![1i8; 2 * dim];
    let values = match index.graph.layout().dtype.query_name() {
        "uint8" => Values::Uint8(&bytes),
        "int8" => Values::Int8(&signed),
        _ => Values::Float32(&floats),
    };
    for policy in [Policy::Beam, Policy::Page] {
        let (entry, threads, inflight) = (Entry::Medoid, 1, 2);
        let params = SearchParams::new(1)
            .list_size(n as usize)
            .beam_width(4)
            .policy(policy)
            .entry(entry)
            .threads(threads)
            .inflight(inflight)
            .deterministic(true);
        index.search(&Queries { values, n: 2, dim }, &params)?;
    }
    if let Some(navigation) = &index.navigation {
        let (mut table, mut out) = (CodeTable::default(), Vec::new());
        index.codes.fill_table(&vec![0.5; index.graph.layout().dim], &mut table)?;
        navigation.search(&index.codes, &mut table, navigation.len(), &mut NavigationSearch::default(), &mut out);
        assert!(out.iter().all(|&key| (key as u32) < n));
    }
    index.ids.user_ids(&(0..n.min(1000)).collect::<Vec<u32>>()).map(drop)
}

fn flip(path: &Path, at: usize, mask: u8) -> Vec<u8> {
    let original = fs::read(path).unwrap();
    let mut bytes = original.clone();
    bytes[at] ^= mask;
    fs::write(path, bytes).unwrap();
    original
}

#[test]
fn a_sound_index_has_no_damage() {
    for id_type in 0..=4 {
        let written = write_index(Spec { id_type, ..Spec::default() });
        assert_eq!(verify(written.path()), Vec::<String>::new());
    }
}

#[test]
fn verify_finds_a_flipped_bit_in_any_page_of_any_file() {
    let written = write_index(Spec { n: 200, id_type: 3, ..Spec::default() });
    let mut random = Random(11);
    for name in FILES {
        let path = written.path().join(name);
        let len = fs::metadata(&path).unwrap().len() as usize;
        for page in 0..len.div_ceil(4096) {
            for _ in 0..4 {
                let at = (page * 4096 + random.below(4096)).min(len - 1);
                let original = flip(&path, at, 1 << random.below(8));
                let found = verify(written.path());
                assert!(!found.is_empty(), "{name}, offset {at}");
                assert!(found.iter().any(|m| m.contains(name)), "{name}, offset {at}: {found:?}");
                fs::write(&path, original).unwrap();
            }
        }
    }
    assert!(verify(written.path()).is_empty());
}

#[test]
fn verify_names_a_missing_file_and_a_missing_manifest() {
    for name in FILES {
        let written = write_index(Spec { n: 20, ..Spec::default() });
        fs::remove_file(written.path().join(name)).unwrap();
        let found = verify(written.path());
        assert!(found.len() == 1 && found[0].contains(name) && found[0].contains("no such file"), "{found:?}");
    }
}

#[test]
fn mutated_files_never_panic_and_flips_that_matter_are_errors() {
    let written = write_index(Spec { n: 150, id_type: 3, ..Spec::default() });
    let mut random = Random(12);
    for name in FILES {
        let path = written.path().join(name);
        let len = fs::metadata(&path).unwrap().len() as usize;
        for _ in 0..60 {
            let original = flip(&path, random.below(len), 1 + random.below(255) as u8);
            use_index(written.path()).ok();
            let cut = random.below(len + 1);
            fs::write(&path, &original[..cut]).unwrap();
            assert!(cut == len || use_index(written.path()).is_err(), "{name} cut at {cut}");
            fs::write(&path, original).unwrap();
        }
    }
    use_index(written.path()).unwrap();
}

/// Header values that are sealed again pass the CRC, so only the range checks stand in the way.
#[test]
fn mutated_and_sealed_headers_never_panic() {
    let written = write_index(Spec { n: 150, id_type: 4, ..Spec::default() });
    let mut random = Random(13);
    for name in PAGE_FILES {
        let path = written.path().join(name);
        let original = fs::read(&path).unwrap();
        for _ in 0..400 {
            let mut bytes = original.clone();
            let word = 12 + 4 * random.below(100);
            let value = match random.below(5) {
                0 => 0,
                1 => u32::MAX,
                2 => 1 << random.below(32),
                3 => random.below(300) as u32,
                _ => random.next() as u32,
            };
            bytes[word..word + 4].copy_from_slice(&value.to_le_bytes());
            seal_page(&mut bytes[..4096]);
            fs::write(&path, bytes).unwrap();
            use_index(written.path()).ok();
        }
        fs::write(&path, original).unwrap();
    }
}

/// Data pages that are changed with valid checksums: what a stranger may send.
#[test]
fn sealed_nonsense_in_data_pages_never_panics() {
    let mut random = Random(14);
    for round in 0..60 {
        let written = write_index(Spec { n: 60, id_type: 1 + round % 4, seed: round, ..Spec::default() });
        let mut files: Vec<(&str, Vec<u8>)> =
            PAGE_FILES.iter().map(|&n| (n, fs::read(written.path().join(n)).unwrap())).collect();
        let bytes = &mut files[round as usize % PAGE_FILES.len()].1;
        let data_pages = bytes.len() / 4096 - 3;
        for _ in 0..40 {
            let at = 4096 + 4 * random.below(data_pages * 1024);
            let value = if random.below(2) == 0 { random.next() as u32 } else { u32::MAX - random.below(9) as u32 };
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        reseal(bytes);
        write_directory(written.path(), &mut files);
        use_index(written.path()).ok();
        verify(written.path());
    }
}

/// Recomputes section "crc" and the footer.
fn reseal(bytes: &mut [u8]) {
    let n_pages = bytes.len() / 4096;
    let crc_pages = 1;
    for page in 1..n_pages - 1 - crc_pages {
        let crc = crc32c::crc32c(&bytes[page * 4096..(page + 1) * 4096]);
        let at = (n_pages - 1 - crc_pages) * 4096 + 4 * (page - 1);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
    let crc = crc32c::crc32c(&bytes[(n_pages - 2) * 4096..(n_pages - 1) * 4096]);
    let footer = &mut bytes[(n_pages - 1) * 4096..];
    footer[16..20].copy_from_slice(&crc.to_le_bytes());
    seal_page(footer);
}

#[test]
fn a_neighbour_that_is_no_slot_names_file_and_page() {
    let written = write_index(Spec { n: 60, ..Spec::default() });
    let mut files: Vec<(&str, Vec<u8>)> =
        PAGE_FILES.iter().map(|&n| (n, fs::read(written.path().join(n)).unwrap())).collect();
    let graph = &mut files[2].1;
    graph[4096 + 48 + 4..][..4].copy_from_slice(&60u32.to_le_bytes());
    reseal(graph);
    write_directory(written.path(), &mut files);
    for message in [use_index(written.path()).unwrap_err().to_string(), verify(written.path()).concat()] {
        assert!(message.contains("graph.imx: page 1: slot 0: expected neighbours below 60, got 60"), "{message}");
    }
}

/// Each of many slots could otherwise claim the whole section: a small file that asks for a lot of memory.
#[test]
fn string_ids_that_share_bytes_are_damage() {
    let written = write_index(Spec { n: 20, id_type: 3, ..Spec::default() });
    let mut files: Vec<(&str, Vec<u8>)> =
        FILES[..4].iter().map(|&n| (n, fs::read(written.path().join(n)).unwrap())).collect();
    let ids = &mut files[3].1;
    let offsets = &mut ids[2 * 4096..];
    let all: [u8; 8] = offsets[20 * 8..][..8].try_into().unwrap();
    for (slot, end) in [all, [0; 8], all].into_iter().enumerate() {
        offsets[8 * (slot + 1)..][..8].copy_from_slice(&end);
    }
    reseal(ids);
    write_directory(written.path(), &mut files);
    let index = Index::open(written.path(), "pread").unwrap();
    assert_eq!(index.ids.user_ids(&[2, 2]).unwrap().len(), 2, "one slot twice is no damage");
    let message = index.ids.user_ids(&[2, 0]).unwrap_err().to_string();
    assert!(message.contains("ids.imx: user id of slot 2: expected a range within"), "{message}");
}

#[test]
fn random_bytes_are_not_an_index() {
    let written = write_index(Spec { n: 20, ..Spec::default() });
    let mut random = Random(15);
    for len in [0usize, 1, 80, 81, 4096, 8192, 12288] {
        for name in FILES {
            let path = written.path().join(name);
            let original = fs::read(&path).unwrap();
            fs::write(&path, (0..len).map(|_| random.next() as u8).collect::<Vec<u8>>()).unwrap();
            assert!(use_index(written.path()).is_err());
            fs::write(&path, original).unwrap();
        }
    }
}

#[test]
fn versions_kinds_and_magics_are_told_apart() {
    let written = write_index(Spec { n: 20, ..Spec::default() });
    let path = written.path().join("entries.imx");
    let original = fs::read(&path).unwrap();
    let open = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = original.clone();
        change(&mut bytes);
        seal_page(&mut bytes[..4096]);
        fs::write(&path, bytes).unwrap();
        PageFile::open(&path, b"ENTR").map(drop)
    };
    assert!(open(&|_| {}).is_ok());
    assert!(open(&|b| b[14] = 9).is_ok(), "a higher minor is read");
    assert!(matches!(open(&|b| b[12] = 2), Err(Error::TooNew(_))));
    assert!(matches!(open(&|b| b[12] = 0), Err(Error::TooOld(_))));
    assert!(matches!(open(&|b| b[0] = 0), Err(Error::Foreign(_))));
    assert!(matches!(open(&|b| b[8] = b'X'), Err(Error::Corrupt(_))));
    assert!(matches!(open(&|b| b[32] = 1), Err(Error::Corrupt(_))));
    assert!(matches!(open(&|b| b.truncate(4096)), Err(Error::Foreign(_))));
    assert!(matches!(open(&|b| b.extend([0; 4096])), Err(Error::Corrupt(_))));
}

#[test]
fn a_manifest_cannot_point_outside_its_directory() {
    let written = write_index(Spec { n: 20, ..Spec::default() });
    let text = fs::read_to_string(written.path().join("manifest.json")).unwrap();
    let body = &text[..text.len() - 81];
    for name in ["../ids.imx", "a/b", "/etc/passwd", ".hidden", "", "a\\\\b", "\\u00e4"] {
        write_manifest(written.path(), &body.replace("ids.imx", name));
        assert!(matches!(Index::open(written.path(), "auto"), Err(Error::Corrupt(_))), "{name}");
    }
    write_manifest(written.path(), &body.replace("\"major\": 1", "\"major\": 2"));
    assert!(Index::open(written.path(), "auto").is_ok());
    write_manifest(written.path(), &body.replace("\"major\": 1", "\"major\": 5"));
    assert!(matches!(Index::open(written.path(), "auto"), Err(Error::TooNew(_))));
    write_manifest(written.path(), &body.replace("\"graph\"", "\"tree\""));
    assert!(matches!(Index::open(written.path(), "auto"), Err(Error::TooNew(_))));
    write_manifest(written.path(), &body.replace("\"indexmill\"", "\"other\""));
    assert!(matches!(Index::open(written.path(), "auto"), Err(Error::Foreign(_))));
}

/// Such an index would answer by codes.
#[test]
fn a_manifest_that_keeps_exact_vectors_and_lists_no_file_of_them_is_refused() {
    let state = |path: &Path, parameters: &str| {
        let text = fs::read_to_string(path.join("manifest.json")).unwrap();
        let body = &text[..text.len() - 81];
        write_manifest(path, &body.replace("\"build_id\"", &format!("\"parameters\": {parameters},\n  \"build_id\"")));
        body.to_owned()
    };
    let graph = write_index(Spec { n: 20, ..Spec::default() });
    let lists = |with_vectors| write_ivf(IvfSpec { codec: PQ, with_vectors, ..IvfSpec::default() });
    let (kept, lost) = (lists(true), lists(false));
    let open_graph = |path: &Path| Index::open(path, "pread").map(drop);
    let open_lists = |path: &Path| IvfIndex::open(path, "pread").map(drop);
    for (path, open) in [(graph.path(), open_graph as fn(&Path) -> Result<()>), (lost.path(), open_lists)] {
        for (parameters, words) in [
            (
                "{\"keep_vectors\": true}",
                "manifest.json: files: expected an entry for vectors.imx, as \"keep_vectors\"",
            ),
            ("{\"keep_vectors\": 1}", "manifest.json: text: expected JSON with the keys of a manifest"),
        ] {
            let body = state(path, parameters);
            let error = open(path).unwrap_err();
            assert!(matches!(error, Error::Corrupt(_)) && error.to_string().contains(words), "{error}");
            assert_eq!(verify(path), [error.to_string()]);
            write_manifest(path, &body);
        }
        state(path, "{\"metric\": \"l2\", \"keep_vectors\": false}");
        open(path).unwrap();
    }
    state(kept.path(), "{\"keep_vectors\": true}");
    open_lists(kept.path()).unwrap();
    assert_eq!(verify(kept.path()), [""; 0]);
}

#[test]
fn a_file_of_another_build_is_refused() {
    let (a, b) = (write_index(Spec::default()), write_index(Spec { seed: 2, ..Spec::default() }));
    fs::copy(b.path().join("entries.imx"), a.path().join("entries.imx")).unwrap();
    let error = Index::open(a.path(), "auto").err().unwrap().to_string();
    assert!(error.contains("build id"), "{error}");
}

#[test]
fn sections_that_do_not_fit_the_file_are_refused_before_anything_is_allocated() {
    let written = write_index(Spec { n: 20, ..Spec::default() });
    let path = written.path().join("other.imx");
    let mut bytes = page_file(b"TEST", &[0; 16], &[], &[("a", vec![1; 5000])]);
    for (pages, payload) in [(u64::MAX, u64::MAX), (1 << 52, 1 << 63), (1 << 40, 1 << 52), (3, 12288)] {
        bytes[64 + 24..][..8].copy_from_slice(&pages.to_le_bytes());
        bytes[64 + 32..][..8].copy_from_slice(&payload.to_le_bytes());
        seal_page(&mut bytes[..4096]);
        fs::write(&path, &bytes).unwrap();
        assert!(matches!(PageFile::open(&path, b"TEST"), Err(Error::Corrupt(_))), "{pages}");
    }
}

#[test]
#[should_panic(expected = "left: 0")]
fn a_query_without_components_is_near_no_entry() {
    let written = write_index(Spec { n: 20, ..Spec::default() });
    Index::open(written.path(), "auto").unwrap().entries.nearest(&[]);
}
