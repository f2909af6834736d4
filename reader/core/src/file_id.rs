//! Identity of files, independent of their names.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::distance;
use crate::error::{Error, Result};

/// How often an index is opened again if it is replaced at that moment.
const OPEN_ATTEMPTS: usize = 4;

/// Calls `open` until it returns an index. It returns `None` if the index was replaced meanwhile, so that its files may
/// not belong together. `path` is one of the files, for messages. Refuses before that what the kernels cannot run with.
pub fn open_together<T>(path: &Path, open: impl Fn() -> Result<Option<T>>) -> Result<T> {
    distance::unit()?;
    for _ in 0..OPEN_ATTEMPTS {
        if let Some(opened) = open()? {
            return Ok(opened);
        }
    }
    Err(Error::io(path, "open", std::io::Error::other("it was replaced while it was opened; open it again")))
}

/// Identity of an open file: device and inode. Another file may get the same ones after the last descriptor is closed,
/// so one of the two compared files must still be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId(u64, u64);

impl FileId {
    /// Identity of `file`, which was opened at `path`.
    pub fn of(path: &Path, file: &File) -> Result<Self> {
        let meta = file.metadata().map_err(|e| Error::io(path, "look which file it is", e))?;
        Ok(FileId(meta.dev(), meta.ino()))
    }
}
