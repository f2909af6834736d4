//! Several files behind one engine, and reads shorter than a buffer.

use std::path::Path;
use std::sync::Arc;

use super::super::file::{Access, DataFile};
use super::{Data, PROFILE, engines, reap_all};
use crate::directory::Directory;
use crate::engine::EngineChoice;
use crate::pagefile::PAGE_BYTES;
use crate::testing::Random;

const UNIT_BYTES: usize = 512;

fn joined(files: &[Data], access: Access) -> Arc<DataFile> {
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let names: Vec<String> = files.iter().map(|data| name(&data.path)).collect();
    let directory = Directory::open(&std::env::temp_dir()).unwrap();
    let mut file = DataFile::open_in(&directory, &names, access, UNIT_BYTES).unwrap();
    file.hold(&mut || false).unwrap();
    Arc::new(file)
}

#[test]
fn every_offset_is_in_the_last_file_that_begins_before_it() {
    let files = [Data::new("one", 1), Data::new("none", 0), Data::new("three", 3)];
    let joined = joined(&files, Access::Cached);
    let page = PAGE_BYTES as u64;
    for (offset, want) in [(0, (0, 0)), (page - 1, (0, page - 1)), (page, (2, 0)), (9 * page, (2, 8 * page))] {
        assert_eq!(joined.locate(offset), want);
    }
}

#[test]
fn parts_of_several_files_arrive_in_the_fronts_of_their_buffers() {
    let files = [Data::new("front", 3), Data::new("middle", 5), Data::new("back", 1)];
    for name in engines() {
        let choice = EngineChoice::new(name).unwrap();
        let joined = joined(&files, choice.access());
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
    let path = &files[1].path;
    // The simulated device holds the files.
    for name in engines().into_iter().filter(|&name| name != PROFILE) {
        std::fs::write(path, &files[1].bytes).unwrap();
        let choice = EngineChoice::new(name).unwrap();
        let joined = joined(&files, choice.access());
        std::fs::File::options().write(true).open(path).unwrap().set_len(PAGE_BYTES as u64).unwrap();
        let mut engine = choice.start(&joined, 1, PAGE_BYTES).unwrap();
        let unit = (joined.start_of(1) + 2 * PAGE_BYTES as u64) / UNIT_BYTES as u64;
        let error = engine.queue(0, unit).and_then(|()| reap_all(&mut *engine, 1)).unwrap_err().to_string();
        let begin = format!("{}: page 2: expected a whole block, got the end of the file", path.display());
        assert!(error.starts_with(&begin), "{name}: {error}");
    }
}
