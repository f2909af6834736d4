//! Looks up the buckets of one radius, as many at a time as a query has buffers.

use super::buckets::Pointer;
use super::files::PAIRS;
use super::measure::Measure;
use super::met::Met;
use super::pair::Pair;
use super::probing::Prober;
use super::shared::{Ledger, SECTOR_BYTES, Shared};
use super::tables::POINTER_BYTES;
use crate::bytes::u64_at;
use crate::distance::prefetch_row;
use crate::engine::Source;
use crate::error::{Error, Result};
use crate::memory::make_room;
use crate::search::reads::Read;

/// An occupied bucket that the query leads to.
#[derive(Debug, Clone, Copy)]
struct Target {
    entry: u64,
    /// Number of the pair of files that has it.
    pair: usize,
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

/// The buckets of one query, radius after radius.
#[derive(Default)]
pub(super) struct Lookups {
    projected: Vec<f32>,
    prober: Prober,
    radius: usize,
    targets: Vec<Target>,
    n_begun: usize,
    lookups: Vec<Lookup>,
    n_scanned: usize,
    met: Met,
    /// Vectors of one block with the wanted fingerprint.
    fitting: Vec<u32>,
    /// Number of vectors first met at this radius.
    n_fresh: u64,
}

impl Lookups {
    /// Takes up another query; `hashed` is the vector to hash.
    pub fn reset(&mut self, shared: &Shared<'_>, hashed: &[f32]) -> Result<()> {
        let functions = shared.functions;
        self.projected.clear();
        make_room(&shared.pairs[0].tables.path, &mut self.projected, functions.n_tables * functions.n_functions)?;
        functions.project(hashed, &mut self.projected);
        self.met.reset();
        Ok(())
    }

    /// The radius that is searched.
    pub fn radius(&self) -> usize {
        self.radius
    }

    /// Occupied buckets of the radius.
    pub fn n_targets(&self) -> usize {
        self.targets.len()
    }

    /// Buckets for which memory is kept.
    pub fn capacity(&self) -> usize {
        self.targets.capacity()
    }

    /// Whether more buckets of the radius should be looked up.
    pub fn has_more(&self, shared: &Shared<'_>) -> bool {
        self.n_begun < self.targets.len() && self.n_fresh < shared.limit
    }

    /// Finds the occupied buckets of a radius: each table's own one, then each table's most promising other one, ...
    /// That of added tables follows that of the tables.
    pub fn begin_radius(&mut self, shared: &Shared<'_>, radius: usize, ledger: &mut Ledger) {
        let functions = shared.functions;
        (self.radius, self.n_begun, self.n_scanned, self.n_fresh) = (radius, 0, 0, 0);
        self.lookups.clear();
        self.targets.clear();
        ledger.counters.radii += 1;
        let targets = &mut self.targets;
        for (table, projected) in self.projected.chunks_exact(functions.n_functions).enumerate() {
            let mut rank = 0;
            let mut offer = |sum: u64| {
                let address = functions.address(sum);
                let entry = functions.entry(radius, table, address.bucket);
                for (pair, Pair { tables, buckets, .. }) in shared.pairs.iter().enumerate() {
                    if tables.is_occupied(entry) {
                        let fingerprint = buckets.fingerprint_of(address.rest);
                        targets.push(Target { entry, pair, fingerprint, rank });
                    }
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
    pub fn begin_batch(&mut self, shared: &Shared<'_>, ledger: &mut Ledger) -> Result<()> {
        let end = self.targets.len().min(self.n_begun + shared.width);
        self.n_scanned = 0;
        self.lookups.clear();
        for &target in &self.targets[self.n_begun..end] {
            self.lookups.push(Lookup { target, run: None, is_here: false, least: 0 });
        }
        self.n_begun = end;
        if shared.reads_tables() {
            ledger.counters.table_reads += self.lookups.len() as u64;
            ledger.counters.bytes_read += (self.lookups.len() * SECTOR_BYTES) as u64;
        }
        self.lookups.iter().for_each(|Lookup { target, .. }| shared.pairs[target.pair].tables.prefetch(target.entry));
        for i in 0..self.lookups.len() {
            let Target { entry, pair: number, .. } = self.lookups[i].target;
            let (Pair { tables, buckets, .. }, [file, _]) = (&shared.pairs[number], PAIRS[number]);
            match tables.held(entry, buckets)? {
                Some(pointer) => self.follow(shared, i, pointer, ledger),
                None => {
                    let offset = tables.offset_of(entry);
                    ledger.reads.ask(Read { buffer: i, file, offset, bytes: POINTER_BYTES });
                }
            }
        }
        Ok(())
    }

    /// Takes the read into buffer `i`: a pointer, or the blocks that it leads to. True if that leads to further reads, or
    /// if a scan can go on with it.
    pub fn arrive(&mut self, shared: &Shared<'_>, i: usize, bytes: &[u8], ledger: &mut Ledger) -> Result<bool> {
        let lookup = &mut self.lookups[i];
        let Pair { tables, buckets, .. } = &shared.pairs[lookup.target.pair];
        let Some(run) = lookup.run else {
            let entry = lookup.target.entry;
            let raw = u64_at(bytes, shared.skip(tables.offset_of(entry)));
            let pointer = tables.pointer(entry, raw, buckets)?;
            self.follow(shared, i, pointer, ledger);
            return Ok(true);
        };
        lookup.is_here = true;
        // It is scanned after all that arrived with it.
        prefetch_row(bytes.as_ptr(), run.run * buckets.block_bytes);
        Ok(i == self.n_scanned)
    }

    /// Asks for the adjacent blocks from `pointer` on, at most as many as S entries need.
    fn follow(&mut self, shared: &Shared<'_>, i: usize, pointer: Pointer, ledger: &mut Ledger) {
        let number = self.lookups[i].target.pair;
        let buckets = &shared.pairs[number].buckets;
        let run = Pointer { run: pointer.run.min(shared.most_blocks(buckets)), ..pointer };
        let bytes = run.run * buckets.block_bytes;
        ledger.counters.block_reads += 1;
        ledger.counters.blocks += run.run as u64;
        ledger.counters.bytes_read += bytes as u64;
        self.lookups[i].run = Some(run);
        if let Source::Memory(blocks) = shared.source {
            prefetch_row(blocks[number].as_ptr().wrapping_add((run.offset - buckets.begin()) as usize), bytes);
            self.lookups[i].is_here = true;
            return;
        }
        self.lookups[i].is_here = false;
        ledger.reads.ask(Read { buffer: i, file: PAIRS[number][1], offset: run.offset, bytes });
    }

    /// Scans the buckets that are here, in order, until `enough` entries were looked at; false if it is to go on then.
    pub fn scan<'a>(
        &mut self,
        shared: &Shared<'_>,
        buffer: &impl Fn(usize) -> &'a [u8],
        enough: u64,
        measure: &mut Measure,
        ledger: &mut Ledger,
    ) -> Result<bool> {
        while self.n_scanned < self.lookups.len() && self.n_fresh < shared.limit {
            let (i, lookup) = (self.n_scanned, self.lookups[self.n_scanned]);
            let Some(run) = lookup.run.filter(|_| lookup.is_here) else { break };
            if ledger.counters.entries >= enough {
                return Ok(false);
            }
            let (number, buckets) = (lookup.target.pair, &shared.pairs[lookup.target.pair].buckets);
            let bytes = run.run * buckets.block_bytes;
            let content = match shared.source {
                Source::Memory(blocks) => &blocks[number][(run.offset - buckets.begin()) as usize..][..bytes],
                Source::Storage(_) => &buffer(i)[shared.skip(run.offset)..][..bytes],
            };
            match self.scan_run(shared, i, (run, content), measure, ledger)? {
                Some(next) => self.follow(shared, i, next, ledger),
                None => self.n_scanned += 1,
            }
        }
        Ok(true)
    }

    /// Scans blocks that were read together. Returns where the chain continues, unless the rest makes no difference.
    fn scan_run(
        &mut self,
        shared: &Shared<'_>,
        i: usize,
        (run, content): (Pointer, &[u8]),
        measure: &mut Measure,
        ledger: &mut Ledger,
    ) -> Result<Option<Pointer>> {
        let Target { entry, pair, fingerprint, .. } = self.lookups[i].target;
        let buckets = &shared.pairs[pair].buckets;
        let wanted = buckets.entries_of(fingerprint);
        let (mut offset, mut rest, mut least) = (run.offset, None, self.lookups[i].least);
        for bytes in content.chunks_exact(buckets.block_bytes) {
            if let Source::Storage(_) = shared.source {
                buckets.check_crc(offset, bytes)?;
            }
            let block = buckets.block(entry, offset, bytes)?;
            // Entries with one fingerprint are adjacent. All of them are prefetched before the first one is looked up:
            // the sets of several queries do not stay in a core's own cache.
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
                if self.meet(shared, self.fitting[place], measure, ledger) {
                    ledger.counters.entries += before + place as u64 + 1;
                    return Ok(None);
                }
            }
            ledger.counters.entries += n_entries;
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

    /// Takes a vector with the wanted fingerprint, unless it was deleted; true if the radius has enough vectors.
    fn meet(&mut self, shared: &Shared<'_>, slot: u32, measure: &mut Measure, ledger: &mut Ledger) -> bool {
        ledger.counters.candidates += 1;
        if shared.living.is_none_or(|living| living.contains(slot)) && self.met.insert(slot) {
            self.n_fresh += 1;
            measure.soon(shared, slot, ledger);
        }
        self.n_fresh >= shared.limit
    }
}
