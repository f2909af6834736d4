//! Callers that may want a long call to end early.

use crate::error::{Error, Result};

/// Says whether the caller wants to stop. It is asked now and then, on the thread of the call.
pub type Stop<'a> = &'a mut dyn FnMut() -> bool;

/// An error if the caller wants to stop.
pub fn go_on(interrupted: Stop<'_>) -> Result<()> {
    if interrupted() { Err(Error::Interrupted) } else { Ok(()) }
}
