//! An opened index of any kind, behind one handle.

use std::path::Path;

use indexmill_core::graph::Counters;
use indexmill_core::ids::{Ids, UserIds};
use indexmill_core::lsh::InMemory;
use indexmill_core::manifest::{Kind, read_at};
use indexmill_core::search::Queries;
use indexmill_core::{Error, Index, IvfIndex, LshIndex, Result};

use crate::counters::ImCounters;
use crate::error::Failure;
use crate::params::Given;

/// How often an index is opened again: each attempt fails only if one of another kind took its place at that moment.
const OPEN_ATTEMPTS: usize = 100;

/// An index of one kind.
pub enum Opened {
    /// A graph.
    Graph(Box<Index>),
    /// Inverted lists.
    Lists(IvfIndex),
    /// Hash tables.
    Tables(LshIndex),
}

/// What a search for the k nearest found, query after query.
pub struct Answers {
    /// -1 where there is no answer.
    pub vector_ids: Vec<i64>,
    /// User ids of the same.
    pub user_ids: UserIds,
    /// NaN where there is no answer.
    pub scores: Vec<f32>,
    /// One entry a query.
    pub counters: Vec<ImCounters>,
}

impl Opened {
    /// Opens an index of the kind that its manifest says, again if one of another kind takes its place.
    pub fn open(path: &Path, engine: &str) -> Result<Self> {
        for _ in 1..OPEN_ATTEMPTS {
            match Self::open_as(read_at(path)?.kind, path, engine) {
                Err(Error::OtherKind(_)) => {}
                opened => return opened,
            }
        }
        Self::open_as(read_at(path)?.kind, path, engine)
    }

    /// Opens an index of this kind; of hash tables, vectors are loaded and pointers are not.
    fn open_as(kind: Kind, path: &Path, engine: &str) -> Result<Self> {
        Ok(match kind {
            Kind::Graph => Opened::Graph(Box::new(Index::open(path, engine)?)),
            Kind::Ivf => Opened::Lists(IvfIndex::open(path, engine)?),
            Kind::Lsh => Opened::Tables(LshIndex::open(path, engine, InMemory::default().vectors(true))?),
            other => unreachable!("{other:?} has no handle"),
        })
    }

    /// Its kind.
    fn kind(&self) -> Kind {
        match self {
            Opened::Graph(_) => Kind::Graph,
            Opened::Lists(_) => Kind::Ivf,
            Opened::Tables(_) => Kind::Lsh,
        }
    }

    /// The graph, for what graphs alone have: the function or parameter that was `asked` for.
    pub fn graph(&self, asked: &str) -> std::result::Result<&Index, Failure> {
        match self {
            Opened::Graph(index) => Ok(index),
            Opened::Lists(IvfIndex { path, .. }) | Opened::Tables(LshIndex { path, .. }) => {
                let (path, got) = (path.display(), self.kind().name());
                let message = format!("{asked}: {path}: expected an index of kind \"graph\", got one of kind {got:?}");
                Err(Failure::invalid(format!("{message}; only graphs have ranges, filters and caches")))
            }
        }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        match self {
            Opened::Graph(index) => &index.path,
            Opened::Lists(index) => &index.path,
            Opened::Tables(index) => &index.path,
        }
    }

    /// Slots to ids.
    pub fn ids(&self) -> &Ids {
        match self {
            Opened::Graph(index) => &index.ids,
            Opened::Lists(index) => &index.ids,
            Opened::Tables(index) => &index.ids,
        }
    }

    /// Number of vectors.
    pub fn n_vectors(&self) -> u32 {
        match self {
            Opened::Graph(index) => index.graph.layout().n_vertices,
            Opened::Lists(index) => index.centroids.n_vectors,
            Opened::Tables(index) => index.functions.n_vectors,
        }
    }

    /// Number of vectors that were deleted.
    pub fn n_deleted(&self) -> u32 {
        let living = match self {
            Opened::Graph(index) => &index.living,
            Opened::Lists(index) => &index.living,
            Opened::Tables(index) => &index.living,
        };
        living.as_ref().map_or(0, |living| living.n_deleted())
    }

    /// Name of the engine.
    pub fn engine_name(&self) -> &'static str {
        match self {
            Opened::Graph(index) => index.engine_name(),
            Opened::Lists(index) => index.engine_name(),
            Opened::Tables(index) => index.engine_name(),
        }
    }

    /// Why no better engine reads, if so.
    pub fn engine_note(&self) -> Option<String> {
        match self {
            Opened::Graph(index) => index.engine_note(),
            Opened::Lists(index) => index.engine_note(),
            Opened::Tables(index) => index.engine_note(),
        }
    }

    /// Memory that the index holds between searches.
    pub fn memory_bytes(&self) -> u64 {
        match self {
            Opened::Graph(index) => index.memory_bytes(),
            Opened::Lists(index) => index.memory_bytes(),
            Opened::Tables(index) => index.memory_bytes(),
        }
    }

    /// Memory of the cache of a graph.
    pub fn cache_bytes(&self) -> u64 {
        match self {
            Opened::Graph(index) => index.cache().map_or(0, |cache| cache.bytes() as u64),
            Opened::Lists(_) | Opened::Tables(_) => 0,
        }
    }

    /// Finds the k nearest vectors of each query.
    pub fn search(&self, queries: &Queries<'_>, given: &Given<'_>) -> std::result::Result<Answers, Failure> {
        if given.allow.is_some() {
            self.graph("params: allow")?;
        }
        let mut stop = || given.is_cancelled();
        Ok(match self {
            Opened::Graph(index) => {
                let found = index.search_unless(queries, &given.graph(index)?, &mut stop)?;
                let counters = all(&found.counters);
                Answers { vector_ids: found.vector_ids, user_ids: found.user_ids, scores: found.scores, counters }
            }
            Opened::Lists(index) => {
                let found = index.search_unless(queries, &given.lists(index), &mut stop)?;
                let counters = found.counters.iter().map(ImCounters::from).collect();
                Answers { vector_ids: found.slots, user_ids: found.user_ids, scores: found.scores, counters }
            }
            Opened::Tables(index) => {
                let found = index.search_unless(queries, &given.tables(), &mut stop)?;
                let counters = found.counters.iter().map(ImCounters::from).collect();
                Answers { vector_ids: found.slots, user_ids: found.user_ids, scores: found.scores, counters }
            }
        })
    }
}

/// Counters of graph searches, one entry a query.
pub fn all(counters: &[Counters]) -> Vec<ImCounters> {
    counters.iter().map(ImCounters::from).collect()
}
