//! Blocks from a store that refuses, hangs, is cut short, or whose index is replaced.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::super::fetcher::Fetcher;
use super::super::file::{Access, DataFile};
use super::super::source::{Start, Storage};
use super::super::store::{Limits, Refusal, Store, Traffic};
use super::super::{Engine, Reading};
use super::Data;
use crate::engine::contract::Finished;
use crate::error::Error;
use crate::pagefile::PAGE_BYTES;

/// An object in memory, and what becomes of the requests for it, by their number from 0 on.
struct Scripted {
    bytes: Vec<u8>,
    number: AtomicU64,
    outcome: fn(u64) -> Outcome,
    /// What requests that hang wait for.
    released: (Mutex<bool>, Condvar),
    is_replaced: bool,
}

enum Outcome {
    Answers,
    Refused { passes: bool },
    Cut,
    Hangs,
}

impl Store for Scripted {
    fn read(&self, name: &str, offset: u64, bytes: usize) -> Result<Vec<u8>, Refusal> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let range = offset as usize..offset as usize + bytes;
        match (self.outcome)(number) {
            Outcome::Answers => {}
            Outcome::Refused { passes } => return Err(Refusal { message: format!("{name}: slow down"), passes }),
            Outcome::Cut => return Ok(self.bytes[range][1..].to_vec()),
            Outcome::Hangs => {
                let mut released = self.released.0.lock().unwrap();
                while !*released {
                    released = self.released.1.wait(released).unwrap();
                }
                return Ok(vec![0; bytes]);
            }
        }
        Ok(self.bytes[range].to_vec())
    }

    fn place_of(&self, name: &str) -> String {
        format!("s3://bucket/{name}")
    }

    fn is_replaced(&self) -> bool {
        self.is_replaced
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
    store: Arc<Scripted>,
    fetcher: Arc<Fetcher>,
    storage: Storage,
}

impl Setup {
    fn new(name: &str, limits: Limits, outcome: fn(u64) -> Outcome) -> Self {
        Self::with(name, limits, outcome, false)
    }

    fn with(name: &str, limits: Limits, outcome: fn(u64) -> Outcome, is_replaced: bool) -> Self {
        let data = Data::new(name, 64);
        let (bytes, number, released) = (data.bytes.clone(), AtomicU64::new(0), Default::default());
        let store = Arc::new(Scripted { bytes, number, outcome, released, is_replaced });
        // The file of this machine has its size, and nothing else.
        std::fs::write(&data.path, vec![0; data.bytes.len()]).unwrap();
        let file = Arc::new(DataFile::open(&data.path, Access::Cached, PAGE_BYTES).unwrap());
        let fetcher = Arc::new(Fetcher::new(store.clone(), limits));
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
    let limits = Limits { tries: 2, parallel: 3, timeout: Duration::from_millis(10), ..LIMITS() };
    let setup = Setup::new("never", limits, |_| Outcome::Hangs);
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
    let setup = Setup::with("kept", LIMITS(), |_| Outcome::Answers, false);
    let told = setup.storage.explained(damage()).to_string();
    assert!(told.starts_with("s3://bucket/graph.imx: ") && told.contains("damaged"), "{told}");
    let setup = Setup::with("replaced", LIMITS(), |_| Outcome::Answers, true);
    let told = setup.storage.explained(damage()).to_string();
    assert!(told.contains("another index has taken its place since it was opened; open it again"), "{told}");
}
