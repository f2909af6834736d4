//! Telling files apart whatever they are called.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::{Error, Result};

/// How often an index is opened anew that is replaced at that moment.
const OPEN_ATTEMPTS: usize = 4;

/// Calls `open` until its files belong together, as they do unless the index is replaced meanwhile: then it returns
/// `None`. `path` is one of the files.
pub fn open_together<T>(path: &Path, open: impl Fn() -> Result<Option<T>>) -> Result<T> {
    for _ in 0..OPEN_ATTEMPTS {
        if let Some(opened) = open()? {
            return Ok(opened);
        }
    }
    Err(Error::io(path, "open", std::io::Error::other("it was replaced while it was opened; open it again")))
}

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
