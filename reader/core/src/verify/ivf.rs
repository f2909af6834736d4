//! What checksums cannot tell of inverted lists: every vector is in the lists of its batch, no more often than allowed,
//! and every code is one.
//!
//! Batches are loaded one at a time. Memory: a batch, and a byte for each of its vectors.

use super::damage::together;
use super::ids::{check_ids, check_order};
use crate::bytes::u32s;
use crate::directory::Directory;
use crate::engine::Reading;
use crate::error::{Error, Place, Result};
use crate::interrupt::{Asked, Stop};
use crate::ivf::IvfIndex;
use crate::ivf::batch::{Batch, open_file};
use crate::ivf::centroids::{Centroids, Codec};
use crate::memory::reserve;
use crate::pagefile::PageFile;

/// What a list counts as, besides its vectors.
const LIST_BYTES: usize = 128;
/// Vectors of a list that are checked before the caller may be asked whether to go on.
const VECTORS_AT_ONCE: usize = 1024;

/// Opens the index and reads every list.
pub fn check(directory: &Directory, interrupted: Stop<'_>) -> Result<()> {
    let index = together(directory, IvfIndex::open_in(directory, Reading::Named("pread"), interrupted))?;
    check_ids(&index.ids, index.centroids.n_vectors, directory.path(), interrupted)?;
    check_order(&index.ids, index.centroids.n_vectors, directory.path(), interrupted)?;
    for (number, batch) in index.batches.iter().enumerate() {
        check_batch(batch, &open_file(directory, number)?, &index.centroids, interrupted)?;
    }
    Ok(())
}

fn check_batch(batch: &Batch, file: &PageFile, centroids: &Centroids, interrupted: Stop<'_>) -> Result<()> {
    let lists = batch.load(file, interrupted)?;
    let mut copies: Vec<u8> = reserve(&batch.path, batch.n_vectors as usize)?;
    copies.resize(batch.n_vectors as usize, 0);
    let mut asked = Asked::new(interrupted);
    for number in 0..centroids.n_lists as u32 {
        asked.go_on(LIST_BYTES)?;
        let list = batch.list(number);
        let bytes = batch.pages_of(&lists, list);
        let ids = &bytes[batch.ids_offset(list.size) as usize..][..4 * list.size as usize];
        let rows = &bytes[..list.size as usize * centroids.row_bytes];
        let mut least = 0;
        let parts = ids.chunks(4 * VECTORS_AT_ONCE).zip(rows.chunks(VECTORS_AT_ONCE * centroids.row_bytes));
        for ((ids, rows), first) in parts.zip((0..).step_by(VECTORS_AT_ONCE)) {
            asked.go_on(ids.len() + rows.len())?;
            least = batch.check_ids(number, u32s(ids), least)?;
            for id in u32s(ids) {
                let seen = &mut copies[(id - batch.first_vector) as usize];
                *seen = seen.saturating_add(1);
            }
            check_rows(batch, number, first, rows, centroids)?;
        }
    }
    match copies.iter().position(|&seen| !(1..=centroids.copies).contains(&usize::from(seen))) {
        Some(at) => {
            let place = format!("vector {}", batch.first_vector as usize + at);
            Err(Error::corrupt(&batch.path, place, format!("in 1..{} lists", centroids.copies), copies[at]))
        }
        None => Ok(()),
    }
}

/// Refuses rows of a list, from row `first` on, that no vector has.
fn check_rows(batch: &Batch, number: u32, first: u32, rows: &[u8], centroids: &Centroids) -> Result<()> {
    match &centroids.codec {
        Codec::Flat | Codec::Sq8 => Ok(()),
        Codec::Pq(book) => match rows.iter().find(|&&code| usize::from(code) >= book.n_centres()) {
            Some(code) => {
                let place = Place::in_page(batch.list(number).page, format!("codes of list {number}"));
                Err(Error::corrupt(&batch.path, place, format!("below {}", book.n_centres()), code))
            }
            None => Ok(()),
        },
        Codec::RabitQ(code) => batch.check_rows(code, number, first, rows),
    }
}
