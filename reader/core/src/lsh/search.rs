//! A block of queries on all threads: [`LshIndex::search`].

use std::sync::Arc;

use super::index::LshIndex;
use super::pair::Pair;
use super::params::LshParams;
use super::query::QueryState;
use super::shared::{LshCounters, Shared};
use crate::engine::Source;
use crate::error::Result;
use crate::living::Living;
use crate::pagefile::PAGE_BYTES;
use crate::search::answers::{Answers, Output};
use crate::search::later::{Ticket, start};
use crate::search::task::Search;
use crate::search::with_ids::{self, Found, IdSource, WithIds, buffers_with_ids, ids_in_order};
use crate::search::{OwnedQueries, Queries};

/// Reads that a query has in flight at most.
const MAX_WIDTH: usize = 256;

/// Answers to a block of queries. A slot is a vector id; -1 where fewer than k vectors were met.
pub type LshOutput = Output<LshCounters>;

impl LshIndex {
    /// Finds k near vectors of each query, sorted by (distance, slot).
    ///
    /// Results and counters (times excepted) are the same for every engine, number of threads and number of queries in
    /// flight.
    pub fn search(&self, queries: &Queries<'_>, params: &LshParams) -> Result<LshOutput> {
        self.search_unless(queries, params, &mut || false)
    }

    /// As [`LshIndex::search`]. `interrupted` is asked now and then, on the calling thread only; once it says true the search
    /// ends with [`crate::Error::Interrupted`].
    pub fn search_unless(
        &self,
        queries: &Queries<'_>,
        params: &LshParams,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<LshOutput> {
        let search = self.prepare(queries, params)?;
        let mut output = Output::allocate(queries.n, params.k)?;
        let found = self.pool.run(&search, interrupted)?;
        output.scatter(&found.kind);
        (_, output.user_ids) = ids_in_order(&self.ids, &found, &found.kind, Some(params.k))?;
        Ok(output)
    }

    /// Begins a [`LshIndex::search`] and returns; a thread that [`Ticket`] names calls `done` with its outcome. After
    /// [`Ticket::cancel`] that is [`crate::Error::Interrupted`], unless the search had ended.
    ///
    /// # Errors
    /// Those of parameters and queries; then `done` is not called.
    pub fn search_later(
        self: &Arc<Self>,
        queries: OwnedQueries,
        params: LshParams,
        done: impl FnOnce(Result<LshOutput>) + Send + 'static,
    ) -> Result<Ticket> {
        let gather = |(index, queries, params): &(Arc<Self>, OwnedQueries, LshParams), found: Found<Answers<_>>| {
            let mut output = Output::gather(queries.borrow().n, params.k, &found.kind)?;
            (_, output.user_ids) = ids_in_order(&index.ids, &found, &found.kind, Some(params.k))?;
            Ok(output)
        };
        let prepare = |(index, queries, params): &'static (Arc<Self>, OwnedQueries, LshParams)| {
            index.prepare(&queries.borrow(), params)
        };
        // SAFETY: what is prepared borrows from its argument alone.
        unsafe { start((self.clone(), queries, params), |(index, ..)| &index.pool, prepare, gather, done) }
    }

    fn prepare<'a>(&'a self, queries: &Queries<'a>, params: &LshParams) -> Result<Search<'a, WithIds<QueryState>>> {
        let LshIndex { functions, pairs, vectors, ids, living, source, .. } = self;
        let (limit, probes) = params.resolve(functions)?;
        queries.check(&vectors.stored())?;
        let unit_bytes = match source {
            Source::Memory(_) => 1,
            Source::Storage(storage) => storage.file.unit_bytes(),
        };
        let width = MAX_WIDTH.min(functions.n_tables * (probes + 1) * pairs.len());
        let kind = Shared {
            functions,
            pairs,
            vectors,
            living: living.as_deref().map(Living::slots),
            source,
            queries: *queries,
            k: params.k,
            limit,
            probes,
            width,
            unit_bytes,
        };
        let slot_bytes = slot_bytes(&kind);
        let width = buffers_with_ids(ids, width, Some(params.k));
        let shared = with_ids::Shared { kind, ids: Some(IdSource { ids, files: source.files(), width }) };
        let LshParams { threads, inflight, .. } = *params;
        Ok(Search { shared, source, n: queries.n, threads, inflight, width, slot_bytes, keeps_state: false })
    }
}

/// Bytes of a buffer: the longest read.
fn slot_bytes(shared: &Shared<'_>) -> usize {
    let Shared { source: Source::Storage(storage), pairs, vectors, .. } = shared else {
        return 0;
    };
    let unit_bytes = storage.file.unit_bytes();
    let run_bytes = |pair: &Pair| {
        let block_bytes = pair.buckets.block_bytes;
        // Blocks smaller than a unit begin anywhere in it.
        let slack = if block_bytes < unit_bytes { unit_bytes } else { 0 };
        (shared.most_blocks(&pair.buckets) * block_bytes + slack).next_multiple_of(unit_bytes)
    };
    let longest = pairs.iter().map(run_bytes).max().unwrap_or_default();
    let vector_bytes = if vectors.is_in_memory() { 0 } else { vectors.unit_bytes() };
    PAGE_BYTES.max(longest).max(vector_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::lsh::{LshSpec, write_lsh};
    use crate::common::searches::with_typed;
    use crate::lsh::InMemory;
    use crate::search::task::{Query, Step};

    #[test]
    fn a_query_of_tables_in_memory_gives_way_and_finds_the_same() {
        let spec = LshSpec { n: 6000, hash_bits: 2, candidates: 6000, ..LshSpec::default() };
        let (written, params) = (write_lsh(spec), LshParams::new(3000).probes(1));
        let (query, held) = (written.query(3), InMemory::default().vectors(true));
        let open = |engine| LshIndex::open(written.path(), engine, held).unwrap();
        let (read, held) = (open("pread"), open("memory"));
        with_typed(spec.dtype, spec.dim, &query, |queries| {
            let (want, mut got) = (read.search(queries, &params).unwrap(), held.search(queries, &params).unwrap());
            let bits = |found: &LshOutput| -> Vec<u32> { found.scores.iter().map(|score| score.to_bits()).collect() };
            assert_eq!((&got.slots, bits(&got)), (&want.slots, bits(&want)));
            let (got, want) = (&mut got.counters[0], &want.counters[0]);
            (got.latency_us, got.io_wait_us) = (want.latency_us, want.io_wait_us);
            got.id_pages_read = want.id_pages_read;
            assert_eq!(got, want);
            let search = held.prepare(queries, &params).unwrap();
            let (shared, mut state, mut turns) = (&search.shared.kind, QueryState::default(), 0);
            state.start(shared, 0).unwrap();
            while state.advance(shared, |_| unreachable!("nothing was read")).unwrap() == Step::Again {
                turns += 1;
            }
            assert!(turns as u64 > want.entries / 20_000 && turns > 1, "{turns} turns for {} entries", want.entries);
        });
    }
}
