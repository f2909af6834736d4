//! Several files behind one engine, and reads shorter than a buffer.

use std::path::PathBuf;
use std::sync::Arc;

use super::super::file::DataFile;
use super::{Data, PROFILE, engines, reap_all};
use crate::engine::EngineChoice;
use crate::pagefile::PAGE_BYTES;
use crate::testing::Random;

const UNIT_BYTES: usize = 512;

#[test]
fn parts_of_several_files_arrive_in_the_fronts_of_their_buffers() {
    let files = [Data::new("first", 3), Data::new("second", 5), Data::new("third", 1)];
    let paths: Vec<PathBuf> = files.iter().map(|data| data.path.clone()).collect();
    for name in engines() {
        let choice = EngineChoice::new(name).unwrap();
        let joined = Arc::new(DataFile::join(&paths, choice.access(), UNIT_BYTES).unwrap());
        assert_eq!(joined.bytes().unwrap(), 9 * PAGE_BYTES as u64);
        let mut engine = choice.start(&joined, 16, PAGE_BYTES).unwrap();
        let mut random = Random::new(3);
        for _ in 0..20 {
            let mut wanted = Vec::new();
            for slot in 0..16 {
                let i = random.below(3);
                let units = files[i].bytes.len() / UNIT_BYTES;
                let first = random.below(units);
                let n = 1 + random.below((units - first).min(PAGE_BYTES / UNIT_BYTES));
                let start = joined.start_of(i) / UNIT_BYTES as u64;
                engine.queue_part(slot, start + first as u64, n * UNIT_BYTES).unwrap();
                wanted.push(&files[i].bytes[first * UNIT_BYTES..][..n * UNIT_BYTES]);
            }
            reap_all(&mut *engine, 16).unwrap();
            for (slot, want) in wanted.into_iter().enumerate() {
                assert_eq!(&engine.buffer(slot)[..want.len()], want, "{name}");
            }
        }
    }
}

#[test]
fn a_fault_names_the_file_it_is_in() {
    let files = [Data::new("sound", 4), Data::new("shrinks", 4)];
    let paths: Vec<PathBuf> = files.iter().map(|data| data.path.clone()).collect();
    // The simulated device holds the files.
    for name in engines().into_iter().filter(|&name| name != PROFILE) {
        std::fs::write(&paths[1], &files[1].bytes).unwrap();
        let choice = EngineChoice::new(name).unwrap();
        let joined = Arc::new(DataFile::join(&paths, choice.access(), UNIT_BYTES).unwrap());
        std::fs::File::options().write(true).open(&paths[1]).unwrap().set_len(PAGE_BYTES as u64).unwrap();
        let mut engine = choice.start(&joined, 1, PAGE_BYTES).unwrap();
        let unit = (joined.start_of(1) + 2 * PAGE_BYTES as u64) / UNIT_BYTES as u64;
        let error = engine.queue(0, unit).and_then(|()| reap_all(&mut *engine, 1)).unwrap_err().to_string();
        let begin = format!("{}: page 2: expected a whole block, got the end of the file", paths[1].display());
        assert!(error.starts_with(&begin), "{name}: {error}");
    }
}
