//! An index directory, opened once: its files are opened by their names in it, so that they belong together even if
//! another index takes its place meanwhile.

use std::ffi::CString;
use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::distance;
use crate::error::{Error, InFile, Result};
use crate::file_id::FileId;
use crate::files::settled;
use crate::interrupt::{Stop, go_on};

/// Name of the manifest in an index directory.
pub const MANIFEST_NAME: &str = "manifest.json";

/// How often an index is opened again if it is replaced at that moment. Each attempt fails only if the index that it
/// began with was replaced and its files were deleted before they were opened.
pub(crate) const OPEN_ATTEMPTS: usize = 100;

/// To search the directory for names takes no permission to list it, where the system can tell one from the other.
#[cfg(target_os = "linux")]
const FLAGS: i32 = libc::O_DIRECTORY | libc::O_PATH;
#[cfg(not(target_os = "linux"))]
const FLAGS: i32 = libc::O_DIRECTORY;

/// An open directory.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    file: File,
    id: FileId,
    /// The manifest that was read first.
    manifest: OnceLock<File>,
}

impl Directory {
    /// Opens the directory at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        for _ in 0..OPEN_ATTEMPTS {
            match OpenOptions::new().read(true).custom_flags(FLAGS).open(path) {
                Ok(file) => {
                    let id = FileId::of(path, &file)?;
                    return Ok(Directory { path: path.to_owned(), file, id, manifest: OnceLock::new() });
                }
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io(&path.join(MANIFEST_NAME), "open", e));
                }
                // A link may have led to a directory that was deleted, and lead to another one by now.
                Err(_) if path.is_dir() => {}
                Err(_) => break,
            }
        }
        Err(unfinished(&path.join(MANIFEST_NAME)))
    }

    /// Where it was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of a file in it, for messages.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens the file `name` in it for reading, with further `flags` of open(2); `None` if it is no regular file.
    pub(crate) fn open_file(&self, name: &str, flags: i32) -> io::Result<Option<File>> {
        let name = CString::new(name)?;
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | flags;
        loop {
            // SAFETY: an open directory and a zero-terminated name.
            let fd = unsafe { libc::openat(self.file.as_raw_fd(), name.as_ptr(), flags) };
            if fd >= 0 {
                // SAFETY: a new descriptor, which nothing else owns.
                return settled(unsafe { File::from_raw_fd(fd) }, FileType::is_file);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Takes the manifest that told which of its files belong together, unless there was one before.
    pub(crate) fn begin_with(&self, manifest: File) {
        self.manifest.get_or_init(|| manifest);
    }

    /// Whether its path leads elsewhere by now, or to another generation, so that files of this one may be gone.
    pub(crate) fn is_replaced(&self) -> bool {
        let path = self.join(MANIFEST_NAME);
        let is_other = |manifest| FileId::named(&path).ok() != FileId::of(&path, manifest).ok();
        !FileId::named(&self.path).is_ok_and(|id| id == self.id) || self.manifest.get().is_some_and(is_other)
    }
}

/// The error for an index whose manifest should be at `path`.
pub(crate) fn unfinished(path: &Path) -> Error {
    Error::Foreign(InFile::of(path, "expected a manifest, got no such file; the directory is not a finished index"))
}

/// Calls `open` with the directory at `path` until it returns an index. It returns `None` if a file was replaced
/// meanwhile; an error counts only if the directory still has its name, for the files of one that was replaced may be
/// gone. Refuses before that what the kernels cannot run with.
///
/// `open` gets `interrupted` as well, which is asked now and then; once it says true this ends with
/// [`Error::Interrupted`].
pub(crate) fn open_together<T>(
    path: &Path,
    interrupted: Stop<'_>,
    open: impl Fn(&Directory, Stop<'_>) -> Result<Option<T>>,
) -> Result<T> {
    distance::unit()?;
    let mut last = String::new();
    for _ in 0..OPEN_ATTEMPTS {
        go_on(interrupted)?;
        let directory = Directory::open(path)?;
        match open(&directory, interrupted) {
            Ok(Some(opened)) => return Ok(opened),
            Ok(None) => {}
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) if directory.is_replaced() => last = format!(" ({error})"),
            Err(error) => return Err(error),
        }
    }
    Err(Error::replaced(path, format!("it was replaced while it was opened{last}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_is_replaced_at_every_attempt_is_told_with_the_last_error() {
        let path = std::env::temp_dir().join(format!("indexmill-replaced-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let manifest = path.join(MANIFEST_NAME);
        let mut attempts = 0;
        let counted = std::cell::RefCell::new(&mut attempts);
        let opened: Result<()> = open_together(&path, &mut || false, |directory, _| {
            std::fs::write(&manifest, "one").unwrap();
            directory.begin_with(File::open(&manifest).unwrap());
            // The old file stays open, so that the new one has another number.
            std::fs::remove_file(&manifest).unwrap();
            std::fs::write(&manifest, "another").unwrap();
            **counted.borrow_mut() += 1;
            Err(Error::Input(format!("reason {}", counted.borrow())))
        });
        std::fs::remove_dir_all(&path).unwrap();
        assert_eq!(attempts, OPEN_ATTEMPTS);
        let message = opened.unwrap_err().to_string();
        assert!(message.ends_with("replaced while it was opened (reason 100); open the index again"), "{message}");
    }
}
