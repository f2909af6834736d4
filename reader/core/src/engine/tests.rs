//! The contract of the engines, one test for all of them.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{DataFile, Engine, EngineKind};
use crate::pagefile::PAGE_BYTES;
use crate::testing::Random;

/// A file of `pages` random pages that goes away with the test.
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

    fn page(&self, page: usize) -> &[u8] {
        &self.bytes[page * PAGE_BYTES..][..PAGE_BYTES]
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        fs::remove_file(&self.path).ok();
    }
}

const ENGINES: [&str; 2] = ["auto", "pread"];

fn start(name: &str, data: &Data, slots: usize) -> Box<dyn Engine> {
    let (kind, _) = EngineKind::choose(name).unwrap();
    kind.start(&Arc::new(DataFile::open(&data.path).unwrap()), slots, PAGE_BYTES).unwrap()
}

#[test]
fn polling_hands_over_every_read_without_blocking() {
    for name in ENGINES {
        let data = Data::new("poll", 64);
        let mut engine = start(name, &data, 16);
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
        (0..16).for_each(|slot| assert_eq!(engine.buffer(slot), data.page(3 * slot), "{name}: slot {slot}"));
    }
}
