//! Damaged inverted lists give an error that names file and place: never a panic, never a wrong answer. Checksums are
//! made to fit again, so that what they protect is reached.

use std::fs;

use crate::common::ivf::{BATCHES, IvfSpec, OPQ, PQ, RABITQ, WrittenIvf, ranked, write_ivf};
use crate::common::{FLOAT32, UINT8, assert_refused, squared};
use indexmill_core::ivf::IvfParams;
use indexmill_core::search::{Queries, Values};
use indexmill_core::verify::verify;
use indexmill_core::{Error, IvfIndex, Result};

/// Codes with everything that an index may have besides.
const FULL: IvfSpec = IvfSpec {
    n: 300,
    dim: 6,
    dtype: 1,
    codec: PQ,
    n_lists: 9,
    n_batches: 2,
    copies: 2,
    with_graph: true,
    with_vectors: true,
    seed: 1,
};

fn params(rerank: usize) -> IvfParams {
    IvfParams::new(5, 9).rerank(rerank).threads(1).inflight(3)
}

/// Opens and searches all lists with both ways of holding them; of two errors the first.
fn use_index(written: &WrittenIvf) -> Result<()> {
    for engine in ["pread", "memory"] {
        let index = IvfIndex::open(written.path(), engine)?;
        let floats: Vec<f32> = (0..20).flat_map(|i| written.query(i)).collect();
        let queries = Queries { values: Values::Float32(&floats), n: 20, dim: written.spec.dim };
        index.search(&queries, &params(if written.spec.with_vectors { 20 } else { 0 }))?;
    }
    Ok(())
}

/// After `change`, both a search and `verify` name `file` and say `words`.
#[track_caller]
fn refused_of(spec: IvfSpec, file: &str, words: &str, change: impl Fn(&mut WrittenIvf)) {
    assert_refused(write_ivf(spec), use_index, file, words, change);
}

#[track_caller]
fn refused(file: &str, words: &str, change: impl Fn(&mut WrittenIvf)) {
    refused_of(FULL, file, words, change);
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

#[test]
fn sound_indexes_are_sound() {
    for spec in [FULL, IvfSpec::default(), IvfSpec { n_lists: 1, n_batches: 1, dtype: UINT8, ..IvfSpec::default() }] {
        assert_eq!(verify(write_ivf(spec).path()), [""; 0]);
    }
    use_index(&write_ivf(FULL)).unwrap();
}

#[test]
fn fields_out_of_range_or_different_in_two_files_are_refused() {
    for (field, value) in [("n_lists", 0), ("n_lists", 10), ("dim", 7), ("row_bytes", 2), ("metric", 4)] {
        let mut written = write_ivf(FULL);
        *written.field("centroids.imx", field) = value;
        written.seal();
        let text = use_index(&written).unwrap_err().to_string();
        assert!(text.contains("centroids.imx: "), "{field}: {text}");
    }
    refused("centroids.imx", "\"copies\"", |w| *w.field("centroids.imx", "copies") = 0);
    refused("centroids.imx", "\"n_centres\"", |w| *w.field("centroids.imx", "n_centres") = 257);
    refused("centroids.imx", "\"degree\"", |w| *w.field("centroids.imx", "degree") = 0);
    refused("centroids.imx", "\"entry\"", |w| *w.field("centroids.imx", "entry") = 9);
    refused("centroids.imx", "\"n_batches\"", |w| *w.field("centroids.imx", "n_batches") = 1);
    refused("centroids.imx", "\"dtype\"", |w| *w.field("centroids.imx", "dtype") = 5);
    refused("centroids.imx", "\"max_norm\"", |w| *w.field("centroids.imx", "max_norm") = f64::NAN.to_bits());
    for (field, value) in [("batch", 0), ("n_lists", 8), ("row_bytes", 2), ("n_vectors", 0), ("n_rows", 900)] {
        refused(BATCHES[1], &format!("{field:?}"), |w| *w.field(BATCHES[1], field) = value);
    }
    refused(BATCHES[1], "\"first_vector\"", |w| *w.field(BATCHES[1], "first_vector") = 149);
    refused("vectors.imx", "\"dtype\" in the header: expected 1, as in centroids.imx, got 2", |w| {
        *w.field("vectors.imx", "dtype") = 2;
        *w.field("vectors.imx", "vector_bytes") = 12;
        *w.field("vectors.imx", "rows_per_page") = 341;
        w.section("vectors.imx", "vectors").resize(4096, 0);
    });
}

#[test]
fn a_codec_of_a_later_version_is_named() {
    let mut written = write_ivf(FULL);
    *written.field("centroids.imx", "codec") = 5;
    written.seal();
    let error = use_index(&written).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::TooNew(_)), "{text}");
    let words = "codec 5: expected one of flat, sq8, pq, rabitq, opq; install a newer indexmill to read it";
    assert!(text.ends_with(&format!("centroids.imx: {words}")), "{text}");
    assert_eq!(verify(written.path()), [text]);
}

#[test]
fn numbers_that_are_not_finite_are_refused() {
    for section in ["centroids", "pivots"] {
        refused("centroids.imx", "finite", |w| put(w.section("centroids.imx", section), 8, f32::NAN.to_bits()));
    }
    let scaled = IvfSpec { codec: 1, ..IvfSpec::default() };
    refused_of(scaled, "centroids.imx", "finite", |w| {
        put(w.section("centroids.imx", "scale"), 4, f32::INFINITY.to_bits());
    });
}

#[test]
fn rotated_codes_that_cannot_be_are_refused() {
    let rotated = IvfSpec { codec: RABITQ, ..FULL };
    assert_eq!(verify(write_ivf(rotated).path()), [""; 0]);
    for bits in [0, 9] {
        refused_of(rotated, "centroids.imx", "\"bits\"", |w| *w.field("centroids.imx", "bits") = bits);
    }
    for codec in [RABITQ, OPQ] {
        for wrong in [2f32, f32::NAN] {
            refused_of(IvfSpec { codec, ..FULL }, "centroids.imx", "row 0 of section \"rotation\"", |w| {
                put(w.section("centroids.imx", "rotation"), 4, wrong.to_bits());
            });
        }
    }
    for at in [0, 4] {
        for float in [f32::NAN, f32::INFINITY, -1.0] {
            refused_of(rotated, BATCHES[0], ", row 0: expected a length and a factor", |w| {
                put(w.section(BATCHES[0], "lists"), at, float.to_bits());
            });
        }
    }
    // A search scans whatever the bits are.
    let mut written = write_ivf(rotated);
    written.section(BATCHES[0], "lists")[9] = 0xff;
    written.seal();
    use_index(&written).unwrap();
    let texts = verify(written.path());
    assert!(texts.len() == 1 && texts[0].contains(", row 0: expected no bits"), "{texts:?}");
}

#[test]
fn a_graph_that_leads_nowhere_is_refused() {
    refused("centroids.imx", "neighbour 4: expected a list below 9, got 9", |w| {
        put(w.section("centroids.imx", "neighbours"), 16, 9);
    });
}

#[test]
fn a_directory_that_is_not_that_of_its_sizes_is_refused() {
    let directory = "section \"directory\", offset ";
    refused(BATCHES[1], &format!("{directory}16: list"), |w| {
        let section = w.section(BATCHES[1], "directory");
        let first = section[..4].to_vec();
        section[16..20].copy_from_slice(&first);
    });
    refused(BATCHES[1], &format!("{directory}0: list"), |w| put(w.section(BATCHES[1], "directory"), 0, 9));
    refused(BATCHES[1], &format!("{directory}16: first page"), |w| put(w.section(BATCHES[1], "directory"), 24, 7));
    refused(BATCHES[1], &format!("{directory}16: size"), |w| put(w.section(BATCHES[1], "directory"), 20, 1000));
    refused(BATCHES[1], &format!("{directory}0: sizes"), |w| {
        let section = w.section(BATCHES[1], "directory");
        let size = u32::from_le_bytes(section[4..8].try_into().unwrap());
        put(section, 4, size + 1);
    });
}

/// Where the ids of the first list of a batch begin.
fn first_ids(written: &mut WrittenIvf) -> usize {
    let size = written.section(BATCHES[0], "directory")[4] as usize;
    let row_bytes = *written.field("centroids.imx", "row_bytes") as usize;
    (size * row_bytes).next_multiple_of(4)
}

#[test]
fn ids_of_no_vector_of_the_batch_or_out_of_order_are_refused() {
    for (place, id) in [(0, 150), (0, u32::MAX), (1, 0)] {
        refused(BATCHES[0], "ids of list", |w| {
            let at = first_ids(w) + 4 * place;
            put(w.section(BATCHES[0], "lists"), at, id);
        });
    }
}

#[test]
fn a_code_of_no_centre_is_refused() {
    for codec in [PQ, OPQ] {
        refused_of(IvfSpec { codec, ..FULL }, BATCHES[0], "codes of list", |w| w.section(BATCHES[0], "lists")[0] = 16);
    }
}

#[test]
fn rotated_product_codes_without_their_rotation_or_with_half_of_it_are_refused() {
    let rotated = IvfSpec { codec: OPQ, ..FULL };
    assert_eq!(verify(write_ivf(rotated).path()), [""; 0]);
    refused_of(rotated, "centroids.imx", "rotation", |w| w.section("centroids.imx", "rotation").truncate(72));
    let mut written = write_ivf(FULL);
    *written.field("centroids.imx", "codec") = OPQ;
    written.seal();
    let text = use_index(&written).unwrap_err().to_string();
    assert!(text.contains("centroids.imx: ") && text.contains("\"rotation\""), "{text}");
}

#[test]
fn verify_counts_the_lists_of_every_vector() {
    let mut written = write_ivf(IvfSpec::default());
    let at = first_ids(&mut written);
    let lists = written.section(BATCHES[0], "lists");
    // The first vector of the longest list becomes one that lies elsewhere, too, and still comes first.
    let first = u32::from_le_bytes(lists[at..at + 4].try_into().unwrap());
    assert!(first > 0);
    put(lists, at, first - 1);
    written.seal();
    use_index(&written).unwrap();
    let texts = verify(written.path());
    assert!(texts.len() == 1 && texts[0].contains(BATCHES[0]) && texts[0].contains("in 1..1 lists"), "{texts:?}");
}

#[test]
fn a_flipped_bit_anywhere_is_found() {
    let written = write_ivf(FULL);
    for name in ["centroids.imx", BATCHES[0], BATCHES[1], "vectors.imx"] {
        let path = written.path().join(name);
        let bytes = fs::read(&path).unwrap();
        for at in (0..bytes.len()).step_by(1511) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            fs::write(&path, &damaged).unwrap();
            assert!(!verify(written.path()).is_empty(), "{name}: byte {at}");
        }
        fs::write(&path, &bytes).unwrap();
    }
}

#[test]
fn a_search_finds_what_brute_force_finds_whatever_the_engine_and_codec() {
    for codec in 0..5 {
        for (copies, with_graph) in [(1, false), (2, true)] {
            let written = write_ivf(IvfSpec { codec, copies, with_graph, with_vectors: codec > 0, ..FULL });
            let floats: Vec<f32> = (0..20).flat_map(|i| written.query(i)).collect();
            let queries = Queries { values: Values::Float32(&floats), n: 20, dim: 6 };
            let rerank = if codec == 0 { 0 } else { 300 };
            for engine in ["pread", "mmap", "memory"] {
                let index = IvfIndex::open(written.path(), engine).unwrap();
                let params = params(rerank).nprobe(4);
                let found = index.search(&queries, &params).unwrap();
                for (query, slots) in floats.chunks(6).zip(found.slots.chunks(5)) {
                    let probed = &ranked(&written.centroids, query)[..4];
                    let mut near: Vec<(u32, i64)> = (0..300usize)
                        .filter(|&i| written.cells[i].iter().any(|list| probed.contains(list)))
                        .map(|i| (squared(&written.vectors[i], query) as u32, i as i64))
                        .collect();
                    near.sort_unstable();
                    let want: Vec<i64> = near.iter().map(|&(_, i)| i).chain(std::iter::repeat(-1)).take(5).collect();
                    assert_eq!(slots, want, "{engine}, codec {codec}, {copies} copies");
                }
            }
        }
    }
}

/// The parts of an index are public. Those of another one must not make kernels read past the end of a query or vector.
#[test]
fn parts_of_another_index_end_a_search() {
    for (dim, dtype) in [(400, FLOAT32), (400, UINT8), (3, FLOAT32), (3, UINT8)] {
        let (written, other) = (write_ivf(FULL), write_ivf(IvfSpec { dim, dtype, ..FULL }));
        let open = |written: &WrittenIvf| IvfIndex::open(written.path(), "memory").unwrap();
        let query = written.query(0);
        let queries = Queries { values: Values::Float32(&query), n: 1, dim: FULL.dim };
        let mut with_vectors = open(&written);
        with_vectors.vectors = open(&other).vectors;
        let outcome = with_vectors.search(&queries, &params(20));
        assert!(matches!(outcome, Err(Error::Internal(_))), "vectors of {dim} dimensions");
    }
}
