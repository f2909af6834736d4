//! User ids that are text or bytes, found with the vectors.

use std::ffi::c_void;

use indexmill_core::ids::{IdType, UserIds};

use crate::counters::ImCounters;
use crate::error::{Failure, guard};
use crate::index::ImIndex;
use crate::params::{Given, ImSearchParams};
use crate::pointers::{Room, borrow, release};
use crate::search::{Rooms, core_queries};

/// Texts or bytes of user ids, one for each answer; empty where there is no answer.
#[repr(C)]
pub struct ImTexts {
    /// sizeof(ImTexts) of the library.
    pub struct_bytes: u32,
    /// 0.
    pub reserved: u32,
    /// Number of texts.
    pub n: u64,
    /// n + 1 positions: text i is at `starts[i]..starts[i + 1]` of `bytes`.
    pub starts: *const u64,
    /// UTF-8 of string ids, without final zeros; the bytes of binary ids.
    pub bytes: *const u8,
}

/// The texts that a caller sees and, behind them, what their pointers point to.
#[repr(C)]
pub struct Texts {
    seen: ImTexts,
    starts: Vec<u64>,
    bytes: Vec<u8>,
}

impl Texts {
    /// The user ids, if they are text or bytes.
    pub fn of(ids: UserIds) -> Option<Box<Self>> {
        let (UserIds::String(texts) | UserIds::Binary(texts)) = ids else { return None };
        let (ends, bytes) = texts.into_parts();
        let starts: Vec<u64> = std::iter::once(0).chain(ends.iter().map(|&end| end as u64)).collect();
        let seen = ImTexts {
            struct_bytes: size_of::<ImTexts>() as u32,
            reserved: 0,
            n: ends.len() as u64,
            starts: starts.as_ptr(),
            bytes: bytes.as_ptr(),
        };
        Some(Box::new(Texts { seen, starts, bytes }))
    }

    /// What a caller sees of them, as long as they stay where they are.
    pub fn seen(&self) -> *const ImTexts {
        &raw const self.seen
    }
}

/// The same as im_search for an index whose user ids are text or bytes: stores n_queries x k of them in `*out_texts`,
/// null on failure. They are read with the vectors, without a table in memory. `out_vector_ids` gets n_queries x k
/// vector ids, -1 where there is no answer, or is null. Returns 0 or an error code.
///
/// Threads: any, at any time, as im_search. Ownership: release `*out_texts` with im_texts_free; the other arrays are
/// the caller's.
///
/// # Safety
/// `index` is null or open, `params` is null or as large as its struct_bytes says, `out_texts` is null or writable,
/// the arrays have the sizes above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_search_texts(
    index: *const ImIndex,
    queries: *const c_void,
    dtype: u32,
    n_queries: usize,
    dim: usize,
    params: *const ImSearchParams,
    out_texts: *mut *mut ImTexts,
    out_vector_ids: *mut i64,
    out_scores: *mut f32,
    out_counters: *mut ImCounters,
) -> i32 {
    guard(|| {
        let room = Room::new("im_search_texts: out_texts", out_texts);
        if let Ok(room) = room {
            // SAFETY: writable by the caller's contract.
            unsafe { room.write(std::ptr::null_mut()) };
        }
        // SAFETY: null or open by the caller's contract.
        let index = unsafe { borrow("im_search_texts: index", index) }?;
        index.tally.search(|| {
            let room = room?;
            // SAFETY: as this function's.
            let given = unsafe { Given::new(params) }?;
            // SAFETY: as this function's.
            let queries = unsafe { core_queries(queries, dtype, n_queries, dim) }?;
            // SAFETY: as this function's.
            let rooms = unsafe { Rooms::new("im_search_texts", out_scores, out_counters, n_queries) }?;
            let vector_ids_room = (!out_vector_ids.is_null())
                .then(|| Room::for_array("im_search_texts: out_vector_ids", out_vector_ids, n_queries));
            let vector_ids_room = vector_ids_room.transpose()?;
            if !matches!(index.inner.ids().id_type, IdType::String | IdType::Binary) {
                let message = format!("im_search_texts: {} has no text ids", index.inner.path().display());
                return Err(Failure::invalid(format!("{message}; call im_search")));
            }
            let output = index.inner.search(&queries, &given)?;
            let texts = Texts::of(output.user_ids).map_or(std::ptr::null_mut(), Box::into_raw);
            // SAFETY: writable, and room for n_queries x k and n_queries entries, by the caller's contract.
            unsafe {
                rooms.write(&output.scores, &output.counters);
                if let Some(room) = vector_ids_room {
                    room.write_all(&output.vector_ids);
                }
                room.write(texts.cast());
            }
            Ok((0, output.counters))
        })
    })
}

/// Releases texts; null is ignored. Those of a range search belong to it.
///
/// Threads: any, but no other call may use the texts at that time or later. Ownership: `texts` and its arrays are gone.
///
/// # Safety
/// `texts` is null or comes from im_search_texts and was not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_texts_free(texts: *mut ImTexts) {
    // SAFETY: null, or the first field of a Texts that im_search_texts made, released once.
    unsafe { release(texts.cast::<Texts>()) }
}
