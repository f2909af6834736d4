//! The user ids of the results of a search.

use std::iter::once;
use std::path::Path;

use crate::error::Result;
use crate::memory::append;

/// User ids, one for each result. Where a result is missing, this is -1, 2^64 - 1 or empty, which its slot tells from an
/// id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum UserIds {
    /// The user ids are the vector ids.
    #[default]
    None,
    /// Signed 64 bits.
    Int64(Vec<i64>),
    /// Unsigned 64 bits.
    Uint64(Vec<u64>),
    /// UTF-8 text.
    String(Texts),
    /// Bytes.
    Binary(Texts),
}

/// Texts one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts {
    /// End of each in `bytes`.
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

impl Texts {
    /// Adds a text.
    pub fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    /// Adds a text of the file at `path`, or returns an error where memory does not allow it.
    pub(crate) fn append(&mut self, path: &Path, text: &[u8]) -> Result<()> {
        append(path, &mut self.bytes, text.iter().copied())?;
        append(path, &mut self.ends, once(self.bytes.len()))
    }

    /// Number of texts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Text `i`, which is UTF-8 where ids are strings.
    pub fn get(&self, i: usize) -> &[u8] {
        &self.bytes[i.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[i]]
    }

    /// All texts.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|i| self.get(i))
    }

    /// The end of each in the bytes of all, and these.
    pub fn into_parts(self) -> (Vec<usize>, Vec<u8>) {
        (self.ends, self.bytes)
    }
}
