//! Look-ups that read one page after the other, for callers without an engine.

use super::file::{IdType, Ids, UserId, Which};
use super::lookup::Lookup;
use crate::error::{Error, Result};
use crate::memory::{collect, reserve};
use crate::pagefile::PAGE_BYTES;

impl Ids {
    /// Vector ids of `slots`; each slot must be below n.
    pub fn vector_ids(&self, slots: &[u32]) -> Result<Vec<u32>> {
        self.looked_up(slots, Which::Vector).and_then(|found| self.owned(found.vector_ids().iter().copied()))
    }

    /// User ids of `slots`; each slot must be below n.
    pub fn user_ids(&self, slots: &[u32]) -> Result<Vec<UserId>> {
        let which = if self.id_type == IdType::None { Which::Vector } else { Which::User };
        let found = self.looked_up(slots, which)?;
        match self.id_type {
            IdType::None => self.owned(found.vector_ids().iter().map(|&id| UserId::Vector(id))),
            IdType::Int64 => self.owned(found.values().iter().map(|&id| UserId::Int64(id as i64))),
            IdType::Uint64 => self.owned(found.values().iter().map(|&id| UserId::Uint64(id))),
            IdType::String | IdType::Binary => {
                let mut user_ids = reserve(&self.file.path, slots.len())?;
                for text in found.text() {
                    let bytes = self.owned(text.iter().copied())?;
                    user_ids.push(match self.id_type {
                        IdType::String => UserId::String(String::from_utf8(bytes).expect("it was checked")),
                        _ => UserId::Binary(bytes),
                    });
                }
                Ok(user_ids)
            }
        }
    }

    /// What a look-up gives, as a vector; an error where memory does not allow it.
    fn owned<T>(&self, found: impl ExactSizeIterator<Item = T>) -> Result<Vec<T>> {
        collect(&self.file.path, found.len(), found)
    }

    /// Looks up ids, one read after the other.
    pub(super) fn looked_up(&self, slots: &[u32], which: Which) -> Result<Lookup> {
        if let Some(slot) = slots.iter().find(|&&slot| u64::from(slot) >= self.n_vertices) {
            return Err(Error::Input(format!("slot {slot}: the index has {} vectors", self.n_vertices)));
        }
        let (mut lookup, mut page) = (Lookup::default(), vec![0; PAGE_BYTES]);
        lookup.begin(self, slots.iter().copied(), which)?;
        while lookup.advance(self)? {
            while let Some(number) = lookup.ask() {
                self.file.read_unchecked(number, &mut page)?;
                lookup.take(number, &page);
            }
        }
        Ok(lookup)
    }
}
