//! Searches that run while their callers do other things.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;

use super::call::{Call, Cancel};
use super::pool::Pool;
use super::task::{Query, Search};
use crate::error::{Error, Result};

/// A search that was begun. Dropping it changes nothing.
///
/// Its `done` is called once, most often by a search thread, which serves no other search meanwhile: `done` may search, and
/// is for nothing else that takes long. Another thread calls it where no search thread has a query of the search: the one
/// that calls [`Ticket::cancel`]; the one that begins the search, before it returns, if there are no queries or the system
/// starts no thread; one of its own after a failure that a store explains. So whoever begins or cancels a search must not
/// hold a lock that `done` takes.
pub struct Ticket(Option<Arc<dyn Cancel>>);

impl Ticket {
    /// Makes the search end soon, within about a tenth of a second as long as its threads get processor time. If none of
    /// them has a query of it, it ends here, and `done` is called before this returns.
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
/// what `gather` makes of the answers; which thread that is, [`Ticket`] says. Nobody hears of a panic of `done` but the
/// panic hook. If nothing is prepared, `done` is not called.
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
    let end = move |held: Held<O, Q>, found: Result<Q::Answers>| {
        // SAFETY: not released yet.
        let gathered = catch_unwind(AssertUnwindSafe(|| {
            let (owned, search) = unsafe { (&*held.owned, &*held.search) };
            gather(owned, found.map_err(|error| search.source.explained(error, &mut || false))?)
        }));
        let end = || {
            drop(held);
            done(gathered.unwrap_or_else(|panic| Err(Error::panicked(&*panic))));
        };
        // The thread goes on with other searches.
        let _ = catch_unwind(AssertUnwindSafe(end));
    };
    let then = move |found: Result<Q::Answers>| {
        // SAFETY: not released yet.
        let source = unsafe { &*held.search }.source;
        if found.as_ref().is_err_and(|error| source.asks_to_explain(error)) {
            on_another_thread(move || end(held, found));
        } else {
            end(held, found);
        }
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

/// Does what may take long on a thread of its own, or on this one if the system starts none.
fn on_another_thread(work: impl FnOnce() + Send + 'static) {
    let work: Box<dyn FnOnce() + Send> = Box::new(work);
    let work = Arc::new(Mutex::new(Some(work)));
    let do_it = |work: &Mutex<Option<Box<dyn FnOnce() + Send>>>| {
        let work = work.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(work) = work {
            work();
        }
    };
    let theirs = work.clone();
    if Builder::new().name("indexmill-explain".to_owned()).spawn(move || do_it(&theirs)).is_err() {
        do_it(&work);
    }
}
