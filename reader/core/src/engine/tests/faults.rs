//! What goes wrong with reads: scripted results for the pool, real ones of the kernel for every engine.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::super::buffers::Buffers;
use super::super::file::{Access, DataFile, ReadAt};
use super::super::pread::PreadPool;
use super::{Data, PROFILE, available, engines, open, reap_all, start};
use crate::engine::{Engine, EngineChoice};
use crate::error::{Error, Result};
use crate::pagefile::PAGE_BYTES;

/// Reads of a file some of which go wrong.
struct Scripted {
    file: Arc<DataFile>,
    script: Mutex<VecDeque<Outcome>>,
    asked: Mutex<Vec<(usize, u64)>>,
}

#[derive(Clone, Copy)]
enum Outcome {
    /// So many bytes at most.
    Short(usize),
    /// An error number.
    Fails(i32),
}

impl ReadAt for Scripted {
    unsafe fn read_at(&self, address: *mut u8, bytes: usize, offset: u64) -> io::Result<usize> {
        self.asked.lock().unwrap().push((bytes, offset));
        let outcome = self.script.lock().unwrap().pop_front();
        let bytes = match outcome {
            Some(Outcome::Fails(code)) => return Err(io::Error::from_raw_os_error(code)),
            Some(Outcome::Short(most)) => bytes.min(most),
            None => bytes,
        };
        // SAFETY: as the caller says.
        unsafe { self.file.read_at(address, bytes, offset) }
    }
}

/// Reads two pages from page 1 on by a pool whose reads follow `script`; what came of it and what was asked for.
fn read_scripted(data: &Data, script: &[Outcome]) -> (Result<Vec<u8>>, Vec<(usize, u64)>) {
    let file = Arc::new(DataFile::open(&data.path, Access::Cached, PAGE_BYTES).unwrap());
    let script = Mutex::new(script.iter().copied().collect());
    let source = Arc::new(Scripted { file: file.clone(), script, asked: Mutex::default() });
    let mut pool = PreadPool::new(file, source.clone(), Buffers::new(1, 2 * PAGE_BYTES).unwrap()).unwrap();
    pool.queue(0, 1).unwrap();
    let result = reap_all(&mut pool, 1).map(|_| pool.buffer(0).to_vec());
    let asked = source.asked.lock().unwrap().clone();
    (result, asked)
}

#[test]
fn short_reads_are_continued_where_they_ended() {
    let data = Data::new("short", 4);
    let (result, asked) = read_scripted(&data, &[Outcome::Short(512), Outcome::Short(4096), Outcome::Short(1)]);
    assert_eq!(result.unwrap(), data.block(1, 2));
    assert_eq!(asked, [(8192, 4096), (7680, 4608), (3584, 8704), (3583, 8705)]);
}

#[test]
fn interrupted_and_refused_reads_are_repeated() {
    let data = Data::new("again", 4);
    for code in [libc::EINTR, libc::EAGAIN] {
        let (result, asked) = read_scripted(&data, &[Outcome::Fails(code), Outcome::Short(512), Outcome::Fails(code)]);
        assert_eq!(result.unwrap(), data.block(1, 2));
        assert_eq!(asked, [(8192, 4096), (8192, 4096), (7680, 4608), (7680, 4608)]);
    }
}

#[test]
fn an_error_of_the_device_names_file_and_page() {
    let data = Data::new("eio", 4);
    let (result, asked) = read_scripted(&data, &[Outcome::Short(512), Outcome::Fails(libc::EIO)]);
    let error = result.unwrap_err();
    assert!(matches!(&error, Error::Io { source, .. } if source.raw_os_error() == Some(libc::EIO)));
    let begin = format!("{}: read page 1: Input/output error", data.path.display());
    assert!(error.to_string().starts_with(&begin), "{error}");
    assert_eq!(asked.len(), 2);
}

/// What a new engine on an open file answers for the block of two pages at `page`.
fn read_block((choice, file): &(EngineChoice, Arc<DataFile>), page: u64) -> Result<Vec<u8>> {
    let mut engine = choice.start(file, 1, 2 * PAGE_BYTES).unwrap();
    engine.queue(0, page)?;
    reap_all(&mut *engine, 1).map(|_| engine.buffer(0).to_vec())
}

#[test]
fn a_file_that_was_cut_meanwhile_gives_an_error_with_its_page() {
    // The simulated device holds the file.
    for name in engines().into_iter().filter(|&name| name != PROFILE) {
        let data = Data::new("cut", 8);
        let opened = open(name, &data.path);
        assert_eq!(read_block(&opened, 6).unwrap(), data.block(6, 2), "{name}");
        // Inside the block's second page, which a map fills up with zeros, at its start, and before the block.
        let cuts: &[u64] = if name == "mmap" { &[28672, 4096, 0] } else { &[32767, 29184, 28672, 4096, 0] };
        for &bytes in cuts {
            OpenOptions::new().write(true).open(&data.path).unwrap().set_len(bytes).unwrap();
            let error = read_block(&opened, 6).unwrap_err();
            assert!(matches!(error, Error::Corrupt(_)), "{name}, {bytes} bytes: {error}");
            let begin = format!("{}: page 6: expected a whole block, got the end of the file", data.path.display());
            assert!(error.to_string().starts_with(&begin), "{name}: {error}");
        }
    }
}

/// A file of the kernel whose reads return a page or less at a time, and that does not change.
const SHORT_READS: &str = "/proc/kallsyms";

#[test]
fn reads_that_the_kernel_cuts_short_are_continued() {
    let mut bytes = vec![0; 64 * PAGE_BYTES];
    let Ok(got) = std::fs::File::open(SHORT_READS).and_then(|mut file| file.read(&mut bytes)) else {
        return eprintln!("skipped: {SHORT_READS} cannot be read here");
    };
    assert!(got < bytes.len(), "a read of {SHORT_READS} is short");
    let bytes = std::fs::read(SHORT_READS).unwrap();
    for name in available(&["io_uring", "sqpoll", "pread"]) {
        let mut engine = start(name, Path::new(SHORT_READS), 3, 16 * PAGE_BYTES);
        (0..3).for_each(|slot| engine.queue(slot, 5 * slot as u64).unwrap());
        reap_all(&mut *engine, 3).unwrap();
        for slot in 0..3 {
            assert!(engine.buffer(slot) == &bytes[5 * slot * PAGE_BYTES..][..16 * PAGE_BYTES], "{name}: slot {slot}");
        }
    }
}

#[test]
fn an_error_that_the_kernel_gives_names_file_and_page() {
    // Two mapped pages of a file of one: this process's memory can be read up to the second, which is an EIO.
    let data = Data::new("memory", 1);
    let file = std::fs::File::open(&data.path).unwrap();
    // SAFETY: a new map, never touched from here.
    let map = unsafe {
        libc::mmap(std::ptr::null_mut(), 2 * PAGE_BYTES, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    assert_ne!(map, libc::MAP_FAILED);
    let page = (map as usize / PAGE_BYTES) as u64;
    for name in available(&["io_uring", "sqpoll", "pread"]) {
        let opened = open(name, Path::new("/proc/self/mem"));
        let error = read_block(&opened, page).unwrap_err().to_string();
        assert!(error.starts_with(&format!("/proc/self/mem: read page {page}: Input/output error")), "{name}: {error}");
    }
    // SAFETY: the map made above.
    unsafe { libc::munmap(map, 2 * PAGE_BYTES) };
}
