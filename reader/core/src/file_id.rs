//! Telling files apart whatever they are called.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::{Error, Result};

/// What tells an open file from others: device and inode. Another file may get the same once the last descriptor of
/// this one is closed, so one of the two that are compared must be open still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId(u64, u64);

impl FileId {
    /// That of `file`, which was opened at `path`.
    pub fn of(path: &Path, file: &File) -> Result<Self> {
        let meta = file.metadata().map_err(|e| Error::io(path, "look which file it is", e))?;
        Ok(FileId(meta.dev(), meta.ino()))
    }
}
