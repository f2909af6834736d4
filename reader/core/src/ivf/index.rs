//! An opened index directory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::batch::{Batch, batch_name, open_file};
use super::centroids::Centroids;
use super::pieces::Pieces;
use super::query::QueryState;
use crate::directory::{Directory, open_together};
use crate::engine::{DataFile, EngineChoice, MEMORY, Reading, Source, Storage, Traffic};
use crate::error::{Error, Result};
use crate::ids::{IDS_FILE, Ids};
use crate::interrupt::Stop;
use crate::living::Living;
use crate::manifest::{self, Kind, Manifest};
use crate::memory::{Region, reserve};
use crate::pagefile::PAGE_BYTES;
use crate::search::pool::Pool;
use crate::search::with_ids::WithIds;
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
    /// What deletions left; `None` if there were none.
    pub living: Option<Arc<Living>>,
    /// metadata.parquet, open but not read; `None` if the manifest names none.
    pub metadata: Option<Arc<File>>,
    /// How lists are read.
    pub(super) pieces: Pieces,
    /// Section "lists" of each batch in memory; or the files of the batches by number, then that of the vectors, then
    /// ids.imx.
    pub(super) source: Source<Vec<Region>>,
    /// Threads and buffers of searches.
    pub(super) pool: Pool<WithIds<QueryState>>,
}

/// Memory that an open index holds, in bytes.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct IvfMemory {
    /// Centroids and codec.
    pub centroids: u64,
    /// Graph over the centroids.
    pub graph: u64,
    /// Where lists are, and checksums of their pages.
    pub directories: u64,
    /// Checksums of vectors.imx, or the vectors.
    pub vectors: u64,
    /// Ids, with engine "memory" or after [`Ids::hold`].
    pub ids: u64,
    /// Lists, with engine "memory".
    pub lists: u64,
    /// Which vectors are left, after deletions.
    pub deleted: u64,
}

impl IvfMemory {
    /// Each part by the name of its field.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let &IvfMemory { centroids, graph, directories, vectors, ids, lists, deleted } = self;
        [
            ("centroids", centroids),
            ("graph", graph),
            ("directories", directories),
            ("vectors", vectors),
            ("ids", ids),
            ("lists", lists),
            ("deleted", deleted),
        ]
        .into_iter()
    }
}

impl IvfIndex {
    /// Opens the index in directory `path`; `engine` is "memory" or a name that [`EngineChoice::new`](crate::engine::EngineChoice::new) knows.
    pub fn open(path: &Path, engine: &str) -> Result<Self> {
        Self::open_unless(path, engine, &mut || false)
    }

    /// As [`IvfIndex::open`]. `interrupted` is asked now and then; once it says true this ends with [`Error::Interrupted`].
    pub fn open_unless(path: &Path, engine: &str, interrupted: Stop<'_>) -> Result<Self> {
        Self::open_with(path, Reading::Named(engine), interrupted)
    }

    /// Opens an index with its blocks in a store. Directory `path` has the manifest, and all of its other files in their
    /// sizes; of those with blocks, it needs the header, the footer and what is read when an index is opened alone.
    pub fn open_with(path: &Path, reading: Reading<'_>, interrupted: Stop<'_>) -> Result<Self> {
        open_together(path, interrupted, |directory, interrupted| Self::open_in(directory, reading, interrupted))
    }

    /// `None` if a file was replaced meanwhile.
    pub(crate) fn open_in(directory: &Directory, reading: Reading<'_>, interrupted: Stop<'_>) -> Result<Option<Self>> {
        let (path, manifest) = (directory.path(), manifest::read(directory)?);
        manifest.expect_kind(path, Kind::Ivf)?;
        manifest.check_sizes(directory)?;
        let engine = if matches!(reading, Reading::Named(MEMORY)) { None } else { Some(reading.choice()?) };
        let centroids = Centroids::open(directory, interrupted)?;
        check_names(&centroids, &manifest)?;
        let mut names: Vec<String> = (0..centroids.n_batches).map(batch_name).collect();
        let with_vectors = manifest.names(VECTORS_FILE);
        if with_vectors {
            names.push(VECTORS_FILE.to_owned());
        }
        let open = |engine: &EngineChoice| {
            DataFile::open_in(directory, &names, engine.access(), PAGE_BYTES)?.with_cached(directory, IDS_FILE)
        };
        let mut file = engine.as_ref().map(open).transpose()?;
        let (mut batches, mut lists) = (reserve(&centroids.path, centroids.n_batches)?, Vec::new());
        for number in 0..centroids.n_batches {
            let opened = open_file(directory, number)?;
            let batch = Batch::new(&opened, number, &centroids, interrupted)?;
            if engine.is_none() {
                lists.push(batch.load(&opened, interrupted)?);
            }
            batches.push(batch);
        }
        check_ranges(&batches, centroids.n_vectors)?;
        let open = || Vectors::open(directory, engine.is_none(), interrupted);
        let vectors = with_vectors.then(open).transpose()?;
        if let Some(vectors) = &vectors {
            let Centroids { n_vectors, dim, metric, dtype, .. } = centroids;
            vectors.check_like("centroids.imx", n_vectors, dim, metric, Some(dtype))?;
        }
        let living = Living::open(directory, &manifest, centroids.n_vectors, interrupted)?;
        let ids = Ids::open(directory, centroids.n_vectors.into())?.of_vector_ids().without_deleted(living.clone());
        if engine.is_none() {
            ids.hold_unless(interrupted)?;
        }
        manifest.check_build_id(&centroids.path, &centroids.build_id)?;
        manifest.check_build_id(&directory.join(IDS_FILE), &ids.build_id)?;
        batches.iter().try_for_each(|batch| manifest.check_build_id(&batch.path, &batch.build_id))?;
        vectors.as_ref().map_or(Ok(()), |v| manifest.check_build_id(&v.path, &v.build_id))?;
        if let Some(file) = &mut file {
            let opened = batches.iter().map(|batch| batch.file_id).chain(vectors.iter().map(|v| v.file_id));
            let opened = opened.chain([ids.file_id]);
            for (i, id) in opened.enumerate() {
                if file.id(i)? != id {
                    return Ok(None);
                }
            }
            file.hold(interrupted)?;
        }
        let storage = engine.zip(file).map(|(engine, file)| Storage { engine, file: Arc::new(file) });
        let source = Source::new(storage, || Ok(lists))?;
        let pieces = Pieces::new(centroids.row_bytes);
        let (path, metadata, pool) = (path.to_owned(), manifest.open_metadata(directory)?, Pool::default());
        Ok(Some(IvfIndex { path, manifest, centroids, batches, vectors, ids, living, metadata, pieces, source, pool }))
    }

    /// Dimensions of a query.
    pub fn user_dim(&self) -> usize {
        self.centroids.stored().user_dim()
    }

    /// Name of the type that queries must have: codes are compared with floats.
    pub fn query_dtype(&self) -> &'static str {
        self.centroids.stored().dtype.query_name()
    }

    /// What was asked of the store that has the blocks; `None` if they are in files or in memory.
    pub fn traffic(&self) -> Option<Traffic> {
        self.source.fetcher().map(|fetcher| fetcher.traffic())
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
            ids: self.ids.memory_bytes(),
            lists: self.source.held().map_or(0, |lists| lists.iter().map(|list| size_of_val(&**list) as u64).sum()),
            deleted: self.living.as_ref().map_or(0, |living| living.memory_bytes()),
        }
    }

    /// The sum of [`IvfIndex::memory`].
    pub fn memory_bytes(&self) -> u64 {
        self.memory().parts().map(|(_, bytes)| bytes).sum()
    }
}

/// The manifest names the batches that centroids.imx counts, and no other.
fn check_names(centroids: &Centroids, manifest: &Manifest) -> Result<()> {
    let n_batches = centroids.n_batches;
    let named = manifest.files.iter().filter(|file| file.name.starts_with("batch-")).count();
    let missing = (0..n_batches).find(|&number| !manifest.names(&batch_name(number)));
    if named == n_batches && missing.is_none() {
        return Ok(());
    }
    let (place, expected) = ("field \"n_batches\" in the header", format!("{named}, as in the manifest"));
    Err(Error::corrupt(&centroids.path, place, expected, n_batches))
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
