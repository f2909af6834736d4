//! deleted-NNNNNN.imx: slots of deleted vectors (docs/formats/deleted.md). In memory is the set of the others.

use std::path::Path;
use std::sync::Arc;

use super::slots::Slots;
use crate::bytes::u32s;
use crate::directory::Directory;
use crate::error::{Error, Place, Result};
use crate::interrupt::Stop;
use crate::manifest::Manifest;
use crate::pagefile::{PAGE_BYTES, PageFile};

/// Kind of the file.
pub(crate) const KIND: &[u8; 4] = b"DELS";

/// The slots that deletions left: n / 8 bytes, of which a page takes memory if a slot in it was deleted. An index without
/// deletions has none of this.
#[derive(Debug)]
pub struct Living {
    slots: Slots,
    n: u32,
    /// SHA-256 of the file, which tells one generation of a build from another.
    sha256: String,
}

impl Living {
    /// Reads the file that the manifest of a directory names, and checks every page and value; `None` if it names none.
    /// The index has `n` slots.
    pub fn open(
        directory: &Directory,
        manifest: &Manifest,
        n: u32,
        interrupted: Stop<'_>,
    ) -> Result<Option<Arc<Self>>> {
        let Some((deleted, entry)) = manifest.deleted() else { return Ok(None) };
        let file = PageFile::open_in(directory, &entry.name, KIND)?;
        manifest.check_build_id(&file.path, &file.header.build_id)?;
        let n_deleted = u64::from(deleted.vectors);
        file.expect_fields([("n_vertices", n.into()), ("n_deleted", n_deleted)])?;
        let section = file.section("slots", Some(4 * n_deleted))?;
        let raw = file.read_section(&section, &file.load_checksums(interrupted)?, interrupted)?;
        let mut slots = Slots::all(&file.path, n)?;
        let mut least = 0;
        for (i, slot) in u32s(&raw).enumerate() {
            if slot < least || slot >= n {
                let page = section.first_page + (4 * i / PAGE_BYTES) as u64;
                let place = Place::in_page(page, format!("deleted slot {i}"));
                return Err(Error::corrupt(&file.path, place, format!("ascending, {least}..{}", n - 1), slot));
            }
            slots.remove(slot);
            least = slot + 1; // at most n
        }
        Ok(Some(Arc::new(Living { slots, n, sha256: entry.sha256.clone() })))
    }

    /// The same for a view whose slot s is slot `order[s]` here.
    pub(crate) fn remapped(&self, path: &Path, order: &[u32]) -> Result<Self> {
        let slots = Slots::of(path, self.n, |slot| self.slots.contains(order[slot as usize]))?;
        Ok(Living { slots, n: self.n, sha256: self.sha256.clone() })
    }

    /// The slots.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Vectors that were deleted.
    pub fn n_deleted(&self) -> u32 {
        self.n - self.slots.len()
    }

    /// Tells the deletions from those of another generation of the same build.
    pub(crate) fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Memory it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.slots.memory_bytes()
    }
}
