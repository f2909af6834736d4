//! What becomes of searches when threads come, go, wait, fail and fork.

use std::collections::{HashSet, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Barrier, Mutex};
use std::thread::{ThreadId, current, scope, spawn};
use std::time::{Duration, Instant};

use super::shelf::IDLE_BYTES;
use super::*;
use crate::engine::{Engine, Finished, Source, Start};
use crate::error::{Error, Place};
use crate::search::later::start;
use crate::search::task::{Step, Times};
use crate::testing::Hanging;

const LONG: Duration = Duration::from_secs(60);

/// What the queries of a search do.
struct Script {
    start: Box<dyn Fn(usize) + Sync + Send>,
    step: fn() -> Step,
}

impl Script {
    fn of(start: impl Fn(usize) + Sync + Send + 'static) -> Self {
        Script { start: Box::new(start), step: || Step::Done }
    }
}

#[derive(Default)]
struct Scripted {
    query: usize,
}

impl Query for Scripted {
    type Shared<'a> = &'a Script;
    type Answers = Vec<usize>;

    fn start(&mut self, script: &&Script, i: usize) -> Result<()> {
        self.query = i;
        (script.start)(i);
        Ok(())
    }

    fn advance<'b>(&mut self, script: &&Script, _: impl Fn(usize) -> &'b [u8]) -> Result<Step> {
        Ok((script.step)())
    }

    /// Reads the page of the query's number.
    fn submit(&mut self, _: &&Script, mut queue: impl FnMut(usize, u64, usize) -> Result<()>) -> Result<()> {
        queue(0, self.query as u64, 1)
    }

    fn arrive(&mut self, _: &&Script, _: usize, _: &[u8]) -> Result<bool> {
        Ok(true)
    }

    fn finish(&mut self, _: &&Script, i: usize, _: Times, answers: &mut Vec<usize>) -> Result<()> {
        answers.push(i);
        Ok(())
    }

    fn shrink(&mut self) {}
}

fn search<'a>(script: &'a Script, source: &'a dyn Start, n: usize, threads: usize) -> Search<'a, Scripted> {
    let (inflight, width, slot_bytes, keeps_state) = (1, 1, 1, false);
    Search { shared: script, source, n, threads, inflight, width, slot_bytes, keeps_state }
}

fn memory() -> Source<()> {
    Source::Memory(())
}

/// A source that counts what it starts.
#[derive(Default)]
struct Counted(AtomicUsize);

impl Start for Counted {
    fn start(&self, slots: usize, slot_bytes: usize) -> Result<Box<dyn Engine>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        memory().start(slots, slot_bytes)
    }
}

#[test]
fn a_panic_is_an_error_of_the_first_query_that_had_one() {
    let script = Script::of(|i| assert!(i < 3, "query {i}"));
    for threads in [1, 3] {
        let (source, pool) = (memory(), Pool::default());
        let error = pool.run(&search(&script, &source, 9, threads), &mut || false).unwrap_err();
        assert!(matches!(&error, Error::Internal(what) if what == "query 3"), "{error}");
        let healthy = Script::of(|_| ());
        assert_eq!(pool.run(&search(&healthy, &source, 9, threads), &mut || false).unwrap().len(), 9);
    }
}

#[test]
fn no_thread_of_an_interrupted_search_waits_for_its_read() {
    let (done, result) = channel();
    spawn(move || {
        let script = Script { start: Box::new(|_| ()), step: || Step::Wait };
        let (source, pool, mut asked) = (Hanging::default(), Pool::default(), 0);
        let mut once = || {
            asked += 1;
            asked == 1
        };
        done.send(pool.run(&search(&script, &source, 3, 3), &mut once)).ok();
    });
    let found = result.recv_timeout(LONG).expect("it waits");
    assert!(matches!(found, Err(Error::Interrupted)));
}

#[test]
fn later_calls_use_the_threads_and_engines_of_earlier_ones() {
    let (seen, source, mut pool) =
        (Arc::new(Mutex::new(HashSet::<ThreadId>::new())), Counted::default(), Pool::default());
    pool.limit_to(2);
    let (both, noted) = (Barrier::new(2), seen.clone());
    let script = Script::of(move |_| {
        noted.lock().unwrap().insert(current().id());
        both.wait(); // a query for each of two threads
    });
    for _ in 0..20 {
        assert_eq!(pool.run(&search(&script, &source, 2, 2), &mut || false).unwrap().len(), 2);
    }
    // The caller may be back before the other thread has left its desk, and then starts one more.
    assert!(seen.lock().unwrap().len() <= 3, "the caller and a thread for each processor");
    assert!(source.0.load(Ordering::Relaxed) <= 3, "{:?}", source.0);
    // A caller on another thread takes an idle desk.
    let (before, alone) = (source.0.load(Ordering::Relaxed), Script::of(|_| ()));
    for _ in 0..20 {
        scope(|scope| {
            scope.spawn(|| pool.run(&search(&alone, &source, 1, 1), &mut || false).unwrap());
        });
    }
    assert_eq!(source.0.load(Ordering::Relaxed), before);
}

/// Queries that begin one after the other, each when it is told to.
fn stepped() -> (Script, Sender<()>, Receiver<usize>) {
    let ((go, gone), (begun, seen)) = (channel(), channel());
    let (gone, begun) = (Mutex::new(gone), Mutex::new(begun));
    let script = Script::of(move |i| {
        begun.lock().unwrap().send(i).unwrap();
        gone.lock().unwrap().recv().unwrap();
    });
    (script, go, seen)
}

#[test]
fn a_single_query_is_answered_amid_a_long_search() {
    let (source, mut pool) = (memory(), Pool::<Scripted>::default());
    pool.limit_to(1);
    let (bulk, go, seen) = stepped();
    let single = Script::of(|_| ());
    scope(|scope| {
        // The only processor is busy with a query of its caller, so that both others are left to the pool.
        let (held, release, entered) = stepped();
        let (source, pool) = (&source, &pool);
        scope.spawn(move || pool.run(&search(&held, source, 1, 1), &mut || false).unwrap());
        entered.recv().unwrap();
        let bulk = &bulk;
        let long = scope.spawn(move || pool.run(&search(bulk, source, 1000, 1), &mut || false).unwrap());
        assert_eq!(seen.recv().unwrap(), 0);
        let short = scope.spawn(|| pool.run(&search(&single, source, 1, 1), &mut || false).unwrap());
        while pool.crew().lock().calls.len() < 2 {
            std::thread::yield_now();
        }
        (0..2).for_each(|_| go.send(()).unwrap());
        assert_eq!(short.join().unwrap(), [0]);
        assert!(!long.is_finished());
        (2..1000).for_each(|_| go.send(()).unwrap());
        assert_eq!(long.join().unwrap().len(), 1000);
        release.send(()).unwrap();
    });
}

/// Fails the read of page 5 and does all others.
struct Faulty {
    reads: Vec<(usize, Result<()>)>,
    source: Faults,
}

impl Drop for Faulty {
    fn drop(&mut self) {
        (self.source.dropped)();
    }
}

impl Engine for Faulty {
    fn slots(&self) -> usize {
        64
    }

    fn slot_bytes(&self) -> usize {
        1
    }

    fn bytes(&self) -> usize {
        self.source.bytes
    }

    fn queue_part(&mut self, slot: usize, unit: u64, _: usize) -> Result<()> {
        let outcome =
            if unit == 5 { Err(Error::corrupt(Path::new("x"), Place::page(5), "this", "that")) } else { Ok(()) };
        self.reads.push((slot, outcome));
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn reap_each(&mut self, finished: &mut Finished) -> Result<()> {
        self.reads.drain(..).for_each(|(slot, outcome)| finished.take(slot, outcome));
        Ok(())
    }

    fn poll_each(&mut self, finished: &mut Finished) -> Result<()> {
        self.reap_each(finished)
    }

    fn buffer(&self, _: usize) -> &[u8] {
        &[]
    }
}

#[derive(Clone)]
struct Faults {
    /// Of memory that an engine says it takes.
    bytes: usize,
    /// Called when one ends.
    dropped: Arc<dyn Fn() + Send + Sync>,
}

impl Faults {
    fn with_bytes(bytes: usize) -> Self {
        Faults { bytes, dropped: Arc::new(|| ()) }
    }
}

impl Start for Faults {
    fn start(&self, _: usize, _: usize) -> Result<Box<dyn Engine>> {
        Ok(Box::new(Faulty { reads: Vec::new(), source: self.clone() }))
    }
}

/// A query that reads once and is answered.
#[derive(Default)]
struct OneRead {
    inner: Scripted,
    has_read: bool,
}

impl Query for OneRead {
    type Shared<'a> = &'a Script;
    type Answers = Vec<usize>;

    fn start(&mut self, script: &&Script, i: usize) -> Result<()> {
        self.has_read = false;
        self.inner.start(script, i)
    }

    fn advance<'b>(&mut self, _: &&Script, _: impl Fn(usize) -> &'b [u8]) -> Result<Step> {
        Ok(if self.has_read { Step::Done } else { Step::Wait })
    }

    fn submit(&mut self, script: &&Script, queue: impl FnMut(usize, u64, usize) -> Result<()>) -> Result<()> {
        self.has_read = true;
        self.inner.submit(script, queue)
    }

    fn arrive(&mut self, _: &&Script, _: usize, _: &[u8]) -> Result<bool> {
        Ok(true)
    }

    fn finish(&mut self, _: &&Script, i: usize, _: Times, answers: &mut Vec<usize>) -> Result<()> {
        answers.push(i);
        Ok(())
    }

    fn shrink(&mut self) {}
}

#[test]
fn a_read_that_fails_ends_its_own_search_alone() {
    let (mut pool, script, source) = (Pool::<OneRead>::default(), Script::of(|_| ()), Faults::with_bytes(64));
    pool.limit_to(1);
    let of = |n: usize| Search::<OneRead> {
        shared: &script,
        source: &source,
        n,
        threads: 1,
        inflight: 4,
        width: 1,
        slot_bytes: 1,
        keeps_state: false,
    };
    // Four queries of ten fail at page 5, those of four do not; all on the ring of one thread, again and again.
    scope(|scope| {
        for caller in 0..8 {
            let n = if caller % 2 == 0 { 10 } else { 4 };
            let (search, pool) = (of(n), &pool);
            scope.spawn(move || {
                for _ in 0..200 {
                    match pool.run(&search, &mut || false) {
                        Ok(found) => assert_eq!((n, found.len()), (4, 4)),
                        Err(error) => assert!(n == 10 && error.page() == Some(5)),
                    }
                }
            });
        }
    });
}

/// Finishes as many reads as a wait is for, the first first, and notes their number.
#[derive(Default, Clone)]
struct Noting {
    reads: VecDeque<usize>,
    waits: Arc<Mutex<Vec<usize>>>,
}

impl Engine for Noting {
    fn slots(&self) -> usize {
        64
    }

    fn slot_bytes(&self) -> usize {
        1
    }

    fn queue_part(&mut self, slot: usize, _: u64, _: usize) -> Result<()> {
        self.reads.push_back(slot);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn reap_each(&mut self, finished: &mut Finished) -> Result<()> {
        self.reap_several(1, finished)
    }

    fn reap_several(&mut self, least: usize, finished: &mut Finished) -> Result<()> {
        self.waits.lock().unwrap().push(least);
        self.reads.drain(..least).for_each(|slot| finished.take(slot, Ok(())));
        Ok(())
    }

    fn poll_each(&mut self, _: &mut Finished) -> Result<()> {
        Ok(())
    }

    fn buffer(&self, _: usize) -> &[u8] {
        &[]
    }
}

impl Start for Noting {
    fn start(&self, _: usize, _: usize) -> Result<Box<dyn Engine>> {
        Ok(Box::new(self.clone()))
    }
}

/// A query that cannot go on before all of its reads have arrived: as many as the script says.
#[derive(Default)]
struct Lacking {
    has_read: bool,
    n_lacking: usize,
}

impl Query for Lacking {
    type Shared<'a> = &'a [usize];
    type Answers = Vec<usize>;

    fn start(&mut self, reads: &&[usize], i: usize) -> Result<()> {
        *self = Lacking { has_read: false, n_lacking: reads[i] };
        Ok(())
    }

    fn advance<'b>(&mut self, _: &&[usize], _: impl Fn(usize) -> &'b [u8]) -> Result<Step> {
        Ok(if self.has_read { Step::Done } else { Step::Wait })
    }

    fn submit(&mut self, _: &&[usize], mut queue: impl FnMut(usize, u64, usize) -> Result<()>) -> Result<()> {
        self.has_read = true;
        (0..self.n_lacking).try_for_each(|buffer| queue(buffer, 0, 1))
    }

    fn arrive(&mut self, _: &&[usize], _: usize, _: &[u8]) -> Result<bool> {
        self.n_lacking -= 1;
        Ok(self.n_lacking == 0)
    }

    fn n_lacking(&self) -> usize {
        self.n_lacking
    }

    fn finish(&mut self, _: &&[usize], i: usize, _: Times, answers: &mut Vec<usize>) -> Result<()> {
        answers.push(i);
        Ok(())
    }

    fn shrink(&mut self) {}
}

#[test]
fn a_thread_with_all_the_queries_that_it_may_have_sleeps_until_one_can_go_on() {
    // Reads of each query, queries in flight, and the reads that waits are for. The last query of a call is alone, and
    // the lane of the one before it is free.
    for (reads, inflight, waits) in [
        (&[2, 5, 4][..], 2, &[2, 4, 1, 1, 1, 1, 1][..]),
        (&[4][..], 1, &[1, 1, 1, 1][..]),
        (&[3, 2][..], 1, &[1, 1, 1, 1, 1][..]),
    ] {
        let (pool, source, slot_bytes, keeps_state) = (Pool::<Lacking>::default(), Noting::default(), 1, false);
        let (n, threads, width) = (reads.len(), 1, 5);
        let search = Search { shared: reads, source: &source, n, threads, inflight, width, slot_bytes, keeps_state };
        assert_eq!(pool.run(&search, &mut || false).unwrap().len(), n);
        assert_eq!(*source.waits.lock().unwrap(), waits);
    }
}

type Left = (Arc<Pool<Scripted>>, Script, Box<dyn Start + Send>);

fn leave(
    pool: &Arc<Pool<Scripted>>,
    script: Script,
    source: impl Start + Send + 'static,
    n: usize,
    done: impl FnOnce(Result<usize>) + Send + 'static,
) -> crate::search::Ticket {
    let prepare = move |(_, script, source): &'static Left| Ok(search(script, &**source, n, 1));
    let gather = |_: &Left, found: Vec<usize>| Ok(found.len());
    let left: Left = (pool.clone(), script, Box::new(source));
    // SAFETY: what is prepared borrows from the argument.
    unsafe { start(left, |(pool, ..)| pool, prepare, gather, done) }.unwrap()
}

#[test]
fn searches_without_a_caller_end_and_may_be_the_last_to_use_the_index() {
    let pool = Arc::new(Pool::<Scripted>::default());
    let (sent, outcomes) = channel();
    for n in 0..100 {
        let sent = sent.clone();
        leave(&pool, Script::of(|_| ()), memory(), n, move |found| sent.send((n, found)).unwrap());
    }
    drop((pool, sent));
    let mut found: Vec<_> = std::iter::from_fn(|| outcomes.recv_timeout(LONG).ok()).collect();
    found.sort_by_key(|&(n, _)| n);
    let lengths: Vec<_> = found.into_iter().map(|(n, found)| (n, found.unwrap())).collect();
    assert_eq!(lengths, (0..100).map(|n| (n, n)).collect::<Vec<_>>());
}

#[test]
fn a_search_without_a_caller_can_be_cancelled() {
    let pool = Arc::new(Pool::<Scripted>::default());
    let (sent, outcomes) = channel();
    let waits = || Script { start: Box::new(|_| ()), step: || Step::Wait };
    let tickets: Vec<_> = (0..30)
        .map(|_| {
            let sent = sent.clone();
            leave(&pool, waits(), Hanging::default(), 2, move |found| sent.send(found).unwrap())
        })
        .collect();
    tickets.iter().for_each(|ticket| ticket.cancel());
    for _ in 0..30 {
        let found = outcomes.recv_timeout(LONG).expect("it waits");
        assert!(matches!(found, Err(Error::Interrupted)));
    }
}

#[test]
fn a_panic_after_a_search_ends_no_thread() {
    let mut pool = Pool::<Scripted>::default();
    pool.limit_to(1);
    let pool = Arc::new(pool);
    for _ in 0..3 {
        let (sent, outcomes) = channel();
        leave(&pool, Script::of(|_| ()), memory(), 1, |_| panic!("as it should"));
        leave(&pool, Script::of(|_| ()), memory(), 1, move |found| sent.send(found).unwrap());
        assert_eq!(outcomes.recv_timeout(LONG).expect("no thread works").unwrap(), 1);
    }
    let busy = || pool.crew().busy.load(Ordering::Relaxed);
    while busy() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn what_is_called_after_a_search_may_search_the_same_index_and_others() {
    let pools: [_; 2] = std::array::from_fn(|_| {
        let mut pool = Pool::<Scripted>::default();
        pool.limit_to(1);
        Arc::new(pool)
    });
    let (both, (sent, outcomes)) = (Arc::new(Barrier::new(2)), channel());
    for pool in &pools {
        let (pools, both, sent) = (pools.clone(), both.clone(), sent.clone());
        leave(pool, Script::of(|_| ()), memory(), 1, move |_| {
            both.wait(); // the threads of both have their hands full
            for pool in &pools {
                let (script, source) = (Script::of(|_| ()), memory());
                sent.send(pool.run(&search(&script, &source, 5, 1), &mut || false)).unwrap();
            }
        });
    }
    for _ in 0..4 {
        assert_eq!(outcomes.recv_timeout(LONG).expect("it waits for itself").unwrap().len(), 5);
    }
}

#[test]
fn searches_that_begin_together_go_to_a_thread_each() {
    let mut pool = Pool::<Scripted>::default();
    pool.limit_to(2);
    let pool = Arc::new(pool);
    for _ in 0..20 {
        let (both, (sent, outcomes)) = (Arc::new(Barrier::new(2)), channel());
        for _ in 0..2 {
            let (both, sent) = (both.clone(), sent.clone());
            let meet = Script::of(move |_| _ = both.wait());
            leave(&pool, meet, Faults::with_bytes(64), 1, move |found| sent.send(found).unwrap());
        }
        for _ in 0..2 {
            outcomes.recv_timeout(LONG).expect("one thread has both").unwrap();
        }
        while pool.crew().lock().parked < 2 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn desks_are_kept_while_their_buffers_are_small() {
    for (bytes, n_kept) in [(0, 4), (IDLE_BYTES / 3, 3), (IDLE_BYTES, 1), (IDLE_BYTES + 1, 0)] {
        let (mut pool, source, all) = (Pool::default(), Faults::with_bytes(bytes), Barrier::new(4));
        pool.limit_to(4);
        let meet = Script::of(move |_| _ = all.wait());
        scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| pool.run(&search(&meet, &source, 1, 1), &mut || false).unwrap());
            }
        });
        assert_eq!(pool.crew().desks.len(), n_kept);
    }
}

#[test]
fn a_desk_of_large_buffers_drives_out_no_other() {
    let (pool, idle) = (Pool::default(), Script::of(|_| ()));
    for (slot_bytes, bytes) in [(1, 64), (2, IDLE_BYTES + 1)] {
        let source = Faults::with_bytes(bytes);
        let wide = Search { slot_bytes, ..search(&idle, &source, 1, 1) };
        pool.run(&wide, &mut || false).unwrap();
    }
    assert_eq!(pool.crew().desks.len(), 1);
}

#[test]
fn a_desk_that_is_driven_out_ends_without_the_lock_of_the_others() {
    let pool = Arc::new(Pool::<Scripted>::default());
    let (seen, (sent, kept)) = (Arc::downgrade(&pool), channel());
    let dropped = move || _ = seen.upgrade().map(|pool| sent.send(pool.crew().desks.len()));
    let source = Faults { bytes: IDLE_BYTES / 2 + 1, dropped: Arc::new(dropped) };
    spawn(move || {
        for slot_bytes in [1, 2] {
            let idle = Script::of(|_| ());
            pool.run(&Search { slot_bytes, ..search(&idle, &source, 1, 1) }, &mut || false).unwrap();
        }
    });
    assert_eq!(kept.recv_timeout(LONG), Ok(1), "it waits for the lock");
}

#[test]
fn an_interrupted_search_is_cancelled_before_its_engine_ends() {
    let pool = Arc::new(Pool::<Scripted>::default());
    let (seen, looked, caller) = (pool.clone(), Arc::new(Mutex::new(Vec::new())), current().id());
    let noted = looked.clone();
    // The other thread ends its query amid, and puts its desk back.
    let dropped = move || {
        let deadline = Instant::now() + LONG;
        while current().id() == caller && seen.crew().desks.len() == 0 && Instant::now() < deadline {
            std::thread::yield_now();
        }
        noted.lock().unwrap().push(Instant::now() < deadline);
    };
    let source = Faults { bytes: 64, dropped: Arc::new(dropped) };
    let begun = Arc::new(AtomicUsize::new(0));
    let count = begun.clone();
    let start = move |_| _ = count.fetch_add(1, Ordering::Relaxed);
    let endless = Script { start: Box::new(start), step: || Step::Again };
    let mut both_began = || begun.load(Ordering::Relaxed) == 2;
    let found = pool.run(&search(&endless, &source, 2, 2), &mut both_began);
    assert!(matches!(found, Err(Error::Interrupted)));
    assert_eq!(*looked.lock().unwrap(), [true]);
}

#[test]
fn what_a_fork_left_behind_stays() {
    let hanging = Hanging::default();
    let used = |process: u32| {
        let pool = Pool::<Scripted>::default();
        let script = Script::of(|_| ());
        pool.run(&search(&script, &hanging, 1, 1), &mut || false).unwrap();
        let mut first = pool;
        if let Some(generation) = first.0.get_mut() {
            generation.process = process;
        }
        first
    };
    let before = hanging.ended.load(Ordering::Relaxed);
    drop(used(std::process::id()));
    assert_eq!(hanging.ended.load(Ordering::Relaxed), before + 1);
    let parents = used(0);
    std::mem::forget(parents.0.get().unwrap().crew.lock());
    // A child makes its own threads and desks, and closes without the lock.
    let script = Script::of(|_| ());
    assert_eq!(parents.run(&search(&script, &hanging, 2, 2), &mut || false).unwrap().len(), 2);
    drop(parents);
}
