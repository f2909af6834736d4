//! Reads that do not end: waiting for them ends, and so does the engine.

use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::super::buffers::Buffers;
use super::super::file::{Access, DataFile, ReadAt};
use super::super::pread::PreadPool;
use super::{Data, engines, start};
use crate::engine::{Engine, Finished};
use crate::pagefile::PAGE_BYTES;

/// Calls `work`, which must end.
fn ends(work: impl FnOnce() + Send + 'static) {
    let (done, result) = channel();
    let worker = std::thread::spawn(move || {
        work();
        done.send(()).ok();
    });
    if result.recv_timeout(Duration::from_secs(60)).is_err() {
        assert!(worker.is_finished(), "it waits");
        worker.join().unwrap();
    }
}

/// Reads that end once the sender is gone.
struct Stuck(Mutex<Receiver<()>>);

impl ReadAt for Stuck {
    unsafe fn read_at(&self, _: *mut u8, _: usize, _: u64) -> io::Result<usize> {
        self.0.lock().unwrap().recv().ok();
        Ok(0)
    }
}

#[test]
fn a_pool_waits_neither_in_reap_nor_at_its_end_for_a_read_that_does_not_come() {
    let data = Data::new("stuck", 1);
    let file = Arc::new(DataFile::open(&data.path, Access::Cached, PAGE_BYTES).unwrap());
    ends(move || {
        let (sender, receiver) = channel();
        let source = Arc::new(Stuck(Mutex::new(receiver)));
        let mut pool = PreadPool::new(file, source, Buffers::new(1, PAGE_BYTES).unwrap()).unwrap();
        pool.queue(0, 0).unwrap();
        let mut done = Vec::new();
        pool.reap(&mut done).unwrap();
        assert!(done.is_empty());
        drop(pool);
        drop(sender);
    });
}

#[test]
#[cfg(target_os = "linux")]
fn a_ring_waits_neither_in_reap_nor_at_its_end_for_a_read_that_does_not_come() {
    use std::io::Write;
    use std::os::fd::OwnedFd;

    use super::{available, reap_all};
    use crate::engine::EngineChoice;

    for name in available(&["io_uring", "sqpoll"]) {
        ends(move || {
            let (reader, mut writer) = io::pipe().unwrap();
            let file = Arc::new(DataFile::of(OwnedFd::from(reader).into()));
            let mut engine = EngineChoice::new(name).unwrap().start(&file, 1, PAGE_BYTES).unwrap();
            engine.queue(0, 0).unwrap();
            let mut done = Vec::new();
            engine.reap(&mut done).unwrap();
            assert!(done.is_empty(), "{name}");
            writer.write_all(&[7; PAGE_BYTES]).unwrap();
            assert_eq!(reap_all(&mut *engine, 1).unwrap(), [0], "{name}");
            assert_eq!(engine.buffer(0), [7; PAGE_BYTES], "{name}");
            engine.queue(0, 0).unwrap();
            engine.flush().unwrap();
            drop(engine);
        });
    }
}

#[test]
fn a_wait_for_several_reads_takes_them_all() {
    let data = Data::new("several", 64);
    for name in engines() {
        let (mut engine, mut finished) = (start(name, &data.path, 16, PAGE_BYTES), Finished::default());
        for least in [1, 5, 16, 1000] {
            (0..16).for_each(|slot| engine.queue(slot, 3 * slot as u64).unwrap());
            while finished.done.len() < 16 {
                engine.reap_several(least, &mut finished).unwrap();
            }
            (0..16).for_each(|slot| assert_eq!(engine.buffer(slot), data.block(3 * slot, 1), "{name}: slot {slot}"));
            finished.done.clear();
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_wait_for_several_reads_ends_without_the_last_of_them() {
    use std::io::Write;
    use std::os::fd::OwnedFd;

    use super::available;
    use crate::engine::EngineChoice;

    for name in available(&["io_uring", "sqpoll"]) {
        ends(move || {
            let (reader, mut writer) = io::pipe().unwrap();
            let file = Arc::new(DataFile::of(OwnedFd::from(reader).into()));
            let mut engine = EngineChoice::new(name).unwrap().start(&file, 2, PAGE_BYTES).unwrap();
            (0..2).for_each(|slot| engine.queue(slot, 0).unwrap());
            engine.flush().unwrap();
            for content in [7, 8] {
                writer.write_all(&[content; PAGE_BYTES]).unwrap();
                let mut finished = Finished::default();
                while finished.is_empty() {
                    engine.reap_several(2, &mut finished).unwrap();
                }
                assert_eq!(finished.done.len(), 1, "{name}");
                assert_eq!(engine.buffer(finished.done[0]), [content; PAGE_BYTES], "{name}");
            }
        });
    }
}
