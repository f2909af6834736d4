//! Vector ids by user ids: one pass over ids.imx for any number of them, so that no inverse table is kept anywhere.

use std::collections::HashMap;

use super::file::{IdType, Ids, Which};
use super::found::{Texts, UserIds};
use crate::error::{Error, Result};
use crate::interrupt::{Stop, go_on};
use crate::memory::collect;

/// Slots looked up at a time.
pub(crate) const BATCH: u32 = 65536;

impl Ids {
    /// Vector ids of `wanted`, `None` for ids that no vector has, or none that is left. Ids may repeat; without user ids
    /// they are vector ids.
    ///
    /// Reads user ids, each page once, until all are found.
    ///
    /// # Errors
    /// `Input` if the ids are of another type than those of the index.
    pub fn find(&self, wanted: &UserIds) -> Result<Vec<Option<u32>>> {
        self.find_unless(wanted, &mut || false)
    }

    /// As [`Ids::find`]. `interrupted` is asked now and then; once it says true this ends with [`Error::Interrupted`].
    pub fn find_unless(&self, wanted: &UserIds, interrupted: Stop<'_>) -> Result<Vec<Option<u32>>> {
        if let (UserIds::Int64(ids), IdType::None, None) = (wanted, self.id_type, &self.living) {
            let is_there = |&id: &u32| u64::from(id) < self.n_vertices;
            let found = ids.iter().map(|&id| u32::try_from(id).ok().filter(is_there));
            return collect(&self.file.path, ids.len(), found);
        }
        let (mut numbers, mut texts) = (HashMap::new(), HashMap::new());
        // For each id the first place where it is wanted.
        let firsts: Vec<usize> = match (wanted, self.id_type) {
            (UserIds::Int64(ids), IdType::None | IdType::Int64) => {
                firsts(&mut numbers, ids.iter().map(|&id| id as u64))
            }
            (UserIds::Uint64(ids), IdType::Uint64) => firsts(&mut numbers, ids.iter().copied()),
            (UserIds::String(ids), IdType::String) => firsts(&mut texts, ids.iter()),
            (UserIds::Binary(ids), IdType::Binary) => firsts(&mut texts, ids.iter()),
            (_, have) => {
                let (path, have, got) = (self.file.path.display(), have.name(), wanted.id_type().name());
                let message = format!("{path}: ids are of type {have}, got ids of type {got}");
                return Err(Error::Input(format!("{message}; pass ids of the index's type")));
            }
        };
        let which = if self.id_type == IdType::None { Which::Vector } else { Which::User };
        let in_file = Ids { order: None, ..self.clone() };
        let is_left = |slot| self.living.as_ref().is_none_or(|living| living.slots().contains(slot));
        let mut slots: Vec<Option<u32>> = vec![None; firsts.len()];
        let (n, mut n_missing) = (self.n_vertices as u32, numbers.len() + texts.len());
        for start in (0..n).step_by(BATCH as usize) {
            if n_missing == 0 {
                break;
            }
            go_on(interrupted)?;
            let end = n.min(start.saturating_add(BATCH));
            let batch = collect(&self.file.path, (end - start) as usize, start..end)?;
            let found = in_file.looked_up(&batch, which)?;
            let of_vectors = found.vector_ids().iter().map(|&id| numbers.get(&u64::from(id)));
            let of_numbers = found.values().iter().map(|number| numbers.get(number));
            let of_texts = found.text().map(|text| texts.get(text));
            for (&slot, place) in batch.iter().zip(of_vectors.chain(of_numbers).chain(of_texts)) {
                if let Some(&place) = place
                    && is_left(slot)
                {
                    n_missing -= usize::from(slots[place].replace(slot).is_none());
                }
            }
        }
        let known: Vec<u32> = slots.iter().copied().flatten().collect();
        let mut vector_ids = in_file.vector_ids(&known)?.into_iter();
        let found: Vec<Option<u32>> =
            collect(&self.file.path, slots.len(), slots.iter().map(|slot| slot.and_then(|_| vector_ids.next())))?;
        Ok(firsts.into_iter().map(|first| found[first]).collect())
    }
}

/// Enters ids with their places; of an id that repeats the first. Returns that place for each.
fn firsts<K: std::hash::Hash + Eq>(places: &mut HashMap<K, usize>, ids: impl Iterator<Item = K>) -> Vec<usize> {
    ids.enumerate().map(|(place, id)| *places.entry(id).or_insert(place)).collect()
}

impl UserIds {
    /// Type of these ids.
    fn id_type(&self) -> IdType {
        match self {
            UserIds::None => IdType::None,
            UserIds::Int64(_) => IdType::Int64,
            UserIds::Uint64(_) => IdType::Uint64,
            UserIds::String(_) => IdType::String,
            UserIds::Binary(_) => IdType::Binary,
        }
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for Texts {
    fn from_iter<I: IntoIterator<Item = T>>(texts: I) -> Self {
        let mut all = Texts::default();
        texts.into_iter().for_each(|text| all.push(text.as_ref()));
        all
    }
}
