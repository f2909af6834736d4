//! Identity of files, independent of their names.

use std::fs::{File, Metadata, metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::{Error, Result};

/// Identity of an open file: device and inode. Another file may get the same ones after the last descriptor is closed,
/// so one of the two compared files must still be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId(u64, u64);

impl FileId {
    /// Identity of `file`, which was opened at `path`.
    pub fn of(path: &Path, file: &File) -> Result<Self> {
        let meta = file.metadata().map_err(|e| Error::io(path, "look which file it is", e))?;
        Ok(FileId::from(&meta))
    }

    /// Identity of what is at `path` now.
    pub fn named(path: &Path) -> io::Result<Self> {
        metadata(path).map(|meta| FileId::from(&meta))
    }
}

impl From<&Metadata> for FileId {
    fn from(meta: &Metadata) -> Self {
        FileId(meta.dev(), meta.ino())
    }
}
