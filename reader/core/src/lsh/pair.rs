//! A pair of files, of tables and of the buckets that their pointers lead to. An index has one pair, or two where vectors
//! were appended since the tables were written: added tables hold the entries of those vectors alone.

use super::buckets::Buckets;
use super::covered::Covered;
use super::files::{PAIRS, READ_FILES};
use super::functions::Functions;
use super::tables::Tables;
use crate::directory::Directory;
use crate::error::Result;
use crate::interrupt::Stop;
use crate::pagefile::PageFile;

/// Tables and their buckets.
#[derive(Debug, Clone)]
pub struct Pair {
    /// Names of the files of tables and of buckets.
    pub names: [&'static str; 2],
    /// Pointers to buckets.
    pub tables: Tables,
    /// Bucket blocks.
    pub buckets: Buckets,
}

/// A pair, and its files of tables and of buckets.
pub(super) type OpenedPair = (Pair, [PageFile; 2]);

/// Opens the pairs among the files `names`: that of the first slots, and that of the others if there is one.
pub(super) fn open_pairs(
    directory: &Directory,
    names: &[&'static str],
    functions: &Functions,
    in_memory: bool,
    interrupted: Stop<'_>,
) -> Result<Vec<OpenedPair>> {
    let open = |[tables, buckets]: [usize; 2]| -> Result<[PageFile; 2]> {
        let open = |number: usize, kind| PageFile::open_in(directory, READ_FILES[number], kind);
        Ok([open(tables, b"LSHT")?, open(buckets, b"LSHB")?])
    };
    let n = functions.n_vectors;
    let base = open(PAIRS[0])?;
    let added = if names.len() == READ_FILES.len() { Some(open(PAIRS[1])?) } else { None };
    let first = match &added {
        Some([tables, _]) => tables.field_in("first_slot", 1..=u64::from(n) - 1)? as u32,
        None => n,
    };
    let files = [Some(base), added].into_iter().flatten();
    let mut pairs = Vec::with_capacity(PAIRS.len());
    for ((files, numbers), slots) in files.zip(PAIRS).zip([0..first, first..n]) {
        let covered = Covered::new(slots, functions);
        let tables = Tables::new(&files[0], functions, &covered, in_memory, interrupted)?;
        let buckets = Buckets::new(&files[1], functions, covered)?;
        pairs.push((Pair { names: numbers.map(|number| READ_FILES[number]), tables, buckets }, files));
    }
    Ok(pairs)
}
