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
/// EFAULT: a defect of this library.
pub const IM_EPANIC: i32 = -14;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Returns the message of the last failure on the calling thread, "" if there was none. Valid until the next call
/// on this thread; do not free it. Thread-safe: every thread has its own.
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
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Corrupt(_) => IM_ECORRUPT,
            Error::TooOld(_) | Error::TooNew(_) => IM_EVERSION,
            Error::Foreign(_) => IM_EFOREIGN,
            Error::Config(_) | Error::Input(_) | Error::Interrupted => IM_EINVAL,
            Error::Io { .. } => IM_EIO,
        };
        Failure { code, message: error.to_string() }
    }
}

/// Runs `call`; failures and panics become codes with a message.
pub fn guard(call: impl FnOnce() -> Result<i64, Failure>) -> i64 {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure { code: IM_EPANIC, message: panic_message(&panic) },
    };
    let text = CString::new(failure.message.replace('\0', " ")).unwrap_or_default();
    // Without thread-local storage (a thread that is ending) the code alone must do.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
    failure.code.into()
}

fn panic_message(panic: &Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    format!("a defect of indexmill, please report it: {text}")
}
