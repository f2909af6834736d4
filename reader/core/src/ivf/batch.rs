//! batch-NNNNNN.imx: the inverted lists of one batch, page-aligned, longest first (docs/formats/ivf.md).

use std::path::PathBuf;

use super::centroids::Centroids;
use super::rabitq::RabitQ;
use crate::bytes::{u32_at, u64_at};
use crate::directory::Directory;
use crate::error::{Error, Place, Result};
use crate::file_id::FileId;
use crate::interrupt::Stop;
use crate::memory::{Region, reserve};
use crate::pagefile::{PAGE_BYTES, PageFile, check_page};

/// Bytes of an entry of the directory.
const ENTRY_BYTES: u64 = 16;

/// Name of a batch's file.
pub fn batch_name(number: usize) -> String {
    format!("batch-{number:06}.imx")
}

/// A list in its batch.
#[derive(Debug, Clone, Copy, Default)]
pub struct List {
    /// Page of the file where it begins.
    pub page: u64,
    /// Rows.
    pub size: u32,
}

/// An opened batch: 16 bytes a list, and 4 a page.
#[derive(Debug)]
pub struct Batch {
    /// Where it is.
    pub path: PathBuf,
    /// First bytes of the build id.
    pub build_id: [u8; 16],
    pub(super) file_id: FileId,
    /// Smallest vector id.
    pub first_vector: u32,
    /// Vectors.
    pub n_vectors: u32,
    /// Rows of the longest list.
    pub longest: u32,
    /// First page of section "lists".
    first_page: u64,
    row_bytes: usize,
    lists: Vec<List>,
    checksums: Vec<u32>,
}

impl Batch {
    /// Takes header and directory of `file`, which must be batch `number` of those that share `centroids`.
    pub fn new(file: &PageFile, number: usize, centroids: &Centroids, interrupted: Stop<'_>) -> Result<Self> {
        let (n_lists, row_bytes) = (centroids.n_lists as u64, centroids.row_bytes as u64);
        file.field_in("batch", number as u64..=number as u64)?;
        file.field_in("n_lists", n_lists..=n_lists)?;
        file.field_in("row_bytes", row_bytes..=row_bytes)?;
        let n_vectors = file.field_in("n_vectors", 1..=u64::from(centroids.n_vectors))?;
        let first_vector = file.field_in("first_vector", 0..=u64::from(centroids.n_vectors) - n_vectors)?;
        let n_rows = if centroids.copies == 1 {
            n_vectors
        } else {
            file.field_in("n_rows", n_vectors..=n_vectors * centroids.copies as u64)?
        };
        let checksums = file.load_checksums(interrupted)?;
        let directory = file.section("directory", Some(n_lists * ENTRY_BYTES))?;
        let directory = file.read_section(&directory, &checksums, interrupted)?;
        let mut batch = Batch {
            path: file.path.clone(),
            build_id: file.header.build_id,
            file_id: file.id()?,
            first_vector: first_vector as u32,
            n_vectors: n_vectors as u32,
            longest: u32_at(&directory, 4),
            first_page: 0,
            row_bytes: centroids.row_bytes,
            lists: reserve(&file.path, centroids.n_lists)?,
            checksums,
        };
        batch.lists.resize(centroids.n_lists, List { page: 0, size: u32::MAX });
        let pages = batch.take_directory(&directory, n_rows)?;
        let section = file.section("lists", Some(pages.saturating_mul(PAGE_BYTES as u64)))?;
        batch.first_page = section.first_page;
        // The pages of all lists, and so each, lie in the section.
        batch.lists.iter_mut().for_each(|list| list.page += section.first_page);
        Ok(batch)
    }

    /// Fills `lists` with pages counted from the section; returns the pages of all lists.
    fn take_directory(&mut self, directory: &[u8], n_rows: u64) -> Result<u64> {
        let damage = |place: usize, what: &str, want: String, got: u64| {
            let offset = place as u64 * ENTRY_BYTES;
            Err(Error::corrupt(&self.path, format!("section \"directory\", offset {offset}: {what}"), want, got))
        };
        let (mut pages, mut total, mut before) = (0u64, 0u64, (u32::MAX, 0));
        for (place, entry) in directory.chunks_exact(ENTRY_BYTES as usize).enumerate() {
            let (list, size, page) = (u32_at(entry, 0), u32_at(entry, 4), u64_at(entry, 8));
            if self.lists.get(list as usize).is_none_or(|known| known.size != u32::MAX) {
                return damage(place, "list", format!("each of 0..{} once", self.lists.len() - 1), list.into());
            }
            if size > before.0 || (size == before.0 && place > 0 && list < before.1) || size > self.n_vectors {
                return damage(place, "size", "longest lists first, of one length by number".into(), size.into());
            }
            if page != pages {
                return damage(place, "first page", pages.to_string(), page);
            }
            self.lists[list as usize] = List { page, size };
            // Pages of fewer than 2^24 lists of 2^32 rows, each of less than 2^19 bytes, are a number.
            pages += self.pages(size);
            total += u64::from(size);
            before = (size, list);
        }
        if total != n_rows {
            return damage(0, "sizes", format!("{n_rows} in all"), total);
        }
        Ok(pages)
    }

    /// A list by its number.
    pub fn list(&self, list: u32) -> List {
        self.lists[list as usize]
    }

    /// Where the ids of a list of this size begin, in bytes after its first row.
    pub fn ids_offset(&self, size: u32) -> u64 {
        (u64::from(size) * self.row_bytes as u64).next_multiple_of(4)
    }

    /// Pages of a list of this size.
    pub fn pages(&self, size: u32) -> u64 {
        (self.ids_offset(size) + 4 * u64::from(size)).div_ceil(PAGE_BYTES as u64)
    }

    /// Compares pages that were read, from `first` of the file on, with their checksums.
    pub fn check_pages(&self, first: u64, bytes: &[u8]) -> Result<()> {
        for (number, page) in (first..).zip(bytes.chunks_exact(PAGE_BYTES)) {
            check_page(&self.path, number, page, self.checksums.get(number as usize - 1).copied().unwrap_or(0))?;
        }
        Ok(())
    }

    /// Refuses ids of a list, or of a part of it, that are below `least`, outside of the batch or not ascending.
    /// Returns the least id that may follow.
    pub fn check_ids(&self, list: u32, ids: impl Iterator<Item = u32>, least: u64) -> Result<u64> {
        let mut least = least.max(self.first_vector.into());
        let end = u64::from(self.first_vector) + u64::from(self.n_vectors);
        for id in ids.map(u64::from) {
            if id < least || id >= end {
                let (page, want) = (self.list(list).page, format!("ascending, {least}..{}", end - 1));
                return Err(Error::corrupt(&self.path, Place::in_page(page, format!("ids of list {list}")), want, id));
            }
            least = id + 1;
        }
        Ok(least)
    }

    /// All lists in memory.
    pub(crate) fn load(&self, file: &PageFile, interrupted: Stop<'_>) -> Result<Region> {
        file.load_section(&file.section("lists", None)?, &self.checksums, interrupted)
    }

    /// Refuses RaBitQ `rows` of a list, from row `first` on, of which one is that of no vector.
    pub(crate) fn check_rows(&self, code: &RabitQ, list: u32, first: u32, rows: &[u8]) -> Result<()> {
        for (row, number) in rows.chunks_exact(self.row_bytes).zip(first..) {
            if let Some((expected, got)) = code.why_not_a_row(row) {
                let place = Place::in_page(self.list(list).page, format!("codes of list {list}, row {number}"));
                return Err(Error::corrupt(&self.path, place, expected, got));
            }
        }
        Ok(())
    }

    /// The pages of a list among `lists`, which [`Batch::load`] returned.
    pub(crate) fn pages_of<'a>(&self, lists: &'a [u8], list: List) -> &'a [u8] {
        &lists[(list.page - self.first_page) as usize * PAGE_BYTES..][..self.pages(list.size) as usize * PAGE_BYTES]
    }

    /// Memory it takes.
    pub fn memory_bytes(&self) -> u64 {
        (size_of_val(&*self.lists) + size_of_val(&*self.checksums)) as u64
    }
}

/// Reads the header of the file of batch `number` in `directory`.
pub(crate) fn open_file(directory: &Directory, number: usize) -> Result<PageFile> {
    PageFile::open_in(directory, &batch_name(number), b"IVFB")
}
