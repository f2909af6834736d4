//! Damaged hash tables give an error that names file and place: never a panic, never a wrong answer, never an endless
//! search. Checksums are made to fit again, so that what they protect is reached.

use std::fs;

use crate::common::assert_refused;
use crate::common::lsh::{LshSpec, WrittenLsh, seal_block, write_lsh};
use indexmill_core::lsh::{InMemory, LshParams};
use indexmill_core::search::{Queries, Values};
use indexmill_core::verify::verify;
use indexmill_core::{Error, LshIndex, Result};

/// Two buckets a table: every query meets every chain, which has many blocks.
const SPEC: LshSpec = LshSpec {
    n: 600,
    n_added: 0,
    dim: 10,
    dtype: 1,
    metric: 1,
    n_functions: 2,
    n_tables: 3,
    n_radii: 2,
    candidates: 1000,
    probes: 0,
    hash_bits: 1,
    block_bytes: 128,
    scattered: false,
    seed: 3,
};

/// Opens and searches with both ways of holding buckets; of two errors the first.
fn use_index(written: &WrittenLsh) -> Result<()> {
    for engine in ["pread", "memory"] {
        let index = LshIndex::open(written.path(), engine, InMemory::default())?;
        let floats: Vec<f32> = (0..20).flat_map(|i| written.query(i)).collect();
        let queries = Queries { values: Values::Float32(&floats), n: 20, dim: written.spec.dim };
        let params = LshParams::new(5).probes(3).threads(1).inflight(3);
        index.search(&queries, &params)?;
    }
    Ok(())
}

/// After `change`, both a search and `verify` name `file` and say `words`.
#[track_caller]
fn refused(file: &str, words: &str, change: impl Fn(&mut WrittenLsh)) {
    assert_refused(write_lsh(SPEC), use_index, file, words, change);
}

/// Only `verify` sees it: a search has no way of knowing, or need not come by.
#[track_caller]
fn verify_refuses(file: &str, words: &str, change: impl Fn(&mut WrittenLsh)) {
    verify_finds(write_lsh(SPEC), file, words, change);
}

#[track_caller]
fn verify_finds(mut written: WrittenLsh, file: &str, words: &str, change: impl Fn(&mut WrittenLsh)) {
    change(&mut written);
    written.seal();
    let texts = verify(written.path());
    let named = format!("{}: ", written.path().join(file).display());
    assert!(texts.len() == 1 && texts[0].starts_with(&named) && texts[0].contains(words), "{texts:?}");
}

/// Changes every block, and seals it.
fn blocks(written: &mut WrittenLsh, change: impl Fn(usize, &mut [u8])) {
    for (i, block) in written.section("buckets.imx", "blocks").chunks_exact_mut(SPEC.block_bytes).enumerate() {
        change(i, block);
        seal_block(block);
    }
}

fn pointers(written: &mut WrittenLsh, change: impl Fn(u64) -> u64) {
    for pointer in written.section("tables.imx", "pointers").chunks_exact_mut(8) {
        let raw = u64::from_le_bytes(pointer.try_into().unwrap());
        pointer.copy_from_slice(&change(raw).to_le_bytes());
    }
}

#[test]
fn a_pointer_that_leads_to_no_block_is_named() {
    // Which of them is met first depends on the clock.
    let place = "pointer of radius 0, table ";
    refused("tables.imx", place, |w| pointers(w, |raw| raw + 1));
    refused("tables.imx", place, |w| pointers(w, |raw| raw - 4096));
    refused("tables.imx", place, |w| pointers(w, |raw| raw + (1 << 40)));
    refused("tables.imx", place, |w| pointers(w, |raw| raw & ((1 << 48) - 1)));
    refused("tables.imx", place, |w| pointers(w, |raw| raw | 0xffff << 48));
    refused("tables.imx", "expected a block, as the bitmap says, got none", |w| pointers(w, |_| 0));
}

#[test]
fn a_pointer_that_leads_to_the_chain_of_another_bucket_is_told_by_its_tag() {
    refused("buckets.imx", "tag: expected", |w| {
        let pointers = w.section("tables.imx", "pointers");
        for pair in pointers.chunks_exact_mut(16) {
            pair.rotate_left(8);
        }
    });
}

#[test]
fn a_chain_with_a_cycle_ends() {
    let next = |block: &mut [u8], offset: u64| block[8..16].copy_from_slice(&(offset | 1 << 48).to_le_bytes());
    refused("buckets.imx", "next: expected a greater offset", |w| blocks(w, |_, block| next(block, 4096)));
    let to_itself = |i: usize, block: &mut [u8]| next(block, 4096 + (i * SPEC.block_bytes) as u64);
    refused("buckets.imx", "next: expected a greater offset", |w| blocks(w, to_itself));
}

#[test]
fn a_next_pointer_that_leads_to_no_block_is_named() {
    let next = |block: &mut [u8], raw: u64| block[8..16].copy_from_slice(&raw.to_le_bytes());
    let place = "next: expected 1 or more blocks of 128 bytes inside";
    refused("buckets.imx", place, |w| blocks(w, |_, block| next(block, 5000 | 1 << 48)));
    refused("buckets.imx", place, |w| blocks(w, |_, block| next(block, 1 << 47 | 1 << 48)));
    refused("buckets.imx", place, |w| blocks(w, |_, block| next(block, 8192)));
    refused("buckets.imx", place, |w| blocks(w, |_, block| next(block, u64::MAX)));
}

#[test]
fn a_count_that_does_not_fit_is_named() {
    for count in [0u16, 23, 65535] {
        let set = |_: usize, block: &mut [u8]| block[4..6].copy_from_slice(&count.to_le_bytes());
        refused("buckets.imx", "count: expected 1..22", |w| blocks(w, set));
    }
}

#[test]
fn entries_that_mean_nothing_are_named() {
    // Of the entry's 40 bits the lowest 10 are the slot.
    let slots = |_: usize, block: &mut [u8]| {
        block[16..].chunks_exact_mut(5).for_each(|entry| (entry[0], entry[1]) = (0xff, entry[1] | 3));
    };
    refused("buckets.imx", "block at offset ", |w| blocks(w, slots));
    verify_refuses("buckets.imx", "slot: expected below 600, got 1023", |w| blocks(w, slots));
    let swapped = |_: usize, block: &mut [u8]| {
        let (first, second) = block[16..].split_at_mut(5);
        if second[..5] != [0; 5] {
            first.swap_with_slice(&mut second[..5]);
        }
    };
    refused("buckets.imx", "entry: expected at least", |w| blocks(w, swapped));
}

#[test]
fn a_block_that_differs_from_its_checksum_is_named() {
    let flip = |w: &mut WrittenLsh| w.section("buckets.imx", "blocks").iter_mut().step_by(128).for_each(|b| *b ^= 1);
    let mut written = write_lsh(SPEC);
    flip(&mut written);
    written.seal();
    let index = LshIndex::open(written.path(), "pread", InMemory::default().vectors(true)).unwrap();
    let query = written.query(0);
    let queries = Queries { values: Values::Float32(&query), n: 1, dim: SPEC.dim };
    let params = LshParams::new(1).threads(1).inflight(1);
    let error = index.search(&queries, &params).unwrap_err().to_string();
    assert!(error.contains("buckets.imx: block at offset ") && error.contains("CRC32C"), "{error}");
    assert!(verify(written.path())[0].contains("CRC32C"));
}

#[test]
fn a_bitmap_that_differs_from_the_pointers_is_found() {
    let clear = |w: &mut WrittenLsh| {
        w.section("tables.imx", "occupied")[0] &= !1;
        *w.field("tables.imx", "n_buckets") -= 1;
    };
    verify_refuses("tables.imx", "bucket 0: expected none, as the bitmap says, got one", clear);
    refused("tables.imx", "section \"occupied\": expected", |w| w.section("tables.imx", "occupied")[0] &= !1);
    refused("tables.imx", "section \"occupied\": expected", |w| w.section("tables.imx", "occupied")[1] |= 0x80);
}

#[test]
fn fields_that_do_not_fit_are_named() {
    for (file, field, value) in [
        ("functions.imx", "n_functions", 0),
        ("functions.imx", "n_tables", 4),
        ("functions.imx", "n_tables", 65536),
        ("functions.imx", "n_radii", 257),
        ("functions.imx", "candidates", 0),
        ("functions.imx", "probes", 65536),
        ("functions.imx", "ratio", 1f64.to_bits()),
        ("functions.imx", "ratio", f64::NAN.to_bits()),
        ("functions.imx", "width", 0),
        ("functions.imx", "hash_bits", 32),
        ("functions.imx", "id_bits", 9),
        ("functions.imx", "fingerprint_bits", 31),
        ("functions.imx", "block_bytes", 129),
        ("functions.imx", "block_bytes", 64),
        ("tables.imx", "n_vectors", 599),
        ("tables.imx", "n_tables", 2),
        ("tables.imx", "n_radii", 3),
        ("tables.imx", "hash_bits", 2),
        ("buckets.imx", "n_vectors", 601),
        ("buckets.imx", "block_bytes", 256),
        ("buckets.imx", "n_blocks", 1),
        ("buckets.imx", "n_blocks", u64::MAX),
        ("buckets.imx", "n_entries", 1),
        ("buckets.imx", "fingerprint_bits", 20),
        ("vectors.imx", "n_vectors", 599),
        ("vectors.imx", "dim", 9),
        ("vectors.imx", "dtype", 5),
        ("vectors.imx", "metric", 4),
        ("vectors.imx", "max_norm", f64::INFINITY.to_bits()),
        ("vectors.imx", "rows_per_page", 1),
        ("vectors.imx", "pages_per_row", 2),
        ("vectors.imx", "vector_bytes", 44),
    ] {
        let mut written = write_lsh(SPEC);
        *written.field(file, field) = value;
        written.seal();
        let error = use_index(&written).expect_err(field);
        assert!(matches!(error, Error::Corrupt(_)) && error.to_string().contains(".imx: "), "{file} {field}: {error}");
        assert!(!verify(written.path()).is_empty());
    }
}

#[test]
fn functions_that_are_no_numbers_are_named() {
    let set = |section: &'static str, value: [u8; 4]| {
        move |w: &mut WrittenLsh| w.section("functions.imx", section)[8..12].copy_from_slice(&value)
    };
    refused("functions.imx", "section \"projections\": value 2", set("projections", f32::NAN.to_le_bytes()));
    refused("functions.imx", "section \"offsets\": value 2", set("offsets", f32::INFINITY.to_le_bytes()));
    refused("functions.imx", "section \"offsets\": value 2", set("offsets", 4.5f32.to_le_bytes()));
    let equal = |w: &mut WrittenLsh| w.section("functions.imx", "radii").copy_within(0..8, 8);
    refused("functions.imx", "section \"radii\": value 1", equal);
    let even = |w: &mut WrittenLsh| w.section("functions.imx", "multipliers")[0] &= !1;
    refused("functions.imx", "section \"multipliers\": value 0: expected an odd number", even);
}

#[test]
fn verify_finds_vectors_in_wrong_buckets_and_blocks_in_two_chains() {
    // Other functions than those that the tables were made with.
    let moved = |w: &mut WrittenLsh| w.section("functions.imx", "multipliers")[7] ^= 0x40;
    verify_refuses("buckets.imx", "slot: expected those with the hash of the bucket", moved);
    let shared = |w: &mut WrittenLsh| {
        let pointers = w.section("tables.imx", "pointers");
        pointers.copy_within(0..8, 8);
    };
    verify_refuses("buckets.imx", "expected one pointer to it, got two", shared);
    let shorter = |w: &mut WrittenLsh| *w.field("buckets.imx", "longest_chain") += 1;
    verify_refuses("buckets.imx", "field \"longest_chain\"", shorter);
}

#[test]
fn verify_finds_a_flipped_bit_in_any_page_of_any_file() {
    let written = write_lsh(LshSpec { n: 100, ..SPEC });
    let mut random = crate::common::Random(5);
    for name in ["buckets.imx", "functions.imx", "ids.imx", "tables.imx", "vectors.imx", "manifest.json"] {
        let path = written.path().join(name);
        let original = fs::read(&path).unwrap();
        for page in 0..original.len().div_ceil(4096) {
            let mut bytes = original.clone();
            let end = original.len().min((page + 1) * 4096);
            bytes[page * 4096 + random.below(end - page * 4096)] ^= 1 << random.below(8);
            fs::write(&path, bytes).unwrap();
            let texts = verify(written.path());
            assert!(!texts.is_empty() && texts.iter().all(|text| text.contains(name)), "{name} page {page}: {texts:?}");
        }
        fs::write(&path, &original).unwrap();
    }
    assert_eq!(verify(written.path()), Vec::<String>::new());
}

#[test]
fn files_that_are_missing_cut_or_of_another_build_are_named() {
    let (written, other) = (write_lsh(SPEC), write_lsh(LshSpec { seed: 4, ..SPEC }));
    for name in ["buckets.imx", "functions.imx", "ids.imx", "tables.imx", "vectors.imx"] {
        let path = written.path().join(name);
        let original = fs::read(&path).unwrap();
        let named = |what: &str| {
            let error = use_index(&written).expect_err(name).to_string();
            assert!(error.contains(name) && error.contains(what), "{error}");
        };
        fs::write(&path, &original[..original.len() - 4096]).unwrap();
        named("size of the file");
        fs::remove_file(&path).unwrap();
        named("no such file");
        let foreign = fs::read(other.path().join(name)).unwrap();
        fs::write(&path, &foreign).unwrap();
        if foreign.len() == original.len() {
            named("build id in the header");
        }
        fs::write(&path, &original).unwrap();
    }
    use_index(&written).unwrap();
}

/// The same, with the entries of the slots from 512 on in added tables.
const ADDED: LshSpec = LshSpec { n_added: 88, ..SPEC };
const TABLES: &str = "added-tables.imx";
const BUCKETS: &str = "added-buckets.imx";

#[test]
fn damage_of_added_tables_is_named() {
    for (file, field, value) in [
        (TABLES, "first_slot", 0),
        (TABLES, "first_slot", 600),
        (TABLES, "n_vectors", 599),
        (TABLES, "hash_bits", 2),
        (BUCKETS, "first_slot", 511),
        (BUCKETS, "block_bytes", 256),
        (BUCKETS, "n_entries", 600 * 6),
        ("tables.imx", "n_vectors", 600),
        ("buckets.imx", "n_vectors", 511),
    ] {
        let place = format!("field {field:?} in the header");
        assert_refused(write_lsh(ADDED), use_index, file, &place, |w| *w.field(file, field) = value);
    }
    let refused = |file: &str, words: &str, change: fn(&mut WrittenLsh)| {
        assert_refused(write_lsh(ADDED), use_index, file, words, change);
    };
    refused(TABLES, "section \"pointers\" in the header", |w| *w.field(TABLES, "n_buckets") -= 1);
    refused(TABLES, "section \"occupied\": expected", |w| w.section(TABLES, "occupied")[0] &= !1);
    refused(TABLES, "as the bitmap says, got none", |w| w.section(TABLES, "pointers").fill(0));
    refused(BUCKETS, "tag: expected", |w| w.section(TABLES, "pointers").rotate_left(8));
}

#[test]
fn added_tables_without_their_buckets_and_the_reverse_are_named() {
    for (gone, left) in [(BUCKETS, TABLES), (TABLES, BUCKETS)] {
        let words = format!("files: expected {TABLES} and {BUCKETS}, or neither, got only {left}");
        let written = write_lsh(ADDED);
        fs::remove_file(written.path().join(gone)).unwrap();
        assert_refused(written, use_index, "manifest.json", &words, |w| w.files.retain(|file| file.name != gone));
    }
}

#[test]
fn verify_finds_slots_that_added_tables_hold_twice_or_should_not_hold() {
    let each_block = |w: &mut WrittenLsh, change: fn(&mut [u8])| {
        for block in w.section(BUCKETS, "blocks").chunks_exact_mut(128) {
            change(block);
            seal_block(block);
        }
    };
    let refuses = |words: &str, change: &dyn Fn(&mut WrittenLsh)| {
        verify_finds(write_lsh(ADDED), BUCKETS, words, change);
    };
    // Of the entry's 40 bits the lowest 10 are the slot.
    let early = |block: &mut [u8]| (block[16], block[17]) = (3, block[17] & !3);
    refuses("slot: expected 512..599, got 3", &|w: &mut WrittenLsh| each_block(w, early));
    let repeated = |block: &mut [u8]| {
        if block[4] > 1 {
            block.copy_within(16..21, 21);
        }
    };
    refuses("entry: expected at least", &|w: &mut WrittenLsh| each_block(w, repeated));
    refuses("field \"longest_chain\"", &|w: &mut WrittenLsh| *w.field(BUCKETS, "longest_chain") += 1);
}
