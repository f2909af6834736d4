//! Vectors by their user ids.

use indexmill_core::ids::{IdType, Texts, UserIds};

use crate::error::{Failure, guard};
use crate::index::ImIndex;
use crate::pointers::{Room, array, borrow};

/// Stores the vector ids of `n` integer user ids (uint64 as their bit pattern; vector ids where the index has no user
/// ids) in `out_vector_ids`, -1 for ids that no vector has, or none that is left. Reads the ids of the index once, up to the last one that is found, however many are
/// looked up: ask for many at a time. Returns 0 or an error code.
///
/// Threads: any, at any time. Ownership: the arrays are the caller's.
///
/// # Safety
/// `index` is null or open, `ids` and `out_vector_ids` have `n` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_find_ids(
    index: *const ImIndex,
    ids: *const i64,
    n: usize,
    out_vector_ids: *mut i64,
) -> i32 {
    guard(|| {
        // SAFETY: null or open by the caller's contract.
        let index = unsafe { borrow("im_find_ids: index", index) }?;
        // SAFETY: null or that long by the caller's contract.
        let ids = unsafe { array("im_find_ids: ids", ids, n) }?;
        let room = Room::for_array("im_find_ids: out_vector_ids", out_vector_ids, n)?;
        let wanted = match index.inner.ids().id_type {
            IdType::Uint64 => UserIds::Uint64(ids.iter().map(|&id| id as u64).collect()),
            _ => UserIds::Int64(ids.to_vec()),
        };
        let found = found(index, &wanted)?;
        // SAFETY: room for `n` entries by the caller's contract.
        unsafe { room.write_all(&found) };
        Ok(0)
    })
}

/// The same for ids that are text or bytes: id i is at `starts[i]..starts[i + 1]` of `bytes`.
///
/// Threads: any, at any time. Ownership: the arrays are the caller's.
///
/// # Safety
/// `index` is null or open, `starts` has `n` + 1 entries, `bytes` as many as the last one says, `out_vector_ids` `n`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_find_texts(
    index: *const ImIndex,
    starts: *const u64,
    bytes: *const u8,
    n: usize,
    out_vector_ids: *mut i64,
) -> i32 {
    guard(|| {
        // SAFETY: null or open by the caller's contract.
        let index = unsafe { borrow("im_find_texts: index", index) }?;
        // SAFETY: null or that long by the caller's contract.
        let starts = unsafe { array("im_find_texts: starts", starts, n.saturating_add(1)) }?;
        if let Some(i) = starts.windows(2).position(|pair| pair[0] > pair[1]) {
            let message = format!("im_find_texts: starts: expected ascending, got {} at {i}", starts[i]);
            return Err(Failure::invalid(format!("{message} and {} after it; check the array", starts[i + 1])));
        }
        let total = usize::try_from(starts[n]).unwrap_or(usize::MAX);
        // SAFETY: null or that long by the caller's contract.
        let bytes = unsafe { array("im_find_texts: bytes", bytes, total) }?;
        let room = Room::for_array("im_find_texts: out_vector_ids", out_vector_ids, n)?;
        let texts: Texts = starts.windows(2).map(|pair| &bytes[pair[0] as usize..pair[1] as usize]).collect();
        let wanted = match index.inner.ids().id_type {
            IdType::Binary => UserIds::Binary(texts),
            _ => UserIds::String(texts),
        };
        let found = found(index, &wanted)?;
        // SAFETY: room for `n` entries by the caller's contract.
        unsafe { room.write_all(&found) };
        Ok(0)
    })
}

fn found(index: &ImIndex, wanted: &UserIds) -> Result<Vec<i64>, Failure> {
    let found = index.inner.ids().find(wanted)?;
    Ok(found.into_iter().map(|id| id.map_or(-1, i64::from)).collect())
}
