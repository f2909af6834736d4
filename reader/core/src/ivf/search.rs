//! A block of queries on all threads: [`IvfIndex::search`].

use super::index::IvfIndex;
use super::params::IvfParams;
use super::query::QueryState;
use super::shared::{IvfCounters, Shared};
use crate::error::Result;
use crate::pagefile::PAGE_BYTES;
use crate::search::Queries;
use crate::search::answers::Output;
use crate::search::task::Search;
use crate::search::threads::run;
use crate::search::with_ids::{self, IdSource, WithIds, ids_in_order};

/// Reads that a query has in flight at most.
const MAX_WIDTH: usize = 64;
/// Buffers of a thread, in bytes: queries have fewer reads in flight rather than more.
const BUFFER_BYTES: usize = 64 << 20;

/// Answers to a block of queries. A slot is a vector id; -1 where the lists held fewer than k.
pub type IvfOutput = Output<IvfCounters>;

impl IvfIndex {
    /// Finds k near vectors of each query, sorted by (distance, slot).
    ///
    /// `interrupted` is asked now and then, on the calling thread only; once it says true the search ends with
    /// [`crate::Error::Interrupted`]. Results and counters (times excepted) are the same for every engine, number of
    /// threads and number of queries in flight.
    pub fn search(
        &self,
        queries: &Queries<'_>,
        params: &IvfParams,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<IvfOutput> {
        params.check(&self.centroids, self.vectors.is_some())?;
        queries.check(&self.centroids.stored())?;
        let mut output = Output::allocate(queries.n, params.k)?;
        let search = self.prepare(queries, params);
        let inflight = if self.source.held().is_some() { 1 } else { params.inflight };
        let parts = run(&search, queries.n, params.threads, inflight, interrupted)?;
        parts.iter().for_each(|part| output.scatter(&part.kind));
        (_, output.user_ids) = ids_in_order(&self.ids, queries.n, &parts, |part| part, Some(params.k));
        Ok(output)
    }

    fn prepare<'a>(&'a self, queries: &'a Queries<'a>, params: &'a IvfParams) -> Search<'a, WithIds<QueryState>> {
        let IvfIndex { centroids, batches, vectors, ids, pieces, source, idle, .. } = self;
        let list_bytes = batches.iter().map(|batch| pieces.buffer_bytes(batch, batch.longest)).max();
        let vector_bytes = match vectors {
            Some(vectors) if params.rerank > 0 && !vectors.is_in_memory() => vectors.unit_bytes(),
            _ => 0,
        };
        let slot_bytes = list_bytes.unwrap_or(0).max(vector_bytes).max(PAGE_BYTES);
        let width = (BUFFER_BYTES / slot_bytes / params.inflight).clamp(1, MAX_WIDTH);
        let vectors = vectors.as_ref();
        let kind = Shared { centroids, batches, vectors, pieces, source, queries, params, width };
        let shared = with_ids::Shared { kind, ids: Some(IdSource { ids, files: source.files(), width }) };
        Search { shared, source, idle, width, slot_bytes }
    }
}
