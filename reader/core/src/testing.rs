//! What only tests ask of the generator, an engine of theirs, and FIFOs.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::engine::{Engine, Finished, Start};
use crate::error::Result;
pub use crate::random::Random;

impl Random {
    pub fn float(&mut self) -> f32 {
        self.fraction() as f32
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// Makes a FIFO, to which nobody writes.
pub fn make_fifo(path: &Path) {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a zero-terminated path.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
}

/// An engine whose reads do not arrive. Its clones count those of them that ended.
#[derive(Default, Clone)]
pub struct Hanging {
    pub ended: Arc<AtomicUsize>,
}

impl Drop for Hanging {
    fn drop(&mut self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

impl Start for Hanging {
    fn start(&self, _: usize, _: usize) -> Result<Box<dyn Engine>> {
        Ok(Box::new(self.clone()))
    }
}

impl Engine for Hanging {
    fn slots(&self) -> usize {
        usize::MAX
    }

    fn slot_bytes(&self) -> usize {
        usize::MAX
    }

    fn bytes(&self) -> usize {
        0
    }

    fn queue_part(&mut self, _: usize, _: u64, _: usize) -> Result<()> {
        Ok(())
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

    fn buffer(&self, _: usize) -> &[u8] {
        &[]
    }
}
