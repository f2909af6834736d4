//! What can go wrong, in the classes a caller can act on.

use std::any::Any;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::path::{Path, PathBuf};

/// Result of everything that can fail here.
pub type Result<T> = std::result::Result<T, Error>;

/// What is wrong with a file, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InFile {
    /// File or directory.
    pub path: PathBuf,
    /// Page of the file, if it is one page.
    pub page: Option<u64>,
    /// The place in it, what was expected and got, and what to do.
    pub what: String,
}

impl InFile {
    /// What is wrong with a whole file.
    pub(crate) fn of(path: &Path, what: impl Into<String>) -> Self {
        InFile { path: path.to_owned(), page: None, what: what.into() }
    }
}

impl Display for InFile {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        self.page.map_or(Ok(()), |page| write!(f, "page {page}: "))?;
        f.write_str(&self.what)
    }
}

/// A place in a file.
#[derive(Debug, Clone)]
pub struct Place {
    page: Option<u64>,
    what: String,
}

impl Place {
    /// A whole page.
    pub fn page(page: u64) -> Self {
        Place { page: Some(page), what: String::new() }
    }

    /// A part of a page.
    pub fn in_page(page: u64, what: impl Into<String>) -> Self {
        Place { page: Some(page), what: what.into() }
    }
}

impl From<String> for Place {
    fn from(what: String) -> Self {
        Place { page: None, what }
    }
}

impl From<&String> for Place {
    fn from(what: &String) -> Self {
        Place::from(what.clone())
    }
}

impl From<&str> for Place {
    fn from(what: &str) -> Self {
        Place::from(what.to_owned())
    }
}

/// An error a caller can act on; the text says what failed, where, what was expected and got, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Bytes differ from what was written: a checksum, a size or a field is wrong.
    #[error("{0}")]
    Corrupt(InFile),
    /// Written in a format version older than this reader knows.
    #[error("{0}")]
    TooOld(InFile),
    /// Written in a format version newer than this reader knows.
    #[error("{0}")]
    TooNew(InFile),
    /// Not a file of indexmill.
    #[error("{0}")]
    Foreign(InFile),
    /// A sound index, of another kind than it was opened as.
    #[error("{0}")]
    OtherKind(InFile),
    /// A parameter is wrong.
    #[error("{0}")]
    Config(String),
    /// The queries are unusable.
    #[error("{0}")]
    Input(String),
    /// The operating system refused.
    #[error("{}: {action}: {source}; {}", path.display(), advice(action, source))]
    Io {
        /// File or directory.
        path: PathBuf,
        /// Page of the file, if one was to be read.
        page: Option<u64>,
        /// What was tried, with the page if there is one.
        action: String,
        /// What the system said.
        source: io::Error,
    },
    /// A store refused a request, or did not answer.
    #[error("{0}")]
    Store(String),
    /// A thread of ours panicked.
    #[error("a defect of indexmill, please report it: {0}")]
    Internal(String),
    /// The caller asked a running call to stop.
    #[error("the call was interrupted")]
    Interrupted,
}

/// Advice after an action that the system refused for this reason.
fn advice(action: &str, reason: &io::Error) -> &'static str {
    let is_about_a_file = ["open", "read", "look"].iter().any(|verb| action.starts_with(verb));
    match (reason.kind(), reason.raw_os_error()) {
        (REPLACED, _) => "open the index again",
        (_, Some(libc::EMFILE)) => "close files, or raise the limit of open files (ulimit -n)",
        (_, Some(libc::ENFILE)) => "end programs that have many files open",
        _ if is_about_a_file => "check that the file is there and readable",
        _ if action.starts_with("start") => "end other threads, or raise the limit of threads (ulimit -u)",
        _ => "lower threads or inflight, or open the index with engine \"pread\"",
    }
}

/// What kind of error it is that a file was replaced.
const REPLACED: io::ErrorKind = io::ErrorKind::StaleNetworkFileHandle;

impl Error {
    /// Refuses a parameter that is not in 1..`most`.
    pub fn expect_count(name: &str, value: usize, most: usize) -> Result<()> {
        if (1..=most).contains(&value) {
            return Ok(());
        }
        Err(Error::Config(format!("{name}: expected 1..{most}, got {value}; choose one in that range")))
    }

    /// The same once more, for another call that it ends.
    pub(crate) fn again(&self) -> Self {
        match self {
            Error::Corrupt(wrong) => Error::Corrupt(wrong.clone()),
            Error::TooOld(wrong) => Error::TooOld(wrong.clone()),
            Error::TooNew(wrong) => Error::TooNew(wrong.clone()),
            Error::Foreign(wrong) => Error::Foreign(wrong.clone()),
            Error::OtherKind(wrong) => Error::OtherKind(wrong.clone()),
            Error::Config(text) => Error::Config(text.clone()),
            Error::Input(text) => Error::Input(text.clone()),
            Error::Store(text) => Error::Store(text.clone()),
            Error::Internal(text) => Error::Internal(text.clone()),
            Error::Interrupted => Error::Interrupted,
            Error::Io { path, page, action, source } => {
                let other = || io::Error::new(source.kind(), source.to_string());
                let source = source.raw_os_error().map_or_else(other, io::Error::from_raw_os_error);
                Error::Io { path: path.clone(), page: *page, action: action.clone(), source }
            }
        }
    }

    /// What a thread panicked with.
    pub fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Error::Internal(text.unwrap_or("no message").to_owned())
    }

    /// Damage at `place` of `path`.
    pub fn corrupt(path: &Path, place: impl Into<Place>, expected: impl Display, got: impl Display) -> Self {
        let Place { page, what } = place.into();
        let colon = if what.is_empty() { "" } else { ": " };
        let advice = "the file is damaged: copy it again or rebuild the index";
        let what = format!("{what}{colon}expected {expected}, got {got}; {advice}");
        Error::Corrupt(InFile { path: path.to_owned(), page, what })
    }

    /// A system call on `path` failed.
    pub fn io(path: &Path, action: impl Into<String>, source: io::Error) -> Self {
        Error::Io { path: path.to_owned(), page: None, action: action.into(), source }
    }

    /// What was to be opened at `path` is another file by now.
    pub(crate) fn replaced(path: &Path, what: impl Into<String>) -> Self {
        Error::io(path, "open", io::Error::new(REPLACED, what.into()))
    }

    /// A page of `path` could not be read.
    pub(crate) fn unread(path: &Path, page: u64, source: io::Error) -> Self {
        Error::Io { path: path.to_owned(), page: Some(page), action: format!("read page {page}"), source }
    }

    /// The file or directory that the error is about, if it is about one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Error::Corrupt(wrong)
            | Error::TooOld(wrong)
            | Error::TooNew(wrong)
            | Error::Foreign(wrong)
            | Error::OtherKind(wrong) => Some(&wrong.path),
            Error::Io { path, .. } => Some(path),
            Error::Config(_) | Error::Input(_) | Error::Store(_) | Error::Internal(_) | Error::Interrupted => None,
        }
    }

    /// The page of that file, if it is about one.
    pub fn page(&self) -> Option<u64> {
        match self {
            Error::Corrupt(wrong) => wrong.page,
            Error::Io { page, .. } => *page,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_system_comes_with_the_remedy_for_its_reason() {
        let (path, of) = (Path::new("graph.imx"), io::Error::from_raw_os_error);
        for (error, remedy) in [
            (Error::io(path, "open", of(libc::ENOENT)), "check that the file is there and readable"),
            (Error::io(path, "open", of(libc::EMFILE)), "close files, or raise the limit of open files (ulimit -n)"),
            (Error::io(path, "set up io_uring", of(libc::EMFILE)), "or raise the limit of open files (ulimit -n)"),
            (Error::io(path, "open", of(libc::ENFILE)), "end programs that have many files open"),
            (Error::unread(path, 7, of(libc::EIO)), "check that the file is there and readable"),
            (Error::io(path, "start a reading thread", of(libc::EAGAIN)), "raise the limit of threads (ulimit -u)"),
            (Error::io(path, "set up io_uring", of(libc::ENOMEM)), "open the index with engine \"pread\""),
            (Error::replaced(path, "it was replaced"), "open: it was replaced; open the index again"),
        ] {
            for text in [error.to_string(), error.again().to_string()] {
                assert!(text.starts_with("graph.imx: ") && text.ends_with(remedy), "{text}");
            }
        }
    }
}
