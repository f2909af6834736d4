//! What all queries of one search share, and what one of them costs.

use super::buckets::Buckets;
use super::functions::Functions;
use super::pair::Pair;
use crate::engine::Source;
use crate::living::Slots;
use crate::memory::Region;
use crate::search::Queries;
use crate::search::reads::Reads;
use crate::vectors::Vectors;

/// Direct reads start at its multiples where the device allows, and at multiples of a page elsewhere.
pub const SECTOR_BYTES: usize = 512;
/// Bytes of one read of bucket blocks at most; a longer chain takes several.
const MAX_RUN_BYTES: usize = 64 << 10;

/// Cost of one query. With engine "memory" tables and buckets count as if they had been read.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct LshCounters {
    /// Reads of a sector of pointers, if they are not in memory: one for each bucket that is not empty.
    pub table_reads: u64,
    /// Reads of bucket blocks, however many lie together.
    pub block_reads: u64,
    /// Bucket blocks in them; the paper counts each as a read.
    pub blocks: u64,
    /// Reads of vectors, if they are not in memory.
    pub vector_reads: u64,
    /// Bytes of all of them.
    pub bytes_read: u64,
    /// Pages of ids.imx read, from the page cache or from disk, for the user ids of the results.
    pub id_pages_read: u64,
    /// Radii searched.
    pub radii: u64,
    /// Bucket entries looked at.
    pub entries: u64,
    /// Entries with the wanted fingerprint.
    pub candidates: u64,
    /// Vectors measured.
    pub distances: u64,
    /// Time from start to end, including work of the thread on other queries.
    pub latency_us: f32,
    /// Part of it with reads in flight; the thread may have worked on other queries meanwhile, or scanned what this one
    /// had already read.
    pub io_wait_us: f32,
}

/// What all queries of one search share.
pub struct Shared<'a> {
    pub functions: &'a Functions,
    pub pairs: &'a [Pair],
    pub vectors: &'a Vectors,
    /// Vectors that deletions left; all if none.
    pub living: Option<&'a Slots>,
    pub source: &'a Source<Vec<Region>>,
    pub queries: Queries<'a>,
    pub k: usize,
    /// Vectors that a radius may measure.
    pub limit: u64,
    /// T.
    pub probes: usize,
    /// Buffers of a query.
    pub width: usize,
    /// Reads begin and end at its multiples.
    pub unit_bytes: usize,
}

/// The reads of a query, and its cost so far.
#[derive(Default)]
pub struct Ledger {
    pub reads: Reads,
    pub counters: LshCounters,
}

impl Shared<'_> {
    /// Whether pointers count as reads.
    pub fn reads_tables(&self) -> bool {
        self.source.held().is_some() || !self.pairs[0].tables.is_in_memory()
    }

    /// Bucket blocks in one read at most: as many as S entries need.
    pub fn most_blocks(&self, buckets: &Buckets) -> usize {
        let most = MAX_RUN_BYTES / buckets.block_bytes;
        self.limit.div_ceil(buckets.capacity as u64).min(most as u64) as usize
    }

    /// Bytes between `offset` of a file and the start of its unit, where a read begins. Files are whole pages long, and
    /// a unit divides a page.
    pub fn skip(&self, offset: u64) -> usize {
        (offset % self.unit_bytes as u64) as usize
    }
}
