//! One query as a state machine that never waits: (R, c)-near neighbour searches of growing radii (paper, sections 2.3
//! and 5.4).
//!
//! Of one radius all occupied buckets that the query leads to are looked up, up to 256 at a time: the sectors of their
//! pointers first, unless these are in memory, each followed by its bucket's blocks as soon as it is there. Buckets are
//! scanned in the order of the tables, whatever came first, and entries whose fingerprint differs are passed over. The
//! radius ends when all are scanned, or S vectors (k - 1 more for k neighbours) were measured that no smaller radius had
//! met; the search ends when the k-th nearest is within c R. So what a query decides depends on no clock, and neither do
//! its counters: reads that were asked for count, whether S made them useless or not.
//!
//! Deviations: the paper reads a bucket block by block, here one read takes blocks that lie together; it says nothing of
//! k neighbours beyond S, nor of vectors met at two radii, which count and are measured once.

use super::lookup::{Lookup, Target};
use super::met::Met;
use super::probing::Prober;
use super::search::{LshCounters, Shared};
use crate::bytes::u64_at;
use crate::distance::prefetch_row;
use crate::error::Result;
use crate::metric::Metric;
use crate::search::nearest::{Nearest, distance_of, slot_of};
use crate::search::queries::Prepared;
use crate::search::task::Step;

/// Vectors that an idle query state remembers having met.
const KEPT_RESULTS: usize = 1 << 14;

/// A read into a buffer of the query's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Read {
    pub buffer: usize,
    pub file: usize,
    pub offset: u64,
    pub bytes: usize,
}

/// State of one query, reused for the next. Memory: 24 bytes a bucket of one radius, 16 a vector met.
#[derive(Default)]
pub(crate) struct QueryState {
    pub(super) query: Prepared,
    /// The query as it is hashed, where that differs.
    hashed: Vec<f32>,
    /// What turns a distance into a squared Euclidean one: factor and summand.
    to_squared: (f64, f64),
    pub(super) projected: Vec<f32>,
    pub(super) prober: Prober,
    pub(super) radius: usize,
    pub(super) targets: Vec<Target>,
    pub(super) n_begun: usize,
    pub(super) lookups: Vec<Lookup>,
    pub(super) n_scanned: usize,
    pub(super) is_measuring: bool,
    pub(super) in_flight: usize,
    pub(super) reads: Vec<Read>,
    pub(super) met: Met,
    /// Vectors of one block whose fingerprint fits.
    pub(super) fitting: Vec<u32>,
    /// Met, but not measured yet.
    pub(super) fresh: Vec<u32>,
    pub(super) n_fresh: u64,
    /// Parts of `fresh` that one read serves each, those begun, and which is in each buffer.
    pub(super) groups: Vec<(usize, usize)>,
    pub(super) n_groups_begun: usize,
    pub(super) group_of: Vec<usize>,
    pub(super) nearest: Nearest,
    sorted: Vec<u64>,
    pub(super) scratch: Vec<f32>,
    pub(super) counters: LshCounters,
}

impl QueryState {
    /// Takes query `i`.
    pub fn start(&mut self, shared: &Shared<'_>, i: usize) {
        let (functions, vectors) = (&shared.index.functions, &shared.index.vectors);
        self.query.load(shared.queries, i, vectors.metric);
        self.to_squared = (1.0, 0.0);
        let mut hashed = &self.query.floats;
        if vectors.metric == Metric::Ip {
            // The query of the stored vectors' norm M; a zero query has no direction.
            let norm = self.query.floats.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
            let (most, scale) = (vectors.max_norm, if norm > 0.0 { vectors.max_norm / norm } else { 0.0 });
            self.to_squared = (2.0 * scale, most * most + (scale * norm) * (scale * norm));
            self.hashed.clear();
            self.hashed.extend(self.query.floats.iter().map(|&x| (f64::from(x) * scale) as f32));
            hashed = &self.hashed;
        }
        functions.project(hashed, &mut self.projected);
        self.met.reset();
        self.nearest.reset(shared.k);
        self.counters = LshCounters::default();
        self.reads.clear();
        self.begin_radius(shared, 0);
    }

    /// Goes on until reads are needed; `buffer(i)` is the content of buffer i, of a read that arrived.
    pub fn advance<'a>(&mut self, shared: &Shared<'_>, buffer: impl Fn(usize) -> &'a [u8]) -> Result<Step> {
        loop {
            if self.in_flight > 0 {
                return Ok(Step::Wait);
            }
            if !self.is_measuring {
                self.scan(shared, &buffer)?;
                if self.in_flight > 0 {
                    return Ok(Step::Wait);
                }
            }
            if !self.is_measuring && !self.fresh.is_empty() {
                self.begin_measuring(shared);
                continue;
            }
            if self.is_measuring {
                self.is_measuring = false;
                self.fresh.clear();
            }
            if self.n_begun < self.targets.len() && self.n_fresh < shared.limit {
                self.begin_batch(shared)?;
            } else if self.is_satisfied(shared) {
                return Ok(Step::Done);
            } else {
                self.begin_radius(shared, self.radius + 1);
            }
        }
    }

    /// Scans what is there once all queries that can go on have submitted their reads: a bucket may take as long as many
    /// reads. True if that leads to further reads.
    pub fn overlap<'a>(&mut self, shared: &Shared<'_>, buffer: impl Fn(usize) -> &'a [u8]) -> Result<bool> {
        if self.is_measuring {
            return Ok(false);
        }
        self.scan(shared, &buffer)?;
        Ok(!self.reads.is_empty())
    }

    /// Takes the read into buffer `i`, which fills the front of `bytes`; true if [`QueryState::advance`] can go on.
    pub fn arrive(&mut self, shared: &Shared<'_>, i: usize, bytes: &[u8]) -> Result<bool> {
        let index = shared.index;
        self.in_flight -= 1;
        if self.is_measuring {
            self.measure_group(shared, self.group_of[i], bytes)?;
            if self.n_groups_begun < self.groups.len() {
                self.read_group(shared, i);
                return Ok(true);
            }
            return Ok(self.in_flight == 0);
        }
        if self.lookups[i].run.is_none() {
            let entry = self.lookups[i].target.entry;
            let raw = u64_at(bytes, shared.skip(index.tables.offset_of(entry)));
            let pointer = index.tables.pointer(entry, raw, &index.buckets)?;
            self.follow(shared, i, pointer);
            return Ok(true);
        }
        self.lookups[i].is_here = true;
        // It is scanned after all that arrived with it.
        prefetch_row(bytes.as_ptr(), self.lookups[i].run.map_or(0, |run| run.run * index.buckets.block_bytes));
        Ok(i == self.n_scanned || self.in_flight == 0)
    }

    /// Appends the slots and scores of the results and returns what the query cost.
    pub fn finish(&mut self, shared: &Shared<'_>, slots: &mut Vec<i64>, scores: &mut Vec<f32>) -> LshCounters {
        self.nearest.drain_sorted(&mut self.sorted);
        for &key in &self.sorted {
            slots.push(i64::from(slot_of(key)));
            scores.push(shared.index.vectors.metric.score(distance_of(key)));
        }
        self.counters
    }

    /// Gives back the memory of an unusually long search.
    pub fn shrink(&mut self) {
        if self.counters.distances as usize > KEPT_RESULTS || self.targets.capacity() > KEPT_RESULTS {
            *self = QueryState::default();
        }
    }

    /// Whether the search is over: k vectors within c R, no radius left, or no vector.
    fn is_satisfied(&self, shared: &Shared<'_>) -> bool {
        let functions = &shared.index.functions;
        let reach = functions.ratio * functions.radii[self.radius];
        let (factor, summand) = self.to_squared;
        let is_near = |key: u64| factor * f64::from(distance_of(key)) + summand <= reach * reach;
        self.nearest.worst().is_some_and(is_near)
            || self.radius + 1 == functions.n_radii()
            || self.counters.distances == u64::from(functions.n_vectors)
    }
}
