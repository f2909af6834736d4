//! Ids in memory, and user ids by vector ids.

use std::ffi::c_void;
use std::path::Path;

use indexmill_core::ids::UserId;
use indexmill_core::{Error, Index};

use crate::error::{Failure, guard};
use crate::index::ImIndex;
use crate::opened::Opened;
use crate::pointers::{Room, borrow};

/// Slots looked up at a time.
const BATCH: u32 = 65536;
/// Stands for no slot: n is at most this, and slots are below n.
const UNSET: u32 = u32::MAX;

/// Reads all ids into memory, where they stay until the index is closed, so that searches read no page of ids.imx.
/// Takes 4 bytes a vector, 8 more where there are user ids, and the bytes of texts. Returns 0 or an error code.
///
/// Threads: any, at any time. Ownership: the ids belong to the index.
///
/// # Safety
/// `index` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_hold_ids(index: *const ImIndex) -> i32 {
    guard(|| {
        // SAFETY: null or open by the caller's contract.
        let index = unsafe { borrow("im_hold_ids: index", index) }?;
        index.inner.ids().hold()?;
        Ok(0)
    })
}

/// Copies the user id of a vector id to `buffer` and returns its length in bytes, or a negative error code. A text is
/// UTF-8 without a final zero. An integer id has 8 bytes, the lowest first, and so has the vector id where there are
/// no user ids. At most `capacity` bytes are written: if the result is above `capacity`, call again with a larger
/// buffer. `buffer` may be null if `capacity` is 0. The first call on a graph makes a table of 4 bytes a vector;
/// im_search_texts returns the texts of answers without it.
///
/// Threads: any, at any time. Ownership: `buffer` is the caller's.
///
/// # Safety
/// `index` is null or open, `buffer` has room for `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_vector_user_id(
    index: *const ImIndex,
    vector_id: u64,
    buffer: *mut c_void,
    capacity: usize,
) -> i64 {
    guard(|| {
        // SAFETY: null or open by the caller's contract.
        let index = unsafe { borrow("im_vector_user_id: index", index) }?;
        let room = Room::for_array("im_vector_user_id: buffer", buffer.cast::<u8>(), capacity)?;
        let n = index.inner.n_vectors();
        let known = u32::try_from(vector_id).ok().filter(|&id| id < n);
        let Some(vector_id) = known else {
            let message = format!("im_vector_user_id: vector_id: expected 0..{}, got {vector_id}", n - 1);
            return Err(Failure::invalid(format!("{message}; pass one that a search returned")));
        };
        let slot = match &index.inner {
            Opened::Graph(graph) => slots(index, graph)?[vector_id as usize],
            Opened::Lists(_) | Opened::Tables(_) => vector_id,
        };
        let id = index.inner.ids().user_ids(&[slot])?.pop();
        let bytes = match id {
            Some(UserId::String(text)) => text.into_bytes(),
            Some(UserId::Binary(bytes)) => bytes,
            Some(UserId::Int64(id)) => id.to_le_bytes().to_vec(),
            Some(UserId::Uint64(id)) => id.to_le_bytes().to_vec(),
            _ => u64::from(vector_id).to_le_bytes().to_vec(),
        };
        // SAFETY: room for `capacity` bytes by the caller's contract.
        unsafe { room.write_all(&bytes[..bytes.len().min(capacity)]) };
        Ok(bytes.len() as i64)
    })
}

/// Slot of each vector id. Two threads may make it at once; one of the equal results is kept.
fn slots<'a>(index: &'a ImIndex, graph: &Index) -> Result<&'a [u32], Failure> {
    if let Some(slots) = index.slots.get() {
        return Ok(slots);
    }
    let n = graph.graph.layout().n_vertices;
    let too_many = |_| Failure::invalid(format!("im_vector_user_id: {n} vectors x 4 bytes do not fit in memory"));
    let mut slots = Vec::new();
    slots.try_reserve_exact(n as usize).map_err(too_many)?;
    slots.resize(n as usize, UNSET);
    let path = graph.path.join("ids.imx");
    let mut first = 0;
    while first < n {
        let batch: Vec<u32> = (first..n.min(first.saturating_add(BATCH))).collect();
        for (&slot, id) in batch.iter().zip(graph.ids.vector_ids(&batch)?) {
            enter(&mut slots, &path, slot, id)?;
        }
        first = first.saturating_add(BATCH).min(n);
    }
    Ok(index.slots.get_or_init(|| slots))
}

/// Notes that `slot` has vector id `id`, which is below n. As no id may come twice, n of them leave none unset.
fn enter(slots: &mut [u32], path: &Path, slot: u32, id: u32) -> Result<(), Error> {
    let entry = &mut slots[id as usize];
    if *entry != UNSET {
        let (place, got) = (format!("vector id of slot {slot}"), format!("{id}, that of slot {entry}"));
        return Err(Error::corrupt(path, place, "one of no other slot", got));
    }
    *entry = slot;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_id_of_two_slots_is_damage_of_the_ids_file() {
        let (mut slots, path) = ([UNSET; 3], Path::new("x.index/ids.imx"));
        enter(&mut slots, path, 0, 2).unwrap();
        enter(&mut slots, path, 1, 0).unwrap();
        let error = enter(&mut slots, path, 2, 2).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)));
        let text = error.to_string();
        let words = "x.index/ids.imx: vector id of slot 2: expected one of no other slot, got 2, that of slot 0; ";
        assert!(text.starts_with(words), "{text}");
        enter(&mut slots, path, 2, 1).unwrap();
        assert_eq!(slots, [1, 2, 0]);
    }
}
