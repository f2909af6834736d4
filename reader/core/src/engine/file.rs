//! The files that engines read: bypassing the page cache where the file system allows it, through the page cache, as
//! maps, or as copies in memory.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::buffers::Buffers;
use super::mapping::Mapping;
use super::progress::{Fault, Next, Progress, REFUSAL_PAUSE};
use crate::directory::Directory;
use crate::error::{Error, Place, Result};
use crate::file_id::FileId;
use crate::files;
use crate::interrupt::{Stop, go_on};
use crate::memory::Region;
use crate::pagefile::{PAGE_BYTES, Page};

/// Bytes of a file that are read before memory for more of its copy is used.
const PIECE_BYTES: usize = 256 * PAGE_BYTES;

/// How a file is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Bypassing the page cache, or through it where that is refused.
    Direct,
    /// Through the page cache, or not at all: its bytes are in a store.
    Cached,
    /// By a map of the file.
    Mapped,
    /// From a copy in memory, which [`DataFile::hold`] makes.
    Held,
}

/// An open data file, shared by all engines of an index; or several, read as if each began where the one before ends.
pub struct DataFile {
    /// The file, or the first one, for messages.
    pub path: PathBuf,
    /// Why reads go through the page cache although direct reads were asked for.
    pub buffered_because: Option<String>,
    /// Whether reads bypass the page cache, except those of [`DataFile::with_cached`].
    pub direct: bool,
    access: Access,
    unit_bytes: usize,
    /// In order, at least one.
    parts: Vec<Part>,
}

/// One of the files.
struct Part {
    path: PathBuf,
    file: File,
    mapping: Option<Mapping>,
    held: Option<Region>,
    /// Whether reads bypass the page cache.
    direct: bool,
    /// Bytes of the files before it.
    start: u64,
}

impl Part {
    fn new(path: PathBuf, file: File, access: Access, direct: bool, start: u64) -> Result<Self> {
        let mapping = if access == Access::Mapped { Some(Mapping::new(&file, &path)?) } else { None };
        Ok(Part { path, file, mapping, held: None, direct, start })
    }
}

/// A block of a file that is held in memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hold {
    part: usize,
    start: usize,
    bytes: usize,
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
    /// Opens the file or block device at `path`. Reads start at multiples of `unit_bytes`, and blocks are asked for by
    /// the number of their first unit.
    pub fn open(path: &Path, access: Access, unit_bytes: usize) -> Result<Self> {
        let open = |_: usize, flags: i32| files::open(path, flags, |kind| kind.is_file() || kind.is_block_device());
        Self::join(vec![path.to_owned()], access, unit_bytes, open)
    }

    /// Opens the files `names` of a directory, at least one. All except the last are whole units long, and no block may
    /// lie in two of them.
    pub fn open_in(
        directory: &Directory,
        names: &[impl AsRef<str>],
        access: Access,
        unit_bytes: usize,
    ) -> Result<Self> {
        let paths = names.iter().map(|name| directory.join(name.as_ref())).collect();
        Self::join(paths, access, unit_bytes, |i: usize, flags| directory.open_file(names[i].as_ref(), flags))
    }

    /// `open(i, flags)` opens the file at `paths[i]` with further flags of open(2).
    fn join(
        paths: Vec<PathBuf>,
        access: Access,
        unit_bytes: usize,
        open: impl Fn(usize, i32) -> io::Result<Option<File>>,
    ) -> Result<Self> {
        let open = |i, flags| open(i, flags)?.ok_or_else(|| io::Error::other("it is no regular file"));
        let (mut buffered_because, mut direct) = (None, None);
        if access == Access::Direct {
            let open_direct = |i| open(i, DIRECT).and_then(|file| tried(file, unit_bytes));
            match (0..paths.len()).map(open_direct).collect::<io::Result<Vec<File>>>() {
                Ok(files) => direct = Some(files),
                Err(e) => {
                    buffered_because = Some(format!("direct reads were refused ({e}); the page cache is used"));
                }
            }
        }
        let is_direct = direct.is_some();
        let (mut parts, mut start) = (Vec::with_capacity(paths.len()), 0);
        let mut direct = direct.into_iter().flatten();
        for (i, path) in paths.into_iter().enumerate() {
            let file = direct.next().map_or_else(|| open(i, 0), Ok).map_err(|e| Error::io(&path, "open", e))?;
            let bytes = bytes_of(&path, &file)?;
            parts.push(Part::new(path, file, access, is_direct, start)?);
            start += bytes;
        }
        Ok(DataFile { path: parts[0].path.clone(), buffered_because, direct: is_direct, access, unit_bytes, parts })
    }

    /// Adds the file `name` of a directory, which is read through the page cache where the others bypass it: one that
    /// is small beside them, so that it may well stay there. All before it are whole units long.
    pub fn with_cached(mut self, directory: &Directory, name: &str) -> Result<Self> {
        let (path, last) = (directory.join(name), &self.parts[self.parts.len() - 1]);
        let start = last.start + bytes_of(&last.path, &last.file)?;
        let opened = directory.open_file(name, 0).map_err(|e| Error::io(&path, "open", e))?;
        let file = opened.ok_or_else(|| Error::io(&path, "open", io::Error::other("it is no regular file")))?;
        will_be_read_at_random(&file);
        self.parts.push(Part::new(path, file, self.access, false, start)?);
        Ok(self)
    }

    /// Copies the files into memory if that is how they are to be read: once their headers were checked, which say how long
    /// they are. Memory for a piece is used after the piece was read, and none for pages of zeros, so that a hole of a file
    /// is one of its copy. `interrupted` is asked before each piece.
    pub fn hold(&mut self, interrupted: Stop<'_>) -> Result<()> {
        if self.access == Access::Held {
            for part in &mut self.parts {
                part.held = Some(copied(&part.path, &part.file, interrupted)?);
            }
        }
        Ok(())
    }

    /// Number of the last file.
    pub fn last(&self) -> usize {
        self.parts.len() - 1
    }

    /// A file that need not be a regular one.
    #[cfg(test)]
    pub fn of(file: File) -> Self {
        let path = PathBuf::new();
        let parts = vec![Part { path: path.clone(), file, mapping: None, held: None, direct: false, start: 0 }];
        let access = Access::Cached;
        DataFile { path, buffered_because: None, direct: false, access, unit_bytes: PAGE_BYTES, parts }
    }

    /// Bytes of a unit.
    pub fn unit_bytes(&self) -> usize {
        self.unit_bytes
    }

    /// Descriptors in order, valid as long as `self`.
    pub fn fds(&self) -> Vec<RawFd> {
        self.parts.iter().map(|part| part.file.as_raw_fd()).collect()
    }

    /// Which of the files the byte at `offset` belongs to, and where in it.
    pub fn locate(&self, offset: u64) -> (usize, u64) {
        // The first one starts at 0.
        let i = self.parts.partition_point(|part| part.start <= offset) - 1;
        (i, offset - self.parts[i].start)
    }

    /// Name of the file that the byte at `offset` belongs to, and where in it.
    pub fn object_at(&self, offset: u64) -> (Arc<str>, u64) {
        let (i, offset) = self.locate(offset);
        (self.parts[i].path.file_name().unwrap_or_default().to_string_lossy().into(), offset)
    }

    /// Where file `i` begins.
    pub fn start_of(&self, i: usize) -> u64 {
        self.parts[i].start
    }

    /// Units of the file at `path`; all if there is none.
    pub fn units_of(&self, path: &Path) -> Range<u64> {
        let Some(i) = self.parts.iter().position(|part| part.path == path) else { return 0..u64::MAX };
        let unit_of = |start: u64| start / self.unit_bytes as u64;
        unit_of(self.start_of(i))..self.parts.get(i + 1).map_or(u64::MAX, |next| unit_of(next.start))
    }

    /// Which file number `i` is.
    pub(crate) fn id(&self, i: usize) -> Result<FileId> {
        FileId::of(&self.parts[i].path, &self.parts[i].file)
    }

    /// Size of all, also of a block device.
    pub fn bytes(&self) -> Result<u64> {
        let last = &self.parts[self.parts.len() - 1];
        let bytes = (&last.file).seek(SeekFrom::End(0)).map_err(|e| Error::io(&last.path, "look for its end", e))?;
        Ok(last.start + bytes)
    }

    /// Whether the read of a block at `unit` bypasses the page cache.
    pub fn is_direct_at(&self, unit: u64) -> bool {
        self.parts[self.locate(self.offset_of(unit)).0].direct
    }

    /// Where a unit starts.
    pub fn offset_of(&self, unit: u64) -> u64 {
        unit * self.unit_bytes as u64
    }

    /// The error for a block at `unit`, which lay inside the file when its size was checked.
    pub fn fault(&self, unit: u64, fault: Fault) -> Error {
        let (i, offset) = self.locate(self.offset_of(unit));
        let (path, page) = (&self.parts[i].path, offset / PAGE_BYTES as u64);
        match fault {
            Fault::Failed(e) => Error::unread(path, page, e),
            Fault::Cut => Error::corrupt(path, Place::page(page), "a whole block", "the end of the file"),
        }
    }

    /// Where the block of `bytes` bytes from `unit` on is in the copy of its file.
    pub fn hold_of(&self, unit: u64, bytes: usize) -> Result<Hold> {
        let (part, start) = self.locate(self.offset_of(unit));
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        match &self.parts[part].held {
            Some(held) if start < held.len() && held.len() - start >= bytes => Ok(Hold { part, start, bytes }),
            _ => Err(self.fault(unit, Fault::Cut)),
        }
    }

    /// A block of the copy.
    pub fn held(&self, hold: Hold) -> &[u8] {
        let held = self.parts[hold.part].held.as_deref().unwrap_or_default();
        &held[hold.start..][..hold.bytes]
    }

    /// Fills `bytes` bytes at `address` from `unit` on with reads of `source`, however many it takes.
    ///
    /// # Safety
    /// The caller owns the memory for the length of the call.
    pub unsafe fn read_block(&self, source: &impl ReadAt, address: *mut u8, bytes: usize, unit: u64) -> Result<()> {
        let (mut progress, direct) = (Progress::new(unit, bytes), self.is_direct_at(unit));
        loop {
            let filled = progress.filled();
            let offset = self.offset_of(unit) + filled as u64;
            // SAFETY: the missing part of the caller's memory.
            let result = unsafe { source.read_at(address.wrapping_add(filled), progress.missing(), offset) };
            match progress.take(result, direct).map_err(|fault| self.fault(unit, fault))? {
                Next::Done => return Ok(()),
                Next::Again => {}
                Next::AgainLater => std::thread::sleep(REFUSAL_PAUSE),
            }
        }
    }
}

fn bytes_of(path: &Path, file: &File) -> Result<u64> {
    file.metadata().map(|meta| meta.len()).map_err(|e| Error::io(path, "read its size", e))
}

/// Advises the system not to read ahead.
fn will_be_read_at_random(file: &File) {
    #[cfg(target_os = "linux")]
    // SAFETY: an open descriptor; the advice does not change what is read, and a refusal leaves things as they are.
    unsafe {
        libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM)
    };
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// A copy of a file; see [`DataFile::hold`].
fn copied(path: &Path, file: &File, interrupted: Stop<'_>) -> Result<Region> {
    use std::os::unix::fs::FileExt;

    static ZEROS: Page = [0; PAGE_BYTES];
    let bytes = usize::try_from(bytes_of(path, file)?).unwrap_or(usize::MAX);
    let (mut copy, mut piece) = (Region::new(path, bytes)?, vec![0; PIECE_BYTES]);
    for (to, offset) in copy.chunks_mut(PIECE_BYTES).zip((0u64..).step_by(PIECE_BYTES)) {
        go_on(interrupted)?;
        let piece = &mut piece[..to.len()];
        file.read_exact_at(piece, offset).map_err(|e| Error::io(path, "read it into memory", e))?;
        for (to, page) in to.chunks_mut(PAGE_BYTES).zip(piece.chunks(PAGE_BYTES)) {
            if *page != ZEROS[..page.len()] {
                to.copy_from_slice(page);
            }
        }
    }
    Ok(copy)
}

impl ReadAt for DataFile {
    unsafe fn read_at(&self, address: *mut u8, bytes: usize, offset: u64) -> io::Result<usize> {
        let (i, offset) = self.locate(offset);
        let part = &self.parts[i];
        match &part.mapping {
            // SAFETY: as the caller says.
            Some(mapping) => unsafe { mapping.read_at(address, bytes, offset) },
            // SAFETY: as the caller says.
            None => unsafe { part.file.read_at(address, bytes, offset) },
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

/// Flags of a file that is read directly.
#[cfg(target_os = "linux")]
const DIRECT: i32 = libc::O_DIRECT;
#[cfg(not(target_os = "linux"))]
const DIRECT: i32 = 0;

/// A file that was opened with [`DIRECT`], after one read: some file systems accept the flag and refuse that.
#[cfg(target_os = "linux")]
fn tried(file: File, unit_bytes: usize) -> io::Result<File> {
    let probe = Buffers::new(1, unit_bytes).map_err(io::Error::other)?;
    let mut progress = Progress::new(0, unit_bytes);
    loop {
        // SAFETY: the buffer is as long, and used here alone.
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
fn tried(_file: File, _unit_bytes: usize) -> io::Result<File> {
    Err(io::Error::other("this is not Linux"))
}
