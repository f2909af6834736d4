//! Reading blocks of graph.imx behind one trait: io_uring, or a pool of threads that call pread.
//!
//! An engine belongs to one search thread, owns the buffers that are read into and has one buffer for each read that
//! may be in flight. The contract of every engine: a completed read filled its buffer wholly (short reads are
//! continued, interrupted ones repeated), anything else is an error that names file and page, and dropping an
//! engine waits for the reads in flight.

mod buffers;
mod file;
mod pread;
#[cfg(target_os = "linux")]
mod uring;

pub use file::DataFile;

use std::sync::Arc;

use crate::error::{Error, Result};

/// Which engine to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    /// io_uring (Linux).
    Uring,
    /// A pool of threads that call pread.
    Pread,
}

impl EngineKind {
    /// Name as callers see it.
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Uring => "io_uring",
            EngineKind::Pread => "pread",
        }
    }

    /// The engine for `name` ("auto", "io_uring" or "pread"), and why "auto" did not give io_uring, if it did not.
    pub fn choose(name: &str) -> Result<(Self, Option<String>)> {
        match name {
            "pread" => Ok((EngineKind::Pread, None)),
            "io_uring" => match probe_uring() {
                Ok(()) => Ok((EngineKind::Uring, None)),
                Err(e) => Err(Error::Config(format!("engine io_uring: {e}; use \"auto\" or \"pread\""))),
            },
            "auto" => match probe_uring() {
                Ok(()) => Ok((EngineKind::Uring, None)),
                Err(e) => Ok((EngineKind::Pread, Some(format!("io_uring is not available: {e}")))),
            },
            _ => Err(Error::Config(format!("engine: expected \"auto\", \"io_uring\" or \"pread\", got {name:?}"))),
        }
    }

    /// An engine with `slots` buffers of `slot_bytes` each.
    pub fn start(self, file: &Arc<DataFile>, slots: usize, slot_bytes: usize) -> Result<Box<dyn Engine>> {
        let buffers = buffers::Buffers::new(slots, slot_bytes)?;
        match self {
            #[cfg(target_os = "linux")]
            EngineKind::Uring => Ok(Box::new(uring::Uring::new(file.clone(), buffers)?)),
            _ => Ok(Box::new(pread::PreadPool::new(file.clone(), buffers)?)),
        }
    }
}

#[cfg(target_os = "linux")]
fn probe_uring() -> std::io::Result<()> {
    uring::probe()
}

#[cfg(not(target_os = "linux"))]
fn probe_uring() -> std::io::Result<()> {
    Err(std::io::Error::other("this is not Linux"))
}

/// Reads whole blocks into numbered buffers; see the module's contract.
pub trait Engine: Send {
    /// Number of buffers.
    fn slots(&self) -> usize;

    /// Asks for a block that starts at `page` into buffer `slot`, which must not be in flight. It may start at the
    /// next [`Engine::flush`] only.
    fn queue(&mut self, slot: usize, page: u64) -> Result<()>;

    /// Starts everything that was queued.
    fn flush(&mut self) -> Result<()>;

    /// Starts everything that was queued and appends the slots of all finished reads to `done`; blocks until there
    /// is one unless nothing is in flight.
    fn reap(&mut self, done: &mut Vec<usize>) -> Result<()>;

    /// Starts everything that was queued and appends the slots of finished reads to `done`; never blocks, and makes
    /// no system call where there is nothing to do.
    fn poll(&mut self, done: &mut Vec<usize>) -> Result<()>;

    /// Content of a buffer that is not in flight.
    fn buffer(&self, slot: usize) -> &[u8];
}

#[cfg(test)]
mod tests;
