//! One query as a state machine that never waits: (R, c)-near neighbour searches of growing radii (paper, sections 2.3
//! and 5.4).
//!
//! All occupied buckets of one radius are looked up, up to 256 at a time: first the sectors of their pointers, unless
//! pointers are in memory, and then each bucket's blocks as soon as its pointer has arrived. Buckets are scanned in the
//! order of the tables, not of arrival, and entries with another fingerprint are skipped. The radius ends when all
//! buckets are scanned, or when S vectors (k - 1 more for k neighbours) that no smaller radius had met are measured.
//! The search ends when the k-th nearest is within c R. So the decisions of a query depend on no clock, and neither do
//! its counters: every read that was asked for counts, even if S made it useless.
//!
//! Deviations: the paper reads a bucket block by block, and here one read takes adjacent blocks. The paper does not say
//! how k neighbours change S, nor what happens to a vector that is met at two radii: here it counts and is measured
//! once.

use super::lookup::Lookups;
use super::measure::Measure;
use super::shared::{Ledger, LshCounters, Shared};
use crate::error::Result;
use crate::living::Slots;
use crate::metric::Metric;
use crate::search::answers::Answers;
use crate::search::nearest::distance_of;
use crate::search::task::{Query, Step, Times};
use crate::search::with_ids::Finds;

/// Bucket entries that a query looks at, and buckets of a radius that it finds, before it gives way: a few milliseconds of
/// work.
const ENTRIES_AT_ONCE: u64 = 4096;
/// Met vectors for which an idle query state keeps memory.
const KEPT_RESULTS: usize = 1 << 14;

/// State of one query, reused for the next. Memory: 24 bytes a bucket of one radius, 16 a vector met.
#[derive(Default)]
pub(crate) struct QueryState {
    measure: Measure,
    lookups: Lookups,
    ledger: Ledger,
    /// The hashed query, if it differs from the query.
    hashed: Vec<f32>,
    /// Factor and summand that turn a distance into a squared Euclidean one.
    to_squared: (f64, f64),
    sorted: Vec<u64>,
}

impl Query for QueryState {
    type Shared<'a> = Shared<'a>;
    type Answers = Answers<LshCounters>;

    fn start(&mut self, shared: &Shared<'_>, i: usize) -> Result<()> {
        let (vectors, query) = (shared.vectors, &mut self.measure.query);
        query.load(&shared.queries, i, vectors.metric);
        self.to_squared = (1.0, 0.0);
        let mut hashed = &query.floats;
        if vectors.metric == Metric::Ip {
            // The query of the stored vectors' norm M; a zero query has no direction.
            let norm = query.floats.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
            let (most, scale) = (vectors.max_norm, if norm > 0.0 { vectors.max_norm / norm } else { 0.0 });
            self.to_squared = (2.0 * scale, most * most + (scale * norm) * (scale * norm));
            self.hashed.clear();
            self.hashed.extend(query.floats.iter().map(|&x| (f64::from(x) * scale) as f32));
            hashed = &self.hashed;
        }
        self.lookups.reset(shared, hashed)?;
        self.measure.reset(shared.k);
        self.ledger.counters = LshCounters::default();
        self.ledger.reads.reset();
        self.lookups.begin_radius(shared, 0, &mut self.ledger);
        Ok(())
    }

    fn advance<'b>(&mut self, shared: &Shared<'_>, buffer: impl Fn(usize) -> &'b [u8]) -> Result<Step> {
        let enough = self.ledger.counters.entries + ENTRIES_AT_ONCE;
        loop {
            if self.ledger.reads.in_flight() > 0 {
                return Ok(Step::Wait);
            }
            if !self.measure.is_reading {
                if !self.scan(shared, &buffer, enough)? {
                    return Ok(Step::Again);
                }
                if self.ledger.reads.in_flight() > 0 {
                    return Ok(Step::Wait);
                }
                if self.measure.begin_reading(shared, &mut self.ledger) {
                    continue;
                }
            }
            self.measure.is_reading = false;
            if self.lookups.has_more(shared) {
                self.lookups.begin_batch(shared, &mut self.ledger)?;
            } else if self.is_satisfied(shared) {
                return Ok(Step::Done);
            } else {
                self.lookups.begin_radius(shared, self.lookups.radius() + 1, &mut self.ledger);
                if self.lookups.n_targets() as u64 > ENTRIES_AT_ONCE {
                    return Ok(Step::Again);
                }
            }
        }
    }

    /// Scans the buckets that have arrived. This comes after every ready query has submitted its reads, because
    /// scanning a bucket may take as long as many reads. True if it leads to further reads, or is to go on.
    fn overlap<'b>(&mut self, shared: &Shared<'_>, buffer: impl Fn(usize) -> &'b [u8]) -> Result<bool> {
        if self.measure.is_reading {
            return Ok(false);
        }
        let enough = self.ledger.counters.entries + ENTRIES_AT_ONCE;
        let went_through = self.scan(shared, &buffer, enough)?;
        Ok(!went_through || self.ledger.reads.has_new())
    }

    fn arrive(&mut self, shared: &Shared<'_>, i: usize, bytes: &[u8]) -> Result<bool> {
        self.ledger.reads.arrive();
        if self.measure.is_reading {
            self.measure.arrive(shared, i, bytes, &mut self.ledger)?;
            return Ok(self.measure.read_unit(shared, i, &mut self.ledger) || self.ledger.reads.in_flight() == 0);
        }
        Ok(self.lookups.arrive(shared, i, bytes, &mut self.ledger)? || self.ledger.reads.in_flight() == 0)
    }

    fn submit(&mut self, shared: &Shared<'_>, queue: impl FnMut(usize, u64, usize) -> Result<()>) -> Result<()> {
        shared.source.files().map_or(Ok(()), |files| self.ledger.reads.submit(files, queue))
    }

    fn finish(&mut self, shared: &Shared<'_>, i: usize, times: Times, answers: &mut Self::Answers) -> Result<()> {
        let Times { latency_us, io_wait_us, .. } = times;
        let counters = LshCounters { latency_us, io_wait_us, ..self.ledger.counters };
        answers.add(&shared.vectors.path, i, &self.sorted, shared.vectors.metric, counters)
    }

    fn shrink(&mut self) {
        let n_met = self.ledger.counters.distances as usize;
        if n_met > KEPT_RESULTS || self.lookups.capacity() > KEPT_RESULTS {
            *self = QueryState::default();
        }
    }
}

impl Finds for QueryState {
    fn end(&mut self) -> &[u64] {
        self.measure.nearest.drain_sorted(&mut self.sorted);
        &self.sorted
    }

    fn count_id_pages(&mut self, pages: u64) {
        self.ledger.counters.id_pages_read += pages;
    }
}

impl QueryState {
    /// See [`Lookups::scan`].
    fn scan<'b>(&mut self, shared: &Shared<'_>, buffer: &impl Fn(usize) -> &'b [u8], enough: u64) -> Result<bool> {
        let went_through = self.lookups.scan(shared, buffer, enough, &mut self.measure, &mut self.ledger)?;
        self.measure.held(shared, usize::MAX, &mut self.ledger);
        Ok(went_through)
    }

    /// Whether the search is over: k vectors are within c R, or no radius or no vector is left.
    fn is_satisfied(&self, shared: &Shared<'_>) -> bool {
        let functions = shared.functions;
        let reach = functions.ratio * functions.radii[self.lookups.radius()];
        let (factor, summand) = self.to_squared;
        let is_near = |key: u64| factor * f64::from(distance_of(key)) + summand <= reach * reach;
        self.measure.nearest.worst().is_some_and(is_near)
            || self.lookups.radius() + 1 == functions.n_radii()
            || self.ledger.counters.distances == u64::from(shared.living.map_or(functions.n_vectors, Slots::len))
    }
}
