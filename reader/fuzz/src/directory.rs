//! Targets of a whole index directory.

use std::path::Path;
use std::sync::Arc;

use indexmill_core::graph::{Entry, Filter, NO_SLOT, Policy, RangeOutput, SearchOutput, SearchParams, Trace};
use indexmill_core::ids::UserIds;
use indexmill_core::search::Queries;
use indexmill_core::{Error, Index, Metric, Result};

use crate::common::Random;
use crate::input::{FITTED, PARTS, named, split_flags, write_parts};
use crate::queries::{LATER, MAPPED, Made, check_ids, check_rows, later};

/// Flag: asks for all within a radius, in place of the k nearest.
pub const RANGE: u8 = 1;
/// Flag: asks for some of the vectors.
pub const FILTER: u8 = 2;
/// Flag: as if these were the vectors of a label.
pub const LABEL: u8 = 4;
/// Flag: searches a view in another order.
pub const REMAPPED: u8 = 8;
/// Flag: keeps some blocks in memory.
pub const CACHE: u8 = 16;
/// Flag: asks for the events of a search, too.
pub const TRACE: u8 = 32;

/// Radii to choose from: none of the vectors, some or all, under any metric.
const RADII: [f32; 6] = [-1.0, 0.5, 400.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
/// Bytes of a cache: a few blocks.
const CACHE_BYTES: usize = 3 * 4200;

/// Verifies a directory; one without damage must open, be searched and give ids.
pub fn verify(data: &[u8]) -> Result<()> {
    let (flags, data) = split_flags(data);
    let scratch = write_parts(&PARTS, flags, data);
    first_damage(&scratch.0)?;
    let index = Arc::new(Index::open(&scratch.0, "pread").expect("a verified index opens"));
    let all = index.graph.layout().n_vertices as usize;
    let call = Call {
        flags: 0,
        k: all.min(10),
        list_size: all,
        beam_width: 4,
        threads: 1,
        inflight: 2,
        n_queries: 2,
        seed: 0,
    };
    search_all(&index, call).expect("a verified index can be searched");
    Ok(())
}

/// Refuses a damaged directory; every damage must name a file in it.
pub fn first_damage(path: &Path) -> Result<()> {
    let damages = indexmill_core::verify::verify(path);
    let directory = path.to_string_lossy();
    assert!(damages.iter().all(|text| text.contains(&*directory)), "damages that name no file: {damages:?}");
    damages.into_iter().next().map_or(Ok(()), |first| Err(Error::corrupt(path, first, "a sound index", "damage")))
}

/// Searches a directory in which all checksums, digests and sizes fit, so that other faults reach the decoders and the
/// search.
pub fn search(data: &[u8]) -> Result<()> {
    let Some((call, parts)) = data.split_first_chunk::<8>() else {
        return Err(Error::Input("an input shorter than its parameters".into()));
    };
    let (scratch, call) = (write_parts(&PARTS, FITTED, parts), Call::parse(*call));
    let engine = if call.has(MAPPED) { "mmap" } else { "pread" };
    let mut index = named(&scratch.0, Index::open(&scratch.0, engine))?;
    if call.has(REMAPPED) {
        index = named(&scratch.0, index.remapped(&call.order(index.graph.layout().n_vertices)))?;
    }
    search_all(&Arc::new(index), call)
}

/// Parameters of the searches of one input.
#[derive(Clone, Copy)]
struct Call {
    flags: u8,
    k: usize,
    list_size: usize,
    beam_width: usize,
    threads: usize,
    inflight: usize,
    n_queries: usize,
    seed: u64,
}

impl Call {
    fn parse([flags, k, more, beam_width, threads, inflight, n_queries, seed]: [u8; 8]) -> Self {
        Call {
            flags,
            k: k.into(),
            // Lists shorter than k must be refused, very long ones must not be allocated at once.
            list_size: if more == u8::MAX {
                usize::MAX / 2
            } else {
                (usize::from(k) + usize::from(more)).saturating_sub(1)
            },
            beam_width: beam_width.into(),
            threads: usize::from(threads % 3),
            inflight: usize::from(inflight % 8),
            n_queries: usize::from(n_queries % 4),
            seed: seed.into(),
        }
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag > 0
    }

    /// The slots below `n` in random order.
    fn order(&self, n: u32) -> Vec<u32> {
        let (mut order, mut random) = ((0..n).collect::<Vec<_>>(), Random(self.seed));
        (1..order.len()).for_each(|i| order.swap(i, random.below(i + 1)));
        order
    }

    fn radius(&self) -> f32 {
        RADII[self.seed as usize / 4 % RADII.len()]
    }

    /// A filter for about half of the vectors, if one is asked for.
    fn filter(&self, index: &Index) -> Result<Option<Arc<Filter>>> {
        let mut random = Random(self.seed);
        let n_bytes = index.graph.layout().n_vertices.div_ceil(8);
        let bitmap: Vec<u8> = (0..n_bytes).map(|_| random.next() as u8).collect();
        Ok(if self.has(LABEL) {
            Some(Arc::new(index.label_filter(&bitmap)?))
        } else if self.has(FILTER) {
            Some(Arc::new(index.filter(&bitmap)?))
        } else {
            None
        })
    }

    /// Keeps blocks in memory, if it is asked for: those around the entries, or those that queries read.
    fn cache(&self, index: &Index, queries: &Queries<'_>, params: &SearchParams) -> Result<()> {
        if !self.has(CACHE) {
            return Ok(());
        }
        let cache = if self.seed.is_multiple_of(2) {
            index.cache_around_entries(CACHE_BYTES)?
        } else {
            index.cache_from_queries(queries, params, CACHE_BYTES)?
        };
        assert!(cache.bytes() <= CACHE_BYTES);
        Ok(())
    }
}

/// Runs every policy from every entry and checks the answers; of several errors returns the first.
fn search_all(index: &Arc<Index>, call: Call) -> Result<()> {
    let made = Made::new(call.n_queries, index.graph.user_dim(), call.seed);
    let queries = made.queries(index.graph.layout().dtype.query_name());
    let Call { k, list_size, beam_width, threads, inflight, .. } = call;
    let params = SearchParams::new(k)
        .list_size(list_size)
        .beam_width(beam_width)
        .threads(threads)
        .inflight(inflight)
        .allow(named(&index.path, call.filter(index))?);
    named(&index.path, call.cache(index, &queries, &params))?;
    let mut outcome = Ok(());
    let mut entries = vec![Entry::Medoid, Entry::Centroids];
    if index.navigation.is_some() {
        entries.push(Entry::Navigation);
    }
    if index.codes.are_held() {
        entries.push(Entry::Previous);
    }
    for policy in [Policy::Beam, Policy::Page, Policy::Completion, Policy::Pipeline, Policy::Rounds] {
        for &entry in &entries {
            // Which query ended before another depends on the clock.
            let params = params.clone().policy(policy).entry(entry).deterministic(entry != Entry::Previous);
            let found = named(&index.path, ask(index, &queries, &params, call));
            let checked = found.and_then(|answers| {
                answers.check(index, &params, call);
                let Answers { slots, vector_ids, user_ids, .. } = &answers;
                let checked = check_ids(&index.ids, index.living.as_deref(), slots, vector_ids, user_ids);
                named(&index.path.join("ids.imx"), checked)
            });
            outcome = outcome.and(checked);
        }
    }
    outcome
}

/// What was found, of one query after the other.
struct Answers {
    /// One entry more than queries.
    starts: Vec<usize>,
    slots: Vec<i64>,
    vector_ids: Vec<i64>,
    user_ids: UserIds,
    scores: Vec<f32>,
    n_counters: usize,
}

impl From<SearchOutput> for Answers {
    fn from(output: SearchOutput) -> Self {
        let SearchOutput { k, slots, vector_ids, user_ids, scores, counters, .. } = output;
        let starts = (0..=counters.len()).map(|i| i * k).collect();
        Answers { starts, slots, vector_ids, user_ids, scores, n_counters: counters.len() }
    }
}

impl From<RangeOutput> for Answers {
    fn from(output: RangeOutput) -> Self {
        let RangeOutput { starts, slots, vector_ids, user_ids, scores, counters, .. } = output;
        Answers { starts, slots, vector_ids, user_ids, scores, n_counters: counters.len() }
    }
}

/// Searches in the way that the flags ask for.
fn ask(index: &Arc<Index>, queries: &Queries<'_>, params: &SearchParams, call: Call) -> Result<Answers> {
    let (is_later, radius) = (call.has(LATER), call.radius());
    Ok(if call.has(RANGE) && is_later {
        later(|done| index.range_search_later(queries.copied(), radius, params.clone(), done))?.into()
    } else if call.has(RANGE) {
        index.range_search(queries, radius, params)?.into()
    } else if call.has(TRACE) {
        let (output, trace) = index.search_traced(queries, params)?;
        check_trace(&trace, queries.n, index.graph.layout().n_vertices);
        output.into()
    } else if is_later {
        later(|done| index.search_later(queries.copied(), params.clone(), done))?.into()
    } else {
        index.search(queries, params)?.into()
    })
}

/// Events of each query, of vertices that exist.
fn check_trace(trace: &Trace, n_queries: usize, n: u32) {
    assert_eq!((trace.starts.len(), trace.starts[n_queries]), (n_queries + 1, trace.events.len()));
    assert!(trace.starts.is_sorted());
    assert!(trace.events.iter().all(|event| event.slot < n || event.slot == NO_SLOT));
}

impl Answers {
    /// Rows of different slots that exist and may be returned, best first, then nothing.
    fn check(&self, index: &Index, params: &SearchParams, call: Call) {
        let (n, metric) = (index.graph.layout().n_vertices, index.graph.metric);
        assert_eq!((self.starts.len(), self.n_counters), (call.n_queries + 1, call.n_queries));
        assert_eq!((self.starts[call.n_queries], self.vector_ids.len()), (self.slots.len(), self.slots.len()));
        assert!(self.vector_ids.iter().all(|&id| (-1..i64::from(n)).contains(&id)));
        for row in self.starts.windows(2).map(|row| row[0]..row[1]) {
            check_rows(&self.slots[row.clone()], &self.scores[row.clone()], row.len(), n, metric, true);
        }
        if call.has(RANGE) {
            let (sign, radius) = (if metric == Metric::L2 { 1.0 } else { -1.0 }, call.radius());
            assert!(self.slots.iter().all(|&slot| slot >= 0), "a result is missing: {:?}", self.slots);
            assert!(self.scores.iter().all(|score| score * sign <= radius * sign), "{:?}, {radius}", self.scores);
        }
        if let Some(allow) = &params.allow {
            let is_allowed = |&slot: &i64| slot < 0 || allow.allowed().contains(slot as u32);
            assert!(self.slots.iter().all(is_allowed), "a filter leaves out some of {:?}", self.slots);
        }
    }
}
