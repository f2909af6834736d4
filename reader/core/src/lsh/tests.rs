//! Devices whose sectors are pages: every read begins and ends at a page, and the wanted bytes lie somewhere inside.

use std::sync::Arc;

use super::files::READ_FILES;
use super::{InMemory, LshIndex, LshOutput, LshParams};
use crate::common::lsh::{LshSpec, write_lsh};
use crate::directory::Directory;
use crate::engine::{Access, DataFile, EngineChoice, Source, Storage};
use crate::ids::IDS_FILE;
use crate::pagefile::PAGE_BYTES;
use crate::search::{Queries, Values};

#[test]
fn reads_of_whole_pages_find_the_same_in_blocks_of_every_size() {
    for (block_bytes, scattered) in [(128, true), (128, false), (256, false), (512, true), (4096, false)] {
        let spec = LshSpec { block_bytes, scattered, hash_bits: 2, candidates: 300, ..LshSpec::default() };
        let written = write_lsh(spec);
        let floats: Vec<f32> = (0..10).flat_map(|i| written.query(i)).collect();
        let params = LshParams::new(4).probes(1).threads(1).inflight(3);
        let search = |index: &LshIndex| -> LshOutput {
            let queries = Queries { values: Values::Float32(&floats), n: 10, dim: spec.dim };
            index.search(&queries, &params).unwrap()
        };
        let open = || LshIndex::open(written.path(), "pread", InMemory::default()).unwrap();
        let (want, mut index) = (search(&open()), open());
        let directory = Directory::open(written.path()).unwrap();
        let file = DataFile::open_in(&directory, &READ_FILES[..3], Access::Cached, PAGE_BYTES).unwrap();
        let file = file.with_cached(&directory, IDS_FILE).unwrap();
        index.source = Source::Storage(Storage { engine: EngineChoice::new("pread").unwrap(), file: Arc::new(file) });
        let found = search(&index);
        assert_eq!((&found.slots, &found.scores), (&want.slots, &want.scores), "{block_bytes}");
        for (found, want) in found.counters.iter().zip(&want.counters) {
            assert_eq!((found.block_reads, found.bytes_read), (want.block_reads, want.bytes_read), "{block_bytes}");
        }
    }
}
