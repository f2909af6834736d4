//! The ids of some slots, found as the pages of ids.imx arrive.
//!
//! Vector ids and user ids of fixed size take one step; text takes a second one, for its offsets say where it is.

use std::ops::Range;

use super::file::{IdType, Ids, Which};
use super::gather::Gather;
use crate::bytes::{u32_at, u64_at};
use crate::error::{Error, Result};
use crate::memory::{make_room, reserve, resize};
use crate::pagefile::PAGE_BYTES;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Step {
    /// Entries of fixed size.
    Entries,
    Text,
    #[default]
    Done,
}

/// One look-up, reused for the next: [`Lookup::advance`], then every page that [`Lookup::ask`] names to
/// [`Lookup::take`], and so on until `advance` is false. Memory: about 64 bytes a slot, and the text.
#[derive(Debug, Default)]
pub(crate) struct Lookup {
    /// Slot of the file, and which one of those that were asked for; ascending.
    slots: Vec<(u32, u32)>,
    step: Step,
    gather: Gather,
    with_vector_ids: bool,
    with_user_ids: bool,
    /// In the order of the slots asked for, as are the others.
    vector_ids: Vec<u32>,
    values: Vec<u64>,
    /// Where the text is among the gathered bytes.
    text: Vec<Range<usize>>,
}

impl Lookup {
    /// Begins to look for the ids of `slots`, each below n. Slots may repeat.
    pub fn begin(&mut self, ids: &Ids, slots: impl ExactSizeIterator<Item = u32>, which: Which) -> Result<()> {
        let (path, n) = (&ids.file.path, slots.len());
        let home = |slot: u32| ids.order.as_ref().map_or(slot, |order| order[slot as usize]);
        self.slots.clear();
        make_room(path, &mut self.slots, n)?;
        self.slots.extend(slots.map(home).zip(0..));
        self.slots.sort_unstable();
        self.with_vector_ids = which != Which::User;
        self.with_user_ids = which != Which::Vector && ids.id_type != IdType::None;
        self.vector_ids.clear();
        self.values.clear();
        self.text.clear();
        self.gather.reset(ids.first_crc_page);
        let vector_ids = (self.with_vector_ids, &ids.vector_ids, 4, 4);
        let values = (self.with_user_ids, &ids.values, 8, ids.value_bytes());
        let in_file = if ids.values_come_first() { [values, vector_ids] } else { [vector_ids, values] };
        self.gather.make_room(path, n * (usize::from(self.with_vector_ids) + usize::from(self.with_user_ids)))?;
        for (_, section, stride, bytes) in in_file.into_iter().filter(|&(is_wanted, ..)| is_wanted) {
            let start = section.first_page * PAGE_BYTES as u64;
            self.slots.iter().for_each(|&(slot, _)| self.gather.want(start + stride * u64::from(slot), bytes));
        }
        self.step = Step::Entries;
        Ok(())
    }

    /// Goes on after all pages that were asked for have arrived; true if there are more to ask for.
    pub fn advance(&mut self, ids: &Ids) -> Result<bool> {
        let path = &ids.file.path;
        while self.step != Step::Done {
            self.gather.check_wave(path)?;
            let is_here = match ids.held.get() {
                Some(held) => self.gather.take_held(path, held.first_page, &held.pages)?,
                None => false,
            };
            if !is_here && self.gather.begin_wave(path)? {
                return Ok(true);
            }
            match self.step {
                Step::Entries => self.take_entries(ids)?,
                _ => self.check_text(ids)?,
            }
        }
        Ok(false)
    }

    /// A page of the file to read; `None` if all were named.
    pub fn ask(&mut self) -> Option<u64> {
        self.gather.ask()
    }

    /// Takes a page that was asked for.
    pub fn take(&mut self, number: u64, page: &[u8]) {
        self.gather.take(number, page);
    }

    /// Vector ids of the slots, if they were looked for.
    pub fn vector_ids(&self) -> &[u32] {
        &self.vector_ids
    }

    /// Bits of user ids of the slots, if these are whole numbers and were looked for.
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    /// User ids of the slots, if these are text or bytes and were looked for.
    pub fn text(&self) -> impl Iterator<Item = &[u8]> {
        self.text.iter().map(|range| &self.gather.bytes()[range.clone()])
    }

    /// Memory that an idle state keeps, in bytes gathered.
    pub fn capacity(&self) -> usize {
        self.gather.capacity()
    }

    fn take_entries(&mut self, ids: &Ids) -> Result<()> {
        let (path, n, bytes) = (&ids.file.path, self.slots.len(), self.gather.bytes());
        let n_vector_ids = if self.with_vector_ids { 4 * n } else { 0 };
        let (vector_ids, values) = if ids.values_come_first() {
            let (values, vector_ids) = bytes.split_at(bytes.len() - n_vector_ids);
            (vector_ids, values)
        } else {
            bytes.split_at(n_vector_ids)
        };
        if self.with_vector_ids {
            resize(path, &mut self.vector_ids, n, 0)?;
            for (&(slot, i), entry) in self.slots.iter().zip(vector_ids.chunks_exact(4)) {
                self.vector_ids[i as usize] = ids.checked_vector_id(slot, u32_at(entry, 0))?;
            }
        }
        self.step = Step::Done;
        if !self.with_user_ids {
            return Ok(());
        }
        let entries = values.chunks_exact(ids.value_bytes() as usize);
        let Some(section) = &ids.bytes else {
            resize(path, &mut self.values, n, 0)?;
            for (&(_, i), entry) in self.slots.iter().zip(entries) {
                self.values[i as usize] = u64_at(entry, 0);
            }
            return Ok(());
        };
        // Ids of different slots must not share bytes: otherwise a small file could ask for a lot of memory.
        let (mut wanted, mut last, mut total) = (reserve(path, n)?, None::<(u32, u64)>, 0);
        make_room(path, &mut self.text, n)?;
        self.text.resize(n, 0..0);
        let mut place = 0..0;
        for (&(slot, i), entry) in self.slots.iter().zip(entries) {
            if last.is_none_or(|(before, _)| before != slot) {
                let (start, end) = (u64_at(entry, 0), u64_at(entry, 8));
                let least = last.map_or(0, |(_, end)| end);
                if start < least || start > end || end > section.payload {
                    let (place, expected) = (place_of(slot), format!("a range within {least}..{}", section.payload));
                    return Err(Error::corrupt(path, place, expected, format!("{start}..{end}")));
                }
                wanted.push((start, end - start));
                place = total..total + (end - start) as usize;
                (last, total) = (Some((slot, end)), place.end);
            }
            self.text[i as usize] = place.clone();
        }
        self.gather.reset(ids.first_crc_page);
        self.gather.make_room(path, wanted.len())?;
        let first = section.first_page * PAGE_BYTES as u64;
        wanted.into_iter().for_each(|(start, bytes)| self.gather.want(first + start, bytes));
        self.step = Step::Text;
        Ok(())
    }

    fn check_text(&mut self, ids: &Ids) -> Result<()> {
        self.step = Step::Done;
        if ids.id_type == IdType::String {
            for &(slot, i) in &self.slots {
                let text = &self.gather.bytes()[self.text[i as usize].clone()];
                if let Err(e) = std::str::from_utf8(text) {
                    return Err(Error::corrupt(&ids.file.path, place_of(slot), "UTF-8", e));
                }
            }
        }
        Ok(())
    }
}

fn place_of(slot: u32) -> String {
    format!("user id of slot {slot}")
}
