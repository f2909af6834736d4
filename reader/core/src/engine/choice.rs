//! Engines by name.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::buffers::Buffers;
use super::contract::Engine;
use super::fetcher::Fetcher;
use super::file::{Access, DataFile};
use super::pread::PreadPool;
use super::profile::Profile;
use super::ranges::Ranges;
#[cfg(target_os = "linux")]
use super::ring::Ring;
use super::simulated::{Device, Simulated};
use super::synchronous::{Fill, Mapped, Synchronous};
#[cfg(target_os = "linux")]
use super::uring::Uring;
use crate::error::{Error, Result};

/// Prefix of the path of a profile.
const SIMULATED: &str = "simulated:";

/// How an index reads blocks; starts an engine for each search thread.
pub struct EngineChoice {
    kind: Kind,
    /// Why "auto" could not give the best engine.
    reason: Option<String>,
    /// Whether pread may stand in for rings that cannot be set up later.
    may_fall_back: bool,
    fell_back: OnceLock<String>,
    /// What a thread's ring could not register, and why.
    unregistered: OnceLock<String>,
}

/// How an index that is to be opened reads blocks.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Reading<'a> {
    /// From the files of its directory, by the engine of a name.
    Named(&'a str),
    /// From a store that has its files as objects. The directory has as large files, with all that opening reads.
    Stored(&'a Arc<Fetcher>),
}

impl Reading<'_> {
    /// Its engine.
    pub(crate) fn choice(self) -> Result<EngineChoice> {
        match self {
            Reading::Named(name) => EngineChoice::new(name),
            Reading::Stored(fetcher) => Ok(EngineChoice::of(Kind::Stored(fetcher.clone()), None, false)),
        }
    }
}

enum Kind {
    #[cfg(target_os = "linux")]
    Uring,
    /// The ring with the polling thread that all engines share; nothing else is sent through it.
    #[cfg(target_os = "linux")]
    Poller(Box<Ring>),
    Pread,
    Mmap,
    Simulated(Arc<Device>),
    /// Blocks that are composed in memory.
    Remapped(Arc<dyn Fill>),
    /// Blocks of objects.
    Stored(Arc<Fetcher>),
}

impl EngineChoice {
    /// The engine called `name`: "auto" (io_uring, or pread where io_uring is not available), "io_uring", "sqpoll",
    /// "pread", "mmap" or "simulated:" and the path of a device profile.
    ///
    /// # Errors
    /// `Config` for another name and for an engine that the system refuses; for a profile see [`Profile::parse`].
    pub fn new(name: &str) -> Result<Self> {
        let refused = |e| Error::Config(format!("engine {name}: {e}; use \"auto\" or \"pread\""));
        let (mut reason, may_fall_back) = (None, name == "auto");
        let kind = match name {
            "pread" => Kind::Pread,
            "mmap" => Kind::Mmap,
            "auto" => uring().unwrap_or_else(|e| {
                reason = Some(format!("io_uring is not available: {e}"));
                Kind::Pread
            }),
            "io_uring" => uring().map_err(refused)?,
            "sqpoll" => poller().map_err(refused)?,
            _ => match name.strip_prefix(SIMULATED) {
                Some(path) => Kind::Simulated(Arc::new(Device::new(Profile::read(Path::new(path))?))),
                None => {
                    return Err(Error::Config(format!(
                        "engine: expected \"auto\", \"io_uring\", \"sqpoll\", \"pread\", \"mmap\" or \
                         \"simulated:PROFILE.json\", got {name:?}; choose one of them"
                    )));
                }
            },
        };
        Ok(Self::of(kind, reason, may_fall_back))
    }

    fn of(kind: Kind, reason: Option<String>, may_fall_back: bool) -> Self {
        EngineChoice { kind, reason, may_fall_back, fell_back: OnceLock::new(), unregistered: OnceLock::new() }
    }

    /// Blocks that `pages` composes in memory; no name asks for them.
    pub(crate) fn remapped(pages: Arc<dyn Fill>) -> Self {
        Self::of(Kind::Remapped(pages), None, false)
    }

    /// Name of the engine that "auto" chose, or that was asked for; "simulated" without its profile.
    pub fn name(&self) -> &'static str {
        match self.kind {
            #[cfg(target_os = "linux")]
            Kind::Uring => "io_uring",
            #[cfg(target_os = "linux")]
            Kind::Poller(_) => "sqpoll",
            Kind::Pread => "pread",
            Kind::Mmap => "mmap",
            Kind::Simulated(_) => "simulated",
            Kind::Remapped(_) => "remapped",
            Kind::Stored(_) => "ranges",
        }
    }

    /// What reads from a store, if that is where the blocks are.
    pub fn fetcher(&self) -> Option<&Arc<Fetcher>> {
        if let Kind::Stored(fetcher) = &self.kind { Some(fetcher) } else { None }
    }

    /// Why reading is not as fast as it could be, if so; a reason may come up during a search.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let of_kind = match &self.kind {
            Kind::Simulated(device) => Some(format!("read times are those of the simulated device {:?}", device.name)),
            Kind::Remapped(_) => Some("pages of another order are composed in memory: times say nothing".into()),
            _ => None,
        };
        let of_threads = [self.fell_back.get().cloned(), self.unregistered.get().cloned()];
        [self.reason.clone(), of_kind].into_iter().chain(of_threads).flatten()
    }

    /// Whether a thread got a pool of preads instead of a ring.
    pub(crate) fn fell_back(&self) -> bool {
        self.fell_back.get().is_some()
    }

    /// How the file is to be opened for its engines.
    pub(crate) fn access(&self) -> Access {
        match self.kind {
            Kind::Mmap => Access::Mapped,
            Kind::Simulated(_) => Access::Held,
            Kind::Stored(_) => Access::Cached,
            _ => Access::Direct,
        }
    }

    /// An engine with `slots` buffers of `slot_bytes` each.
    pub(crate) fn start(&self, file: &Arc<DataFile>, slots: usize, slot_bytes: usize) -> Result<Box<dyn Engine>> {
        let (file, buffers) = (file.clone(), || Buffers::new(slots, slot_bytes));
        match &self.kind {
            Kind::Pread => Ok(Box::new(PreadPool::new(file.clone(), file, buffers()?)?)),
            Kind::Mmap => Ok(Box::new(Synchronous::new(Mapped(file), buffers()?))),
            Kind::Remapped(pages) => Ok(Box::new(Synchronous::new(pages.clone(), buffers()?))),
            Kind::Stored(fetcher) => Ok(Box::new(Ranges::new(fetcher.clone(), file, slots, slot_bytes))),
            Kind::Simulated(device) => Ok(Box::new(Simulated::new(device.clone(), file, slots, slot_bytes))),
            #[cfg(target_os = "linux")]
            Kind::Uring => self.start_ring(Ring::new(slots), file, buffers()?),
            #[cfg(target_os = "linux")]
            Kind::Poller(first) => self.start_ring(Ring::with_poller(slots, Some(first)), file, buffers()?),
        }
    }

    #[cfg(target_os = "linux")]
    fn start_ring(&self, ring: io::Result<Ring>, file: Arc<DataFile>, buffers: Buffers) -> Result<Box<dyn Engine>> {
        match ring {
            Ok(ring) => {
                let engine = Uring::new(ring, file, buffers);
                if let Some(refusal) = engine.refusal() {
                    self.unregistered.get_or_init(|| refusal.to_owned());
                }
                Ok(Box::new(engine))
            }
            Err(e) if self.may_fall_back => {
                self.fell_back.get_or_init(|| format!("a search thread got no io_uring and reads by pread: {e}"));
                Ok(Box::new(PreadPool::new(file.clone(), file, buffers)?))
            }
            Err(e) => Err(Error::io(&file.path, "set up io_uring", e)),
        }
    }
}

#[cfg(target_os = "linux")]
fn uring() -> io::Result<Kind> {
    Ring::new(1).map(|_| Kind::Uring)
}

#[cfg(target_os = "linux")]
fn poller() -> io::Result<Kind> {
    Ring::with_poller(1, None).map(|ring| Kind::Poller(Box::new(ring)))
}

#[cfg(not(target_os = "linux"))]
fn uring() -> io::Result<Kind> {
    Err(io::Error::other("this is not Linux"))
}

#[cfg(not(target_os = "linux"))]
fn poller() -> io::Result<Kind> {
    uring()
}
