//! A block of queries on all threads: [`LshIndex::search`].

use super::index::LshIndex;
use super::params::LshParams;
use super::query::QueryState;
use super::shared::{LshCounters, Shared};
use crate::engine::Source;
use crate::error::Result;
use crate::pagefile::PAGE_BYTES;
use crate::search::Queries;
use crate::search::answers::Output;
use crate::search::task::Search;
use crate::search::threads::run;
use crate::search::with_ids::{self, IdSource, WithIds, buffers_with_ids, ids_in_order};

/// Reads that a query has in flight at most.
const MAX_WIDTH: usize = 256;
/// Bytes of one read of bucket blocks at most; a longer chain takes several.
const MAX_RUN_BYTES: usize = 64 << 10;

/// Answers to a block of queries. A slot is a vector id; -1 where fewer than k vectors were met.
pub type LshOutput = Output<LshCounters>;

impl LshIndex {
    /// Finds k near vectors of each query, sorted by (distance, slot).
    ///
    /// `interrupted` is asked now and then, on the calling thread only; once it says true the search ends with
    /// [`crate::Error::Interrupted`]. Results and counters (times excepted) are the same for every engine, number of
    /// threads and number of queries in flight.
    pub fn search(
        &self,
        queries: &Queries<'_>,
        params: &LshParams,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<LshOutput> {
        let search = self.prepare(queries, params)?;
        let mut output = Output::allocate(queries.n, params.k)?;
        let inflight = if self.source.held().is_some() { 1 } else { params.inflight };
        let parts = run(&search, queries.n, params.threads, inflight, interrupted)?;
        parts.iter().for_each(|part| output.scatter(&part.kind));
        (_, output.user_ids) = ids_in_order(&self.ids, queries.n, &parts, |part| part, Some(params.k));
        Ok(output)
    }

    fn prepare<'a>(&'a self, queries: &'a Queries<'a>, params: &LshParams) -> Result<Search<'a, WithIds<QueryState>>> {
        let LshIndex { functions, tables, buckets, vectors, ids, source, idle, .. } = self;
        let (limit, probes) = params.resolve(functions)?;
        queries.check(&vectors.stored())?;
        let unit_bytes = match source {
            Source::Memory(_) => 1,
            Source::Storage(storage) => storage.file.unit_bytes(),
        };
        let most_blocks = limit.div_ceil(buckets.capacity as u64).min((MAX_RUN_BYTES / buckets.block_bytes) as u64);
        let width = MAX_WIDTH.min(functions.n_tables * (probes + 1));
        let kind = Shared {
            functions,
            tables,
            buckets,
            vectors,
            source,
            queries,
            k: params.k,
            limit,
            probes,
            width,
            most_blocks: most_blocks as usize,
            unit_bytes,
        };
        let slot_bytes = slot_bytes(&kind);
        let width = buffers_with_ids(ids, width, Some(params.k));
        let shared = with_ids::Shared { kind, ids: Some(IdSource { ids, files: source.files(), width }) };
        Ok(Search { shared, source, idle, width, slot_bytes })
    }
}

/// Bytes of a buffer: the longest read.
fn slot_bytes(shared: &Shared<'_>) -> usize {
    let Shared { source: Source::Storage(storage), buckets, vectors, most_blocks, .. } = shared else {
        return 0;
    };
    let (block_bytes, unit_bytes) = (buckets.block_bytes, storage.file.unit_bytes());
    // Blocks smaller than a unit begin anywhere in it.
    let slack = if block_bytes < unit_bytes { unit_bytes } else { 0 };
    let run_bytes = (most_blocks * block_bytes + slack).next_multiple_of(unit_bytes);
    let vector_bytes = if vectors.is_in_memory() { 0 } else { vectors.unit_bytes() };
    PAGE_BYTES.max(run_bytes).max(vector_bytes)
}
