//! Callers that may want a long call to end early.

use crate::error::{Error, Result};

/// Says whether the caller wants to stop. It is asked now and then, on the thread of the call.
pub type Stop<'a> = &'a mut dyn FnMut() -> bool;

/// An error if the caller wants to stop.
pub fn go_on(interrupted: Stop<'_>) -> Result<()> {
    if interrupted() { Err(Error::Interrupted) } else { Ok(()) }
}

/// Bytes of work after which the caller is asked: at most some milliseconds of it.
const BYTES_AT_ONCE: usize = 1 << 17;

/// Asks the caller whether to stop, once for every `BYTES_AT_ONCE` of work.
pub struct Asked<'a> {
    interrupted: Stop<'a>,
    left: usize,
}

impl<'a> Asked<'a> {
    /// Asks before the first bytes, too.
    pub fn new(interrupted: Stop<'a>) -> Self {
        Asked { interrupted, left: 0 }
    }

    /// Counts `bytes` that are worked through next; an error if the caller wants to stop.
    pub fn go_on(&mut self, bytes: usize) -> Result<()> {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => {
                go_on(self.interrupted)?;
                self.left = BYTES_AT_ONCE;
            }
        }
        Ok(())
    }
}
