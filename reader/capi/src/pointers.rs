//! What can be checked of a caller's pointer is checked: that it is there, and aligned.

use std::ffi::{CStr, c_char};
use std::slice;

use crate::error::{Failure, attempt};

/// Refuses a null or misaligned pointer.
pub fn check<T>(name: &str, pointer: *const T) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(Failure::invalid(format!("{name}: expected a pointer, got null; pass a valid one")));
    }
    if !pointer.is_aligned() {
        let (align, address) = (align_of::<T>(), pointer.addr());
        return Err(Failure::invalid(format!(
            "{name}: expected an address that is a multiple of {align}, got {address:#x}; align the memory"
        )));
    }
    Ok(())
}

/// An object or structure that the caller hands in.
///
/// # Safety
/// `pointer` is null or valid for reads for `'a`.
pub unsafe fn borrow<'a, T>(name: &str, pointer: *const T) -> Result<&'a T, Failure> {
    check(name, pointer)?;
    // SAFETY: not null, aligned, and valid by the contract.
    Ok(unsafe { &*pointer })
}

/// The same for what a caller may leave out.
///
/// # Safety
/// As [`borrow`].
pub unsafe fn optional<'a, T>(name: &str, pointer: *const T) -> Result<Option<&'a T>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: by the contract.
    unsafe { borrow(name, pointer) }.map(Some)
}

/// `len` values that the caller hands in; the pointer may be null if there are none.
///
/// # Safety
/// `pointer` is null or valid for reads of `len` values for `'a`.
pub unsafe fn array<'a, T>(name: &str, pointer: *const T, len: usize) -> Result<&'a [T], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    check(name, pointer)?;
    if len > isize::MAX as usize / size_of::<T>() {
        let message = format!("{name}: {len} values are more than memory can hold; check the sizes");
        return Err(Failure::invalid(message));
    }
    // SAFETY: not null, aligned, and valid by the contract.
    Ok(unsafe { slice::from_raw_parts(pointer, len) })
}

/// UTF-8 text.
///
/// # Safety
/// `pointer` is null or zero-terminated for `'a`.
pub unsafe fn text<'a>(name: &str, pointer: *const c_char) -> Result<&'a str, Failure> {
    check(name, pointer)?;
    // SAFETY: not null, and zero-terminated by the contract.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|e| Failure::invalid(format!("{name}: expected UTF-8 text: {e}; convert it")))
}

/// Releases what a caller got from us; null is ignored.
///
/// # Safety
/// `pointer` is null or made by Box::into_raw and not released yet.
pub unsafe fn release<T>(pointer: *mut T) {
    // Void to C: a panic in here is caught, and there is no one to tell.
    let _: Result<(), i32> = attempt(|| {
        if !pointer.is_null() {
            // SAFETY: by the contract.
            drop(unsafe { Box::from_raw(pointer) });
        }
        Ok(())
    });
}

/// Room for values that a call returns, checked before the work is done.
#[derive(Clone, Copy)]
pub struct Room<T>(*mut T);

impl<T: Copy> Room<T> {
    /// Refuses a null or misaligned pointer.
    pub fn new(name: &str, pointer: *mut T) -> Result<Self, Failure> {
        check(name, pointer)?;
        Ok(Room(pointer))
    }

    /// The same for `len` values; null is allowed if there are none.
    pub fn for_array(name: &str, pointer: *mut T, len: usize) -> Result<Self, Failure> {
        if len == 0 { Ok(Room(pointer)) } else { Room::new(name, pointer) }
    }

    /// Stores one value.
    ///
    /// # Safety
    /// The pointer is valid for a write.
    pub unsafe fn write(self, value: T) {
        // SAFETY: aligned and not null since `new`, valid by the contract.
        unsafe { self.0.write(value) };
    }

    /// Stores values one after the other.
    ///
    /// # Safety
    /// The pointer is valid for that many writes.
    pub unsafe fn write_all(self, values: &[T]) {
        if !values.is_empty() {
            // SAFETY: aligned and not null since `for_array`, valid by the contract; our values overlap no caller's.
            unsafe { self.0.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        }
    }
}
