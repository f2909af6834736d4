//! Blocks from a map of the file: the synchronous baseline of the E2LSH-on-storage study.
//!
//! A block is copied out of the map when it is flushed, and the thread waits for the page fault. The copy, which a
//! search on bare memory would not make, is there because the bytes of a map may change or vanish between the check
//! of a checksum and their use.

use std::sync::Arc;

use super::file::DataFile;
use super::synchronous::Fill;
use crate::error::Result;

/// A file that was opened as a map.
pub struct Mapped(pub Arc<DataFile>);

impl Fill for Mapped {
    fn fill(&self, unit: u64, block: &mut [u8]) -> Result<()> {
        // SAFETY: the block is the caller's.
        unsafe { self.0.read_block(&*self.0, block.as_mut_ptr(), block.len(), unit) }
    }
}
