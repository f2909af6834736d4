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
    use std::sync::{Barrier, mpsc};
    use std::thread::current;
    use std::time::Duration;

    use super::*;
    use crate::engine::Source;
    use crate::search::task::{Idle, Step, Times};
    use crate::testing::Hanging;

    /// What the queries of a search do.
    struct Script {
        start: Box<dyn Fn(usize) + Sync>,
        step: fn() -> Step,
    }

    #[derive(Default)]
    struct Scripted;

    impl Query for Scripted {
        type Shared<'a> = Script;
        type Answers = ();

        fn start(&mut self, script: &Script, i: usize) -> Result<()> {
            (script.start)(i);
            Ok(())
        }

        fn advance<'b>(&mut self, script: &Script, _: impl Fn(usize) -> &'b [u8]) -> Result<Step> {
            Ok((script.step)())
        }

        fn submit(&mut self, _: &Script, _: impl FnMut(usize, u64, usize) -> Result<()>) -> Result<()> {
            Ok(())
        }

        fn arrive(&mut self, _: &Script, _: usize, _: &[u8]) -> Result<bool> {
            Ok(false)
        }

        fn finish(&mut self, _: &Script, _: usize, _: Times, (): &mut ()) {}

        fn shrink(&mut self) {}
    }

    #[test]
    fn a_panic_of_another_thread_is_no_error_of_the_caller() {
        let (caller, both) = (current().id(), Barrier::new(2)); // a query for each of two threads
        let start = move |i: usize| {
            both.wait();
            assert!(current().id() == caller, "query {i} on another thread");
        };
        let shared = Script { start: Box::new(start), step: || Step::Done };
        let (source, idle) = (Source::Memory(()), Idle::default());
        let search: Search<'_, Scripted> = Search { shared, source: &source, idle: &idle, width: 1, slot_bytes: 1 };
        let error = run(&search, 2, 2, 1, &mut || false).unwrap_err();
        assert!(matches!(&error, Error::Internal(what) if what.starts_with("query ")), "{error}");
    }

    #[test]
    fn no_thread_of_an_interrupted_search_waits_for_its_read() {
        let (done, result) = mpsc::channel();
        std::thread::spawn(move || {
            let shared = Script { start: Box::new(|_| ()), step: || Step::Wait };
            let (source, idle) = (Hanging::default(), Idle::default());
            let search: Search<'_, Scripted> = Search { shared, source: &source, idle: &idle, width: 1, slot_bytes: 1 };
            done.send(run(&search, 3, 3, 1, &mut || true)).ok();
        });
        let found = result.recv_timeout(Duration::from_secs(60)).expect("it waits");
        assert!(matches!(found, Err(Error::Interrupted)));
    }
}
