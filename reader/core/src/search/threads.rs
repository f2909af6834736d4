//! All threads of one search.

use std::thread::ScopedJoinHandle;

use super::task::{Query, Search, Turns, answer};
use crate::error::{Error, Result};

/// Answers `n` queries with up to `threads` threads, each of which interleaves up to `inflight` queries. Of several
/// errors that of the first query is returned.
pub(crate) fn run<Q: Query>(
    search: &Search<'_, Q>,
    n: usize,
    threads: usize,
    inflight: usize,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<Vec<Q::Answers>> {
    let turns = Turns::new(n);
    let threads = threads.min(n).max(1);
    let lanes = inflight.min(n.div_ceil(threads)).max(1);
    let mut parts = Vec::with_capacity(threads);
    std::thread::scope(|scope| {
        // Where the system gives no more threads, fewer do the work.
        let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, || answer(search, &turns, lanes, None)).ok();
        let helpers: Vec<_> = (1..threads).map_while(spawn).collect();
        parts.push(answer(search, &turns, lanes, Some(interrupted)));
        let join = |helper: ScopedJoinHandle<'_, _>| helper.join().unwrap_or_else(|e| Err((0, Error::panicked(&*e))));
        parts.extend(helpers.into_iter().map(join));
    });
    let mut first: Option<(usize, Error)> = None;
    let mut answers = Vec::with_capacity(parts.len());
    for part in parts {
        match part {
            Ok(part) => answers.push(part),
            Err((query, error)) if first.as_ref().is_none_or(|f| query < f.0) => first = Some((query, error)),
            Err(_) => {}
        }
    }
    first.map_or(Ok(answers), |(_, error)| Err(error))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread::{ThreadId, current};

    use super::*;
    use crate::engine::Source;
    use crate::search::task::{Idle, Step, Times};

    /// Two queries, one for each of two threads.
    struct Pair {
        caller: ThreadId,
        both: Barrier,
    }

    #[derive(Default)]
    struct Fails;

    impl Query for Fails {
        type Shared<'a> = Pair;
        type Answers = ();

        fn start(&mut self, shared: &Pair, i: usize) -> Result<()> {
            shared.both.wait();
            assert!(current().id() == shared.caller, "query {i} on another thread");
            Ok(())
        }

        fn advance<'b>(&mut self, _: &Pair, _: impl Fn(usize) -> &'b [u8]) -> Result<Step> {
            Ok(Step::Done)
        }

        fn submit(&mut self, _: &Pair, _: impl FnMut(usize, u64, usize) -> Result<()>) -> Result<()> {
            Ok(())
        }

        fn arrive(&mut self, _: &Pair, _: usize, _: &[u8]) -> Result<bool> {
            Ok(false)
        }

        fn finish(&mut self, _: &Pair, _: usize, _: Times, (): &mut ()) {}

        fn shrink(&mut self) {}
    }

    #[test]
    fn a_panic_of_another_thread_is_no_error_of_the_caller() {
        let shared = Pair { caller: current().id(), both: Barrier::new(2) };
        let (source, idle) = (Source::Memory(()), Idle::default());
        let search: Search<'_, Fails> = Search { shared, source: &source, idle: &idle, width: 1, slot_bytes: 1 };
        let error = run(&search, 2, 2, 1, &mut || false).unwrap_err();
        assert!(matches!(&error, Error::Internal(what) if what.starts_with("query ")), "{error}");
    }
}
