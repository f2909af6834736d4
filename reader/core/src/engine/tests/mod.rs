//! The contract of the engines, each test for all of them.

mod faults;
mod joined;
mod ranges;
mod simulated;
mod waits;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::file::DataFile;
use super::{Engine, EngineChoice};
use crate::error::Result;
use crate::pagefile::PAGE_BYTES;
use crate::testing::Random;

/// A file of random pages that goes away with the test.
struct Data {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Data {
    fn new(name: &str, pages: usize) -> Self {
        let path = std::env::temp_dir().join(format!("indexmill-engine-{}-{name}", std::process::id()));
        let bytes = Random::new(pages as u64).bytes(pages * PAGE_BYTES);
        fs::write(&path, &bytes).unwrap();
        Data { path, bytes }
    }

    /// Bytes of the block of `pages` pages that starts at `page`.
    fn block(&self, page: usize, pages: usize) -> &[u8] {
        &self.bytes[page * PAGE_BYTES..][..pages * PAGE_BYTES]
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        fs::remove_file(&self.path).ok();
    }
}

/// Of a simulated device that answers soon.
const PROFILE: &str = concat!("simulated:", env!("CARGO_MANIFEST_DIR"), "/tests/data/quick-device.json");

/// Every engine by name.
fn engines() -> Vec<&'static str> {
    available(&["auto", "io_uring", "sqpoll", "pread", "mmap", PROFILE])
}

/// Those that this system does not forbid.
fn available(names: &[&'static str]) -> Vec<&'static str> {
    let is_available = |&name: &&str| match EngineChoice::new(name) {
        Err(e) if ["io_uring", "sqpoll"].contains(&name) => {
            eprintln!("skipped: {e}");
            false
        }
        _ => true,
    };
    names.iter().copied().filter(is_available).collect()
}

/// An engine's choice and a file opened for it.
fn open(name: &str, path: &Path) -> (EngineChoice, Arc<DataFile>) {
    let choice = EngineChoice::new(name).unwrap();
    let mut file = DataFile::open(path, choice.access(), PAGE_BYTES).unwrap();
    file.hold(&mut || false).unwrap();
    (choice, Arc::new(file))
}

fn start(name: &str, path: &Path, slots: usize, slot_bytes: usize) -> Box<dyn Engine> {
    let (choice, file) = open(name, path);
    choice.start(&file, slots, slot_bytes).unwrap()
}

/// Waits for `n` reads of `engine` or more; slots in the order in which they came.
fn reap_all(engine: &mut dyn Engine, n: usize) -> Result<Vec<usize>> {
    let (mut done, begin) = (Vec::new(), Instant::now());
    while done.len() < n {
        engine.reap(&mut done)?;
        assert!(begin.elapsed() < Duration::from_secs(60), "{} of {n} reads arrived", done.len());
    }
    Ok(done)
}

#[test]
fn polling_hands_over_every_read() {
    let data = Data::new("poll", 64);
    for name in engines() {
        let mut engine = start(name, &data.path, 16, PAGE_BYTES);
        let mut done = Vec::new();
        engine.poll(&mut done).unwrap();
        assert!(done.is_empty(), "{name}: nothing was asked for");
        (0..16).for_each(|slot| engine.queue(slot, 3 * slot as u64).unwrap());
        let begin = Instant::now();
        while done.len() < 16 {
            engine.poll(&mut done).unwrap();
            assert!(begin.elapsed() < Duration::from_secs(20), "{name}: {} of 16 reads arrived", done.len());
        }
        done.sort_unstable();
        assert_eq!(done, (0..16).collect::<Vec<_>>(), "{name}");
        (0..16).for_each(|slot| assert_eq!(engine.buffer(slot), data.block(3 * slot, 1), "{name}: slot {slot}"));
    }
}

#[test]
fn every_buffer_holds_the_block_that_was_asked_for_last() {
    let data = Data::new("blocks", 64);
    for (name, pages) in engines().into_iter().flat_map(|name| [(name, 1), (name, 3)]) {
        let mut engine = start(name, &data.path, 8, pages * PAGE_BYTES);
        let mut random = Random::new(5);
        assert_eq!(engine.slots(), 8);
        let mut pages_of = [0; 8];
        let mut idle: Vec<usize> = (0..8).collect();
        for _ in 0..200 {
            for slot in idle.drain(..) {
                pages_of[slot] = random.below(64 - pages);
                engine.queue(slot, pages_of[slot] as u64).unwrap();
            }
            idle = reap_all(&mut *engine, 1).unwrap();
            idle.iter().for_each(|&slot| assert_eq!(engine.buffer(slot), data.block(pages_of[slot], pages), "{name}"));
        }
    }
}

#[test]
fn reaping_with_nothing_in_flight_returns_at_once() {
    let data = Data::new("nothing", 1);
    for name in engines() {
        let mut done = Vec::new();
        start(name, &data.path, 2, PAGE_BYTES).reap(&mut done).unwrap();
        assert!(done.is_empty());
    }
}

#[test]
fn dropping_an_engine_with_reads_in_flight_ends_well() {
    let data = Data::new("dropped", 64);
    for name in engines() {
        for flushed in [true, false] {
            let mut engine = start(name, &data.path, 32, PAGE_BYTES);
            (0..32).for_each(|slot| engine.queue(slot, slot as u64).unwrap());
            if flushed {
                engine.flush().unwrap();
            }
        }
    }
}

#[test]
fn a_buffer_in_flight_can_be_neither_seen_nor_asked_for_again() {
    let data = Data::new("flying", 4);
    for name in engines() {
        for misuse in [|e: &mut dyn Engine| drop(e.buffer(1).to_vec()), |e: &mut dyn Engine| e.queue(1, 2).unwrap()] {
            let mut engine = start(name, &data.path, 2, PAGE_BYTES);
            engine.queue(1, 0).unwrap();
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| misuse(&mut *engine)));
            let message = *caught.unwrap_err().downcast::<String>().unwrap();
            assert_eq!(message, "buffer 1 is in flight", "{name}");
            reap_all(&mut *engine, 1).unwrap();
            assert_eq!(engine.buffer(1), data.block(0, 1), "{name}");
        }
    }
}

#[test]
fn a_file_that_takes_the_place_of_another_is_told_from_it() {
    let (data, other) = (Data::new("first", 2), Data::new("second", 2));
    let id_of = |file: &DataFile| file.id(0).unwrap();
    for name in ["pread", "auto", "mmap"] {
        let first = open(name, &data.path).1;
        assert_eq!(id_of(&first), id_of(&open(name, &data.path).1), "{name}");
        fs::copy(&data.path, &other.path).unwrap();
        fs::rename(&other.path, &data.path).unwrap();
        assert_ne!(id_of(&first), id_of(&open(name, &data.path).1), "{name}: equal bytes in another file");
    }
}

#[test]
fn an_engine_of_another_name_is_refused_with_the_known_ones() {
    let error = EngineChoice::new("libaio").err().unwrap().to_string();
    let known = "\"auto\", \"io_uring\", \"sqpoll\", \"pread\", \"mmap\" or \"simulated:PROFILE.json\"";
    assert!(error.contains(known) && error.contains("got \"libaio\""), "{error}");
    let error = EngineChoice::new("simulated:/none/p.json").err().unwrap().to_string();
    assert!(error.starts_with("/none/p.json: open: "), "{error}");
}
