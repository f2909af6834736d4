//! The committed inputs from which fuzzing starts: small valid files of every type.

use std::fs;
use std::path::{Path, PathBuf};

use indexmill_core::manifest::MANIFEST_NAME;
use indexmill_core::pagefile::PAGE_BYTES;

use crate::common::ivf::{IvfSpec, OPQ, PQ, RABITQ, write_ivf};
use crate::common::lsh::{LshSpec, write_lsh};
use crate::common::{FLOAT16, FLOAT32, INT8, SQ8, SQ16, Spec, UINT8, add_exact, page_file, write_index};
use crate::directory::{CACHE, FILTER, LABEL, RANGE, REMAPPED, TRACE};
use crate::input::{DELETED, FITTED, IVF_PARTS, LSH_PARTS, OWN_MANIFEST, PAGES, PARTS, RAW, SEALED, put_block};
use crate::queries::{LATER, MAPPED};

/// An input that its target must accept.
pub struct Seed {
    /// Name of the target.
    pub target: &'static str,
    /// Name of the file in `seeds/<target>`; those that a fuzzer found start otherwise.
    pub name: String,
    /// The input.
    pub bytes: Vec<u8>,
}

/// What the names of generated seeds start with.
pub const VALID: &str = "valid-";

/// Bytes of a manifest from its digest on.
const TAIL_BYTES: usize = 81;
const IP: u64 = 2;
const COSINE: u64 = 3;
const SMALL: Spec =
    Spec { n: 24, dim: 5, dtype: FLOAT32, max_degree: 4, id_type: 0, n_sample: 5, with_codes: false, seed: 1 };

/// Files of an index.
type Files = Vec<(&'static str, Vec<u8>)>;

/// Where the committed inputs of a target are.
pub fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target)
}

/// Every generated seed.
pub fn all() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let dtypes =
        [("float32", FLOAT32), ("float16", FLOAT16), ("uint8", UINT8), ("int8", INT8), ("sq16", SQ16), ("sq8", SQ8)];
    for (id_type, (name, dtype)) in dtypes.into_iter().enumerate() {
        let spec = Spec { dtype, id_type: id_type as u64 % 5, ..SMALL };
        add(&mut seeds, name, &["graph.imx", "ids.imx"], spec, None);
    }
    add(&mut seeds, "ip", &["graph.imx"], SMALL, Some(IP));
    add(&mut seeds, "cosine", &["graph.imx"], Spec { dtype: SQ8, ..SMALL }, Some(COSINE));
    let single = Spec { n: 1, dim: 1, max_degree: 1, id_type: 3, n_sample: 1, ..SMALL };
    add(&mut seeds, "one-vertex", &PARTS, single, None);
    let large = Spec { n: 2, dim: 512, max_degree: 512, n_sample: 1, ..SMALL }; // nodes of 4,100 bytes
    add(&mut seeds, "node-of-two-pages", &["graph.imx"], large, None);
    let with_codes = Spec { n: 60, dim: 40, n_sample: 0, with_codes: true, ..SMALL };
    add(&mut seeds, "codes-in-nodes", &["graph.imx"], with_codes, None);
    let many = Spec { n: 300, dim: 2, dtype: UINT8, max_degree: 2, ..SMALL };
    add(&mut seeds, "all-centres", &["codes.imx"], many, None);
    let rotated = include_bytes!("../../../tests/golden/v1_3_rotated/codes.imx");
    push(&mut seeds, "codes", "rotated", &[FITTED], &content_pages(rotated));
    add_modes(&mut seeds, &index(Spec { id_type: 4, ..SMALL }, None));
    add_ways(&mut seeds);
    add_lsh(&mut seeds);
    add_ivf(&mut seeds);
    add_deleted(&mut seeds);
    push(&mut seeds, "profile", "device", &[], include_bytes!("../../core/tests/data/quick-device.json"));
    seeds
}

/// Seeds of the named files alone and of the directory, with checksums that are computed.
fn add(seeds: &mut Vec<Seed>, name: &str, alone: &[&str], spec: Spec, metric: Option<u64>) {
    let files = &index(spec, metric);
    for (file, bytes) in files.iter().filter(|(file, _)| alone.contains(file) && *file != MANIFEST_NAME) {
        push(seeds, target_of(file), name, &[FITTED], &content_pages(bytes));
    }
    let parts = directory(&PARTS, files, content_pages, without_digest);
    push(seeds, "verify", name, &[FITTED], &parts);
    push(seeds, "search", name, &[0, spec.n.min(3) as u8, 20, 4, 1, 2, 2, 1], &parts);
}

/// Seeds of every kind of search, and of graphs with exact vectors, or with deletions.
fn add_ways(seeds: &mut Vec<Seed>) {
    let (plain, exact) = (index(SMALL, None), with_exact_vectors(Spec { dtype: SQ8, n_sample: 0, ..SMALL }));
    let with_navigation = with_exact_vectors(Spec { dtype: SQ16, ..SMALL });
    let (deleted, exact_deleted) = (with_deletions(&plain, SMALL.n), with_deletions(&exact, SMALL.n));
    for (name, files, flags) in [
        ("range", &plain, RANGE),
        ("range-later", &plain, RANGE | LATER),
        ("filter", &plain, FILTER),
        ("label", &plain, LABEL),
        ("remapped", &plain, REMAPPED),
        ("cache", &plain, CACHE),
        ("trace", &plain, TRACE | CACHE),
        ("later", &plain, LATER),
        ("mapped", &plain, MAPPED),
        ("deleted", &deleted, 0),
        ("deleted-filter", &deleted, FILTER),
        ("deleted-label", &deleted, LABEL),
        ("deleted-range", &deleted, RANGE),
        ("deleted-remapped", &deleted, REMAPPED),
        ("exact", &exact, 0),
        ("exact-range", &exact, RANGE),
        ("exact-remapped", &exact, REMAPPED),
        ("exact-navigation", &with_navigation, TRACE),
        ("exact-deleted", &exact_deleted, 0),
    ] {
        // By byte 8, queries lie among the vectors, and the radius reaches some of these.
        let parts = directory(&PARTS, files, content_pages, without_digest);
        push(seeds, "search", name, &[flags, 3, 20, 4, 1, 2, 2, 8], &parts);
        if ["deleted", "exact", "exact-navigation", "exact-deleted"].contains(&name) {
            push(seeds, "verify", name, &[FITTED], &parts);
        }
    }
}

/// A graph of codes, with the vectors that they stand for.
fn with_exact_vectors(spec: Spec) -> Files {
    let written = write_index(spec);
    add_exact(&written, &written.vectors);
    read(written.path(), &PARTS)
}

/// The same without every third of its `n` vectors.
fn with_deletions(files: &Files, n: usize) -> Files {
    let slots: Vec<u32> = (0..n as u32).step_by(3).collect();
    let deleted = (DELETED, deletions(n as u64, &slots));
    files.iter().cloned().chain([deleted]).collect()
}

/// A file of deletions.
fn deletions(n: u64, slots: &[u32]) -> Vec<u8> {
    let payload = slots.iter().flat_map(|slot| slot.to_le_bytes()).collect();
    let fields = [("n_vertices", n), ("n_deleted", slots.len() as u64)];
    page_file(b"DELS", &[7; 16], &fields, &[("slots", payload)])
}

/// The files of these names that a directory has.
fn read(path: &Path, names: &[&'static str]) -> Files {
    let there = names.iter().filter(|name| path.join(name).exists());
    there.map(|&name| (name, fs::read(path.join(name)).expect("it was just written"))).collect()
}

/// Seeds of indexes of kind "lsh".
fn add_lsh(seeds: &mut Vec<Seed>) {
    let small = LshSpec {
        n: 60,
        dim: 3,
        n_functions: 2,
        n_tables: 2,
        n_radii: 2,
        hash_bits: 2,
        scattered: true,
        ..LshSpec::default()
    };
    for (name, spec) in [
        ("float32", small),
        ("uint8", LshSpec { dtype: UINT8, block_bytes: 512, ..small }),
        ("ip", LshSpec { metric: IP, hash_bits: 5, ..small }),
        ("one-vector", LshSpec { n: 1, hash_bits: 0, n_radii: 1, ..small }),
        ("row-of-two-pages", LshSpec { n: 2, dim: 1200, dtype: FLOAT32, ..small }),
        ("added", LshSpec { n_added: 9, ..small }),
    ] {
        let files = read(write_lsh(spec).path(), &LSH_PARTS);
        for (file, bytes) in files.iter().filter(|(file, _)| ["functions.imx", "vectors.imx"].contains(file)) {
            push(seeds, target_of(file), name, &[FITTED], &content_pages(bytes));
            push(seeds, target_of(file), &format!("{name}-pages"), &[PAGES], &whole_pages(bytes));
        }
        let mut push_search = |name: &str, files: &Files, flags: u8| {
            let parts = directory(&LSH_PARTS, files, content_pages, without_digest);
            push(seeds, "lsh", name, &[flags, spec.n.min(3) as u8, 40, 2, 2, 1], &parts);
        };
        push_search(name, &files, 0);
        if spec.n_added > 0 {
            push_search("added-later", &files, LATER | MAPPED);
            push_search("added-deleted", &with_deletions(&files, spec.n), 0);
        }
    }
}

/// Seeds of indexes of kind "ivf".
fn add_ivf(seeds: &mut Vec<Seed>) {
    let small = IvfSpec { n: 60, dim: 3, n_lists: 4, ..IvfSpec::default() };
    let everything = IvfSpec { codec: PQ, copies: 2, with_graph: true, with_vectors: true, ..small };
    for (name, spec) in [
        ("float32", small),
        ("uint8", IvfSpec { dtype: UINT8, ..small }),
        ("sq8", IvfSpec { codec: 1, with_vectors: true, ..small }),
        ("rabitq", IvfSpec { codec: RABITQ, with_vectors: true, ..small }),
        ("opq", IvfSpec { codec: OPQ, with_vectors: true, ..small }),
        ("everything", everything),
        ("one-list", IvfSpec { n_lists: 1, n_batches: 1, ..small }),
        ("three-batches", IvfSpec { n_batches: 3, ..small }),
    ] {
        let files = read(write_ivf(spec).path(), &IVF_PARTS);
        for (file, bytes) in files.iter().filter(|(file, _)| *file == "centroids.imx") {
            push(seeds, target_of(file), name, &[FITTED], &content_pages(bytes));
            push(seeds, target_of(file), &format!("{name}-pages"), &[PAGES], &whole_pages(bytes));
        }
        let mut push_search = |name: &str, files: &Files, flags: u8| {
            let parts = directory(&IVF_PARTS, files, content_pages, without_digest);
            push(
                seeds,
                "ivf",
                name,
                &[flags, 3, spec.n_lists.min(2) as u8, 20 * u8::from(spec.with_vectors), 2, 1],
                &parts,
            );
        };
        push_search(name, &files, 0);
        if spec.copies > 1 {
            push_search("everything-later", &files, LATER | MAPPED);
            push_search("everything-deleted", &with_deletions(&files, spec.n), 0);
        }
    }
}

/// Seeds of files of deletions: one vector of many, every other one in more slots than a page holds, and all.
fn add_deleted(seeds: &mut Vec<Seed>) {
    let every_other: Vec<u32> = (0..1100).map(|i| 2 * i).collect();
    for (name, n, slots) in [("one", 300, vec![299]), ("every-other", 2200, every_other), ("all", 3, vec![0, 1, 2])] {
        let file = deletions(n, &slots);
        push(seeds, "deleted", name, &[FITTED], &content_pages(&file));
        push(seeds, "deleted", &format!("{name}-pages"), &[PAGES], &whole_pages(&file));
    }
}

/// Seeds of the other modes, which differ in the frame alone.
fn add_modes(seeds: &mut Vec<Seed>, files: &Files) {
    for (file, bytes) in files.iter().filter(|(file, _)| *file != MANIFEST_NAME) {
        push(seeds, target_of(file), "sealed", &[SEALED], &content_pages(bytes));
        push(seeds, target_of(file), "pages", &[PAGES], &whole_pages(bytes));
    }
    let text = &files[0].1;
    push(seeds, "manifest", "raw", &[RAW], text);
    push(seeds, "manifest", "sealed", &[SEALED], &without_digest(text));
    push(seeds, "verify", "pages", &[PAGES], &directory(&PARTS, files, whole_pages, <[u8]>::to_vec));
    let parts = directory(&PARTS, files, content_pages, without_digest);
    push(seeds, "verify", "own-manifest", &[FITTED | OWN_MANIFEST], &parts);
}

fn push(seeds: &mut Vec<Seed>, target: &'static str, name: &str, head: &[u8], rest: &[u8]) {
    seeds.push(Seed { target, name: format!("{VALID}{name}"), bytes: [head, rest].concat() });
}

fn target_of(file: &'static str) -> &'static str {
    file.strip_suffix(".imx").expect("a page file")
}

/// Writes an index, under another metric if one is given, and reads it back.
fn index(spec: Spec, metric: Option<u64>) -> Files {
    let mut files = read(write_index(spec).path(), &PARTS);
    if let Some((_, graph)) = files.iter_mut().find(|(name, _)| metric.is_some() && *name == "graph.imx") {
        let at = graph.windows(7).position(|w| w == b"metric\0").expect("a field of graph.imx") + 16;
        graph[at] = metric.unwrap_or_default() as u8;
    }
    files
}

/// The parts of a directory in the order of `names`, empty for a file that it lacks, up to its last one.
fn directory(
    names: &[&str],
    files: &Files,
    page_file: fn(&[u8]) -> Vec<u8>,
    manifest: fn(&[u8]) -> Vec<u8>,
) -> Vec<u8> {
    let mut parts = Vec::new();
    let last = names.iter().rposition(|name| files.iter().any(|(file, _)| file == name));
    for name in &names[..last.map_or(0, |last| last + 1)] {
        let part = files
            .iter()
            .find(|(file, _)| file == name)
            .map(|(name, bytes)| if *name == MANIFEST_NAME { manifest(bytes) } else { page_file(bytes) });
        put_block(&mut parts, &part.unwrap_or_default());
    }
    parts
}

fn without_digest(text: &[u8]) -> Vec<u8> {
    text[..text.len() - TAIL_BYTES].to_vec()
}

/// Header and data pages without section "crc", the footer and what is computed.
fn content_pages(file: &[u8]) -> Vec<u8> {
    // One page of section "crc" covers 1024 others, far more than a seed has.
    let data_pages = file.len() / PAGE_BYTES - 3;
    let mut out = Vec::new();
    for (number, page) in file.chunks(PAGE_BYTES).take(1 + data_pages).enumerate() {
        put_block(&mut out, trimmed(if number == 0 { &page[..PAGE_BYTES - 4] } else { page }));
    }
    out
}

/// All pages, each with its last four bytes.
fn whole_pages(file: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for page in file.chunks(PAGE_BYTES) {
        let (content, tail) = page.split_at(PAGE_BYTES - 4);
        put_block(&mut out, trimmed(content));
        out.extend_from_slice(tail);
    }
    out
}

fn trimmed(page: &[u8]) -> &[u8] {
    &page[..page.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1)]
}
