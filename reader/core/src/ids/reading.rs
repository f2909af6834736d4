//! Look-ups that read one page after the other, for callers without an engine.

use super::file::{IdType, Ids, UserId, Which};
use super::lookup::Lookup;
use crate::error::{Error, Result};
use crate::pagefile::PAGE_BYTES;

impl Ids {
    /// Vector ids of `slots`; each slot must be below n.
    pub fn vector_ids(&self, slots: &[u32]) -> Result<Vec<u32>> {
        self.looked_up(slots, Which::Vector).map(|found| found.vector_ids().to_vec())
    }

    /// User ids of `slots`; each slot must be below n.
    pub fn user_ids(&self, slots: &[u32]) -> Result<Vec<UserId>> {
        let which = if self.id_type == IdType::None { Which::Vector } else { Which::User };
        let found = self.looked_up(slots, which)?;
        Ok(match self.id_type {
            IdType::None => found.vector_ids().iter().map(|&id| UserId::Vector(id)).collect(),
            IdType::Int64 => found.values().iter().map(|&id| UserId::Int64(id as i64)).collect(),
            IdType::Uint64 => found.values().iter().map(|&id| UserId::Uint64(id)).collect(),
            IdType::String => found.text().map(|id| UserId::String(String::from_utf8_lossy(id).into_owned())).collect(),
            IdType::Binary => found.text().map(|id| UserId::Binary(id.to_vec())).collect(),
        })
    }

    /// Looks up ids, one read after the other.
    pub(super) fn looked_up(&self, slots: &[u32], which: Which) -> Result<Lookup> {
        if let Some(slot) = slots.iter().find(|&&slot| u64::from(slot) >= self.n_vertices) {
            return Err(Error::Input(format!("slot {slot}: the index has {} vectors", self.n_vertices)));
        }
        let (mut lookup, mut page) = (Lookup::default(), vec![0; PAGE_BYTES]);
        lookup.begin(self, slots.iter().copied(), which);
        while lookup.advance(self)? {
            while let Some(number) = lookup.ask() {
                self.file.read_unchecked(number, &mut page)?;
                lookup.take(number, &page);
            }
        }
        Ok(lookup)
    }
}
