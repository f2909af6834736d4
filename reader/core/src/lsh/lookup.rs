//! Looking buckets up: of one radius, as many at a time as a query has buffers.

use super::buckets::Pointer;
use super::query::{QueryState, Read};
use super::search::Shared;
use super::tables::POINTER_BYTES;
use super::{BUCKETS, SECTOR_BYTES, Source, TABLES};
use crate::distance::prefetch_row;
use crate::error::{Error, Result};

/// An occupied bucket that the query leads to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    pub(super) entry: u64,
    pub(super) fingerprint: u32,
    /// 0 for the table's own bucket of the query, then its probes.
    pub(super) rank: u32,
}

/// A target that is being looked up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lookup {
    pub(super) target: Target,
    /// Blocks that were asked for; `None` until the pointer is there.
    pub(super) run: Option<Pointer>,
    /// Whether they are there.
    pub(super) is_here: bool,
    /// The smallest entry that may come next.
    pub(super) least: u64,
}

impl QueryState {
    /// Finds the occupied buckets of a radius: each table's own one, then each table's most promising other one, ...
    pub(super) fn begin_radius(&mut self, shared: &Shared<'_>, radius: usize) {
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
    pub(super) fn begin_batch(&mut self, shared: &Shared<'_>) -> Result<()> {
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
            self.counters.bytes_read += (self.lookups.len() * SECTOR_BYTES) as u64;
        }
        self.lookups.iter().for_each(|lookup| index.tables.prefetch(lookup.target.entry));
        for i in 0..self.lookups.len() {
            let entry = self.lookups[i].target.entry;
            match index.tables.held(entry, &index.buckets)? {
                Some(pointer) => self.follow(shared, i, pointer),
                None => {
                    let offset = index.tables.offset_of(entry);
                    self.reads.push(Read { buffer: i, file: TABLES, offset, bytes: POINTER_BYTES });
                    self.in_flight += 1;
                }
            }
        }
        Ok(())
    }

    /// Asks for the blocks that lie together from `pointer` on, but for no more than S entries.
    pub(super) fn follow(&mut self, shared: &Shared<'_>, i: usize, pointer: Pointer) {
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
    pub(super) fn scan<'a>(&mut self, shared: &Shared<'_>, buffer: &impl Fn(usize) -> &'a [u8]) -> Result<()> {
        while self.n_scanned < self.lookups.len() && self.n_fresh < shared.limit {
            let (i, lookup) = (self.n_scanned, self.lookups[self.n_scanned]);
            let Some(run) = lookup.run.filter(|_| lookup.is_here) else { break };
            let bytes = run.run * shared.index.buckets.block_bytes;
            let content = match &shared.index.source {
                Source::Memory { blocks } => &blocks[(run.offset - shared.index.buckets.begin()) as usize..][..bytes],
                Source::Storage { .. } => &buffer(i)[shared.skip(run.offset)..][..bytes],
            };
            match self.scan_run(shared, i, run, content)? {
                Some(next) => self.follow(shared, i, next),
                None => self.n_scanned += 1,
            }
        }
        self.measure_held(shared, usize::MAX);
        Ok(())
    }

    /// Scans blocks that were read together; where the chain goes on, unless that makes no difference.
    pub(super) fn scan_run(
        &mut self,
        shared: &Shared<'_>,
        i: usize,
        run: Pointer,
        content: &[u8],
    ) -> Result<Option<Pointer>> {
        let (index, buckets) = (shared.index, &shared.index.buckets);
        let Target { entry, fingerprint, .. } = self.lookups[i].target;
        let wanted = buckets.entries_of(fingerprint);
        let (mut offset, mut rest, mut least) = (run.offset, None, self.lookups[i].least);
        for bytes in content.chunks_exact(buckets.block_bytes) {
            if let Source::Storage { .. } = index.source {
                buckets.check_crc(offset, bytes)?;
            }
            let block = buckets.block(entry, offset, bytes)?;
            // Those that fit lie together. All are sent for before the first is looked up: several queries' sets do not
            // stay in a core's own cache.
            let (mut before, mut n_entries, mut is_last) = (0, 0, false);
            self.fitting.clear();
            for found in block.entries() {
                if found < least {
                    let place = format!("block at offset {offset}: entry");
                    return Err(Error::corrupt(&buckets.path, place, format!("at least {least}"), found));
                }
                least = found + 1;
                n_entries += 1;
                if found >= wanted.end {
                    is_last = true;
                    break;
                }
                if found < wanted.start {
                    before += 1;
                } else {
                    let (slot, _) = buckets.split(offset, found)?;
                    self.met.prefetch(slot);
                    self.fitting.push(slot);
                }
            }
            for place in 0..self.fitting.len() {
                if self.meet(shared, self.fitting[place]) {
                    self.counters.entries += before + place as u64 + 1;
                    return Ok(None);
                }
            }
            self.counters.entries += n_entries;
            if is_last {
                return Ok(None);
            }
            self.lookups[i].least = least;
            offset += buckets.block_bytes as u64;
            match block.next {
                Some(next) if next.offset == offset => rest = Some(next),
                elsewhere => return Ok(elsewhere),
            }
        }
        Ok(rest)
    }

    /// Takes a vector whose fingerprint fits; true if no more are wanted of this radius.
    pub(super) fn meet(&mut self, shared: &Shared<'_>, slot: u32) -> bool {
        self.counters.candidates += 1;
        if self.met.insert(slot) {
            self.n_fresh += 1;
            self.measure_soon(shared, slot);
        }
        self.n_fresh >= shared.limit
    }
}
