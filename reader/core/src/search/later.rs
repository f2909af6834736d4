//! Searches that run while their callers do other things.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::call::{Call, Cancel};
use super::pool::Pool;
use super::task::{Query, Search};
use crate::error::{Error, Result};

/// A search that was begun. Dropping it changes nothing.
pub struct Ticket(Option<Arc<dyn Cancel>>);

impl Ticket {
    /// Makes the search end soon, within a twentieth of a second as long as its threads get processor time.
    pub fn cancel(&self) {
        if let Some(call) = &self.0 {
            call.cancel();
        }
    }
}

/// A search and what it borrows from. Both stay where they are until this is dropped.
struct Held<O, Q: Query> {
    owned: *mut O,
    search: *mut Search<'static, Q>,
}

// SAFETY: what it points to belongs to it, and both may be sent and shared: a Search is shared by threads anyway.
unsafe impl<O: Send + Sync, Q: Query> Send for Held<O, Q> {}

impl<O, Q: Query> Drop for Held<O, Q> {
    fn drop(&mut self) {
        // SAFETY: made by Box::into_raw, or null; released once, the borrower first.
        unsafe {
            if !self.search.is_null() {
                drop(Box::from_raw(self.search));
            }
            drop(Box::from_raw(self.owned));
        }
    }
}

/// Begins the search that `prepare` makes of `owned`, whose index has the pool; the thread that ends it calls `done` with
/// what `gather` makes of the answers: one of the pool, that of [`Ticket::cancel`], or this one if there are no queries. Nobody hears of a panic
/// of `done` but the panic hook. If nothing is prepared, `done` is not called.
///
/// # Safety
/// What `prepare` returns borrows from its argument alone, and nothing else that it does keeps the reference.
pub(crate) unsafe fn start<O: Send + Sync + 'static, Q: Query, T>(
    owned: O,
    pool: impl FnOnce(&O) -> &Pool<Q>,
    prepare: impl FnOnce(&'static O) -> Result<Search<'static, Q>>,
    gather: impl FnOnce(&O, Q::Answers) -> Result<T> + Send + 'static,
    done: impl FnOnce(Result<T>) + Send + 'static,
) -> Result<Ticket> {
    let mut held = Held { owned: Box::into_raw(Box::new(owned)), search: std::ptr::null_mut() };
    // SAFETY: it is released after the search, by `held`.
    let search = prepare(unsafe { &*held.owned })?;
    // SAFETY: as above.
    let (n, crew) = (search.n, pool(unsafe { &*held.owned }).crew().clone());
    held.search = Box::into_raw(Box::new(search));
    let search = held.search;
    let then = move |found: Result<Q::Answers>| {
        let held = held; // as a whole
        // SAFETY: not released yet.
        let gathered = catch_unwind(AssertUnwindSafe(|| gather(unsafe { &*held.owned }, found?)));
        let end = || {
            drop(held);
            done(gathered.unwrap_or_else(|panic| Err(Error::panicked(&*panic))));
        };
        // The thread goes on with other searches.
        let _ = catch_unwind(AssertUnwindSafe(end));
    };
    if n == 0 {
        then(Ok(Q::Answers::default()));
        return Ok(Ticket(None));
    }
    // SAFETY: `then` has it.
    let call = unsafe { Call::new(search, Some(Box::new(then))) };
    crew.leave(&call);
    Ok(Ticket(Some(call)))
}
