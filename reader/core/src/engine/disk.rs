//! Blocks of objects on a local disk, where this process or another one kept them when they were read.
//!
//! A file holds [`REGION_BYTES`] of an object, with holes where nothing was read, behind a checksum for each page: its
//! CRC32C, at least 1; 0, and the page is not there. Others write these files, and remove them, at any time: a page before its
//! checksum, so a block that has all of its checksums is whole, and one that differs from them is damaged.

use std::fs::{File, FileType};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::aligned::Aligned;
use crate::bytes::u32_at;
use crate::checksum;
use crate::files;
use crate::pagefile::PAGE_BYTES;

/// Of an object in one file.
const REGION_BYTES: u64 = 16 << 20;
/// Of the checksums in front of it.
const HEAD_BYTES: u64 = 4 * REGION_BYTES / PAGE_BYTES as u64;
/// How exactly a file tells when it was read last, by the time of its last change.
const NOTED_EVERY: Duration = Duration::from_secs(60);

/// A directory of such files.
pub struct Disk {
    folder: PathBuf,
}

/// A block that is there, and is being read. It holds no file open: a query may find a thousand.
pub struct Found {
    /// The file, the place in it, and the checksums of the pages from there on.
    parts: Vec<(PathBuf, u64, Vec<u32>)>,
}

/// Why a block that was found cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub enum Unusable {
    /// It was removed meanwhile.
    Gone,
    /// It differs from its checksums, or cannot be read.
    Damaged,
}

impl Disk {
    /// The files in `folder`, which need not exist.
    pub fn new(folder: PathBuf) -> Self {
        Disk { folder }
    }

    /// Looks for a block of an object of whole pages, and has the system begin to read it.
    pub fn find(&self, object: &str, offset: u64, bytes: usize) -> Option<Found> {
        let (mut at, end, page) = (offset, offset + bytes as u64, PAGE_BYTES as u64);
        if !at.is_multiple_of(page) || !end.is_multiple_of(page) {
            return None;
        }
        let mut parts = Vec::with_capacity(1);
        while at < end {
            let (number, start) = (at / REGION_BYTES, at % REGION_BYTES);
            let len = (end - at).min(REGION_BYTES - start);
            let path = self.folder.join(format!("{object}.{number}"));
            let file = files::open(&path, 0, FileType::is_file).ok()??;
            let mut checksums = vec![0; (4 * len / page) as usize];
            file.read_exact_at(&mut checksums, 4 * start / page).ok()?;
            let checksums: Vec<u32> = (0..checksums.len()).step_by(4).map(|i| u32_at(&checksums, i)).collect();
            if checksums.contains(&0) {
                return None;
            }
            will_be_read(&file, HEAD_BYTES + start, len);
            note_use(&file);
            parts.push((path, HEAD_BYTES + start, checksums));
            at += len;
        }
        Some(Found { parts })
    }
}

impl Found {
    /// Its bytes.
    pub fn read(self) -> Result<Aligned, Unusable> {
        let pages: usize = self.parts.iter().map(|(_, _, checksums)| checksums.len()).sum();
        let mut bytes = vec![0; pages * PAGE_BYTES];
        let mut rest = &mut bytes[..];
        for (path, at, checksums) in &self.parts {
            let opened = files::open(path, 0, FileType::is_file).map_err(|e| match e.kind() {
                ErrorKind::NotFound => Unusable::Gone,
                _ => Unusable::Damaged,
            })?;
            let file = opened.ok_or(Unusable::Damaged)?;
            let (here, after) = std::mem::take(&mut rest).split_at_mut(checksums.len() * PAGE_BYTES);
            file.read_exact_at(here, *at).map_err(|_| Unusable::Damaged)?;
            let mut pages = here.chunks_exact(PAGE_BYTES).zip(checksums);
            if !pages.all(|(page, &expected)| checksum::of_page(page).max(1) == expected) {
                return Err(Unusable::Damaged);
            }
            rest = after;
        }
        Ok(Aligned::from(&*bytes))
    }
}

/// Has the system read ahead what is read soon, while other blocks are looked for.
fn will_be_read(file: &File, offset: u64, bytes: u64) {
    #[cfg(target_os = "linux")]
    // SAFETY: an open descriptor; the advice does not change what is read, and a refusal leaves things as they are.
    unsafe {
        use std::os::fd::AsRawFd;
        let (offset, bytes) = (offset as libc::off_t, bytes as libc::off_t);
        libc::posix_fadvise(file.as_raw_fd(), offset, bytes, libc::POSIX_FADV_WILLNEED)
    };
    #[cfg(not(target_os = "linux"))]
    let _ = (file, offset, bytes);
}

/// Notes that a file is read: those read longest ago are removed first.
fn note_use(file: &File) {
    let age = file.metadata().and_then(|found| found.modified()).map(|at| at.elapsed());
    if !age.is_ok_and(|age| age.is_ok_and(|age| age < NOTED_EVERY)) {
        let _ = file.set_modified(SystemTime::now()); // a disk that can only be read refuses
    }
}

#[cfg(test)]
pub mod tests {
    use std::fs::{self, OpenOptions};
    use std::path::Path;

    use super::*;
    use crate::testing::{Random, make_fifo};

    /// A directory that goes away with the test.
    pub struct Folder(pub PathBuf);

    impl Folder {
        pub fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("indexmill-disk-{}-{name}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Folder(path)
        }

        /// Keeps pages of an object.
        pub fn put(&self, object: &str, first: u64, pages: &[u8]) {
            for (page, i) in pages.chunks_exact(PAGE_BYTES).zip(first..) {
                let per_region = REGION_BYTES / PAGE_BYTES as u64;
                let path = self.file(object, i / per_region);
                let file = OpenOptions::new().create(true).truncate(false).write(true).open(path).unwrap();
                file.write_all_at(page, HEAD_BYTES + i % per_region * PAGE_BYTES as u64).unwrap();
                file.write_all_at(&checksum::of_page(page).max(1).to_le_bytes(), 4 * (i % per_region)).unwrap();
            }
        }

        /// Changes a byte of a page.
        pub fn damage(&self, object: &str, page: u64) {
            let file = OpenOptions::new().read(true).write(true).open(self.file(object, 0)).unwrap();
            let (mut byte, at) = ([0], HEAD_BYTES + page * PAGE_BYTES as u64 + 9);
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[!byte[0]], at).unwrap();
        }

        fn file(&self, object: &str, number: u64) -> PathBuf {
            self.0.join(format!("{object}.{number}"))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    fn read(folder: &Path, page: u64, pages: usize) -> Option<Vec<u8>> {
        let found = Disk::new(folder.into()).find("graph.imx", page * PAGE_BYTES as u64, pages * PAGE_BYTES)?;
        found.read().ok().map(|bytes| bytes.to_vec())
    }

    #[test]
    fn blocks_are_there_if_all_of_their_pages_are_and_lie_in_one_file_or_two() {
        let (folder, last) = (Folder::new("pages"), REGION_BYTES / PAGE_BYTES as u64 - 1);
        let pages = Random::new(1).bytes(3 * PAGE_BYTES);
        folder.put("graph.imx", last - 1, &pages);
        assert_eq!(read(&folder.0, last - 1, 3).unwrap(), pages);
        assert_eq!(read(&folder.0, last, 1).unwrap(), pages[PAGE_BYTES..2 * PAGE_BYTES]);
        for (page, pages) in [(last - 2, 2), (last, 3), (0, 1), (5 * last, 1)] {
            assert!(read(&folder.0, page, pages).is_none());
        }
        assert!(Disk::new(folder.0.clone()).find("graph.imx", 1 << 9, PAGE_BYTES).is_none());
        assert!(Disk::new(folder.0.join("none")).find("graph.imx", 0, PAGE_BYTES).is_none());
    }

    #[test]
    fn a_damaged_or_a_cut_block_is_not_read() {
        let folder = Folder::new("damage");
        folder.put("graph.imx", 0, &Random::new(1).bytes(4 * PAGE_BYTES));
        folder.damage("graph.imx", 1);
        assert!(read(&folder.0, 0, 2).is_none() && read(&folder.0, 2, 2).is_some());
        let file = OpenOptions::new().write(true).open(folder.file("graph.imx", 0)).unwrap();
        file.set_len(HEAD_BYTES + 3 * PAGE_BYTES as u64).unwrap();
        assert!(read(&folder.0, 2, 2).is_none() && read(&folder.0, 2, 1).is_some());
    }

    #[test]
    fn a_fifo_in_the_place_of_a_file_is_not_waited_for() {
        let folder = Folder::new("fifo");
        folder.put("graph.imx", 0, &Random::new(1).bytes(PAGE_BYTES));
        let found = Disk::new(folder.0.clone()).find("graph.imx", 0, PAGE_BYTES).unwrap();
        fs::remove_file(folder.file("graph.imx", 0)).unwrap();
        make_fifo(&folder.file("graph.imx", 0));
        assert_eq!(found.read().err(), Some(Unusable::Damaged));
        assert!(read(&folder.0, 0, 1).is_none());
    }

    #[test]
    fn what_is_read_is_noted() {
        let folder = Folder::new("noted");
        folder.put("graph.imx", 0, &Random::new(1).bytes(PAGE_BYTES));
        let file = File::open(folder.file("graph.imx", 0)).unwrap();
        file.set_modified(SystemTime::now() - 2 * NOTED_EVERY).unwrap();
        read(&folder.0, 0, 1).unwrap();
        assert!(file.metadata().unwrap().modified().unwrap().elapsed().unwrap_or_default() < NOTED_EVERY);
    }
}
