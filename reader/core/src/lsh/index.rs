//! An opened index directory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{PAIRS, VECTORS, read_files};
use super::functions::Functions;
use super::pair::{Pair, open_pairs};
use super::query::QueryState;
use super::shared::SECTOR_BYTES;
use crate::directory::{Directory, open_together};
use crate::engine::{Access, DataFile, EngineChoice, MEMORY, Source, Storage};
use crate::error::{Error, Result};
use crate::ids::{IDS_FILE, Ids};
use crate::interrupt::Stop;
use crate::living::Living;
use crate::manifest::{self, Kind, Manifest};
use crate::memory::Region;
use crate::pagefile::PAGE_BYTES;
use crate::search::pool::Pool;
use crate::search::with_ids::WithIds;
use crate::vectors::{VECTORS_FILE, Vectors};

/// An index of kind "lsh" that was opened and can be searched, from several threads at once.
///
/// Opening reads the manifest, the headers, functions.imx, the bitmaps of tables and whatever is to be kept in
/// memory, which is everything with engine "memory". It checks digests, sizes, build ids and the checksum of every page
/// it reads. Memory: see [`LshIndex::memory_bytes`].
pub struct LshIndex {
    /// The directory.
    pub path: PathBuf,
    /// What the index is.
    pub manifest: Manifest,
    /// Hash functions, radii and parameters.
    pub functions: Functions,
    /// Pointers to buckets, and these: one pair of files, or two with added tables.
    pub pairs: Vec<Pair>,
    /// Vectors.
    pub vectors: Vectors,
    /// Slots to ids.
    pub ids: Ids,
    /// What deletions left; `None` if there were none.
    pub living: Option<Arc<Living>>,
    /// metadata.parquet, open but not read; `None` if the manifest names none.
    pub metadata: Option<Arc<File>>,
    /// Section "blocks" of the buckets of each pair in memory, or the files.
    pub(super) source: Source<Vec<Region>>,
    /// Threads and buffers of searches.
    pub(super) pool: Pool<WithIds<QueryState>>,
}

/// Files that are loaded when an index is opened, instead of being read by each search; by default none. Engine "memory"
/// loads all of them.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct InMemory {
    /// vectors.imx.
    pub vectors: bool,
    /// tables.imx and added-tables.imx.
    pub tables: bool,
}

impl InMemory {
    /// Whether to load vectors.imx.
    #[must_use]
    pub fn vectors(self, vectors: bool) -> Self {
        InMemory { vectors, ..self }
    }

    /// Whether to load tables.imx and added-tables.imx.
    #[must_use]
    pub fn tables(self, tables: bool) -> Self {
        InMemory { tables, ..self }
    }
}

/// Memory that an open index holds, in bytes.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct LshMemory {
    /// Vectors, or the checksums of their pages.
    pub vectors: u64,
    /// Hash functions.
    pub functions: u64,
    /// Which buckets hold anything, and how many do before some of them.
    pub bitmap: u64,
    /// Pointers, if they are in memory.
    pub tables: u64,
    /// Ids, with engine "memory" or after [`Ids::hold`].
    pub ids: u64,
    /// Bucket blocks, with engine "memory".
    pub buckets: u64,
    /// Which vectors are left, after deletions.
    pub deleted: u64,
}

impl LshMemory {
    /// Each part by the name of its field.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let &LshMemory { vectors, functions, bitmap, tables, ids, buckets, deleted } = self;
        [
            ("vectors", vectors),
            ("functions", functions),
            ("bitmap", bitmap),
            ("tables", tables),
            ("ids", ids),
            ("buckets", buckets),
            ("deleted", deleted),
        ]
        .into_iter()
    }
}

impl LshIndex {
    /// Opens the index in directory `path`; `engine` is "memory" or a name that [`EngineChoice::new`] knows.
    pub fn open(path: &Path, engine: &str, held: InMemory) -> Result<Self> {
        Self::open_unless(path, engine, held, &mut || false)
    }

    /// As [`LshIndex::open`]. `interrupted` is asked now and then; once it says true this ends with
    /// [`Error::Interrupted`].
    pub fn open_unless(path: &Path, engine: &str, held: InMemory, interrupted: Stop<'_>) -> Result<Self> {
        open_together(path, interrupted, |directory, interrupted| Self::open_in(directory, engine, held, interrupted))
    }

    /// `None` if a file was replaced meanwhile.
    pub(crate) fn open_in(
        directory: &Directory,
        engine: &str,
        held: InMemory,
        interrupted: Stop<'_>,
    ) -> Result<Option<Self>> {
        let (path, manifest) = (directory.path(), manifest::read(directory)?);
        manifest.expect_kind(path, Kind::Lsh)?;
        manifest.check_sizes(directory)?;
        let engine = if engine == MEMORY { None } else { Some(EngineChoice::new(engine)?) };
        let names = read_files(directory, &manifest)?;
        let open = |engine: &EngineChoice| open_files(directory, names, engine.access());
        let mut file = engine.as_ref().map(open).transpose()?;
        let functions = Functions::open(directory, interrupted)?;
        let in_memory = held.tables || engine.is_none();
        let opened = open_pairs(directory, names, &functions, in_memory, interrupted)?;
        let vectors = Vectors::open(directory, held.vectors || engine.is_none(), interrupted)?;
        for (name, want, got) in [
            ("n_vectors", u64::from(functions.n_vectors), u64::from(vectors.n_vectors)),
            ("dim", functions.dim as u64, vectors.dim as u64),
        ] {
            if got != want {
                let place = format!("field {name:?} in the header");
                return Err(Error::corrupt(&vectors.path, place, format!("{want}, as in functions.imx"), got));
            }
        }
        let living = Living::open(directory, &manifest, functions.n_vectors, interrupted)?;
        let ids = Ids::open(directory, functions.n_vectors.into())?.of_vector_ids().without_deleted(living.clone());
        if engine.is_none() {
            ids.hold_unless(interrupted)?;
        }
        let others =
            [(VECTORS_FILE, vectors.build_id), ("functions.imx", functions.build_id), (IDS_FILE, ids.build_id)];
        let of_pairs = opened.iter().flat_map(|(pair, files)| pair.names.into_iter().zip(files));
        let of_pairs = of_pairs.map(|(name, file)| (name, file.header.build_id));
        for (name, build_id) in of_pairs.chain(others) {
            manifest.check_build_id(&directory.join(name), &build_id)?;
        }
        if let Some(file) = &mut file {
            let of_pairs =
                PAIRS.into_iter().zip(&opened).flat_map(|(numbers, (_, files))| numbers.into_iter().zip(files));
            for (number, page_file) in of_pairs {
                if file.id(number)? != page_file.id()? {
                    return Ok(None);
                }
            }
            if file.id(VECTORS)? != vectors.file_id || file.id(file.last())? != ids.file_id {
                return Ok(None);
            }
            file.hold(interrupted)?;
        }
        let storage = engine.zip(file).map(|(engine, file)| Storage { engine, file: Arc::new(file) });
        let load = || {
            let mut held = Vec::with_capacity(opened.len());
            for (pair, [_, file]) in &opened {
                let checksums = file.load_checksums(interrupted)?;
                held.push(file.load_section(&pair.buckets.section, &checksums, interrupted)?);
            }
            Ok(held)
        };
        let source = Source::new(storage, load)?;
        let pairs = opened.into_iter().map(|(pair, _)| pair).collect();
        let (path, metadata, pool) = (path.to_owned(), manifest.open_metadata(directory)?, Pool::default());
        Ok(Some(LshIndex { path, manifest, functions, pairs, vectors, ids, living, metadata, source, pool }))
    }

    /// Dimensions of a query.
    pub fn user_dim(&self) -> usize {
        self.vectors.stored().user_dim()
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
    pub fn memory(&self) -> LshMemory {
        let sum = |bytes_of: fn(&Pair) -> u64| -> u64 { self.pairs.iter().map(bytes_of).sum() };
        LshMemory {
            vectors: self.vectors.memory_bytes(),
            functions: self.functions.memory_bytes(),
            bitmap: sum(|pair| pair.tables.bitmap_bytes()),
            tables: sum(|pair| pair.tables.memory_bytes() - pair.tables.bitmap_bytes()),
            ids: self.ids.memory_bytes(),
            buckets: self.source.held().map_or(0, |held| held.iter().map(|blocks| size_of_val(&**blocks) as u64).sum()),
            deleted: self.living.as_ref().map_or(0, |living| living.memory_bytes()),
        }
    }

    /// The sum of [`LshIndex::memory`].
    pub fn memory_bytes(&self) -> u64 {
        self.memory().parts().map(|(_, bytes)| bytes).sum()
    }
}

/// Opens the files for reads of sectors, or of pages where the device has no smaller blocks.
fn open_files(directory: &Directory, names: &[&str], access: Access) -> Result<DataFile> {
    let open = |unit_bytes| DataFile::open_in(directory, names, access, unit_bytes)?.with_cached(directory, IDS_FILE);
    let file = open(SECTOR_BYTES)?;
    if access == Access::Direct && !file.direct {
        let coarse = open(PAGE_BYTES)?;
        if coarse.direct {
            return Ok(coarse);
        }
    }
    Ok(file)
}
