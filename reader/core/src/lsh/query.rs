//! One query as a state machine that never waits: (R, c)-near neighbour searches of growing radii (paper, sections 2.3
//! and 5.4).
//!
//! Of one radius all occupied buckets that the query leads to are looked up, up to 256 at a time: the pages of their
//! pointers first, unless these are in memory, each followed by its bucket's blocks as soon as it is there. Buckets are scanned in the order of the
//! tables, whatever came first, and entries whose fingerprint differs are passed over. The radius ends when all are
//! scanned, or S vectors (k - 1 more for k neighbours) were measured that no smaller radius had met; the search ends
//! when the k-th nearest is within c R. So what a query decides depends on no clock, and neither do its counters:
//! reads that were asked for count, whether S made them useless or not.

use super::buckets::Pointer;
use super::probing::Prober;
use super::search::{LshCounters, Shared};
use super::{BUCKETS, Source, VECTORS};
use crate::distance::prefetch_row;
use crate::error::{Error, Result};
use crate::metric::Metric;
use crate::pagefile::PAGE_BYTES;
use crate::search::exact;
use crate::search::nearest::{Nearest, distance_of, key, slot_of};
use crate::search::stamped::Stamped;
use crate::search::task::Step;
use crate::search::vectors::Prepared;

/// Vectors that an idle query state remembers having met.
const KEPT_RESULTS: usize = 1 << 14;

/// An occupied bucket that the query leads to.
#[derive(Debug, Clone, Copy)]
struct Target {
    entry: u64,
    fingerprint: u32,
    /// 0 for the table's own bucket of the query, then its probes.
    rank: u32,
}

/// A target that is being looked up.
#[derive(Debug, Clone, Copy)]
struct Lookup {
    target: Target,
    /// Blocks that were asked for; `None` until the pointer is there.
    run: Option<Pointer>,
    /// Whether they are there.
    is_here: bool,
    /// The smallest entry that may come next.
    least: u64,
}

/// A read into a buffer of the query's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Read {
    pub buffer: usize,
    pub file: usize,
    pub offset: u64,
    pub bytes: usize,
}

/// State of one query, reused for the next. Memory: 24 bytes a bucket of one radius, 24 a vector met.
#[derive(Default)]
pub(crate) struct QueryState {
    query: Prepared,
    /// The query as it is hashed, where that differs.
    hashed: Vec<f32>,
    /// What turns a distance into a squared Euclidean one: factor and summand.
    to_squared: (f64, f64),
    projected: Vec<f32>,
    prober: Prober,
    radius: usize,
    targets: Vec<Target>,
    n_begun: usize,
    lookups: Vec<Lookup>,
    n_scanned: usize,
    is_measuring: bool,
    in_flight: usize,
    pub(super) reads: Vec<Read>,
    met: Stamped,
    /// Met, but not measured yet.
    fresh: Vec<u32>,
    n_fresh: u64,
    /// Parts of `fresh` that one read serves each, those begun, and which is in each buffer.
    groups: Vec<(usize, usize)>,
    n_groups_begun: usize,
    group_of: Vec<usize>,
    nearest: Nearest,
    sorted: Vec<u64>,
    scratch: Vec<f32>,
    counters: LshCounters,
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
            if !self.is_measuring {
                self.scan(shared, &buffer)?;
            }
            if self.in_flight > 0 {
                return Ok(Step::Wait);
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
            let pointer = index.tables.pointer_in(entry, &bytes[..PAGE_BYTES], &index.buckets)?;
            self.follow(shared, i, pointer);
            return Ok(true);
        }
        self.lookups[i].is_here = true;
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

    /// Finds the occupied buckets of a radius: each table's own one, then each table's most promising other one, ...
    fn begin_radius(&mut self, shared: &Shared<'_>, radius: usize) {
        let (functions, tables) = (&shared.index.functions, &shared.index.tables);
        (self.radius, self.n_begun, self.n_scanned, self.n_fresh) = (radius, 0, 0, 0);
        self.lookups.clear();
        self.targets.clear();
        self.counters.radii += 1;
        let targets = &mut self.targets;
        for (table, projected) in self.projected.chunks_exact(functions.n_functions).enumerate() {
            let mut rank = 0;
            let mut offer = |sum: u64| {
                let address = functions.address(sum);
                let entry = functions.entry(radius, table, address.bucket);
                if tables.is_occupied(entry) {
                    targets.push(Target { entry, fingerprint: address.fingerprint, rank });
                }
                rank += 1;
            };
            let sum = functions.sum(radius, table, projected);
            offer(sum);
            if shared.probes > 0 {
                self.prober.probe(functions, (radius, table), projected, sum, shared.probes, offer);
            }
        }
        if shared.probes > 0 {
            targets.sort_by_key(|target| target.rank);
        }
    }

    /// Begins to look up as many targets as there are buffers.
    fn begin_batch(&mut self, shared: &Shared<'_>) -> Result<()> {
        let index = shared.index;
        let end = self.targets.len().min(self.n_begun + shared.width);
        self.n_scanned = 0;
        self.lookups.clear();
        for &target in &self.targets[self.n_begun..end] {
            self.lookups.push(Lookup { target, run: None, is_here: false, least: 0 });
        }
        self.n_begun = end;
        if shared.reads_tables() {
            self.counters.table_reads += self.lookups.len() as u64;
            self.counters.bytes_read += (self.lookups.len() * PAGE_BYTES) as u64;
        }
        self.lookups.iter().for_each(|lookup| index.tables.prefetch(lookup.target.entry));
        for i in 0..self.lookups.len() {
            let entry = self.lookups[i].target.entry;
            match index.tables.held(entry, &index.buckets)? {
                Some(pointer) => self.follow(shared, i, pointer),
                None => {
                    let offset = index.tables.place(entry).0 * PAGE_BYTES as u64;
                    self.reads.push(Read { buffer: i, file: 0, offset, bytes: PAGE_BYTES });
                    self.in_flight += 1;
                }
            }
        }
        Ok(())
    }

    /// Asks for the blocks that lie together from `pointer` on, but for no more than S entries.
    fn follow(&mut self, shared: &Shared<'_>, i: usize, pointer: Pointer) {
        let buckets = &shared.index.buckets;
        let run = Pointer { run: pointer.run.min(shared.most_blocks), ..pointer };
        let bytes = run.run * buckets.block_bytes;
        self.counters.block_reads += 1;
        self.counters.blocks += run.run as u64;
        self.counters.bytes_read += bytes as u64;
        self.lookups[i].run = Some(run);
        if let Source::Memory { blocks } = &shared.index.source {
            prefetch_row(blocks.as_ptr().wrapping_add((run.offset - buckets.begin()) as usize), bytes);
            self.lookups[i].is_here = true;
            return;
        }
        self.lookups[i].is_here = false;
        self.reads.push(Read { buffer: i, file: BUCKETS, offset: run.offset, bytes });
        self.in_flight += 1;
    }

    /// Scans the buckets that are here, in order.
    fn scan<'a>(&mut self, shared: &Shared<'_>, buffer: &impl Fn(usize) -> &'a [u8]) -> Result<()> {
        while self.n_scanned < self.lookups.len() && self.n_fresh < shared.limit {
            let (i, lookup) = (self.n_scanned, self.lookups[self.n_scanned]);
            let Some(run) = lookup.run.filter(|_| lookup.is_here) else { break };
            let bytes = run.run * shared.index.buckets.block_bytes;
            let content = match &shared.index.source {
                Source::Memory { blocks } => &blocks[(run.offset - shared.index.buckets.begin()) as usize..][..bytes],
                Source::Storage { file, .. } => &buffer(i)[shared.skip(file, BUCKETS, run.offset)..][..bytes],
            };
            match self.scan_run(shared, i, run, content)? {
                Some(next) => self.follow(shared, i, next),
                None => self.n_scanned += 1,
            }
        }
        self.measure_held(shared);
        Ok(())
    }

    /// Scans blocks that were read together; where the chain goes on, unless that makes no difference.
    fn scan_run(&mut self, shared: &Shared<'_>, i: usize, run: Pointer, content: &[u8]) -> Result<Option<Pointer>> {
        let (index, buckets) = (shared.index, &shared.index.buckets);
        let wanted = buckets.entries_of(self.lookups[i].target.fingerprint);
        let (mut offset, mut rest) = (run.offset, None);
        for bytes in content.chunks_exact(buckets.block_bytes) {
            if let Source::Storage { .. } = index.source {
                buckets.check_crc(offset, bytes)?;
            }
            let block = buckets.block(offset, bytes)?;
            for entry in block.entries() {
                self.counters.entries += 1;
                if entry < self.lookups[i].least {
                    let (place, least) = (format!("block at offset {offset}: entry"), self.lookups[i].least);
                    return Err(Error::corrupt(&buckets.path, place, format!("at least {least}"), entry));
                }
                self.lookups[i].least = entry + 1;
                if entry >= wanted.end {
                    return Ok(None);
                }
                if entry >= wanted.start && self.meet(shared, buckets.split(offset, entry)?.0) {
                    return Ok(None);
                }
            }
            offset += buckets.block_bytes as u64;
            match block.next {
                Some(next) if next.offset == offset => rest = Some(next),
                elsewhere => return Ok(elsewhere),
            }
        }
        Ok(rest)
    }

    /// Takes a vector whose fingerprint fits; true if no more are wanted of this radius.
    fn meet(&mut self, shared: &Shared<'_>, slot: u32) -> bool {
        self.counters.candidates += 1;
        let met = self.met.entry(slot);
        if *met == 0 {
            *met = 1;
            self.fresh.push(slot);
            self.n_fresh += 1;
            if let Some(row) = shared.index.vectors.held(slot) {
                prefetch_row(row.as_ptr(), row.len());
            }
        }
        self.n_fresh >= shared.limit
    }

    /// Measures what was met, if vectors are in memory.
    fn measure_held(&mut self, shared: &Shared<'_>) {
        let vectors = &shared.index.vectors;
        if !vectors.is_in_memory() {
            return;
        }
        let stored = vectors.stored();
        for slot in self.fresh.drain(..) {
            let Some(row) = vectors.held(slot) else { continue };
            self.nearest.push(key(exact::distance(&stored, &self.query, row, &mut self.scratch), slot));
            self.counters.distances += 1;
        }
    }

    /// Begins to read the vectors that were met, each page once.
    fn begin_measuring(&mut self, shared: &Shared<'_>) {
        let vectors = &shared.index.vectors;
        self.is_measuring = true;
        self.fresh.sort_unstable();
        self.groups.clear();
        let mut start = 0;
        for group in self.fresh.chunk_by(|&a, &b| vectors.unit_of(a) == vectors.unit_of(b)) {
            self.groups.push((start, start + group.len()));
            start += group.len();
        }
        self.n_groups_begun = 0;
        self.group_of.resize(shared.width, 0);
        for buffer in 0..self.groups.len().min(shared.width) {
            self.read_group(shared, buffer);
        }
    }

    fn read_group(&mut self, shared: &Shared<'_>, buffer: usize) {
        let vectors = &shared.index.vectors;
        let group = self.n_groups_begun;
        let (offset, bytes) =
            (vectors.offset_of(vectors.unit_of(self.fresh[self.groups[group].0])), vectors.unit_bytes());
        self.reads.push(Read { buffer, file: VECTORS, offset, bytes });
        self.group_of[buffer] = group;
        self.n_groups_begun += 1;
        self.in_flight += 1;
        self.counters.vector_reads += 1;
        self.counters.bytes_read += bytes as u64;
    }

    fn measure_group(&mut self, shared: &Shared<'_>, group: usize, bytes: &[u8]) -> Result<()> {
        let (vectors, (start, end)) = (&shared.index.vectors, self.groups[group]);
        let (stored, unit) = (vectors.stored(), &bytes[..vectors.unit_bytes()]);
        vectors.check_unit(vectors.unit_of(self.fresh[start]), unit)?;
        for &slot in &self.fresh[start..end] {
            let row = vectors.row(unit, slot);
            self.nearest.push(key(exact::distance(&stored, &self.query, row, &mut self.scratch), slot));
            self.counters.distances += 1;
        }
        Ok(())
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
