//! What deletions left of an index: a set of slots in memory, read from the file of those that are gone.

mod file;
mod slots;

pub(crate) use file::KIND;
pub use file::Living;
pub use slots::Slots;
