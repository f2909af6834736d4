//! ids.imx: slots to vector ids and user ids (docs/formats/ids.md).
//!
//! Nothing of the index's size is kept in memory: the checksum of a page is read with the page. Lookups of many slots go
//! through the pages in slot order, so each page is read at most once a call.

use std::sync::Arc;

use crate::bytes::{u32_at, u64_at};
use crate::directory::Directory;
use crate::error::{Error, Result};
use crate::memory::reserve;
use crate::pagefile::{PAGE_BYTES, Page, PageFile, Section};

/// Type of the user ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdType {
    /// The user id is the vector id.
    None,
    /// Signed 64 bits.
    Int64,
    /// Unsigned 64 bits.
    Uint64,
    /// UTF-8 text.
    String,
    /// Bytes.
    Binary,
}

impl IdType {
    const ALL: [IdType; 5] = [IdType::None, IdType::Int64, IdType::Uint64, IdType::String, IdType::Binary];

    /// Name as Python callers see it.
    pub fn name(self) -> &'static str {
        ["none", "int64", "uint64", "string", "binary"][self as usize]
    }
}

/// The id of one slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserId {
    /// Position in the input; the input had no id column.
    Vector(u32),
    /// Signed 64 bits.
    Int64(i64),
    /// Unsigned 64 bits.
    Uint64(u64),
    /// UTF-8 text.
    String(String),
    /// Bytes.
    Binary(Vec<u8>),
}

/// An opened ids.imx. Clones share it.
#[derive(Debug, Clone)]
pub struct Ids {
    /// First bytes of the build id.
    pub build_id: [u8; 16],
    n_vertices: u64,
    /// Type of the user ids.
    pub id_type: IdType,
    file: Arc<PageFile>,
    vector_ids: Section,
    /// Section "values" or "offsets"; the vector ids again where there is neither.
    values: Section,
    bytes: Option<Section>,
    /// Slot in the file of each slot, where they differ.
    order: Option<Arc<[u32]>>,
}

/// Reads of one section with the last page kept.
struct Cursor<'a> {
    ids: &'a Ids,
    page: Box<Page>,
    number: u64,
}

impl Ids {
    /// Opens ids.imx of a directory and checks its fields and the sizes of its sections; `n` is that of the graph.
    pub fn open(directory: &Directory, n: u64) -> Result<Self> {
        let file = PageFile::open_in(directory, "ids.imx", b"IDMP")?;
        file.field_in("n_vertices", n..=n)?;
        let id_type = IdType::ALL[file.field_in("id_type", 0..=4)? as usize];
        let vector_ids = file.section("vector_ids", Some(4 * n))?;
        let values = match id_type {
            IdType::None => vector_ids.clone(),
            IdType::Int64 | IdType::Uint64 => file.section("values", Some(8 * n))?,
            IdType::String | IdType::Binary => file.section("offsets", Some(8 * (n + 1)))?,
        };
        let bytes = match id_type {
            IdType::String | IdType::Binary => Some(file.section("bytes", None)?),
            _ => None,
        };
        let build_id = file.header.build_id;
        Ok(Ids { build_id, n_vertices: n, id_type, file: file.into(), vector_ids, values, bytes, order: None })
    }

    /// The same file for slots of another order: slot s is slot `order[s]` of the file, which is below n.
    pub(crate) fn remapped(&self, order: Arc<[u32]>) -> Self {
        Ids { order: Some(order), ..self.clone() }
    }

    /// Vector ids of `slots`; each slot must be below n.
    pub fn vector_ids(&self, slots: &[u32]) -> Result<Vec<u32>> {
        let mut cursor = self.cursor();
        self.in_slot_order(slots, 0, |slot| cursor.vector_id(slot))
    }

    /// User ids of `slots`; each slot must be below n.
    ///
    /// Ids of different slots must not share bytes: otherwise a small file could ask for a lot of memory.
    pub fn user_ids(&self, slots: &[u32]) -> Result<Vec<UserId>> {
        let (mut cursor, mut content) = (self.cursor(), self.cursor());
        let mut free: Option<(u32, u64)> = None; // last slot, end of its bytes
        self.in_slot_order(slots, UserId::Vector(0), |slot| {
            if self.id_type == IdType::None {
                return cursor.vector_id(slot).map(UserId::Vector);
            }
            let (value, first) = (u64::from(slot) * 8, self.values.first_page);
            let number = cursor.u64_at(first, value)?;
            match (self.id_type, &self.bytes) {
                (IdType::Int64, _) => Ok(UserId::Int64(number as i64)),
                (IdType::String | IdType::Binary, Some(section)) => {
                    let end = cursor.u64_at(first, value + 8)?;
                    let least = free.filter(|&(last, _)| last != slot).map_or(0, |(_, end)| end);
                    free = Some((slot, end));
                    content.user_bytes(section, slot, (number, end), least)
                }
                _ => Ok(UserId::Uint64(number)),
            }
        })
    }

    /// Total length of string or binary ids, from the section's size.
    pub fn content_bytes(&self) -> Option<u64> {
        self.bytes.as_ref().map(|section| section.payload)
    }

    fn cursor(&self) -> Cursor<'_> {
        Cursor { ids: self, page: Box::new([0; PAGE_BYTES]), number: 0 }
    }

    fn in_slot_order<T: Clone>(
        &self,
        slots: &[u32],
        blank: T,
        mut lookup: impl FnMut(u32) -> Result<T>,
    ) -> Result<Vec<T>> {
        if let Some(slot) = slots.iter().find(|&&slot| u64::from(slot) >= self.n_vertices) {
            return Err(Error::Input(format!("slot {slot}: the index has {} vectors", self.n_vertices)));
        }
        let home = |slot: u32| self.order.as_ref().map_or(slot, |order| order[slot as usize]);
        let mut homes: Vec<(u32, usize)> = slots.iter().map(|&slot| home(slot)).zip(0..).collect();
        homes.sort_unstable();
        let mut found = vec![blank; slots.len()];
        for (slot, i) in homes {
            found[i] = lookup(slot)?;
        }
        Ok(found)
    }
}

impl Cursor<'_> {
    /// The page that holds byte `offset` of a section, and where in it.
    fn seek(&mut self, first_page: u64, offset: u64) -> Result<usize> {
        let number = first_page + offset / PAGE_BYTES as u64;
        if number != self.number {
            self.number = 0;
            self.ids.file.read_pages_alone(number, &mut self.page[..])?;
            self.number = number;
        }
        Ok((offset % PAGE_BYTES as u64) as usize)
    }

    fn vector_id(&mut self, slot: u32) -> Result<u32> {
        let at = self.seek(self.ids.vector_ids.first_page, u64::from(slot) * 4)?;
        let id = u32_at(&self.page[..], at);
        if u64::from(id) >= self.ids.n_vertices {
            let (path, n) = (&self.ids.file.path, self.ids.n_vertices);
            return Err(Error::corrupt(path, format!("vector id of slot {slot}"), format!("below {n}"), id));
        }
        Ok(id)
    }

    fn u64_at(&mut self, first_page: u64, offset: u64) -> Result<u64> {
        let at = self.seek(first_page, offset)?;
        Ok(u64_at(&self.page[..], at))
    }

    /// The id at `start..end` of section "bytes", which must not begin before `least`.
    fn user_bytes(&mut self, section: &Section, slot: u32, (start, end): (u64, u64), least: u64) -> Result<UserId> {
        let path = &self.ids.file.path;
        let place = format!("user id of slot {slot}");
        if start < least || start > end || end > section.payload {
            let expected = format!("a range within {least}..{}", section.payload);
            return Err(Error::corrupt(path, place, expected, format!("{start}..{end}")));
        }
        let mut bytes: Vec<u8> = reserve(path, (end - start) as usize)?;
        let mut offset = start;
        while offset < end {
            let at = self.seek(section.first_page, offset)?;
            let take = ((end - offset) as usize).min(PAGE_BYTES - at);
            bytes.extend_from_slice(&self.page[at..at + take]);
            offset += take as u64;
        }
        if self.ids.id_type == IdType::Binary {
            return Ok(UserId::Binary(bytes));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(UserId::String(text)),
            Err(e) => Err(Error::corrupt(path, place, "UTF-8", e)),
        }
    }
}
