//! Which query a thread takes next: one of its own call, or of the calls in the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::crew::{Crew, Fit};
use crate::interrupt::Stop;
use crate::search::call::{Call, Turn};
use crate::search::desk::{Desk, Task, Turns};
use crate::search::task::Query;

/// A thread at work.
pub(super) struct Busy<'a>(&'a AtomicUsize);

impl<'a> Busy<'a> {
    pub fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Busy(count)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The queries of one call, for its caller.
pub(super) struct Own<'a, 'b, Q: Query> {
    pub call: &'a Arc<Call<Q>>,
    pub interrupted: Stop<'b>,
    pub crew: &'a Crew<Q>,
}

impl<Q: Query> Turns<Q> for Own<'_, '_, Q> {
    fn next(&mut self, _: &Desk<Q>) -> Option<Task<Q>> {
        match self.call.take() {
            Turn::Query(query, _) => Some((self.call.clone(), query)),
            Turn::Later | Turn::Over => None,
        }
    }

    fn must_stop(&mut self) -> bool {
        // The caller may have forked a child meanwhile, which has neither engines nor threads.
        (self.interrupted)() || self.call.is_orphan()
    }

    fn may_watch(&self) -> bool {
        self.call.lanes == 1 && self.crew.busy.load(Ordering::Relaxed) <= self.crew.cores
    }
}

/// The queries of all calls in the queue, for a thread of the pool.
pub(super) struct Shift<'a, Q: Query> {
    pub crew: &'a Crew<Q>,
    pub first: Option<Task<Q>>,
}

impl<Q: Query> Turns<Q> for Shift<'_, Q> {
    fn next(&mut self, desk: &Desk<Q>) -> Option<Task<Q>> {
        let first = self.first.take();
        if first.is_some() || self.crew.queued.load(Ordering::Acquire) == 0 {
            return first;
        }
        let mut state = self.crew.lock();
        // What is in the queue is for those that come.
        if state.wakes + state.starting > 0 && !desk.is_free() {
            return None;
        }
        self.crew.turn(&mut state, |call| match desk.fits(call) {
            false => Fit::TooSmall,
            true if desk.count(call) == call.lanes => Fit::HasEnough,
            true => Fit::Fits,
        })
    }

    fn must_stop(&mut self) -> bool {
        false
    }

    fn may_watch(&self) -> bool {
        false
    }
}
