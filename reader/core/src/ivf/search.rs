//! A block of queries on all threads: [`IvfIndex::search`].

use std::sync::Arc;

use super::index::IvfIndex;
use super::params::IvfParams;
use super::query::QueryState;
use super::shared::{IvfCounters, Shared};
use crate::error::Result;
use crate::living::Living;
use crate::pagefile::PAGE_BYTES;
use crate::search::answers::{Answers, Output};
use crate::search::later::{Ticket, start};
use crate::search::task::Search;
use crate::search::with_ids::{self, Found, IdSource, WithIds, ids_in_order};
use crate::search::{OwnedQueries, Queries};

/// Reads that a query has in flight at most.
const MAX_WIDTH: usize = 64;
/// Buffers of a thread, in bytes: queries have fewer reads in flight rather than more.
const BUFFER_BYTES: usize = 64 << 20;
/// The same of a query whose lists are in a store: it holds what arrived alone, and each further round takes long.
const MAX_STORED_WIDTH: usize = 1024;
const STORED_BYTES: usize = 512 << 20;

/// Answers to a block of queries. A slot is a vector id; -1 where the lists held fewer than k.
pub type IvfOutput = Output<IvfCounters>;

impl IvfIndex {
    /// Finds k near vectors of each query, sorted by (distance, slot).
    ///
    /// Results and counters (times excepted) are the same for every engine, number of threads and number of queries in
    /// flight.
    pub fn search(&self, queries: &Queries<'_>, params: &IvfParams) -> Result<IvfOutput> {
        self.search_unless(queries, params, &mut || false)
    }

    /// As [`IvfIndex::search`]. `interrupted` is asked now and then, on the calling thread only; once it says true the search
    /// ends with [`crate::Error::Interrupted`].
    pub fn search_unless(
        &self,
        queries: &Queries<'_>,
        params: &IvfParams,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<IvfOutput> {
        let search = self.prepare(queries, params)?;
        let mut output = Output::allocate(queries.n, params.k)?;
        let found = self.pool.run(&search, interrupted)?;
        output.scatter(&found.kind);
        (_, output.user_ids) = ids_in_order(&self.ids, &found, &found.kind, Some(params.k))?;
        Ok(output)
    }

    /// Begins an [`IvfIndex::search`] and returns; a thread that [`Ticket`] names calls `done` with its outcome. After
    /// [`Ticket::cancel`] that is [`crate::Error::Interrupted`], unless the search had ended.
    ///
    /// # Errors
    /// Those of parameters and queries; then `done` is not called.
    pub fn search_later(
        self: &Arc<Self>,
        queries: OwnedQueries,
        params: IvfParams,
        done: impl FnOnce(Result<IvfOutput>) + Send + 'static,
    ) -> Result<Ticket> {
        let gather = |(index, queries, params): &(Arc<Self>, OwnedQueries, IvfParams), found: Found<Answers<_>>| {
            let mut output = Output::gather(queries.borrow().n, params.k, &found.kind)?;
            (_, output.user_ids) = ids_in_order(&index.ids, &found, &found.kind, Some(params.k))?;
            Ok(output)
        };
        let prepare = |(index, queries, params): &'static (Arc<Self>, OwnedQueries, IvfParams)| {
            index.prepare(&queries.borrow(), params)
        };
        // SAFETY: what is prepared borrows from its argument alone.
        unsafe { start((self.clone(), queries, params), |(index, ..)| &index.pool, prepare, gather, done) }
    }

    fn prepare<'a>(&'a self, queries: &Queries<'a>, params: &'a IvfParams) -> Result<Search<'a, WithIds<QueryState>>> {
        params.check(&self.centroids, self.vectors.is_some())?;
        queries.check(&self.centroids.stored())?;
        let IvfIndex { centroids, batches, vectors, ids, living, pieces, source, .. } = self;
        let list_bytes = batches.iter().map(|batch| pieces.buffer_bytes(batch, batch.longest)).max();
        let vector_bytes = match vectors {
            Some(vectors) if params.rerank > 0 && !vectors.is_in_memory() => vectors.unit_bytes(),
            _ => 0,
        };
        let slot_bytes = list_bytes.unwrap_or(0).max(vector_bytes).max(PAGE_BYTES);
        let width = match source.fetcher() {
            None => (BUFFER_BYTES / slot_bytes / params.inflight).clamp(1, MAX_WIDTH),
            Some(_) => (STORED_BYTES / slot_bytes / params.inflight.min(queries.n.max(1))).clamp(1, MAX_STORED_WIDTH),
        };
        let vectors = vectors.as_ref();
        let living = living.as_deref().map(Living::slots);
        let kind = Shared { centroids, batches, vectors, living, pieces, source, queries: *queries, params, width };
        let shared = with_ids::Shared { kind, ids: Some(IdSource { ids, files: source.files(), width }) };
        let IvfParams { threads, inflight, .. } = *params;
        Ok(Search { shared, source, n: queries.n, threads, inflight, width, slot_bytes, keeps_state: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::ivf::{FLAT, IvfSpec, OPQ, PQ, RABITQ, SQ8, WrittenIvf, write_ivf};
    use crate::common::searches::with_typed;
    use crate::search::task::{Query, Step};

    fn with_query<T>(written: &WrittenIvf, ask: impl FnOnce(&Queries<'_>) -> T) -> T {
        with_typed(written.spec.dtype, written.spec.dim, &written.query(3), ask)
    }

    /// What an index in memory finds, as one that is read does; how often a query of it gives way.
    fn turns(written: &WrittenIvf, params: &IvfParams) -> usize {
        let open = |engine| IvfIndex::open(written.path(), engine).unwrap();
        let (read, held) = (open("pread"), open("memory"));
        let found = |index: &IvfIndex| with_query(written, |queries| index.search(queries, params).unwrap());
        let (want, mut got) = (found(&read), found(&held));
        assert_eq!((&got.slots, &got.scores), (&want.slots, &want.scores));
        let (got, want) = (&mut got.counters[0], &want.counters[0]);
        (got.latency_us, got.io_wait_us, got.id_pages_read) = (want.latency_us, want.io_wait_us, want.id_pages_read);
        (got.vector_reads, got.bytes_read) = (want.vector_reads, want.bytes_read);
        assert_eq!(got, want);
        with_query(written, |queries| {
            let search = held.prepare(queries, params).unwrap();
            let (shared, mut state, mut turns) = (&search.shared.kind, QueryState::default(), 0);
            state.start(shared, 0).unwrap();
            while state.advance(shared, |_| unreachable!("nothing was read")).unwrap() == Step::Again {
                turns += 1;
            }
            turns
        })
    }

    #[test]
    fn a_query_of_lists_in_memory_gives_way_and_finds_the_same() {
        let spec = IvfSpec { n: 5000, n_lists: 100, codec: SQ8, with_vectors: true, ..IvfSpec::default() };
        let written = write_ivf(spec);
        let params = IvfParams::new(10, 100);
        assert!(turns(&written, &params) >= 2, "about 200 lists");
        let many = params.clone().rerank(5000);
        assert!(turns(&written, &many) > turns(&written, &params), "all vectors are measured");
        assert_eq!(turns(&written, &params.nprobe(9)), 0);
    }

    #[test]
    fn a_query_that_probes_very_many_lists_gives_way_while_it_takes_them_up() {
        let written = write_ivf(IvfSpec { n: 20, dim: 2, n_lists: 70_000, n_batches: 1, ..IvfSpec::default() });
        assert_eq!(turns(&written, &IvfParams::new(10, 70_000)), 1);
    }

    #[test]
    fn a_long_list_in_memory_is_cut_like_one_that_is_read() {
        for codec in [FLAT, SQ8, PQ, RABITQ, OPQ] {
            let spec = IvfSpec { n: 8000, dim: 100, n_lists: 1, n_batches: 1, codec, ..IvfSpec::default() };
            turns(&write_ivf(spec), &IvfParams::new(40, 1));
        }
    }
}
