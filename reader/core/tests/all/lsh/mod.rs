//! Searches of small hash tables against a slow oracle that knows vectors and hash functions and no file, and against
//! themselves under other engines and interleavings.

mod damage;

use crate::common::lsh::{COSINE, IP, LshSpec, WrittenLsh, id_bits, write_lsh};
use crate::common::searches::with_typed;
use crate::common::{FLOAT16, FLOAT32, INT8, UINT8};
use indexmill_core::lsh::{InMemory, LshCounters, LshOutput, LshParams};
use indexmill_core::search::{Queries, Values};
use indexmill_core::verify::verify;
use indexmill_core::{Error, LshIndex};

/// The engine that answers soon, of a profile.
const SIMULATED: &str = concat!("simulated:", env!("CARGO_MANIFEST_DIR"), "/tests/data/quick-device.json");

/// Vectors in memory or not, and pointers on storage.
fn held(vectors: bool) -> InMemory {
    InMemory::default().vectors(vectors)
}

fn params(k: usize) -> LshParams {
    LshParams::new(k).threads(1).inflight(4)
}

fn search(written: &WrittenLsh, index: &LshIndex, n_queries: usize, params: &LshParams) -> LshOutput {
    let floats: Vec<f32> = (0..n_queries).flat_map(|i| written.query(i)).collect();
    let LshSpec { dtype, dim, .. } = written.spec;
    with_typed(dtype, dim, &floats, |queries| index.search(queries, params)).unwrap()
}

/// What one query finds, from the definition.
#[derive(Debug, Default)]
struct Oracle {
    /// Squared distance (negated product under ip) and slot, nearest first.
    found: Vec<(f64, i64)>,
    radii: u64,
    table_reads: u64,
    candidates: u64,
    distances: u64,
}

/// All vectors of integers next to `at`, by the squares of the distances to the borders that are crossed.
fn probes(positions: &[f64], most: usize) -> Vec<Vec<i64>> {
    let own: Vec<i64> = positions.iter().map(|t| t.floor() as i64).collect();
    let mut all: Vec<(f64, Vec<i64>)> = vec![(0.0, own.clone())];
    for (j, t) in positions.iter().enumerate() {
        let fraction = t - t.floor();
        let step = |(score, integers): &(f64, Vec<i64>), by: i64| {
            let mut moved = integers.clone();
            moved[j] += by;
            (score + if by < 0 { fraction * fraction } else { (1.0 - fraction) * (1.0 - fraction) }, moved)
        };
        let steps: Vec<_> = all.iter().flat_map(|set| [step(set, -1), step(set, 1)]).collect();
        all.extend(steps);
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert_eq!(all[0].1, own);
    all.truncate(most + 1);
    all.into_iter().map(|(_, integers)| integers).collect()
}

fn oracle(written: &WrittenLsh, query: &[f32], k: usize, limit: u64, n_probes: usize) -> Oracle {
    let spec = written.spec;
    let norm = |v: &[f32]| v.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
    let scaled = |by: f64| -> Vec<f32> { query.iter().map(|&x| (f64::from(x) * by) as f32).collect() };
    let at = match spec.metric {
        IP => [scaled(written.max_norm / norm(query)), vec![0.0]].concat(),
        COSINE => scaled(1.0 / norm(query)),
        _ => query.to_vec(),
    };
    let between = |v: &[f32]| v.iter().zip(&at).map(|(&x, &y)| (f64::from(x) - f64::from(y)).powi(2)).sum::<f64>();
    let product = |v: &[f32]| v.iter().zip(query).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum::<f64>();
    let mut oracle = Oracle::default();
    let mut met: Vec<(f64, usize)> = Vec::new();
    for radius in 0..spec.n_radii {
        oracle.radii += 1;
        let ranked: Vec<Vec<Vec<i64>>> =
            (0..spec.n_tables).map(|table| probes(&written.positions(radius, table, &at), n_probes)).collect();
        let mut fresh = 0;
        let mut targets = Vec::new();
        for rank in 0..=n_probes {
            for (table, of_table) in ranked.iter().enumerate() {
                let Some(integers) = of_table.get(rank) else { continue };
                let (bucket, v) = written.address(table, integers);
                let entry = ((radius * spec.n_tables + table) << spec.hash_bits) + bucket as usize;
                for (slots, entries) in written.pairs().iter().zip(&written.entries) {
                    if !entries[entry].is_empty() {
                        let wanted = u64::from(written.fingerprint(v, slots.end));
                        targets.push((&entries[entry], wanted, id_bits(slots.end)));
                    }
                }
            }
        }
        assert!(targets.len() <= 256, "reads of one radius come in one batch");
        oracle.table_reads += targets.len() as u64;
        for (held, fingerprint, id_bits) in targets {
            for &entry in held.iter().filter(|&&entry| entry >> id_bits == fingerprint) {
                if fresh == limit {
                    continue;
                }
                oracle.candidates += 1;
                let slot = (entry % (1 << id_bits)) as usize;
                if met.iter().all(|&(_, other)| other != slot) {
                    met.push((between(&written.vectors[slot]), slot));
                    fresh += 1;
                }
            }
        }
        met.sort_by(|a, b| a.partial_cmp(b).unwrap());
        let reach = written.ratio * written.radii[radius];
        if met.len() >= k && met[k - 1].0 <= reach * reach || met.len() == spec.n {
            break;
        }
    }
    oracle.distances = met.len() as u64;
    oracle.found = met.iter().take(k).map(|&(d, slot)| (d, slot as i64)).collect();
    if spec.metric == IP {
        oracle.found = oracle.found.iter().map(|&(_, s)| (-product(&written.vectors[s as usize]), s)).collect();
    }
    oracle
}

fn check(written: &WrittenLsh, indexes: &[LshIndex], params: &LshParams) {
    let n_queries = 8;
    let limit = params.candidates.unwrap_or(written.spec.candidates) + params.k as u64 - 1;
    let n_probes = params.probes.unwrap_or(written.spec.probes as usize);
    let found: Vec<LshOutput> = indexes.iter().map(|index| search(written, index, n_queries, params)).collect();
    for i in 0..n_queries {
        let want = oracle(written, &written.query(i), params.k, limit, n_probes);
        found.iter().for_each(|found| same(written, found, i, &want));
    }
}

/// Answers and counters of query `i` are `want`.
fn same(written: &WrittenLsh, found: &LshOutput, i: usize, want: &Oracle) {
    let row = i * found.k..(i + 1) * found.k;
    let mut slots: Vec<i64> = want.found.iter().map(|x| x.1).collect();
    slots.resize(found.k, -1);
    assert_eq!(found.slots[row.clone()], slots, "{:?}, query {i}: {want:?}", written.spec);
    for (score, (distance, _)) in found.scores[row].iter().zip(&want.found) {
        let want = match written.spec.metric {
            IP => -distance,
            COSINE => 1.0 - distance / 2.0,
            _ => *distance,
        };
        assert!((f64::from(*score) - want).abs() <= 1e-4 * want.abs().max(1.0), "{score} is not {want}");
    }
    let got = found.counters[i];
    let counted = (got.radii, got.table_reads, got.candidates, got.distances);
    assert_eq!(counted, (want.radii, want.table_reads, want.candidates, want.distances), "{:?} {i}", written.spec);
    assert!(got.block_reads >= got.table_reads && got.blocks >= got.block_reads && got.entries >= got.candidates);
}

fn open_all(written: &WrittenLsh, engines: &[&str]) -> Vec<LshIndex> {
    let both = |engine| [true, false].map(|in_memory| LshIndex::open(written.path(), engine, held(in_memory)).unwrap());
    engines.iter().flat_map(|engine| both(engine)).collect()
}

#[test]
fn answers_and_counters_are_those_of_the_oracle_in_every_type_block_size_and_engine() {
    for (i, block_bytes) in [128, 256, 512, 1024, 2048, 4096].into_iter().enumerate() {
        let dtype = [FLOAT32, FLOAT16, UINT8, INT8][i % 4];
        let written = write_lsh(LshSpec { dtype, block_bytes, seed: i as u64, ..LshSpec::default() });
        assert_eq!(verify(written.path()), Vec::<String>::new());
        check(&written, &open_all(&written, &["memory", "pread", "auto", "mmap"]), &params(3));
    }
}

#[test]
fn few_bits_long_chains_and_small_limits_are_those_of_the_oracle() {
    for (hash_bits, candidates, k, scattered) in [
        (0, 1, 1, false),
        (0, 1000, 5, true),
        (2, 7, 1, true),
        (2, 30, 20, false),
        (10, 5, 4, true),
        (5, 600, 600, true),
    ] {
        let spec = LshSpec { hash_bits, candidates, scattered, n_functions: 2, ..LshSpec::default() };
        let written = write_lsh(spec);
        assert_eq!(verify(written.path()), Vec::<String>::new());
        check(&written, &open_all(&written, &["memory", "pread"]), &params(k));
    }
}

#[test]
fn probed_buckets_are_the_nearest_ones_in_order() {
    for (n_probes, metric) in [(1, 1), (5, 1), (20, 1), (100, 1), (6, COSINE), (6, IP)] {
        let spec = LshSpec { probes: n_probes, metric, n_functions: 3, n_tables: 2, ..LshSpec::default() };
        let written = write_lsh(spec);
        let index = open_all(&written, &["pread"]);
        check(&written, &index, &params(3));
        check(&written, &index, &params(2).probes(2).candidates(40));
    }
}

#[test]
fn cosine_and_inner_product_stop_at_euclidean_distances() {
    for metric in [COSINE, IP] {
        let written = write_lsh(LshSpec { metric, ..LshSpec::default() });
        assert_eq!(verify(written.path()), Vec::<String>::new());
        check(&written, &open_all(&written, &["pread"]), &params(2));
    }
}

fn without_times(output: &LshOutput) -> Vec<LshCounters> {
    let mut counters = output.counters.clone();
    counters.iter_mut().for_each(|c| (c.latency_us, c.io_wait_us) = (0.0, 0.0));
    counters
}

#[test]
fn engines_threads_and_interleaving_change_nothing_but_times() {
    let spec = LshSpec { n: 3000, hash_bits: 6, scattered: true, n_tables: 12, candidates: 60, ..LshSpec::default() };
    let written = write_lsh(spec);
    for in_memory in [true, false] {
        let open = |engine: &str| LshIndex::open(written.path(), engine, held(in_memory)).unwrap();
        let once = params(4).inflight(1).probes(1);
        let first = search(&written, &open("pread"), 40, &once);
        assert!(first.counters.iter().all(|c| c.bytes_read > 0 && (c.vector_reads == 0) == in_memory));
        for engine in ["auto", "pread", "mmap", "memory", SIMULATED] {
            let index = open(engine);
            for (threads, inflight) in [(1, 1), (1, 16), (3, 1), (2, 7)] {
                let again = search(&written, &index, 40, &once.clone().threads(threads).inflight(inflight));
                assert_eq!(again.slots, first.slots, "{engine}");
                assert_eq!(again.scores, first.scores, "{engine}");
                let is_other_kind = engine == "memory" && !in_memory;
                if !is_other_kind {
                    let (mut got, mut want) = (without_times(&again), without_times(&first));
                    if engine == "memory" {
                        assert!(got.iter().all(|c| c.id_pages_read == 0));
                        got.iter_mut().chain(&mut want).for_each(|c| c.id_pages_read = 0);
                    }
                    assert_eq!(got, want, "{engine}");
                }
            }
        }
    }
}

#[test]
fn tables_in_memory_save_their_reads_and_nothing_else() {
    for scattered in [true, false] {
        let spec = LshSpec { n: 2000, hash_bits: 5, scattered, n_tables: 10, ..LshSpec::default() };
        let written = write_lsh(spec);
        let once = params(4).probes(1);
        for vectors in [true, false] {
            let want = search(&written, &LshIndex::open(written.path(), "pread", held(vectors)).unwrap(), 20, &once);
            for engine in ["auto", "pread", "mmap"] {
                let index =
                    LshIndex::open(written.path(), engine, InMemory::default().vectors(vectors).tables(true)).unwrap();
                let found = search(&written, &index, 20, &once);
                assert_eq!((&found.slots, &found.scores), (&want.slots, &want.scores), "{engine}");
                let mut counters = without_times(&want);
                for c in &mut counters {
                    c.bytes_read -= c.table_reads * 512;
                    c.table_reads = 0;
                }
                assert_eq!(without_times(&found), counters, "{engine}");
                assert!(index.memory().tables == (spec.n_radii * spec.n_tables * 8) as u64 * 32);
            }
        }
    }
}

#[test]
fn vectors_larger_than_a_page_and_many_vectors_on_one_page_are_read_once() {
    let large = write_lsh(LshSpec { n: 50, dim: 1500, ..LshSpec::default() });
    let small = write_lsh(LshSpec { n: 500, dim: 2, hash_bits: 3, candidates: 200, ..LshSpec::default() });
    for written in [large, small] {
        let index = LshIndex::open(written.path(), "auto", held(false)).unwrap();
        check(&written, &open_all(&written, &["auto"]), &params(3));
        for counters in search(&written, &index, 10, &params(3)).counters {
            let per_radius = written.vectors.len().div_ceil(index.vectors.rows_per_unit as usize) as u64;
            assert!(
                counters.vector_reads <= per_radius * counters.radii && counters.vector_reads <= counters.distances
            );
        }
    }
}

#[test]
fn equal_vectors_of_one_bucket_are_bounded_by_the_candidates() {
    let spec = LshSpec { n: 400, ..LshSpec::default() };
    let mut written = write_lsh(spec);
    written.vectors.iter_mut().for_each(|vector| vector.fill(0.0));
    let again = crate::common::lsh::rewrite(written);
    assert_eq!(verify(again.path()), Vec::<String>::new());
    check(&again, &open_all(&again, &["pread", "memory"]), &params(1));
    for engine in ["pread", "memory"] {
        let index = LshIndex::open(again.path(), engine, held(true)).unwrap();
        let origin = vec![0.0; spec.dim];
        let queries = Queries { values: Values::Float32(&origin), n: 1, dim: spec.dim };
        let found = index.search(&queries, &params(1)).unwrap();
        assert_eq!((found.slots[0], found.scores[0]), (0, 0.0));
        assert_eq!((found.counters[0].radii, found.counters[0].distances), (1, spec.candidates));
    }
}

#[test]
fn one_vector_can_be_searched() {
    let written = write_lsh(LshSpec { n: 1, ..LshSpec::default() });
    assert_eq!(verify(written.path()), Vec::<String>::new());
    check(&written, &open_all(&written, &["auto"]), &params(1));
}

#[test]
fn parameters_that_cannot_be_met_are_refused_with_the_remedy() {
    let written = write_lsh(LshSpec::default());
    let index = LshIndex::open(written.path(), "pread", held(true)).unwrap();
    let query = written.query(0);
    let refuse = |params: LshParams, words: &str| {
        let queries = Queries { values: Values::Float32(&query), n: 1, dim: query.len() };
        let error = index.search(&queries, &params).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    refuse(params(0), "ask for one");
    refuse(params(601), "ask for at most 600");
    refuse(params(1).candidates(0), "candidates: expected at least 1");
    refuse(params(1).probes(1 << 20), "probes: expected at most 43689 with 6 tables");
    refuse(params(1).threads(0), "threads: expected 1..");
    refuse(params(1).inflight(1000), "inflight: expected 1..");
    let wrong = Queries { values: Values::Uint8(&[0; 10]), n: 1, dim: 10 };
    let error = index.search(&wrong, &params(1)).unwrap_err().to_string();
    assert!(error.contains("expected float32 components"), "{error}");
    let error = indexmill_core::Index::open(written.path(), "pread").err().unwrap();
    assert!(matches!(error, Error::OtherKind(_)) && error.path() == Some(written.path()), "{error}");
    assert!(error.to_string().contains("expected an index of kind \"graph\", got one of kind \"lsh\""), "{error}");
}

#[test]
fn added_tables_are_searched_beside_the_others() {
    for (n_added, hash_bits, block_bytes, n_probes, metric, scattered) in [
        (1, 7, 128, 0, 1, false),
        (60, 7, 512, 3, 1, true),
        // Fewer bits of a fingerprint than the entries of the first 512 slots have.
        (88, 0, 256, 0, 1, false),
        (300, 2, 4096, 1, COSINE, false),
        (599, 11, 1024, 4, IP, true),
    ] {
        let more = LshSpec { block_bytes, metric, scattered, probes: n_probes, n_functions: 3, ..LshSpec::default() };
        let written = write_lsh(LshSpec { n_added, hash_bits, ..more });
        assert_eq!(verify(written.path()), Vec::<String>::new());
        let mut indexes = open_all(&written, &["memory", "pread", "mmap"]);
        check(&written, &indexes, &params(3));
        check(&written, &indexes, &params(1).candidates(2));
        let held = LshIndex::open(written.path(), "pread", InMemory::default().vectors(true).tables(true)).unwrap();
        let occupied = |entries: &Vec<Vec<u64>>| entries.iter().filter(|bucket| !bucket.is_empty()).count();
        let pointers = written.entries[0].len() + occupied(&written.entries[1]);
        assert_eq!(held.memory().tables, 8 * pointers as u64);
        let bitmap_bytes = written.entries[0].len().div_ceil(8);
        assert_eq!(held.memory().bitmap, (2 * bitmap_bytes + 8 * bitmap_bytes.div_ceil(64)) as u64);
        let (found, want) = [held, indexes.remove(2)].map(|index| search(&written, &index, 8, &params(3))).into();
        assert_eq!((found.slots, found.scores), (want.slots, want.scores));
        assert!(found.counters.iter().all(|counters| counters.table_reads == 0));
    }
}
