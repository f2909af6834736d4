//! The search threads of an index, and the desks at which they and the callers work. Both live as long as the index.
//!
//! While there are fewer threads at work than processors, a caller works for its search itself, at a desk of its own: no
//! other thread needs to be woken up for a query. Otherwise it leaves its search to the threads of the pool and sleeps.
//! Each of these has queries of many callers in flight at one desk, so that 64 callers with a query each cost about as
//! much as one with 64. They take a query of each waiting search in turn: a single query does not wait for the end of a
//! long search, unless each of that one's queries enters where the one before it ended ([`Search::keeps_state`]). What is
//! called after a search without a caller may search: a thread of a pool always works for its own search itself.

use std::sync::{Arc, OnceLock};

use super::call::{Call, Presence};
use super::task::{Query, Search};
use crate::error::Result;
use crate::interrupt::Stop;
use crew::Crew;

mod crew;
mod shelf;

/// The threads and desks of an index, for each process that searches it: a forked child has none of its parent's.
pub(crate) struct Pool<Q: Query>(OnceLock<Box<Generation<Q>>>);

impl<Q: Query> Default for Pool<Q> {
    fn default() -> Self {
        Pool(OnceLock::new())
    }
}

/// What belongs to one process. A child looks for its own behind its parent's, whose locks it must not touch.
struct Generation<Q: Query> {
    process: u32,
    crew: Arc<Crew<Q>>,
    child: OnceLock<Box<Generation<Q>>>,
}

impl<Q: Query> Pool<Q> {
    /// Answers all queries of a search. `interrupted` is asked now and then, on this thread; once it says true this ends
    /// with [`crate::Error::Interrupted`]. Of several errors that of the first query is returned.
    pub fn run(&self, search: &Search<'_, Q>, interrupted: Stop<'_>) -> Result<Q::Answers> {
        if search.n == 0 {
            return Ok(Q::Answers::default());
        }
        let crew = self.crew();
        // SAFETY: the presence waits for the end of the call before the search can go.
        let present = Presence(unsafe { Call::new(search, None) });
        let call = &present.0;
        if let Some(busy) = crew.enter(call) {
            crew.answer(call, search, interrupted, busy);
        }
        call.wait(interrupted).map_err(|error| search.source.explained(error, interrupted))
    }

    /// The threads and desks of this process.
    pub fn crew(&self) -> &Arc<Crew<Q>> {
        let process = std::process::id();
        let mut place = &self.0;
        loop {
            let found = place.get_or_init(|| {
                let (crew, child) = (Arc::new(Crew::new()), OnceLock::new());
                Box::new(Generation { process, crew, child })
            });
            if found.process == process {
                return &found.crew;
            }
            place = &found.child;
        }
    }
}

impl<Q: Query> Drop for Generation<Q> {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            self.crew.close();
        } else {
            // Its threads are the parent's, and what they had in their hands may be half changed: it stays.
            std::mem::forget(self.crew.clone());
        }
    }
}

#[cfg(test)]
impl<Q: Query> Pool<Q> {
    /// Makes this process believe in so many processors.
    fn limit_to(&mut self, cores: usize) {
        self.crew();
        let crew = self.0.get_mut().and_then(|generation| Arc::get_mut(&mut generation.crew));
        crew.expect("not in use yet").cores = cores;
    }
}

#[cfg(test)]
mod tests;
