//! The file that engines read: past the page cache where the file system allows it, through it, or as a map.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};

use super::buffers::Buffers;
use super::mapping::Mapping;
use super::progress::{Fault, Next, Progress, REFUSAL_PAUSE};
use crate::error::{Error, Result};
use crate::file_id::FileId;

/// How a file is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Past the page cache, or through it where that is refused.
    Direct,
    /// Through the page cache.
    Cached,
    /// By a map of the file.
    Mapped,
}

/// An open data file, shared by all engines of an index.
pub struct DataFile {
    /// For messages.
    pub path: PathBuf,
    /// Why reads go through the page cache although direct ones were wanted.
    pub buffered_because: Option<String>,
    /// Whether reads go past the page cache.
    pub direct: bool,
    unit_bytes: usize,
    file: File,
    mapping: Option<Mapping>,
}

/// Something that can be read at an offset: the file, or a test's script.
pub trait ReadAt: Send + Sync {
    /// One read of up to `bytes` bytes; returns how many came.
    ///
    /// # Safety
    /// The caller owns `bytes` bytes at `address` for the length of the call.
    unsafe fn read_at(&self, address: *mut u8, bytes: usize, offset: u64) -> io::Result<usize>;
}

impl DataFile {
    /// Opens `path`; reads will start at multiples of `unit_bytes`, by whose number blocks are asked for.
    pub fn open(path: &Path, access: Access, unit_bytes: usize) -> Result<Self> {
        let (mut buffered_because, mut direct) = (None, None);
        if access == Access::Direct {
            match open_direct(path, unit_bytes) {
                Ok(file) => direct = Some(file),
                Err(e) => {
                    buffered_because = Some(format!("direct reads were refused ({e}); the page cache is used"));
                }
            }
        }
        let is_direct = direct.is_some();
        let file = direct.map_or_else(|| File::open(path), Ok).map_err(|e| Error::io(path, "open", e))?;
        let mapping = if access == Access::Mapped { Some(Mapping::new(&file, path)?) } else { None };
        Ok(DataFile { path: path.to_owned(), buffered_because, direct: is_direct, unit_bytes, file, mapping })
    }

    /// Descriptor, valid as long as `self`.
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Which file this is.
    pub(crate) fn id(&self) -> Result<FileId> {
        FileId::of(&self.path, &self.file)
    }

    /// Its size, also of a block device.
    pub fn bytes(&self) -> Result<u64> {
        (&self.file).seek(SeekFrom::End(0)).map_err(|e| Error::io(&self.path, "look for its end", e))
    }

    /// Where a page starts in the file.
    pub fn offset_of(&self, page: u64) -> u64 {
        page * self.unit_bytes as u64
    }

    /// The error for a block at `page`, whose end the size check at open had found inside the file.
    pub fn fault(&self, page: u64, fault: Fault) -> Error {
        match fault {
            Fault::Failed(e) => Error::io(&self.path, format!("read page {page}"), e),
            Fault::Cut => Error::corrupt(&self.path, format!("page {page}"), "a whole block", "the end of the file"),
        }
    }

    /// Fills `bytes` bytes at `address` from `page` on with reads of `source`, however many it takes.
    ///
    /// # Safety
    /// The caller owns the memory for the length of the call.
    pub unsafe fn read_block(&self, source: &impl ReadAt, address: *mut u8, bytes: usize, page: u64) -> Result<()> {
        let mut progress = Progress::new(page, bytes);
        loop {
            let filled = progress.filled();
            let offset = self.offset_of(page) + filled as u64;
            // SAFETY: the missing part of the caller's memory.
            let result = unsafe { source.read_at(address.wrapping_add(filled), progress.missing(), offset) };
            match progress.take(result, self.direct).map_err(|fault| self.fault(page, fault))? {
                Next::Done => return Ok(()),
                Next::Again => {}
                Next::AgainLater => std::thread::sleep(REFUSAL_PAUSE),
            }
        }
    }
}

impl ReadAt for DataFile {
    unsafe fn read_at(&self, address: *mut u8, bytes: usize, offset: u64) -> io::Result<usize> {
        match &self.mapping {
            // SAFETY: as the caller says.
            Some(mapping) => unsafe { mapping.read_at(address, bytes, offset) },
            // SAFETY: as the caller says.
            None => unsafe { self.file.read_at(address, bytes, offset) },
        }
    }
}

impl ReadAt for File {
    unsafe fn read_at(&self, address: *mut u8, bytes: usize, offset: u64) -> io::Result<usize> {
        // SAFETY: as the caller says.
        let got = unsafe { libc::pread(self.as_raw_fd(), address.cast(), bytes, offset as libc::off_t) };
        if got >= 0 { Ok(got as usize) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(target_os = "linux")]
fn open_direct(path: &Path, unit_bytes: usize) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)?;
    // Some file systems accept the flag and refuse the read.
    let probe = Buffers::new(1, unit_bytes).map_err(io::Error::other)?;
    let mut progress = Progress::new(0, unit_bytes);
    loop {
        // SAFETY: the buffer is as long, and nobody else's.
        let result = unsafe { file.read_at(probe.address(0), unit_bytes, 0) };
        match progress.take(result, true) {
            Ok(Next::AgainLater) => std::thread::sleep(REFUSAL_PAUSE),
            Ok(Next::Again) if progress.filled() == 0 => {}
            Ok(_) | Err(Fault::Cut) => return Ok(file),
            Err(Fault::Failed(e)) => return Err(e),
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn open_direct(_path: &Path, _unit_bytes: usize) -> io::Result<File> {
    Err(io::Error::other("this is not Linux"))
}
