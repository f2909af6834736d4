//! Ids in memory, and user ids by vector ids.

use std::ffi::c_void;

use indexmill_core::Index;
use indexmill_core::ids::{Inverse, UserId};

use crate::error::{Failure, guard};
use crate::index::ImIndex;
use crate::opened::Opened;
use crate::pointers::{Room, borrow};

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
            Opened::Graph(graph) => slots(index, graph)?.get(vector_id).expect("each vector id has a slot"),
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
fn slots<'a>(index: &'a ImIndex, graph: &Index) -> Result<&'a Inverse, Failure> {
    if let Some(slots) = index.slots.get() {
        return Ok(slots);
    }
    let slots = graph.ids.inverse(&mut || false)?;
    Ok(index.slots.get_or_init(|| slots))
}
