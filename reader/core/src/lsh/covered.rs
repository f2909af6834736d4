//! Which slots the tables of a pair of files cover, and how wide their entries are (docs/formats/lsh.md).

use std::ops::Range;

use super::functions::{Functions, widths_of};
use crate::error::Result;
use crate::pagefile::PageFile;

/// B of added tables, whatever that of the others.
const ADDED_BLOCK_BYTES: usize = 128;

/// The slots whose entries tables hold, and the form of these entries.
#[derive(Debug, Clone)]
pub struct Covered {
    /// All slots of an index, or the first ones and, of added tables, those behind them.
    pub slots: Range<u32>,
    /// Bits of a slot in an entry.
    pub id_bits: u32,
    /// Bits of a fingerprint.
    pub fingerprint_bits: u32,
    /// B.
    pub block_bytes: usize,
}

impl Covered {
    /// The tables of `slots` of an index with `functions`.
    pub fn new(slots: Range<u32>, functions: &Functions) -> Self {
        let (id_bits, fingerprint_bits) = widths_of(slots.end.into(), functions.hash_bits);
        let block_bytes = if slots.start > 0 { ADDED_BLOCK_BYTES } else { functions.block_bytes };
        Covered { slots, id_bits, fingerprint_bits, block_bytes }
    }

    /// Whether they are added tables, beside those of the first slots.
    pub fn is_added(&self) -> bool {
        self.slots.start > 0
    }

    /// Number of the slots.
    pub fn n_slots(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Refuses a file of other tables than those of an index with `functions`.
    pub(super) fn expect_fields(&self, file: &PageFile, functions: &Functions) -> Result<()> {
        file.expect_fields([
            ("n_vectors", self.slots.end.into()),
            ("n_tables", functions.n_tables as u64),
            ("n_radii", functions.n_radii() as u64),
            ("hash_bits", functions.hash_bits.into()),
        ])?;
        if self.is_added() { file.expect_fields([("first_slot", self.slots.start.into())]) } else { Ok(()) }
    }
}
