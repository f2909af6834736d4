//! What the checks of all kinds share: damage that is noted, and an index that is opened once.

use crate::directory::Directory;
use crate::distance;
use crate::error::{Error, Result};

/// Notes a damage; an interruption is none.
pub fn note(damages: &mut Vec<String>, checked: Result<()>) -> Result<()> {
    match checked {
        Err(Error::Interrupted) => Err(Error::Interrupted),
        Err(error) => {
            damages.push(error.to_string());
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// An index of `directory` that `open_in` of its kind opened.
pub fn together<T>(directory: &Directory, opened: Result<Option<T>>) -> Result<T> {
    distance::unit()?;
    opened?.ok_or_else(|| Error::replaced(directory.path(), "a file was replaced meanwhile"))
}
