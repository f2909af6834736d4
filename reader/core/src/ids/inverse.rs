//! Slots by vector ids, in memory.

use std::path::Path;

use super::file::Ids;
use super::find::BATCH;
use crate::bytes::u32_at;
use crate::error::{Error, Result};
use crate::interrupt::{Stop, go_on};
use crate::memory::{Region, collect};

/// The slot of each vector id: 4 bytes a vector. While ids are read, a page of it takes memory once an id with its entry
/// there was: at most 1,024 times the bytes of these ids.
#[derive(Debug)]
pub struct Inverse {
    /// For each vector id, its slot and one; 0 if the slot is not known yet.
    entries: Region,
}

impl Ids {
    /// Reads all vector ids, and returns the slot of each. `interrupted` is asked now and then; once it says true this
    /// ends with [`Error::Interrupted`].
    ///
    /// # Errors
    /// `Corrupt` if two slots have one vector id, besides what [`Ids::vector_ids`] finds.
    pub fn inverse(&self, interrupted: Stop<'_>) -> Result<Inverse> {
        let (path, n) = (&self.file.path, self.n_vertices as u32);
        let mut inverse = Inverse::new(path, n)?;
        for start in (0..n).step_by(BATCH as usize) {
            go_on(interrupted)?;
            let end = n.min(start.saturating_add(BATCH));
            let slots = collect(path, (end - start) as usize, start..end)?;
            for (&slot, id) in slots.iter().zip(self.vector_ids(&slots)?) {
                inverse.enter(path, slot, id)?;
            }
        }
        Ok(inverse)
    }
}

impl Inverse {
    fn new(path: &Path, n: u32) -> Result<Self> {
        Ok(Inverse { entries: Region::sparse(path, n as usize * 4)? })
    }

    /// Notes that `slot`, which is below n, has vector id `id`, which is, too. As no id may come twice, n of them leave
    /// none unknown.
    fn enter(&mut self, path: &Path, slot: u32, id: u32) -> Result<()> {
        if let Some(other) = self.get(id) {
            let (place, got) = (format!("vector id of slot {slot}"), format!("{id}, that of slot {other}"));
            return Err(Error::corrupt(path, place, "one of no other slot", got));
        }
        self.entries[id as usize * 4..][..4].copy_from_slice(&(slot + 1).to_le_bytes());
        Ok(())
    }

    /// The slot of a vector id; `None` if there is no such id.
    pub fn get(&self, id: u32) -> Option<u32> {
        u32_at(&self.entries, id as usize * 4).checked_sub(1)
    }

    /// Memory it takes.
    pub fn memory_bytes(&self) -> u64 {
        self.entries.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_id_of_two_slots_is_damage_of_the_ids_file() {
        let path = Path::new("x.index/ids.imx");
        let mut inverse = Inverse::new(path, 3).unwrap();
        inverse.enter(path, 0, 2).unwrap();
        inverse.enter(path, 1, 0).unwrap();
        let error = inverse.enter(path, 2, 2).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)));
        let text = error.to_string();
        let words = "x.index/ids.imx: vector id of slot 2: expected one of no other slot, got 2, that of slot 0; ";
        assert!(text.starts_with(words), "{text}");
        inverse.enter(path, 2, 1).unwrap();
        assert_eq!([0, 1, 2, 3].map(|id| inverse.get(id)), [Some(1), Some(2), Some(0), None]);
    }
}
