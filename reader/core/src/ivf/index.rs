//! An opened index directory.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::batch::{Batch, batch_name, open_file};
use super::centroids::Centroids;
use super::pieces::Pieces;
use super::query::QueryState;
use crate::engine::{DataFile, EngineChoice, MEMORY, Source, Storage};
use crate::error::{Error, Result};
use crate::file_id::open_together;
use crate::ids::Ids;
use crate::manifest::{self, Kind, Manifest};
use crate::memory::Region;
use crate::pagefile::PAGE_BYTES;
use crate::search::task::Worker;
use crate::vectors::{VECTORS_FILE, Vectors};

/// An index of kind "ivf" that was opened and can be searched, from several threads at once.
///
/// Opening reads the manifest, the headers, centroids and directories, and with engine "memory" everything; it checks
/// digests, sizes, build ids and the checksum of every page it reads. Memory: see [`IvfIndex::memory`].
pub struct IvfIndex {
    /// The directory.
    pub path: PathBuf,
    /// What the index is.
    pub manifest: Manifest,
    /// Centroids and codec.
    pub centroids: Centroids,
    /// By number.
    pub batches: Vec<Batch>,
    /// Exact vectors, by vector id, where the lists hold codes and the build kept them.
    pub vectors: Option<Vectors>,
    /// Slots to ids; a slot is a vector id.
    pub ids: Ids,
    /// How lists are read.
    pub(super) pieces: Pieces,
    /// Section "lists" of each batch in memory; or the files of the batches by number, then that of the vectors.
    pub(super) source: Source<Vec<Region>>,
    /// Search states of finished calls, for the next call on the same thread.
    pub(super) idle: Mutex<Vec<Worker<QueryState>>>,
}

/// Memory that an open index holds, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct IvfMemory {
    /// Centroids and codec.
    pub centroids: u64,
    /// Graph over the centroids.
    pub graph: u64,
    /// Where lists are, and checksums of their pages.
    pub directories: u64,
    /// Checksums of vectors.imx, or the vectors.
    pub vectors: u64,
    /// Lists, with engine "memory".
    pub lists: u64,
}

impl IvfIndex {
    /// Opens the index in directory `path`; `engine` is "memory" or a name that [`EngineChoice::new`] knows.
    pub fn open(path: &Path, engine: &str) -> Result<Self> {
        open_together(&path.join("centroids.imx"), || Self::open_once(path, engine))
    }

    /// `None` if a file was replaced meanwhile.
    fn open_once(path: &Path, engine: &str) -> Result<Option<Self>> {
        let manifest = manifest::read(path)?;
        manifest.expect_kind(path, Kind::Ivf)?;
        manifest.check_sizes(path)?;
        let engine = if engine == MEMORY { None } else { Some(EngineChoice::new(engine)?) };
        let centroids = Centroids::open(&path.join("centroids.imx"))?;
        check_names(path, &manifest, centroids.n_batches)?;
        let mut paths: Vec<PathBuf> = (0..centroids.n_batches).map(|number| path.join(batch_name(number))).collect();
        let with_vectors = manifest.names(VECTORS_FILE);
        if with_vectors {
            paths.push(path.join(VECTORS_FILE));
        }
        let file = engine.as_ref().map(|engine| DataFile::join(&paths, engine.access(), PAGE_BYTES)).transpose()?;
        let (mut batches, mut lists) = (Vec::with_capacity(centroids.n_batches), Vec::new());
        for number in 0..centroids.n_batches {
            let opened = open_file(path, number)?;
            let batch = Batch::new(&opened, number, &centroids)?;
            if engine.is_none() {
                lists.push(batch.load(&opened)?);
            }
            batches.push(batch);
        }
        check_ranges(&batches, centroids.n_vectors)?;
        let vectors = with_vectors.then(|| Vectors::open(&path.join(VECTORS_FILE), engine.is_none())).transpose()?;
        if let Some(vectors) = &vectors {
            let Centroids { n_vectors, dim, metric, dtype, .. } = centroids;
            vectors.check_like("centroids.imx", n_vectors, dim, metric, Some(dtype))?;
        }
        let ids = Ids::open(&path.join("ids.imx"), centroids.n_vectors.into())?;
        manifest.check_build_id(&centroids.path, &centroids.build_id)?;
        manifest.check_build_id(&path.join("ids.imx"), &ids.build_id)?;
        batches.iter().try_for_each(|batch| manifest.check_build_id(&batch.path, &batch.build_id))?;
        vectors.as_ref().map_or(Ok(()), |v| manifest.check_build_id(&v.path, &v.build_id))?;
        if let Some(file) = &file {
            let opened = batches.iter().map(|batch| batch.file_id).chain(vectors.iter().map(|v| v.file_id));
            for (i, id) in opened.enumerate() {
                if file.id(i)? != id {
                    return Ok(None);
                }
            }
        }
        let storage = engine.zip(file).map(|(engine, file)| Storage { engine, file: Arc::new(file) });
        let source = Source::new(storage, || Ok(lists))?;
        let pieces = Pieces::new(centroids.row_bytes);
        let (path, idle) = (path.to_owned(), Mutex::default());
        Ok(Some(IvfIndex { path, manifest, centroids, batches, vectors, ids, pieces, source, idle }))
    }

    /// Dimensions of a query.
    pub fn user_dim(&self) -> usize {
        self.centroids.stored().user_dim()
    }

    /// Name of the type that queries must have: codes are compared with floats.
    pub fn query_dtype(&self) -> &'static str {
        self.centroids.stored().dtype.query_name()
    }

    /// Name of the engine, "memory" for none.
    pub fn engine_name(&self) -> &'static str {
        self.source.engine_name()
    }

    /// Why reading is not as fast as it could be, if so; a search may add reasons.
    pub fn engine_note(&self) -> Option<String> {
        self.source.note()
    }

    /// Memory that the index holds between searches, without search states, buffers and the manifest.
    pub fn memory(&self) -> IvfMemory {
        IvfMemory {
            centroids: self.centroids.memory_bytes(),
            graph: self.centroids.graph_bytes(),
            directories: self.batches.iter().map(Batch::memory_bytes).sum(),
            vectors: self.vectors.as_ref().map_or(0, Vectors::memory_bytes),
            lists: self.source.held().map_or(0, |lists| lists.iter().map(|list| size_of_val(&**list) as u64).sum()),
        }
    }
}

/// The manifest names the batches that centroids.imx counts, and no other.
fn check_names(path: &Path, manifest: &Manifest, n_batches: usize) -> Result<()> {
    let named = manifest.files.iter().filter(|file| file.name.starts_with("batch-")).count();
    let missing = (0..n_batches).find(|&number| !manifest.names(&batch_name(number)));
    if named == n_batches && missing.is_none() {
        return Ok(());
    }
    let path = path.join("centroids.imx");
    Err(Error::corrupt(&path, "field \"n_batches\" in the header", format!("{named}, as in the manifest"), n_batches))
}

/// Each batch begins where the one before ends.
fn check_ranges(batches: &[Batch], n_vectors: u32) -> Result<()> {
    let mut next = 0;
    for batch in batches {
        if batch.first_vector != next {
            let place = "field \"first_vector\" in the header";
            return Err(Error::corrupt(&batch.path, place, next, batch.first_vector));
        }
        next += batch.n_vectors; // at most `n_vectors`, as each file was checked
    }
    match batches.last() {
        Some(last) if next != n_vectors => {
            let place = "field \"n_vectors\" in the header";
            Err(Error::corrupt(&last.path, place, format!("an end at {n_vectors}"), format!("one at {next}")))
        }
        _ => Ok(()),
    }
}
