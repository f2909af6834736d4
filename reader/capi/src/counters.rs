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

// A test sees to it that no counter of the core is forgotten here, except `rounds`: it counts requests to object storage,
// which this library does not open.

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
            ..
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
            ..
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
            ..
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fmt::Debug;

    use super::*;

    /// Names and values of the fields of a structure of numbers.
    fn fields(value: &impl Debug) -> HashMap<String, f64> {
        let text = format!("{value:?}");
        let (_, fields) = text.trim_end_matches([' ', '}']).split_once('{').unwrap();
        let parts = fields.split(',').map(|field| field.split_once(':').unwrap());
        parts.map(|(name, value)| (name.trim().to_owned(), value.trim().parse().unwrap())).collect()
    }

    fn assert_complete(of_core: &impl Debug, here: &ImCounters) {
        let here = fields(here);
        for (name, value) in fields(of_core) {
            let name: &str = if name == "reads" { "list_reads" } else { &name };
            assert!(value > 0.0 && (name == "rounds" || here.get(name) == Some(&value)), "{name}: {value}");
        }
    }

    #[test]
    fn every_counter_of_the_core_arrives_under_its_name() {
        let mut graph = Counters::default();
        (graph.pages_read, graph.bytes_read, graph.id_pages_read, graph.bytes_used) = (1, 2, 3, 4);
        (graph.hops, graph.distances, graph.code_distances, graph.expansions) = (5, 6, 7, 8);
        (graph.page_heap_hits, graph.cache_hits, graph.rounds) = (9, 10, 11);
        (graph.latency_us, graph.io_wait_us) = (12.0, 13.0);
        assert_complete(&graph, &ImCounters::from(&graph));
        let mut lists = IvfCounters::default();
        (lists.lists, lists.reads, lists.vector_reads, lists.bytes_read, lists.id_pages_read) = (1, 2, 3, 4, 5);
        (lists.centroid_distances, lists.distances, lists.reranked, lists.rounds) = (6, 7, 8, 9);
        (lists.latency_us, lists.io_wait_us) = (10.0, 11.0);
        assert_complete(&lists, &ImCounters::from(&lists));
        let mut tables = LshCounters::default();
        (tables.table_reads, tables.block_reads, tables.blocks, tables.vector_reads) = (1, 2, 3, 4);
        (tables.bytes_read, tables.id_pages_read, tables.radii, tables.entries) = (5, 6, 7, 8);
        (tables.candidates, tables.distances, tables.latency_us, tables.io_wait_us) = (9, 10, 11.0, 12.0);
        assert_complete(&tables, &ImCounters::from(&tables));
    }
}
