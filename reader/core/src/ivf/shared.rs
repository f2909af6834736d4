//! What all queries of one search share, and what one of them costs.

use super::batch::Batch;
use super::best::Best;
use super::centroids::Centroids;
use super::params::IvfParams;
use super::pieces::Pieces;
use crate::engine::Source;
use crate::living::Slots;
use crate::memory::Region;
use crate::search::Queries;
use crate::search::queries::Prepared;
use crate::search::reads::Reads;
use crate::vectors::Vectors;

/// Cost of one query. With engine "memory" lists count as if they had been read.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct IvfCounters {
    /// Probed lists that are not empty, of all batches.
    pub lists: u64,
    /// Reads of lists: one, or one for each 256 KiB of rows and of ids.
    pub reads: u64,
    /// Reads of exact vectors.
    pub vector_reads: u64,
    /// Bytes of all of them.
    pub bytes_read: u64,
    /// Pages of ids.imx read, from the page cache or from disk, for the user ids of the results.
    pub id_pages_read: u64,
    /// Centroids measured.
    pub centroid_distances: u64,
    /// Rows measured.
    pub distances: u64,
    /// Candidates measured by their exact vectors.
    pub reranked: u64,
    /// Time from start to end, including work of the thread on other queries.
    pub latency_us: f32,
    /// Part of it between the submission of reads and the handling of the last one; the thread may have worked on other
    /// queries meanwhile.
    pub io_wait_us: f32,
    /// Rounds of requests that followed one another, with blocks in a store; else 0.
    pub rounds: u32,
}

/// What all queries of one search share.
pub struct Shared<'a> {
    pub centroids: &'a Centroids,
    pub batches: &'a [Batch],
    pub vectors: Option<&'a Vectors>,
    /// Vectors that deletions left; all if none.
    pub living: Option<&'a Slots>,
    pub pieces: &'a Pieces,
    pub source: &'a Source<Vec<Region>>,
    pub queries: Queries<'a>,
    pub params: &'a IvfParams,
    /// Buffers of a query.
    pub width: usize,
}

impl Shared<'_> {
    /// Whether a vector was not deleted.
    pub fn is_living(&self, id: u32) -> bool {
        self.living.is_none_or(|living| living.contains(id))
    }

    /// Number of deleted vectors.
    pub fn n_deleted(&self) -> u32 {
        self.living.map_or(0, |living| self.centroids.n_vectors - living.len())
    }
}

/// One query: the nearest vectors so far, its reads and its cost.
#[derive(Default)]
pub struct Progress {
    pub query: Prepared,
    /// Components of the query rotated as centroids and rows are; empty if they are not.
    pub rotated: Vec<f32>,
    pub best: Best,
    pub reads: Reads,
    pub counters: IvfCounters,
}

/// A query as centroids and rows are compared with it.
#[derive(Clone, Copy)]
pub struct Compared<'a> {
    pub floats: &'a [f32],
    /// The raw bytes of integer queries; else empty.
    pub bytes: &'a [u8],
}

impl Progress {
    /// The query as centroids and rows are compared with it.
    pub fn compared(&self) -> Compared<'_> {
        let floats = if self.rotated.is_empty() { &self.query.floats } else { &self.rotated };
        Compared { floats, bytes: &self.query.bytes }
    }
}
