//! An opened ids.imx: where its sections are, and what of it is in memory.

use std::sync::{Arc, OnceLock};

use crate::directory::Directory;
use crate::error::{Error, Result};
use crate::file_id::FileId;
use crate::interrupt::Stop;
use crate::living::Living;
use crate::memory::Region;
use crate::pagefile::{CRC_SECTION, PAGE_BYTES, PageFile, Section};

/// Name of the file.
pub const IDS_FILE: &str = "ids.imx";

/// Type of the user ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
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
#[non_exhaustive]
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

/// Which ids of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// Vector ids.
    Vector,
    /// User ids, which are not vector ids.
    User,
    /// Both.
    Both,
}

/// An opened ids.imx. Clones share it.
#[derive(Debug, Clone)]
pub struct Ids {
    /// First bytes of the build id.
    pub build_id: [u8; 16],
    pub(crate) file_id: FileId,
    pub(super) n_vertices: u64,
    /// Type of the user ids.
    pub id_type: IdType,
    pub(crate) file: Arc<PageFile>,
    pub(super) vector_ids: Section,
    /// Section "values" or "offsets"; the vector ids again where there is neither.
    pub(super) values: Section,
    pub(super) bytes: Option<Section>,
    pub(super) first_crc_page: u64,
    /// Whether slots are vector ids, as in every kind but graphs.
    pub(super) slots_are_ids: bool,
    pub(super) held: Arc<OnceLock<Held>>,
    /// Slot in the file of each slot, where they differ.
    pub(super) order: Option<Arc<Vec<u32>>>,
    /// What deletions left, by slot in the file.
    pub(super) living: Option<Arc<Living>>,
}

/// Pages in memory, checked.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) first_page: u64,
    pub(super) pages: Region,
}

impl Ids {
    /// Opens ids.imx of a directory and checks its fields and the sizes of its sections; `n` is that of the graph.
    pub fn open(directory: &Directory, n: u64) -> Result<Self> {
        let file = PageFile::open_in(directory, IDS_FILE, b"IDMP")?;
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
        Ok(Ids {
            build_id: file.header.build_id,
            file_id: file.id()?,
            n_vertices: n,
            id_type,
            vector_ids,
            values,
            bytes,
            first_crc_page: file.section(CRC_SECTION, None)?.first_page,
            file: file.into(),
            slots_are_ids: false,
            held: Arc::default(),
            order: None,
            living: None,
        })
    }

    /// The same file of an index whose slots are vector ids, so that searches need not look these up.
    pub(crate) fn of_vector_ids(self) -> Self {
        Ids { slots_are_ids: true, ..self }
    }

    /// The same file of an index with deletions: ids of deleted vectors are not found.
    pub(crate) fn without_deleted(self, living: Option<Arc<Living>>) -> Self {
        Ids { living, ..self }
    }

    /// The same file for slots of another order: slot s is slot `order[s]` of the file, which is below n.
    pub(crate) fn remapped(&self, order: Arc<Vec<u32>>) -> Self {
        Ids { order: Some(order), ..self.clone() }
    }

    /// Reads what searches look up into memory, for all that share this file: 4 bytes a vector of a graph, 8 more for
    /// whole numbers, and 8 and the text where ids are text or bytes. It stays until the index is closed.
    pub fn hold(&self) -> Result<()> {
        self.hold_unless(&mut || false)
    }

    /// As [`Ids::hold`]. `interrupted` is asked now and then; once it says true this ends with [`Error::Interrupted`].
    pub fn hold_unless(&self, interrupted: Stop<'_>) -> Result<()> {
        if self.held.get().is_some() {
            return Ok(());
        }
        let vector_ids = (!self.slots_are_ids).then_some(&self.vector_ids);
        let values = (self.id_type != IdType::None).then_some(&self.values);
        let needed = || vector_ids.iter().copied().chain(values).chain(&self.bytes);
        let first_page = needed().map(|section| section.first_page).min().unwrap_or(self.first_crc_page);
        let end = needed().map(|section| section.first_page + section.pages).max().unwrap_or(first_page);
        let pages = end - first_page;
        let all = Section { name: "ids".to_owned(), first_page, pages, payload: pages * PAGE_BYTES as u64 };
        let checksums = self.file.load_checksums(interrupted)?;
        let pages = self.file.load_section(&all, &checksums, interrupted)?;
        // Of two calls at the same time one copy stays.
        self.held.get_or_init(|| Held { first_page, pages });
        Ok(())
    }

    /// Memory that it takes.
    pub fn memory_bytes(&self) -> u64 {
        self.held.get().map_or(0, |held| held.pages.len() as u64)
    }

    /// Whether slots are vector ids.
    pub(crate) fn slots_are_ids(&self) -> bool {
        self.slots_are_ids
    }

    /// What a search looks up; `None` for nothing.
    pub(crate) fn of_results(&self) -> Option<Which> {
        match (self.slots_are_ids, self.id_type) {
            (true, IdType::None) => None,
            (true, _) => Some(Which::User),
            (false, _) => Some(Which::Both),
        }
    }

    /// Pages that the first reads of a look-up for `k` results are, at most: none if they are in memory.
    pub(crate) fn reads_of(&self, k: usize) -> usize {
        match self.of_results() {
            _ if self.held.get().is_some() => 0,
            None => 0,
            Some(Which::Both) if self.id_type != IdType::None => 2 * k + 1,
            Some(_) => k + 1,
        }
    }

    /// Total length of string or binary ids, from the section's size.
    pub fn content_bytes(&self) -> Option<u64> {
        self.bytes.as_ref().map(|section| section.payload)
    }

    /// Bytes that say what the user id of a slot is, or where its text is.
    pub(super) fn value_bytes(&self) -> u64 {
        if self.bytes.is_some() { 16 } else { 8 }
    }

    /// Whether the section of values comes before that of vector ids: sections are found by name.
    pub(super) fn values_come_first(&self) -> bool {
        self.values.first_page < self.vector_ids.first_page
    }

    pub(super) fn checked_vector_id(&self, slot: u32, id: u32) -> Result<u32> {
        if u64::from(id) < self.n_vertices {
            return Ok(id);
        }
        let expected = format!("below {}", self.n_vertices);
        Err(Error::corrupt(&self.file.path, format!("vector id of slot {slot}"), expected, id))
    }
}
