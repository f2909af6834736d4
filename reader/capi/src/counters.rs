//! What queries cost.

use indexmill_core::graph::Counters;
use indexmill_core::ivf::IvfCounters;
use indexmill_core::lsh::LshCounters;

use crate::structures::Grows;

/// What one query cost. Counters that the index's kind does not have are 0.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct ImCounters {
    /// sizeof(ImCounters), stored by the caller: of an array, in its first entry.
    pub struct_bytes: u32,
    /// 0.
    pub reserved: u32,
    /// Graphs: pages of vectors and their neighbours read from disk.
    pub pages_read: u64,
    /// Bytes read from disk, without those of ids.
    pub bytes_read: u64,
    /// Pages of ids.imx read, from the page cache or from disk, for the ids of the answers; 0 after im_hold_ids.
    pub id_pages_read: u64,
    /// Graphs: bytes of the nodes that were expanded.
    pub bytes_used: u64,
    /// Graphs: rounds of frontier selection; under IM_POLICY_PIPELINE the longest chain of reads that waited for one
    /// another.
    pub hops: u64,
    /// Exact distances; of inverted lists, rows measured.
    pub distances: u64,
    /// Graphs: distances by PQ codes.
    pub code_distances: u64,
    /// Graphs: vertices with a followed neighbour list.
    pub expansions: u64,
    /// Graphs: frontier vertices with a page already in memory.
    pub page_heap_hits: u64,
    /// Graphs: frontier vertices with a page in the cache of hot vertices.
    pub cache_hits: u64,
    /// Inverted lists: probed lists that are not empty.
    pub lists: u64,
    /// Inverted lists: reads of lists.
    pub list_reads: u64,
    /// Inverted lists: centroids measured.
    pub centroid_distances: u64,
    /// Inverted lists: candidates measured by their exact vectors.
    pub reranked: u64,
    /// Hash tables: reads of pointers.
    pub table_reads: u64,
    /// Hash tables: reads of bucket blocks.
    pub block_reads: u64,
    /// Hash tables: bucket blocks in them.
    pub blocks: u64,
    /// Hash tables: radii searched.
    pub radii: u64,
    /// Hash tables: bucket entries looked at.
    pub entries: u64,
    /// Hash tables: entries with the wanted fingerprint.
    pub candidates: u64,
    /// Inverted lists and hash tables: reads of vectors.
    pub vector_reads: u64,
    /// Microseconds from when a thread began with the query to its answer with ids. The wait for that thread, while the
    /// index is busy, is not counted.
    pub latency_us: f32,
    /// Part of latency_us spent waiting for reads.
    pub io_wait_us: f32,
}

// SAFETY: it is repr(C), begins with its size and consists of numbers.
unsafe impl Grows for ImCounters {
    const LEAST: usize = 184;
}

// Counters are named one by one, without "..", so that one that the core gains is not forgotten here.
// `rounds` counts requests to object storage, which this library does not open.

impl From<&Counters> for ImCounters {
    fn from(counters: &Counters) -> Self {
        let &Counters {
            pages_read,
            bytes_read,
            id_pages_read,
            bytes_used,
            hops,
            distances,
            code_distances,
            expansions,
            page_heap_hits,
            cache_hits,
            latency_us,
            io_wait_us,
            rounds: _,
        } = counters;
        ImCounters {
            pages_read,
            bytes_read,
            id_pages_read,
            bytes_used,
            hops,
            distances,
            code_distances,
            expansions,
            page_heap_hits,
            cache_hits,
            latency_us,
            io_wait_us,
            ..ImCounters::default()
        }
    }
}

impl From<&IvfCounters> for ImCounters {
    fn from(counters: &IvfCounters) -> Self {
        let &IvfCounters {
            lists,
            reads: list_reads,
            vector_reads,
            bytes_read,
            id_pages_read,
            centroid_distances,
            distances,
            reranked,
            latency_us,
            io_wait_us,
            rounds: _,
        } = counters;
        ImCounters {
            lists,
            list_reads,
            vector_reads,
            bytes_read,
            id_pages_read,
            centroid_distances,
            distances,
            reranked,
            latency_us,
            io_wait_us,
            ..ImCounters::default()
        }
    }
}

impl From<&LshCounters> for ImCounters {
    fn from(counters: &LshCounters) -> Self {
        let &LshCounters {
            table_reads,
            block_reads,
            blocks,
            vector_reads,
            bytes_read,
            id_pages_read,
            radii,
            entries,
            candidates,
            distances,
            latency_us,
            io_wait_us,
        } = counters;
        ImCounters {
            table_reads,
            block_reads,
            blocks,
            vector_reads,
            bytes_read,
            id_pages_read,
            radii,
            entries,
            candidates,
            distances,
            latency_us,
            io_wait_us,
            ..ImCounters::default()
        }
    }
}
