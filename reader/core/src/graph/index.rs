//! An opened index directory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::cache::Cache;
use super::entries::Entries;
use super::file::{GRAPH_FILE, Graph};
use super::filter::Filter;
use super::in_use::InUse;
use super::navigation::Navigation;
use super::nodes::{Nodes, Pages};
use super::query::QueryState;
use crate::codes::Codes;
use crate::directory::{Directory, open_together};
use crate::engine::{DataFile, Reading, Storage, Traffic};
use crate::error::{Error, Result};
use crate::ids::{IDS_FILE, Ids};
use crate::interrupt::Stop;
use crate::living::Living;
use crate::manifest::{self, Kind, Manifest, NAVIGATION_FILE};
use crate::pagefile::PAGE_BYTES;
use crate::search::pool::Pool;
use crate::search::with_ids::WithIds;
use crate::stored::Dtype;
use crate::vectors::{VECTORS_FILE, Vectors};

/// An index that was opened and can be searched, from several threads at once.
///
/// Opening reads the manifest, the headers, codes.imx, entries.imx and navigation.imx, and checks digests, sizes, build
/// ids and the checksum of every page it reads. Memory: see [`Index::memory_bytes`]. Vectors, neighbour lists and user
/// ids stay on disk.
pub struct Index {
    /// The directory.
    pub path: PathBuf,
    /// What the index is.
    pub manifest: Manifest,
    /// Nodes.
    pub graph: Graph,
    /// PQ codes.
    pub codes: Codes,
    /// Entry vertices.
    pub entries: Entries,
    /// Graph of a sample; `None` if the manifest names no navigation.imx.
    pub navigation: Option<Navigation>,
    /// Exact vectors in slot order, where nodes are codes and the build kept them; a view has them with the nodes.
    pub vectors: Option<Vectors>,
    /// Slots to ids.
    pub ids: Ids,
    /// What deletions left; `None` if there were none.
    pub living: Option<Arc<Living>>,
    /// metadata.parquet, open but not read; `None` if the manifest names none.
    pub metadata: Option<Arc<File>>,
    /// graph.imx, then vectors.imx, then ids.imx.
    pub(crate) storage: Storage,
    /// Threads and buffers of searches.
    pub(super) pool: Pool<WithIds<QueryState>>,
    /// Blocks of hot vertices.
    pub(super) cache: InUse<Cache>,
    /// All nodes, once a view was made; its views share them.
    pub(crate) nodes: OnceLock<Arc<Nodes>>,
    /// The pages of a view; `None` for an opened index.
    pub(crate) pages: Option<Arc<Pages>>,
}

impl Index {
    /// Opens the index in directory `path`; `engine` is a name that [`EngineChoice::new`](crate::engine::EngineChoice::new) knows.
    pub fn open(path: &Path, engine: &str) -> Result<Self> {
        Self::open_unless(path, engine, &mut || false)
    }

    /// As [`Index::open`]. `interrupted` is asked now and then; once it says true this ends with [`Error::Interrupted`].
    pub fn open_unless(path: &Path, engine: &str, interrupted: Stop<'_>) -> Result<Self> {
        Self::open_with(path, Reading::Named(engine), interrupted)
    }

    /// Opens an index with its blocks in a store. Directory `path` has the manifest, and all of its other files in their
    /// sizes; of those with blocks, it needs the header, the footer and what is read when an index is opened alone.
    pub fn open_with(path: &Path, reading: Reading<'_>, interrupted: Stop<'_>) -> Result<Self> {
        open_together(path, interrupted, |directory, interrupted| Self::open_in(directory, reading, interrupted))
    }

    /// `None` if graph.imx, vectors.imx or ids.imx was replaced meanwhile. The header and the blocks of each are read
    /// through two descriptors, because only one of them may bypass the page cache, or be read ahead. The headers of the
    /// other files name their build.
    pub(crate) fn open_in(directory: &Directory, reading: Reading<'_>, interrupted: Stop<'_>) -> Result<Option<Self>> {
        let (path, manifest) = (directory.path(), manifest::read(directory)?);
        manifest.expect_kind(path, Kind::Graph)?;
        manifest.check_sizes(directory)?;
        let with_vectors = manifest.names(VECTORS_FILE);
        let engine = reading.choice()?;
        let names = [GRAPH_FILE, VECTORS_FILE];
        let names = &names[..1 + usize::from(with_vectors)];
        let mut file =
            DataFile::open_in(directory, names, engine.access(), PAGE_BYTES)?.with_cached(directory, IDS_FILE)?;
        let graph = Graph::open(directory, interrupted)?;
        if graph.file_id != file.id(0)? {
            return Ok(None);
        }
        let (n, dim) = (u64::from(graph.layout.n_vertices), graph.layout.dim as u64);
        let codes = match graph.layout.code_bytes {
            0 => Codes::open(directory, n, dim, interrupted)?,
            code_bytes => Codes::open_apart(directory, n, dim, code_bytes, interrupted)?,
        };
        let entries = Entries::open(directory, n, dim, interrupted)?;
        let living = Living::open(directory, &manifest, graph.layout.n_vertices, interrupted)?;
        let ids = Ids::open(directory, n)?.without_deleted(living.clone());
        if ids.file_id != file.id(file.last())? {
            return Ok(None);
        }
        let vectors = with_vectors.then(|| Vectors::open(directory, false, interrupted)).transpose()?;
        if let Some(vectors) = &vectors {
            check_vectors(vectors, &graph)?;
            if vectors.file_id != file.id(1)? {
                return Ok(None);
            }
        }
        let named = manifest.names(NAVIGATION_FILE);
        if named && graph.layout.has_codes() {
            let got = "one, which needs codes in memory";
            return Err(Error::corrupt(path, "files", "no navigation.imx beside codes in nodes", got));
        }
        let navigation = named.then(|| Navigation::open(directory, n, interrupted)).transpose()?;
        let required = [
            (GRAPH_FILE, graph.build_id),
            ("codes.imx", codes.build_id),
            ("entries.imx", entries.build_id),
            (IDS_FILE, ids.build_id),
        ];
        let optional = [
            navigation.as_ref().map(|navigation| (NAVIGATION_FILE, navigation.build_id)),
            vectors.as_ref().map(|vectors| (VECTORS_FILE, vectors.build_id)),
        ];
        for (name, build_id) in required.into_iter().chain(optional.into_iter().flatten()) {
            manifest.check_build_id(&directory.join(name), &build_id)?;
        }
        file.hold(interrupted)?;
        Ok(Some(Index {
            path: path.to_owned(),
            metadata: manifest.open_metadata(directory)?,
            manifest,
            graph,
            codes,
            entries,
            navigation,
            vectors,
            ids,
            living,
            storage: Storage { engine, file: Arc::new(file) },
            pool: Pool::default(),
            cache: InUse::default(),
            nodes: OnceLock::new(),
            pages: None,
        }))
    }

    /// Memory that the index holds between searches: codes and codebook, entry vertices and their centroids, navigation
    /// graph, scale, and the checksums of graph.imx and vectors.imx; a bit a vector after deletions; ids after
    /// [`Ids::hold`]; once a view of another order was made, also all nodes and exact vectors, which views share. Search
    /// states, buffers and the manifest are not counted. Waits for nothing.
    pub fn memory_bytes(&self) -> u64 {
        self.codes.memory_bytes()
            + self.entries.memory_bytes()
            + self.navigation.as_ref().map_or(0, Navigation::memory_bytes)
            + self.graph.memory_bytes()
            + self.vectors.as_ref().map_or(0, Vectors::memory_bytes)
            + self.ids.memory_bytes()
            + self.living.as_ref().map_or(0, |living| living.memory_bytes())
            + self.pages.as_ref().map_or(0, |pages| pages.map_bytes())
            + self.nodes.get().map_or(0, |nodes| nodes.memory_bytes())
    }

    /// What was asked of the store that has the blocks; `None` if they are in files.
    pub fn traffic(&self) -> Option<Traffic> {
        self.storage.engine.fetcher().map(|fetcher| fetcher.traffic())
    }

    /// Name of the engine that reads blocks.
    pub fn engine_name(&self) -> &'static str {
        self.storage.engine.name()
    }

    /// Why reading is not as fast as it could be, if so; a search may add reasons.
    pub fn engine_note(&self) -> Option<String> {
        self.storage.note()
    }

    /// Makes a filter from a bitmap over vector ids: bit `id % 8` of byte `id / 8`, least significant first (as in
    /// Arrow and `numpy.packbits(..., bitorder="little")`). Reads ids.imx once, 4 bytes a vector.
    pub fn filter(&self, bitmap: &[u8]) -> Result<Filter> {
        self.filter_unless(bitmap, &mut || false)
    }

    /// As [`Index::filter`]. `interrupted` is asked now and then; once it says true this ends with [`Error::Interrupted`].
    pub fn filter_unless(&self, bitmap: &[u8], interrupted: Stop<'_>) -> Result<Filter> {
        Filter::new(bitmap, &self.graph, &self.ids, self.living.as_deref(), false, interrupted)
    }

    /// As [`Index::filter`], of all vectors of a label that has edges of its own ([`Manifest::labels`](manifest::Manifest::labels)):
    /// searches stay within it. Vectors that lack such edges are not found, so the bitmap has to be that of one label.
    pub fn label_filter(&self, bitmap: &[u8]) -> Result<Filter> {
        self.label_filter_unless(bitmap, &mut || false)
    }

    /// As [`Index::label_filter`], with `interrupted` as in [`Index::filter_unless`].
    pub fn label_filter_unless(&self, bitmap: &[u8], interrupted: Stop<'_>) -> Result<Filter> {
        Filter::new(bitmap, &self.graph, &self.ids, self.living.as_deref(), true, interrupted)
    }

    /// The cache that searches use now.
    pub fn cache(&self) -> Option<Arc<Cache>> {
        self.cache.get()
    }

    /// Caches the blocks that a breadth-first walk from the entry vertices (medoid, then centroids) meets first, in at
    /// most `bytes` of memory; 0 drops the cache. Running searches keep the cache that they began with.
    pub fn cache_around_entries(&self, bytes: usize) -> Result<Arc<Cache>> {
        self.cache_around_entries_unless(bytes, &mut || false)
    }

    /// As [`Index::cache_around_entries`], with `interrupted` as in [`Index::filter_unless`].
    pub fn cache_around_entries_unless(&self, bytes: usize, interrupted: Stop<'_>) -> Result<Arc<Cache>> {
        let entries = self.entries.slots();
        Ok(self.install(Cache::around(&self.graph, &self.storage, entries, bytes, interrupted)?))
    }

    /// Gives later searches another cache, or none if it is empty.
    pub(super) fn install(&self, cache: Cache) -> Arc<Cache> {
        let cache = Arc::new(cache);
        self.cache.replace((!cache.is_empty()).then(|| cache.clone()));
        cache
    }
}

/// vectors.imx holds the floats that the nodes code.
fn check_vectors(vectors: &Vectors, graph: &Graph) -> Result<()> {
    vectors.check_like("graph.imx", graph.layout.n_vertices, graph.layout.dim, graph.metric, None)?;
    let place = "field \"dtype\" in the header";
    if !graph.layout.dtype.is_scaled() {
        let (expected, got) = ("sq16 or sq8, as vectors.imx lies beside it", graph.layout.dtype.name());
        return Err(Error::corrupt(&graph.path, place, expected, got));
    }
    match vectors.dtype {
        Dtype::Float32 | Dtype::Float16 => Ok(()),
        dtype => Err(Error::corrupt(&vectors.path, place, "float32 or float16", dtype.name())),
    }
}
