//! Indexes with a codebook in common, searched together: one list of candidates for all.
//!
//! Searched one by one, each index reads what it needs to be sure of its own nearest vertices, most of which are none of
//! the answer. Here distances by codes compare across the graphs: candidates of all are in one list, the nearest are read
//! whichever graph has them, and the search ends when the list is exhausted. So most reads are made where the neighbours are.

pub(super) mod graphs;
pub(super) mod scope;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use self::graphs::Member;
use self::scope::Scope;
use crate::engine::{DataFile, Storage};
use crate::error::{Error, Result};
use crate::graph::apart::{Apart, Exact};
use crate::graph::cache::Caches;
use crate::graph::filter::{Filter, Identity};
use crate::graph::index::{Index, VECTORS};
use crate::graph::params::{Entry, SearchParams};
use crate::graph::query::QueryState;
use crate::graph::results::{Goal, SearchOutput};
use crate::graph::search::with_ids;
use crate::ids::IdType;
use crate::living::{Living, Slots};
use crate::pagefile::PAGE_BYTES;
use crate::search::Queries;
use crate::search::answers::Output;
use crate::search::parts::Parts;
use crate::search::pool::Pool;
use crate::search::with_ids::{IdsOf, WithIds};

/// Most blocks of all graphs: the cache marks numbers of blocks by their highest bit.
const MOST_BLOCKS: u64 = 1 << 31;

/// Indexes that are searched together, from several threads at once.
///
/// Memory besides that of the indexes: a bit a vector, if some were deleted. Vector ids and slots of results count the vectors
/// of the indexes one after the other.
pub struct GraphSet {
    /// Of the first index, for messages.
    path: PathBuf,
    parts: Vec<Part>,
    n_vertices: u32,
    /// Slots of all, with those between two graphs.
    n_slots: u32,
    living: Option<Slots>,
    build_id: [u8; 16],
    deletions: Option<String>,
    storage: Storage,
    pool: Pool<WithIds<QueryState>>,
}

/// One of the indexes.
struct Part {
    index: Arc<Index>,
    /// Slot of its first vertex in searches.
    start: u32,
    /// Vertices of the indexes before it.
    n_before: u32,
    /// Which of all files is its graph.imx.
    first_file: usize,
}

impl GraphSet {
    /// Puts opened indexes together, in this order.
    ///
    /// # Errors
    /// `Input` names an index that cannot be searched together with the first one, and the reason: another codebook, format
    /// of nodes, metric or type of ids, codes in nodes, no user ids, or pages that are read in another way.
    pub fn new(indexes: Vec<Arc<Index>>) -> Result<Self> {
        let Some(first) = indexes.first() else {
            return Err(Error::Input("a set: expected at least one index, got none".into()));
        };
        let path = first.path.clone();
        let refused = |index: &Index, why: &str| {
            let message = format!("{}: {why}, so that it is not searched together with others", index.path.display());
            Error::Input(format!("{message}; search each index by itself"))
        };
        for index in &indexes {
            if let Some(why) = obstacle(index) {
                return Err(refused(index, why));
            }
            if let Some(what) = difference(first, index) {
                return Err(refused(index, &format!("it has {what} than {}", path.display())));
            }
        }
        let Some(engine) = first.storage.engine.again()? else {
            return Err(refused(first, "its pages are in no files of this machine"));
        };
        let (mut n_vertices, mut n_slots, mut n_files, mut parts) = (0u64, 0u64, 0, Vec::new());
        let nodes_per_block = first.graph.layout.nodes_per_block;
        for index in &indexes {
            let (start, n_before) = (n_slots, n_vertices);
            n_vertices += u64::from(index.graph.layout.n_vertices);
            n_slots += u64::from(index.graph.layout.n_blocks()) * u64::from(nodes_per_block);
            if n_slots >= u64::from(u32::MAX) || n_slots / u64::from(nodes_per_block) >= MOST_BLOCKS {
                return Err(refused(index, "there are too many vectors before it"));
            }
            let (start, n_before) = (start as u32, n_before as u32);
            parts.push(Part { index: index.clone(), start, n_before, first_file: n_files });
            n_files += index.storage.file.last() + 1;
        }
        let files: Vec<Arc<DataFile>> = indexes.iter().map(|index| index.storage.file.clone()).collect();
        let storage = Storage { engine, file: Arc::new(DataFile::together(&files)?) };
        let (n_vertices, n_slots) = (n_vertices as u32, n_slots as u32);
        let (living, deletions) = (living(&path, &parts, n_slots)?, deletions(&parts));
        let build_id = build_id(&parts);
        Ok(GraphSet { path, parts, n_vertices, n_slots, living, build_id, deletions, storage, pool: Pool::default() })
    }

    /// Vectors of all indexes, deleted ones included.
    pub fn n_vertices(&self) -> u32 {
        self.n_vertices
    }

    /// Name of the type that queries must have.
    pub fn query_dtype(&self) -> &'static str {
        self.parts[0].index.graph.layout.dtype.query_name()
    }

    /// Puts filters together, one of each index in their order.
    ///
    /// # Errors
    /// `Input` if there are more or fewer of them, if one is of another index, or if one is of a label, in which edges
    /// lead that no other index knows.
    pub fn filter(&self, filters: &[Arc<Filter>]) -> Result<Filter> {
        if filters.len() != self.parts.len() {
            let (want, got) = (self.parts.len(), filters.len());
            return Err(Error::Input(format!("allow: expected {want} filters, one an index, got {got}; pass as many")));
        }
        for (part, filter) in self.parts.iter().zip(filters) {
            filter.check(&part.index.path, &part.index.identity())?;
            if filter.within().is_some() {
                let message = format!("allow: the filter of {} is of a label", part.index.path.display());
                return Err(Error::Input(format!("{message}; make one with Index::filter")));
            }
        }
        let with_starts: Vec<(u32, &Filter)> =
            self.parts.iter().zip(filters).map(|(part, filter)| (part.start, &**filter)).collect();
        Filter::together(&self.path, &with_starts, &self.identity())
    }

    /// Finds the k nearest vectors of each query in the indexes that it needs, sorted by (distance, slot): query after query,
    /// `routes` says of each index whether it is one of them. L is the number of candidates of all indexes together.
    ///
    /// # Errors
    /// As [`Index::search`]; an error names the file, and so the index. `Config` for entry "previous".
    pub fn search(&self, queries: &Queries<'_>, routes: &[bool], params: &SearchParams) -> Result<SearchOutput> {
        self.search_unless(queries, routes, params, &mut || false)
    }

    /// As [`GraphSet::search`], with `interrupted` as in [`Index::search_unless`].
    pub fn search_unless(
        &self,
        queries: &Queries<'_>,
        routes: &[bool],
        params: &SearchParams,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<SearchOutput> {
        if Some(routes.len()) != queries.n.checked_mul(self.parts.len()) {
            let (want, got) = (format!("{} x {}", queries.n, self.parts.len()), routes.len());
            return Err(Error::Input(format!("routes: expected {want} booleans, queries x indexes, got {got}")));
        }
        if params.entry == Entry::Previous {
            let message = "entry \"previous\": indexes that are searched together begin at entries of their own";
            return Err(Error::Config(format!("{message}; use another entry")));
        }
        let search = self.scope(routes).prepare(params, queries, Goal::Nearest(params.k))?;
        let mut output = Output::allocate(search.n, params.k)?;
        let found = self.pool.run(&search, interrupted)?;
        output.scatter(&found.kind.answers);
        let starts = Parts::of(self.parts.iter().map(|part| (part.start, part.n_before)));
        for slot in output.slots.iter_mut().filter(|slot| **slot >= 0) {
            if let Some((start, n_before)) = starts.as_ref().map(|starts| starts.at(*slot as u32)) {
                *slot += i64::from(*n_before) - i64::from(start);
            }
        }
        Ok(with_ids(&self.parts[0].index.ids, output, &found))
    }

    fn scope<'a>(&'a self, routes: &'a [bool]) -> Scope<'a> {
        let together = "there is at least one index";
        let graphs = Parts::of(self.parts.iter().map(|part| (part.start, part.member(&self.storage.file))));
        let ids = self.parts.iter().map(|part| {
            let (ids, file) = (&part.index.ids, part.first_file + part.index.storage.file.last());
            (part.start, IdsOf { ids, file, n_before: part.n_before })
        });
        let nodes_per_block = self.parts[0].index.graph.layout.nodes_per_block;
        let caches = self.parts.iter().map(|part| (part.start / nodes_per_block, part.index.cache()));
        Scope {
            path: &self.path,
            graphs: graphs.expect(together),
            n_vertices: self.n_vertices,
            routes: Some(routes),
            apart: self.apart(),
            living: self.living.as_ref(),
            identity: self.identity(),
            caches: Caches::of(caches),
            ids: Parts::of(ids).expect(together),
            storage: &self.storage,
        }
    }

    fn apart(&self) -> Option<Apart<'_>> {
        let exact = self.parts.iter().map(|part| {
            let vectors = part.index.vectors.as_ref()?;
            Some((part.start, Exact { vectors, homes: None, file: part.first_file + VECTORS }))
        });
        let parts = Parts::of(exact.collect::<Option<Vec<_>>>()?)?;
        Some(Apart::new(parts, &self.parts[0].index.graph.stored()))
    }

    fn identity(&self) -> Identity<'_> {
        Identity { build_id: self.build_id, n_slots: self.n_slots, deletions: self.deletions.as_deref() }
    }
}

impl Part {
    fn member(&self, files: &DataFile) -> Member<'_> {
        let Index { graph, codes, entries, navigation, .. } = &*self.index;
        let first_page = files.start_of(self.first_file) / PAGE_BYTES as u64;
        Member { graph, codes, entries, navigation: navigation.as_ref(), first_page }
    }
}

/// Why an index cannot be searched together with any other, if so.
fn obstacle(index: &Index) -> Option<&'static str> {
    let obstacles = [
        (!index.codes.are_held(), "its codes are in the nodes, not in memory"),
        (index.ids.id_type == IdType::None, "it has no user ids"),
    ];
    obstacles.into_iter().find(|&(is_one, _)| is_one).map(|(_, why)| why)
}

/// What an index has that keeps it from being searched together with the first one, if so.
fn difference(first: &Index, index: &Index) -> Option<&'static str> {
    let exact = |index: &Index| index.vectors.as_ref().map(|vectors| (vectors.dtype, vectors.vector_bytes));
    let differences = [
        (index.ids.id_type != first.ids.id_type, "another type of ids"),
        (exact(index) != exact(first), "other exact vectors"),
        (index.engine_name() != first.engine_name(), "another engine"),
        (!index.codes.compare_with(&first.codes), "another codebook"),
    ];
    let other = differences.into_iter().find(|&(is_other, _)| is_other).map(|(_, what)| what);
    index.graph.differs(&first.graph).or(other)
}

/// The slots that deletions left in all indexes; `None` if there were none.
fn living(path: &Path, parts: &[Part], n_slots: u32) -> Result<Option<Slots>> {
    if parts.iter().all(|part| part.index.living.is_none()) {
        return Ok(None);
    }
    let mut slots = Slots::none(path, n_slots)?;
    for Part { index, start, .. } in parts {
        match &index.living {
            Some(living) => living.slots().iter().for_each(|slot| slots.insert(start + slot)),
            None => (0..index.graph.layout.n_vertices).for_each(|slot| slots.insert(start + slot)),
        }
    }
    Ok(Some(slots))
}

/// Tells the deletions of all from those of other generations; `None` if there were none.
fn deletions(parts: &[Part]) -> Option<String> {
    let each = || parts.iter().map(|part| part.index.living.as_deref().map(Living::sha256));
    each().any(|one| one.is_some()).then(|| each().map(|one| one.unwrap_or("none")).collect::<Vec<_>>().join(" "))
}

/// A build id of all.
fn build_id(parts: &[Part]) -> [u8; 16] {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part.index.graph.build_id));
    *hash.finalize().first_chunk().expect("a digest has 32 bytes")
}
