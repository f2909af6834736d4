//! Which files of an index a search reads.

use crate::directory::Directory;
use crate::error::{Error, Result};
use crate::manifest::{MANIFEST_NAME, Manifest};

/// The files that a search reads, in the order in which the engines know them; the last two are those of added tables,
/// which few indexes have.
pub static READ_FILES: [&str; 5] =
    ["tables.imx", "buckets.imx", "vectors.imx", "added-tables.imx", "added-buckets.imx"];
/// Positions of the files of tables and of buckets among them, of each pair.
pub const PAIRS: [[usize; 2]; 2] = [[0, 1], [3, 4]];
/// Position of vectors.imx among them.
pub const VECTORS: usize = 2;

/// Those of them that an index with this manifest has: all, or all but the files of added tables.
pub fn read_files(directory: &Directory, manifest: &Manifest) -> Result<&'static [&'static str]> {
    let [tables, buckets] = PAIRS[1];
    match [tables, buckets].map(|number| manifest.names(READ_FILES[number])) {
        [false, false] => Ok(&READ_FILES[..tables]),
        [true, true] => Ok(&READ_FILES),
        [has_tables, _] => {
            let expected = format!("{} and {}, or neither", READ_FILES[tables], READ_FILES[buckets]);
            let got = format!("only {}", READ_FILES[if has_tables { tables } else { buckets }]);
            Err(Error::corrupt(&directory.join(MANIFEST_NAME), "files", expected, got))
        }
    }
}
