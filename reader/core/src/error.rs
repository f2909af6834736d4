//! What can go wrong, in the classes a caller can act on.

use std::any::Any;
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// Result of everything that can fail here.
pub type Result<T> = std::result::Result<T, Error>;

/// An error a caller can act on; the text says what failed, where, what was expected and got, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Bytes differ from what was written: a checksum, a size or a field is wrong.
    #[error("{0}")]
    Corrupt(String),
    /// Written in a format version older than this reader knows.
    #[error("{0}")]
    TooOld(String),
    /// Written in a format version newer than this reader knows.
    #[error("{0}")]
    TooNew(String),
    /// Not a file of indexmill.
    #[error("{0}")]
    Foreign(String),
    /// A parameter is wrong.
    #[error("{0}")]
    Config(String),
    /// The queries are unusable.
    #[error("{0}")]
    Input(String),
    /// The operating system refused.
    #[error("{}: {action}: {source}; {}", path.display(), advice(action))]
    Io {
        /// File or directory.
        path: PathBuf,
        /// What was tried, with the page if there is one.
        action: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A thread of ours panicked.
    #[error("a defect of indexmill, please report it: {0}")]
    Internal(String),
    /// The caller asked a running call to stop.
    #[error("the call was interrupted")]
    Interrupted,
}

/// Advice after a refused action.
fn advice(action: &str) -> &'static str {
    if action.starts_with("open") || action.starts_with("read") || action.starts_with("look") {
        "check that the file is there and readable"
    } else {
        "lower threads or inflight, or open the index with engine \"pread\""
    }
}

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
            Error::Corrupt(text) => Error::Corrupt(text.clone()),
            Error::TooOld(text) => Error::TooOld(text.clone()),
            Error::TooNew(text) => Error::TooNew(text.clone()),
            Error::Foreign(text) => Error::Foreign(text.clone()),
            Error::Config(text) => Error::Config(text.clone()),
            Error::Input(text) => Error::Input(text.clone()),
            Error::Internal(text) => Error::Internal(text.clone()),
            Error::Interrupted => Error::Interrupted,
            Error::Io { path, action, source } => {
                let other = || std::io::Error::new(source.kind(), source.to_string());
                let source = source.raw_os_error().map_or_else(other, std::io::Error::from_raw_os_error);
                Error::Io { path: path.clone(), action: action.clone(), source }
            }
        }
    }

    /// What a thread panicked with.
    pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Error::Internal(text.unwrap_or("no message").to_owned())
    }

    /// Damage at `place` of `path`.
    pub fn corrupt(path: &Path, place: impl Display, expected: impl Display, got: impl Display) -> Self {
        Error::Corrupt(format!(
            "{}: {place}: expected {expected}, got {got}; the file is damaged: copy it again or rebuild the index",
            path.display()
        ))
    }

    /// A system call on `path` failed.
    pub fn io(path: &Path, action: impl Into<String>, source: std::io::Error) -> Self {
        Error::Io { path: path.to_owned(), action: action.into(), source }
    }
}
