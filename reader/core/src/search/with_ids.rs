//! The end of a search of any kind: the ids of its results, read by the engine that reads the rest of the index.
//!
//! When the nearest are known, all pages of ids.imx that they need are read together, each once, before the query counts as
//! answered: its latency includes them, and the thread works on other queries meanwhile. Where ids are text, a second wave
//! follows, for the first one says where the text is.

use super::answers::Answers;
use super::nearest::slot_of;
use super::reads::{Read, Reads};
use super::task::{Query, Step, Times};
use crate::engine::DataFile;
use crate::error::Result;
use crate::ids::{IdType, Ids, Lookup, Texts, UserIds};
use crate::memory::append;
use crate::pagefile::PAGE_BYTES;

/// Reads of ids that a query has in flight at most, unless the rest of its search has more.
const MAX_READS: usize = 32;
/// Results of a range search that are expected, as their number is not known.
const RESULTS_IN_RANGE: usize = 10;
/// Bytes of ids for which an idle query state keeps memory.
const KEPT_BYTES: usize = 1 << 18;

/// A query whose results have ids.
pub(crate) trait Finds: Query {
    /// Ends the search: its results as keys, nearest first, which [`Query::finish`] adds.
    fn end(&mut self) -> &[u64];

    /// Adds to the counter of pages of ids.
    fn count_id_pages(&mut self, pages: u64);
}

/// Where ids are.
pub(crate) struct IdSource<'a> {
    pub ids: &'a Ids,
    /// The files that the engine reads, ids.imx being the last; `None` if ids are in memory.
    pub files: Option<&'a DataFile>,
    /// Buffers of a query.
    pub width: usize,
}

/// What all queries of one search share.
pub(crate) struct Shared<'a, S> {
    /// What those of the kind of index share.
    pub kind: S,
    /// `None` if nobody asks for ids.
    pub ids: Option<IdSource<'a>>,
}

/// Buffers of a query that has `width` of them for its search, and looks for `k` results.
pub(crate) fn buffers_with_ids(ids: &Ids, width: usize, k: Option<usize>) -> usize {
    width.max(ids.reads_of(k.unwrap_or(RESULTS_IN_RANGE)).min(MAX_READS))
}

/// A query that also looks up the ids of its results. Memory: that of its parts.
#[derive(Default)]
pub(crate) struct WithIds<Q> {
    query: Q,
    lookup: Lookup,
    reads: Reads,
    /// Page in each buffer.
    in_buffer: Vec<u64>,
    /// Whether the search is over.
    is_active: bool,
}

/// What was found, with the ids of the results.
#[derive(Default)]
pub(crate) struct Found<A> {
    pub kind: A,
    /// One for each result, or none; so are the others.
    vector_ids: Vec<u32>,
    values: Vec<u64>,
    texts: Texts,
}

impl<Q: Finds> Query for WithIds<Q> {
    type Shared<'a> = Shared<'a, Q::Shared<'a>>;
    type Answers = Found<Q::Answers>;

    fn admit(&mut self, shared: &Self::Shared<'_>) {
        self.query.admit(&shared.kind);
    }

    fn start(&mut self, shared: &Self::Shared<'_>, i: usize) -> Result<()> {
        self.is_active = false;
        self.reads.reset();
        self.query.start(&shared.kind, i)
    }

    fn advance<'b>(&mut self, shared: &Self::Shared<'_>, buffer: impl Fn(usize) -> &'b [u8]) -> Result<Step> {
        if !self.is_active {
            let step = self.query.advance(&shared.kind, buffer)?;
            if step != Step::Done {
                return Ok(step);
            }
            self.is_active = true;
            self.begin(shared)?;
        }
        let Some(source) = &shared.ids else { return Ok(Step::Done) };
        if self.reads.in_flight() == 0 && self.lookup.advance(source.ids)? {
            self.in_buffer.resize(source.width, 0);
            (0..source.width).all(|i| self.read(source, i));
        }
        Ok(if self.reads.in_flight() > 0 { Step::Wait } else { Step::Done })
    }

    fn submit(&mut self, shared: &Self::Shared<'_>, queue: impl FnMut(usize, u64, usize) -> Result<()>) -> Result<()> {
        match shared.ids.as_ref().and_then(|source| source.files) {
            Some(files) if self.is_active => self.reads.submit(files, queue),
            _ => self.query.submit(&shared.kind, queue),
        }
    }

    fn overlap<'b>(&mut self, shared: &Self::Shared<'_>, buffer: impl Fn(usize) -> &'b [u8]) -> Result<bool> {
        if self.is_active { Ok(false) } else { self.query.overlap(&shared.kind, buffer) }
    }

    fn arrive(&mut self, shared: &Self::Shared<'_>, i: usize, bytes: &[u8]) -> Result<bool> {
        let Some(source) = shared.ids.as_ref().filter(|_| self.is_active) else {
            return self.query.arrive(&shared.kind, i, bytes);
        };
        self.reads.arrive();
        self.lookup.take(self.in_buffer[i], &bytes[..PAGE_BYTES]);
        self.read(source, i);
        Ok(self.reads.in_flight() == 0 || self.reads.has_new())
    }

    fn n_lacking(&self) -> usize {
        if self.is_active { 1 } else { self.query.n_lacking() }
    }

    fn looks_again(&self) -> bool {
        !self.is_active && self.query.looks_again()
    }

    fn finish(&mut self, shared: &Self::Shared<'_>, i: usize, times: Times, found: &mut Self::Answers) -> Result<()> {
        self.query.finish(&shared.kind, i, times, &mut found.kind)?;
        let Some(source) = &shared.ids else { return Ok(()) };
        let path = &source.ids.file.path;
        append(path, &mut found.vector_ids, self.lookup.vector_ids().iter().copied())?;
        append(path, &mut found.values, self.lookup.values().iter().copied())?;
        self.lookup.text().try_for_each(|text| found.texts.append(path, text))
    }

    fn shrink(&mut self) {
        self.query.shrink();
        if self.lookup.capacity() > KEPT_BYTES {
            self.lookup = Lookup::default();
        }
    }
}

impl<Q: Finds> WithIds<Q> {
    /// Turns to the ids of the results.
    fn begin<S>(&mut self, shared: &Shared<'_, S>) -> Result<()> {
        let results = self.query.end();
        if let Some(source) = &shared.ids
            && let Some(which) = source.ids.of_results()
        {
            self.lookup.begin(source.ids, results.iter().map(|&key| slot_of(key)), which)?;
        }
        Ok(())
    }

    /// Asks for the next page into a free buffer; false if there is none.
    fn read(&mut self, source: &IdSource<'_>, buffer: usize) -> bool {
        let Some((files, page)) = source.files.and_then(|files| Some((files, self.lookup.ask()?))) else {
            return false;
        };
        let offset = page * PAGE_BYTES as u64;
        self.reads.ask(Read { buffer, file: files.last(), offset, bytes: PAGE_BYTES });
        self.in_buffer[buffer] = page;
        self.query.count_id_pages(1);
        true
    }
}

/// Vector ids, unless slots are, and user ids of all results in the order of the queries. `answers` are those that were
/// found; with `k`, each query has as many ids, of which missing ones are blank.
pub(crate) fn ids_in_order<A, C: Copy>(
    ids: &Ids,
    found: &Found<A>,
    answers: &Answers<C>,
    k: Option<usize>,
) -> Result<(Vec<i64>, UserIds)> {
    let path = &ids.file.path;
    let (mut vector_ids, mut values, mut texts) = (Vec::new(), Vec::new(), Texts::default());
    let has_vector_ids = !ids.slots_are_ids();
    for i in answers.places() {
        let results = answers.results_of(i);
        let n_missing = k.map_or(0, |k| k - results.len());
        if has_vector_ids {
            append(path, &mut vector_ids, found.vector_ids[results.clone()].iter().map(|&id| i64::from(id)))?;
            append(path, &mut vector_ids, std::iter::repeat_n(-1, n_missing))?;
        }
        match ids.id_type {
            IdType::None => {}
            IdType::Int64 | IdType::Uint64 => {
                append(path, &mut values, found.values[results].iter().copied())?;
                append(path, &mut values, std::iter::repeat_n(u64::MAX, n_missing))?;
            }
            IdType::String | IdType::Binary => {
                for result in results {
                    texts.append(path, found.texts.get(result))?;
                }
                (0..n_missing).try_for_each(|_| texts.append(path, &[]))?;
            }
        }
    }
    let user_ids = match ids.id_type {
        IdType::None => UserIds::None,
        IdType::Int64 => UserIds::Int64(values.into_iter().map(|id| id as i64).collect()),
        IdType::Uint64 => UserIds::Uint64(values),
        IdType::String => UserIds::String(texts),
        IdType::Binary => UserIds::Binary(texts),
    };
    Ok((vector_ids, user_ids))
}
