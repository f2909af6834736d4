//! The file that engines read: direct (past the page cache) where the file system allows it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};

use super::buffers::Buffers;
use crate::error::{Error, Result};
use crate::pagefile::PAGE_BYTES;

/// Direct reads start and end at multiples of it.
const DIRECT_ALIGNMENT: usize = 512;

/// An open data file, shared by all engines of an index.
#[derive(Debug)]
pub struct DataFile {
    /// For messages.
    pub path: PathBuf,
    /// Why reads go through the page cache, if they do.
    pub buffered_because: Option<String>,
    file: File,
}

impl DataFile {
    /// Opens `path` for direct reads, or for buffered ones where direct reads are refused.
    pub fn open(path: &Path) -> Result<Self> {
        let refused = match open_direct(path) {
            Ok(file) => return Ok(DataFile { path: path.to_owned(), buffered_because: None, file }),
            Err(e) => e,
        };
        let file = File::open(path).map_err(|e| Error::io(path, "open", e))?;
        let reason = format!("direct reads were refused ({refused}); the page cache is used");
        Ok(DataFile { path: path.to_owned(), buffered_because: Some(reason), file })
    }

    /// Descriptor, valid as long as `self`.
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// An error of a read that started at `page`.
    pub fn read_error(&self, page: u64, source: io::Error) -> Error {
        Error::io(&self.path, format!("read page {page}"), source)
    }

    /// Whether a read of `got` bytes was cut by the end of the file: a direct read that is merely short ends aligned.
    pub fn is_cut(&self, got: usize) -> bool {
        self.buffered_because.is_none() && !got.is_multiple_of(DIRECT_ALIGNMENT)
    }

    /// The error of a read that ended at the end of the file, which the size check at open had ruled out.
    pub fn shrank(&self, page: u64) -> Error {
        Error::corrupt(&self.path, format!("page {page}"), "a whole block", "the end of the file")
    }
}

#[cfg(target_os = "linux")]
fn open_direct(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)?;
    // Some file systems accept the flag and refuse the read.
    let probe = Buffers::new(1, PAGE_BYTES).map_err(io::Error::other)?;
    read_at(&file, probe.address(0), PAGE_BYTES, 0)?;
    Ok(file)
}

#[cfg(not(target_os = "linux"))]
fn open_direct(_path: &Path) -> io::Result<File> {
    Err(io::Error::other("this is not Linux"))
}

/// One pread, repeated when interrupted; returns the bytes read.
fn read_at(file: &File, address: *mut u8, bytes: usize, offset: u64) -> io::Result<usize> {
    loop {
        // SAFETY: the caller owns `bytes` bytes at `address`.
        let got = unsafe { libc::pread(file.as_raw_fd(), address.cast(), bytes, offset as libc::off_t) };
        if got >= 0 {
            return Ok(got as usize);
        }
        let error = io::Error::last_os_error();
        if !matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) {
            return Err(error);
        }
    }
}

impl DataFile {
    /// Fills `bytes` bytes at `address` from `page` on, continuing short reads.
    ///
    /// # Safety
    /// The caller owns the memory for the length of the call.
    pub unsafe fn read_block(&self, address: *mut u8, bytes: usize, page: u64) -> Result<()> {
        let mut filled = 0;
        while filled < bytes {
            let offset = page * PAGE_BYTES as u64 + filled as u64;
            let got = read_at(&self.file, address.wrapping_add(filled), bytes - filled, offset)
                .map_err(|e| self.read_error(page, e))?;
            if got == 0 {
                return Err(self.shrank(page));
            }
            if self.is_cut(got) {
                return Err(self.shrank(page));
            }
            filled += got;
        }
        Ok(())
    }
}
