//! No engine: for searches of what is in memory.

use super::Engine;
use crate::error::Result;

/// Fits every search, and reads nothing.
pub struct NoEngine;

impl Engine for NoEngine {
    fn slots(&self) -> usize {
        usize::MAX
    }

    fn slot_bytes(&self) -> usize {
        usize::MAX
    }

    fn queue_part(&mut self, _: usize, unit: u64, _: usize) -> Result<()> {
        unreachable!("a read from unit {unit} of what is in memory")
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn reap(&mut self, _: &mut Vec<usize>) -> Result<()> {
        Ok(())
    }

    fn poll(&mut self, _: &mut Vec<usize>) -> Result<()> {
        Ok(())
    }

    fn buffer(&self, slot: usize) -> &[u8] {
        unreachable!("buffer {slot} of no engine")
    }
}
