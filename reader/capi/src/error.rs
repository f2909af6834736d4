//! Codes (the values of Linux's errno, on every system) and messages.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use indexmill_core::Error;

/// EINVAL: a pointer is null, or a parameter or query is unusable.
pub const IM_EINVAL: i32 = -22;
/// EIO: the operating system refused to read.
pub const IM_EIO: i32 = -5;
/// ENOENT: not an index of ours.
pub const IM_EFOREIGN: i32 = -2;
/// EBADF: damaged bytes.
pub const IM_ECORRUPT: i32 = -9;
/// EOPNOTSUPP: written in a format version that this library does not read.
pub const IM_EVERSION: i32 = -95;
/// ECANCELED: the call was ended by im_cancel.
pub const IM_ECANCELED: i32 = -125;
/// EFAULT: a defect of this library.
pub const IM_EPANIC: i32 = -14;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Returns the message of the last failure on the calling thread, "" if there was none: what failed, where, what was
/// expected and found, and what to do. A call that succeeds leaves it as it is.
///
/// Threads: any, at any time; every thread has its own message. Ownership: the library's, valid until the next call on
/// this thread.
#[unsafe(no_mangle)]
pub extern "C" fn im_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// What a call failed with.
pub struct Failure {
    code: i32,
    message: String,
}

impl Failure {
    /// A misuse of the interface.
    pub fn invalid(message: impl Into<String>) -> Self {
        Failure { code: IM_EINVAL, message: message.into() }
    }

    /// Damaged files.
    pub fn corrupt(message: String) -> Self {
        Failure { code: IM_ECORRUPT, message }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Corrupt(_) => IM_ECORRUPT,
            Error::TooOld(_) | Error::TooNew(_) => IM_EVERSION,
            Error::Foreign(_) => IM_EFOREIGN,
            Error::Config(_) | Error::Input(_) | Error::OtherKind(_) => IM_EINVAL,
            Error::Interrupted => IM_ECANCELED,
            Error::Io { .. } | Error::Store(_) => IM_EIO,
            // Internal, and what a newer core may add.
            _ => IM_EPANIC,
        };
        Failure { code, message: error.to_string() }
    }
}

/// Runs `call`; failures and panics become codes, with a message for [`im_last_error`].
pub fn attempt<T>(call: impl FnOnce() -> Result<T, Failure>) -> Result<T, i32> {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(failure)) => failure,
        Err(panic) => Failure { code: IM_EPANIC, message: panic_message(&*panic) },
    };
    let text = CString::new(failure.message.replace('\0', " ")).unwrap_or_default();
    // Without thread-local storage (a thread that is ending) the code alone must do.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
    Err(failure.code)
}

/// Runs `call`; returns its value or the code of its failure.
pub fn guard<T: From<i32>>(call: impl FnOnce() -> Result<T, Failure>) -> T {
    attempt(call).unwrap_or_else(T::from)
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("no message");
    format!("a defect of indexmill, please report it: {text}")
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn a_panic_becomes_a_code_with_its_message() {
        let code: i64 = guard(|| panic!("slot {} of 2", 3));
        assert_eq!(code, i64::from(IM_EPANIC));
        // SAFETY: the message is zero-terminated and no call follows.
        let message = unsafe { CStr::from_ptr(im_last_error()) }.to_str().unwrap();
        assert_eq!(message, "a defect of indexmill, please report it: slot 3 of 2");
    }

    #[test]
    fn every_thread_has_its_own_message() {
        let _: i32 = guard(|| Err(Failure::invalid("here")));
        // SAFETY: zero-terminated, and the thread ends after it.
        let there = std::thread::spawn(|| unsafe { CStr::from_ptr(im_last_error()) }.to_bytes().len());
        assert_eq!(there.join().unwrap(), 0);
    }
}
