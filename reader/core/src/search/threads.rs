//! All threads of one search.

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
        parts.extend(helpers.into_iter().map(|helper| {
            helper.join().unwrap_or_else(|_| Err((0, Error::Config("a search thread panicked: report it".into()))))
        }));
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
