//! What a search reads from: memory, or files through engines.

use std::path::Path;
use std::sync::Arc;

use super::choice::EngineChoice;
use super::contract::{Engine, Finished};
use super::fetcher::Fetcher;
use super::file::DataFile;
use crate::error::{Error, InFile, Result};
use crate::interrupt::Stop;

/// Name of the engine that is none, for what is in memory.
pub const MEMORY: &str = "memory";

/// The files of an index, and how they are read.
pub struct Storage {
    /// How blocks are read.
    pub engine: EngineChoice,
    /// What is read.
    pub file: Arc<DataFile>,
}

/// Where an index that may be in memory has what its searches read.
pub enum Source<T> {
    /// In memory, checked.
    Memory(T),
    /// In files.
    Storage(Storage),
}

/// What starts engines.
pub trait Start: Sync {
    /// An engine with `slots` buffers of `slot_bytes` each.
    fn start(&self, slots: usize, slot_bytes: usize) -> Result<Box<dyn Engine>>;

    /// What a search that failed with `error` tells its caller. That may take as long as a request; `stop` is asked
    /// meanwhile.
    fn explained(&self, error: Error, _stop: Stop<'_>) -> Error {
        error
    }

    /// Whether [`Start::explained`] waits for a request.
    fn asks_to_explain(&self, _error: &Error) -> bool {
        false
    }

    /// Whether searches wait for reads, so that a thread interleaves queries.
    fn has_waits(&self) -> bool {
        true
    }
}

impl Start for Storage {
    fn start(&self, slots: usize, slot_bytes: usize) -> Result<Box<dyn Engine>> {
        self.engine.start(&self.file, slots, slot_bytes)
    }

    /// Damage is named by the place of the object. An index that was replaced in its store may have lost its objects, or
    /// found others in their places.
    fn explained(&self, error: Error, stop: Stop<'_>) -> Error {
        let Some(fetcher) = self.engine.fetcher().filter(|_| self.asks_to_explain(&error)) else { return error };
        let place = |path: &Path| fetcher.store.place_of(&path.file_name().unwrap_or_default().to_string_lossy());
        match fetcher.is_replaced(stop) {
            None => return Error::Interrupted,
            Some(true) => {
                let message = "another index has taken its place since it was opened; open it again";
                return Error::Store(format!("{}: {message}", place(&self.file.path)));
            }
            Some(false) => {}
        }
        match error {
            Error::Corrupt(wrong) => Error::Corrupt(InFile { path: place(&wrong.path).into(), ..wrong }),
            other => other,
        }
    }

    fn asks_to_explain(&self, error: &Error) -> bool {
        self.engine.fetcher().is_some() && matches!(error, Error::Corrupt(_) | Error::Store(_))
    }
}

impl Storage {
    /// Why reading is not as fast as it could be, if so; a search may add reasons.
    pub fn note(&self) -> Option<String> {
        let notes: Vec<String> = self.engine.notes().chain(self.file.buffered_because.clone()).collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }
}

impl<T> Source<T> {
    /// `engine` with its files; what `load` returns where there is no engine.
    pub fn new(storage: Option<Storage>, load: impl FnOnce() -> Result<T>) -> Result<Self> {
        Ok(match storage {
            Some(storage) => Source::Storage(storage),
            None => Source::Memory(load()?),
        })
    }

    /// Name of the engine, [`MEMORY`] for none.
    pub fn engine_name(&self) -> &'static str {
        match self {
            Source::Memory(_) => MEMORY,
            Source::Storage(storage) => storage.engine.name(),
        }
    }

    /// See [`Storage::note`]; memory needs no note.
    pub fn note(&self) -> Option<String> {
        match self {
            Source::Memory(_) => None,
            Source::Storage(storage) => storage.note(),
        }
    }

    /// What reads from a store, if that is where the blocks are.
    pub fn fetcher(&self) -> Option<&Arc<Fetcher>> {
        match self {
            Source::Memory(_) => None,
            Source::Storage(storage) => storage.engine.fetcher(),
        }
    }

    /// The files, if anything is read from them.
    pub fn files(&self) -> Option<&DataFile> {
        match self {
            Source::Memory(_) => None,
            Source::Storage(storage) => Some(&storage.file),
        }
    }

    /// What is in memory.
    pub fn held(&self) -> Option<&T> {
        match self {
            Source::Memory(held) => Some(held),
            Source::Storage(_) => None,
        }
    }
}

impl<T: Sync> Start for Source<T> {
    fn start(&self, slots: usize, slot_bytes: usize) -> Result<Box<dyn Engine>> {
        match self {
            Source::Memory(_) => Ok(Box::new(NoEngine)),
            Source::Storage(storage) => storage.start(slots, slot_bytes),
        }
    }

    fn explained(&self, error: Error, stop: Stop<'_>) -> Error {
        match self {
            Source::Memory(_) => error,
            Source::Storage(storage) => storage.explained(error, stop),
        }
    }

    fn asks_to_explain(&self, error: &Error) -> bool {
        match self {
            Source::Memory(_) => false,
            Source::Storage(storage) => storage.asks_to_explain(error),
        }
    }

    fn has_waits(&self) -> bool {
        self.files().is_some()
    }
}

/// Fits every search of what is in memory, and reads nothing.
struct NoEngine;

impl Engine for NoEngine {
    fn slots(&self) -> usize {
        usize::MAX
    }

    fn slot_bytes(&self) -> usize {
        usize::MAX
    }

    fn bytes(&self) -> usize {
        0
    }

    fn queue_part(&mut self, _: usize, unit: u64, _: usize) -> Result<()> {
        unreachable!("a read from unit {unit} of what is in memory")
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn reap_each(&mut self, _: &mut Finished) -> Result<()> {
        Ok(())
    }

    fn poll_each(&mut self, _: &mut Finished) -> Result<()> {
        Ok(())
    }

    fn buffer(&self, slot: usize) -> &[u8] {
        unreachable!("buffer {slot} of no engine")
    }
}
