//! Blocks from a store that refuses, hangs, is cut short, or whose index is replaced.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::super::answer::Refusal;
use super::super::disk::tests::Folder;
use super::super::fetcher::Fetcher;
use super::super::file::{Access, DataFile};
use super::super::source::{Start, Storage};
use super::super::store::{Limits, Range, Reply, Store, Traffic};
use super::super::{Engine, Reading};
use super::Data;
use crate::engine::contract::Finished;
use crate::error::Error;
use crate::pagefile::PAGE_BYTES;

/// An object in memory, and what becomes of the requests for it, by their number from 0 on.
struct Scripted(Arc<Script>);

struct Script {
    bytes: Vec<u8>,
    number: AtomicU64,
    outcome: fn(u64) -> Outcome,
    /// What requests that hang wait for.
    released: (Mutex<bool>, Condvar),
    /// `None` if it never tells.
    is_replaced: Option<bool>,
    /// Replies that it never sends.
    untold: Mutex<Vec<Sender<bool>>>,
}

enum Outcome {
    Answers,
    Refused {
        passes: bool,
    },
    Cut,
    Hangs,
    /// Refused once another try is made, which may be answered from then on.
    Late,
    /// The reply is dropped.
    Dropped,
    /// Not made, ever.
    Waits,
}

impl Script {
    fn read(&self, range: &Range, reply: Reply) {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let content = &self.bytes[range.offset as usize..][..range.bytes];
        let outcome = (self.outcome)(number);
        if matches!(outcome, Outcome::Waits) {
            return std::mem::forget(reply);
        }
        if !reply.begin() {
            return;
        }
        let refused = |passes| Err(Refusal { message: format!("{}: slow down", range.name), passes });
        match outcome {
            Outcome::Answers => reply.give(Ok(content)),
            Outcome::Refused { passes } => reply.give(refused(passes)),
            Outcome::Cut => reply.give(Ok(&content[1..])),
            Outcome::Dropped | Outcome::Waits => drop(reply),
            Outcome::Late => {
                while self.number.load(Ordering::Relaxed) == number + 1 {
                    std::thread::yield_now();
                }
                reply.give(refused(true));
                *self.released.0.lock().unwrap() = true;
                self.released.1.notify_all();
            }
            Outcome::Hangs => {
                let mut released = self.released.0.lock().unwrap();
                while !*released {
                    released = self.released.1.wait(released).unwrap();
                }
                reply.give(Ok(&vec![0; range.bytes]));
            }
        }
    }
}

impl Store for Scripted {
    fn read(&self, range: Range, reply: Reply) {
        let script = self.0.clone();
        std::thread::spawn(move || script.read(&range, reply));
    }

    fn place_of(&self, name: &str) -> String {
        format!("s3://bucket/{name}")
    }

    fn is_replaced(&self, reply: Sender<bool>) {
        match self.0.is_replaced {
            Some(told) => reply.send(told).unwrap(),
            None => self.0.untold.lock().unwrap().push(reply),
        }
    }
}

const LIMITS: fn() -> Limits = || Limits {
    timeout: Duration::from_millis(60),
    pause: Duration::from_millis(1),
    gap_bytes: PAGE_BYTES as u64,
    ..Limits::default()
};

struct Setup {
    data: Data,
    store: Arc<Script>,
    fetcher: Arc<Fetcher>,
    storage: Storage,
}

impl Setup {
    fn new(name: &str, limits: Limits, outcome: fn(u64) -> Outcome) -> Self {
        Self::with(name, limits, outcome, Some(false))
    }

    fn with(name: &str, limits: Limits, outcome: fn(u64) -> Outcome, is_replaced: Option<bool>) -> Self {
        Self::beside(name, limits, outcome, is_replaced, None)
    }

    /// Some blocks may be on disk.
    fn beside(
        name: &str,
        limits: Limits,
        outcome: fn(u64) -> Outcome,
        is_replaced: Option<bool>,
        disk: Option<PathBuf>,
    ) -> Self {
        let data = Data::new(name, 64);
        let (bytes, number, released) = (data.bytes.clone(), AtomicU64::new(0), Default::default());
        let store = Arc::new(Script { bytes, number, outcome, released, is_replaced, untold: Mutex::default() });
        // The file of this machine has its size, and nothing else.
        std::fs::write(&data.path, vec![0; data.bytes.len()]).unwrap();
        let file = Arc::new(DataFile::open(&data.path, Access::Cached, PAGE_BYTES).unwrap());
        let fetcher = Arc::new(Fetcher::new(Arc::new(Scripted(store.clone())), limits, disk));
        let storage = Storage { engine: Reading::Stored(&fetcher).choice().unwrap(), file };
        Setup { data, store, fetcher, storage }
    }

    fn start(&self) -> Box<dyn Engine> {
        self.storage.start(16, 2 * PAGE_BYTES).unwrap()
    }

    /// Asks for one page each, waits, and compares.
    fn read(&self, engine: &mut dyn Engine, pages: &[usize]) -> Finished {
        pages.iter().enumerate().for_each(|(slot, &page)| engine.queue_part(slot, page as u64, PAGE_BYTES).unwrap());
        let (mut finished, end) = (Finished::default(), Instant::now() + Duration::from_secs(20));
        while finished.done.len() + finished.failed.len() < pages.len() {
            assert!(Instant::now() < end, "reads never finished");
            engine.reap_each(&mut finished).unwrap();
        }
        for &slot in &finished.done {
            assert_eq!(&engine.buffer(slot)[..PAGE_BYTES], self.data.block(pages[slot], 1));
        }
        finished
    }

    fn traffic(&self) -> Traffic {
        self.fetcher.traffic()
    }
}

#[test]
fn near_blocks_share_a_request_and_blocks_in_memory_need_none() {
    let setup = Setup::new("shared", LIMITS(), |_| Outcome::Answers);
    let mut engine = setup.start();
    assert_eq!(setup.read(&mut *engine, &[9, 40, 8, 11, 40]).done.len(), 5);
    let page = PAGE_BYTES as u64;
    assert_eq!((setup.traffic().requests, setup.traffic().bytes), (2, 5 * page));
    assert_eq!(setup.read(&mut *engine, &[11, 9, 50]).done.len(), 3);
    assert_eq!((setup.traffic().requests, setup.traffic().cached), (3, 2));
}

#[test]
fn requests_are_no_longer_than_their_limit() {
    let limits = Limits { request_bytes: 2 * PAGE_BYTES as u64, cache_bytes: 0, ..LIMITS() };
    let setup = Setup::new("limit", limits, |_| Outcome::Answers);
    setup.read(&mut *setup.start(), &[0, 1, 2, 3, 4]);
    assert_eq!(setup.traffic().requests, 3);
}

#[test]
fn of_requests_one_in_ten_may_fail() {
    let fails = |number| if number % 10 == 3 { Outcome::Refused { passes: true } } else { Outcome::Answers };
    let setup = Setup::new("tenth", Limits { cache_bytes: 0, ..LIMITS() }, fails);
    let mut engine = setup.start();
    for round in 0..20 {
        let pages: Vec<usize> = (0..10).map(|i| (6 * i + round) % 64).collect();
        assert!(setup.read(&mut *engine, &pages).failed.is_empty());
    }
    assert!(setup.traffic().retries >= 15, "{:?}", setup.traffic());
}

#[test]
fn a_cut_answer_is_asked_for_again() {
    let setup = Setup::new("cut", LIMITS(), |number| if number == 0 { Outcome::Cut } else { Outcome::Answers });
    assert!(setup.read(&mut *setup.start(), &[5]).failed.is_empty());
    assert_eq!((setup.traffic().requests, setup.traffic().retries), (2, 1));
}

#[test]
fn a_request_that_hangs_is_made_again_and_its_late_answer_is_not_used() {
    let setup = Setup::new("hangs", LIMITS(), |number| if number == 0 { Outcome::Hangs } else { Outcome::Answers });
    let mut engine = setup.start();
    assert!(setup.read(&mut *engine, &[5]).failed.is_empty());
    assert_eq!(setup.traffic().timeouts, 1);
    *setup.store.released.0.lock().unwrap() = true;
    setup.store.released.1.notify_all();
    while setup.traffic().bytes < 2 * PAGE_BYTES as u64 {
        std::thread::yield_now();
    }
    engine.reap_each(&mut Finished::default()).unwrap();
    assert_eq!(&engine.buffer(0)[..PAGE_BYTES], setup.data.block(5, 1));
}

#[test]
fn a_store_that_never_answers_is_told() {
    let limits = Limits { tries: 2, timeout: Duration::from_millis(10), ..LIMITS() };
    // Some are not even made, because others hang.
    let outcome = |number| if number < 3 { Outcome::Hangs } else { Outcome::Waits };
    let setup = Setup::new("never", limits, outcome);
    let failed = setup.read(&mut *setup.start(), &[5, 20, 40, 60]).failed;
    assert_eq!(failed.len(), 4);
    let told = failed[0].1.to_string();
    assert!(told.contains("no answer within 10ms"), "{told}");
    *setup.store.released.0.lock().unwrap() = true;
    setup.store.released.1.notify_all();
}

#[test]
fn what_no_wait_mends_is_told_at_once_and_what_may_pass_after_all_tries() {
    let refused = |passes, outcome| {
        let setup = Setup::new(if passes { "passes" } else { "final" }, LIMITS(), outcome);
        let failed = setup.read(&mut *setup.start(), &[5]).failed;
        (failed[0].1.to_string(), setup.traffic().requests)
    };
    let (told, requests) = refused(false, |_| Outcome::Refused { passes: false });
    assert!(told.ends_with("slow down") && requests == 1, "{told}, {requests}");
    let (told, requests) = refused(true, |_| Outcome::Refused { passes: true });
    assert!(told.ends_with("slow down (5 times)") && requests == 5, "{told}, {requests}");
}

#[test]
fn after_a_failure_a_replaced_index_is_named() {
    let damage = || Error::corrupt("/cache/graph.imx".as_ref(), "page", "one checksum", "another");
    let setup = Setup::with("kept", LIMITS(), |_| Outcome::Answers, Some(false));
    let told = setup.storage.explained(damage(), &mut || false).to_string();
    assert!(told.starts_with("s3://bucket/graph.imx: ") && told.contains("damaged"), "{told}");
    let setup = Setup::with("replaced", LIMITS(), |_| Outcome::Answers, Some(true));
    let told = setup.storage.explained(damage(), &mut || false).to_string();
    assert!(told.contains("another index has taken its place since it was opened; open it again"), "{told}");
}

#[test]
fn a_store_that_does_not_tell_whether_it_was_replaced_is_waited_for_as_for_a_request() {
    let damage = || Error::corrupt("/cache/graph.imx".as_ref(), "page", "one checksum", "another");
    let setup = Setup::with("untold", LIMITS(), |_| Outcome::Answers, None);
    let told = setup.storage.explained(damage(), &mut || false).to_string();
    assert!(told.contains("damaged"), "{told}");
    let limits = Limits { timeout: Duration::from_secs(60), ..LIMITS() };
    let setup = Setup::with("stopped", limits, |_| Outcome::Answers, None);
    assert!(matches!(setup.storage.explained(damage(), &mut || true), Error::Interrupted));
}

#[test]
fn a_late_refusal_does_not_end_a_request_whose_last_try_is_in_flight() {
    let outcome = |number| if number == 0 { Outcome::Late } else { Outcome::Hangs };
    // The second try is answered at once after the first was refused, long before its own time is up.
    let limits = Limits { tries: 2, timeout: Duration::from_millis(300), ..LIMITS() };
    let setup = Setup::new("late", limits, outcome);
    let mut engine = setup.start();
    engine.queue_part(0, 5, PAGE_BYTES).unwrap();
    let mut finished = Finished::default();
    while finished.is_empty() {
        engine.reap_each(&mut finished).unwrap();
    }
    assert_eq!((finished.done.as_slice(), finished.failed.len()), (&[0][..], 0));
}

#[test]
fn a_request_that_ends_without_an_answer_is_made_again() {
    let outcome = |number| if number == 0 { Outcome::Dropped } else { Outcome::Answers };
    let setup = Setup::new("dropped", LIMITS(), outcome);
    assert!(setup.read(&mut *setup.start(), &[5]).failed.is_empty());
    assert_eq!(setup.traffic().retries, 1);
}

#[test]
fn a_time_out_for_ever_is_one_that_the_clock_can_tell() {
    let limits = Limits { timeout: Duration::MAX, ..LIMITS() };
    let setup = Setup::new("for-ever", limits, |_| Outcome::Answers);
    assert!(setup.read(&mut *setup.start(), &[5]).failed.is_empty());
}

#[test]
fn blocks_are_aligned_wherever_they_lie_in_their_answer() {
    let setup = Setup::new("aligned", Limits { cache_bytes: 0, ..LIMITS() }, |_| Outcome::Answers);
    let mut engine = setup.start();
    setup.read(&mut *engine, &[1, 2, 3, 20]);
    assert!((0..4).all(|slot| engine.buffer(slot).as_ptr().addr().is_multiple_of(64)));
}

#[test]
fn memory_is_that_of_answers_until_it_is_released() {
    let setup = Setup::new("memory", Limits { cache_bytes: 0, ..LIMITS() }, |_| Outcome::Answers);
    let mut engine = setup.start();
    // The first two share an answer of two pages; each of the others is less than half of theirs.
    setup.read(&mut *engine, &[1, 2, 20, 21, 22]);
    assert_eq!(engine.bytes(), 5 * PAGE_BYTES);
    engine.release(0);
    assert_eq!(engine.bytes(), 5 * PAGE_BYTES, "its answer is in use");
    (1..5).for_each(|slot| engine.release(slot));
    assert_eq!(engine.bytes(), 0);
}

#[test]
fn blocks_in_memory_take_no_round() {
    let setup = Setup::new("round", LIMITS(), |_| Outcome::Answers);
    let mut engine = setup.start();
    setup.read(&mut *engine, &[3, 9]);
    assert!(engine.takes_round(0) && engine.takes_round(1));
    setup.read(&mut *engine, &[9, 30]);
    assert!(!engine.takes_round(0) && engine.takes_round(1));
}

#[test]
fn damage_makes_blocks_of_its_file_be_read_again() {
    let setup = Setup::new("damage", LIMITS(), |_| Outcome::Answers);
    let mut engine = setup.start();
    setup.read(&mut *engine, &[3]);
    assert!(!engine.forget(&Error::Interrupted));
    assert!(engine.forget(&Error::corrupt(&setup.data.path, "page", "one checksum", "another")));
    setup.read(&mut *engine, &[3]);
    assert_eq!((setup.traffic().requests, setup.traffic().cached), (2, 0));
}

#[test]
fn blocks_are_read_anew_where_memory_is_not_trusted() {
    let setup = Setup::new("anew", LIMITS(), |_| Outcome::Answers);
    let mut engine = setup.start();
    setup.read(&mut *engine, &[3]);
    engine.read_anew(0..1, true);
    setup.read(&mut *engine, &[3, 3]);
    engine.read_anew(0..1, false);
    setup.read(&mut *engine, &[3, 3]);
    assert_eq!((setup.traffic().requests, setup.traffic().cached), (2, 3));
}

/// Pages 3 to 6 are on disk.
fn on_disk(name: &str) -> (Folder, Setup) {
    on_disk_within(name, LIMITS())
}

fn on_disk_within(name: &str, limits: Limits) -> (Folder, Setup) {
    let folder = Folder::new(name);
    let setup = Setup::beside(name, limits, |_| Outcome::Answers, Some(false), Some(folder.0.clone()));
    let object = setup.data.path.file_name().unwrap().to_str().unwrap();
    folder.put(object, 3, setup.data.block(3, 4));
    (folder, setup)
}

#[test]
fn blocks_on_disk_need_no_request_and_take_no_round() {
    let (_folder, setup) = on_disk("on-disk");
    let mut engine = setup.start();
    setup.read(&mut *engine, &[3, 40, 6]);
    assert_eq!((setup.traffic().requests, setup.traffic().disk), (1, 2));
    assert!(!engine.takes_round(0) && engine.takes_round(1) && !engine.takes_round(2));
    setup.read(&mut *engine, &[6, 3]);
    assert_eq!((setup.traffic().requests, setup.traffic().disk, setup.traffic().cached), (1, 2, 2));
}

#[test]
fn blocks_that_are_damaged_on_disk_are_asked_of_the_store_and_counted() {
    let (folder, setup) = on_disk("damaged-on-disk");
    let object = setup.data.path.file_name().unwrap().to_str().unwrap();
    folder.damage(object, 4);
    let mut engine = setup.start();
    assert_eq!(setup.read(&mut *engine, &[3, 4, 5]).done.len(), 3);
    let traffic = setup.traffic();
    assert_eq!((traffic.requests, traffic.disk, traffic.damaged), (1, 2, 1));
    assert!(!engine.takes_round(0) && engine.takes_round(1) && !engine.takes_round(2));
}

#[test]
fn blocks_are_read_anew_where_the_disk_is_not_trusted() {
    let (_folder, setup) = on_disk("anew-on-disk");
    let mut engine = setup.start();
    engine.read_anew(0..1, true);
    setup.read(&mut *engine, &[3, 5]);
    assert_eq!((setup.traffic().requests, setup.traffic().disk), (1, 1));
}

#[test]
fn blocks_that_are_removed_once_they_were_found_are_requested_and_take_a_round() {
    let (folder, setup) = on_disk("removed");
    let mut engine = setup.start();
    engine.queue_part(0, 3, PAGE_BYTES).unwrap();
    drop(folder);
    let (mut finished, end) = (Finished::default(), Instant::now() + Duration::from_secs(20));
    while finished.is_empty() && Instant::now() < end {
        engine.reap_each(&mut finished).unwrap();
    }
    assert_eq!((finished.done.as_slice(), setup.traffic().requests), (&[0][..], 1));
    assert!(engine.takes_round(0));
    assert_eq!((setup.traffic().disk, setup.traffic().damaged), (0, 0));
}

#[test]
fn a_look_reads_few_blocks_from_disk_and_the_next_one_goes_on() {
    let limits = Limits { look_bytes: 2 * PAGE_BYTES, ..LIMITS() };
    let (_folder, setup) = on_disk_within("looks", limits);
    let mut engine = setup.start();
    (0..4).for_each(|slot| engine.queue_part(slot, 3 + slot as u64, PAGE_BYTES).unwrap());
    engine.flush().unwrap();
    assert_eq!(setup.traffic().disk, 0);
    let mut finished = Finished::default();
    engine.poll_each(&mut finished).unwrap();
    assert_eq!(finished.done, [0, 1]);
    engine.reap_each(&mut finished).unwrap();
    assert_eq!((finished.done.as_slice(), setup.traffic().requests), (&[0, 1, 2, 3][..], 0));
    assert!((0..4).all(|slot| &engine.buffer(slot)[..PAGE_BYTES] == setup.data.block(3 + slot, 1)));
}
