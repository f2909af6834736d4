//! Opening, verifying and closing an index.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::path::Path;
use std::sync::OnceLock;

use indexmill_core::ids::Inverse;

use crate::cancel::ImCancel;
use crate::error::{Failure, attempt, guard};
use crate::filter::ImFilter;
use crate::opened::Opened;
use crate::pointers::{Room, borrow, release, text};
use crate::stats::Tally;

/// An opened index.
pub struct ImIndex {
    pub(crate) inner: Opened,
    /// Slot of each vector id of a graph, made by the first im_vector_user_id.
    pub(crate) slots: OnceLock<Inverse>,
    pub(crate) tally: Tally,
    engine: CString,
}

/// The header promises that all functions but those that release something may run at once on one object.
const _: () = {
    const fn may_be_shared<T: Send + Sync>() {}
    may_be_shared::<ImIndex>();
    may_be_shared::<ImFilter>();
    may_be_shared::<ImCancel>();
};

thread_local! {
    static NOTE: RefCell<CString> = RefCell::default();
}

/// Opens the index in directory `path` (UTF-8), of whatever kind it is, and stores it in `*out`, null on failure.
/// `engine` says how pages are read: "io_uring", "pread" or another one of docs/guides/search.md; null or "auto" is
/// io_uring where the system allows it, else pread; "memory" loads inverted lists or hash tables. Some parts are read
/// into memory and checked at once: of a graph the codebook, entry vertices, navigation graph and, unless nodes hold
/// them, the codes; of inverted lists the centroids; of hash tables the hash functions and the vectors. Everything
/// else is read when it is needed. The files stay open: if the directory is replaced, this handle goes on reading
/// what it opened. Returns 0 or an error code.
///
/// Threads: any, at any time. Ownership: release `*out` with im_close; `path` and `engine` are copied.
///
/// # Safety
/// `path` and `engine` are null or zero-terminated, `out` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_open(path: *const c_char, engine: *const c_char, out: *mut *mut ImIndex) -> i32 {
    guard(|| {
        let room = Room::new("im_open: out", out)?;
        // SAFETY: writable by the caller's contract.
        unsafe { room.write(std::ptr::null_mut()) };
        // SAFETY: zero-terminated by the caller's contract.
        let path = unsafe { text("im_open: path", path) }?;
        // SAFETY: as above.
        let engine = if engine.is_null() { "auto" } else { unsafe { text("im_open: engine", engine) }? };
        let inner = Opened::open(Path::new(path), engine)?;
        let engine = CString::new(inner.engine_name()).unwrap_or_default();
        let index = Box::new(ImIndex { inner, slots: OnceLock::new(), tally: Tally::default(), engine });
        // SAFETY: writable by the caller's contract.
        unsafe { room.write(Box::into_raw(index)) };
        Ok(0)
    })
}

/// Reads every byte of the index in directory `path` (UTF-8). Returns 0 if it is sound, or IM_ECORRUPT with all that
/// was found, a line each, as im_last_error.
///
/// Threads: any, at any time. Ownership: nothing changes hands.
///
/// # Safety
/// `path` is null or zero-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_verify(path: *const c_char) -> i32 {
    guard(|| {
        // SAFETY: zero-terminated by the caller's contract.
        let path = unsafe { text("im_verify: path", path) }?;
        let damages = indexmill_core::verify::verify(Path::new(path));
        if damages.is_empty() { Ok(0) } else { Err(Failure::corrupt(damages.join("\n"))) }
    })
}

/// Ends the threads of an index and releases everything that belongs to it; null is ignored. Filters, results and
/// cancel handles are objects of their own: they stay valid and are released by their own functions.
///
/// Threads: any, but no other call may use the index at that time or later. Ownership: `index` is gone.
///
/// # Safety
/// `index` is null or comes from im_open and was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_close(index: *mut ImIndex) {
    // SAFETY: null, or made by Box::into_raw in im_open, closed once.
    unsafe { release(index) }
}

/// Returns how pages are read: "io_uring", "pread" or another engine's name; null, with a message, if `index` is null.
///
/// Threads: any, at any time. Ownership: the library's, valid until the index is closed.
///
/// # Safety
/// `index` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_engine(index: *const ImIndex) -> *const c_char {
    // SAFETY: null or open by the caller's contract.
    attempt(|| Ok(unsafe { borrow("im_engine: index", index) }?.engine.as_ptr())).unwrap_or(std::ptr::null())
}

/// Returns why reading is not as fast as the library could make it (for example because the system forbids io_uring),
/// "" if there is no reason; null, with a message, if `index` is null.
///
/// Threads: any, at any time. Ownership: the library's, valid until the next im_engine_note on this thread.
///
/// # Safety
/// `index` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_engine_note(index: *const ImIndex) -> *const c_char {
    let told = attempt(|| {
        // SAFETY: null or open by the caller's contract.
        let index = unsafe { borrow("im_engine_note: index", index) }?;
        let note = index.inner.engine_note().unwrap_or_default();
        let note = CString::new(note.replace('\0', " ")).unwrap_or_default();
        let kept = NOTE.try_with(|kept| {
            *kept.borrow_mut() = note;
            kept.borrow().as_ptr()
        });
        Ok(kept.unwrap_or(c"".as_ptr()))
    });
    told.unwrap_or(std::ptr::null())
}
