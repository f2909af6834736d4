//! Large allocations, with sizes that come from files.

use std::io;
use std::ops::{Deref, DerefMut};
use std::path::Path;

use crate::error::{Error, Result};

/// Bytes of a page, in files and in memory.
pub const PAGE_BYTES: usize = 4096;
/// Smaller allocations do not gain.
const HUGE_BYTES: usize = 4 << 20;
/// Bytes of a sparse region that has pages of its own.
const SPARSE_BYTES: usize = 1 << 20;

/// An empty vector with room for `capacity` values, or an error where memory does not allow it. Room takes memory when
/// it is filled.
pub fn reserve<T>(path: &Path, capacity: usize) -> Result<Vec<T>> {
    let mut vec: Vec<T> = Vec::new();
    vec.try_reserve_exact(capacity).map_err(|_| refused(path, capacity.saturating_mul(size_of::<T>())))?;
    // SAFETY: memory that `vec` owns.
    unsafe { ask_for_pages(PageSize::Huge, vec.as_mut_ptr().cast(), vec.capacity() * size_of::<T>()) };
    Ok(vec)
}

/// The `n` values that an iterator gives, or an error where memory does not allow them.
pub fn collect<T>(path: &Path, n: usize, values: impl Iterator<Item = T>) -> Result<Vec<T>> {
    let mut vec = reserve(path, n)?;
    vec.extend(values);
    Ok(vec)
}

/// Makes room for `n` values in a vector that is used again and again, or returns an error where memory does not allow
/// it.
pub fn make_room<T>(path: &Path, vec: &mut Vec<T>, n: usize) -> Result<()> {
    let more = n.saturating_sub(vec.len());
    vec.try_reserve_exact(more).map_err(|_| refused(path, n.saturating_mul(size_of::<T>())))
}

/// Adds values to a vector that grows bit by bit, or returns an error where memory does not allow it.
pub fn append<T: Copy>(path: &Path, vec: &mut Vec<T>, values: impl ExactSizeIterator<Item = T>) -> Result<()> {
    let n = vec.len().saturating_add(values.len());
    vec.try_reserve(values.len()).map_err(|_| refused(path, n.saturating_mul(size_of::<T>())))?;
    vec.extend(values);
    Ok(())
}

/// Makes such a vector `n` values long; new ones are `value`.
pub fn resize<T: Copy>(path: &Path, vec: &mut Vec<T>, n: usize, value: T) -> Result<()> {
    make_room(path, vec, n)?;
    vec.resize(n, value);
    Ok(())
}

/// The error for memory that the system refuses.
fn refused(path: &Path, bytes: usize) -> Error {
    Error::Config(format!("{}: the system refused {bytes} bytes of memory; use a machine with more", path.display()))
}

/// What pages a large allocation lies in.
#[derive(Clone, Copy)]
enum PageSize {
    /// Codes are read at random, and with 4 KiB pages each look-up would also miss the translation cache.
    Huge,
    /// The first touch of a page takes no more than 4 KiB.
    Small,
}

/// Asks for pages of a size.
///
/// # Safety
/// The caller owns `bytes` bytes from `start` on.
#[cfg_attr(not(target_os = "linux"), allow(unused_variables))]
unsafe fn ask_for_pages(size: PageSize, start: *mut u8, bytes: usize) {
    let skip = start.align_offset(PAGE_BYTES);
    if cfg!(target_os = "linux") && bytes >= HUGE_BYTES && skip < bytes {
        #[cfg(target_os = "linux")]
        let advice = match size {
            PageSize::Huge => libc::MADV_HUGEPAGE,
            PageSize::Small => libc::MADV_NOHUGEPAGE,
        };
        // SAFETY: whole pages of the caller's memory; the advice does not change their content, and a refusal
        // leaves them as they are.
        #[cfg(target_os = "linux")]
        unsafe {
            libc::madvise(start.add(skip).cast(), (bytes - skip) / PAGE_BYTES * PAGE_BYTES, advice)
        };
    }
}

/// Zeroed memory straight from the system, in whole pages that nothing else lies in. A page takes memory when it is
/// touched first.
#[derive(Debug)]
pub struct Pages {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the memory is owned; what it is used for is up to the owner of the pages.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// `bytes` bytes, at least one.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
        // SAFETY: a new map at an address that the system chooses.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Pages { start: start.cast(), bytes })
    }

    /// Address of the first byte.
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// Bytes from there on.
    pub fn len(&self) -> usize {
        self.bytes
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the map made by `new`, to which nothing refers any more.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// Zeroed bytes. Those of [`Region::new`] begin at a page, so that rows and blocks lie on as few cache lines as in their
/// file.
#[derive(Debug)]
pub struct Region(Held);

#[derive(Debug)]
enum Held {
    Pages(Pages),
    /// A few bytes, which need no pages of their own: the system limits the maps of a process.
    Heap(Vec<u8>),
}

impl Region {
    /// No bytes.
    pub fn none() -> Self {
        Region(Held::Heap(Vec::new()))
    }

    /// `bytes` bytes, for the file at `path`; an error where memory does not allow it. A large region is in huge pages
    /// where the system has them.
    pub fn new(path: &Path, bytes: usize) -> Result<Self> {
        Self::in_pages(PageSize::Huge, path, bytes)
    }

    /// As [`Region::new`], in small pages: for content of which a file may touch a few bytes here and there. A small one
    /// lies on the heap.
    pub fn sparse(path: &Path, bytes: usize) -> Result<Self> {
        if bytes < SPARSE_BYTES {
            let mut heap = Vec::new();
            resize(path, &mut heap, bytes, 0)?;
            return Ok(Region(Held::Heap(heap)));
        }
        Self::in_pages(PageSize::Small, path, bytes)
    }

    fn in_pages(size: PageSize, path: &Path, bytes: usize) -> Result<Self> {
        if bytes == 0 {
            return Ok(Self::none());
        }
        let pages = Pages::new(bytes).map_err(|_| refused(path, bytes))?;
        // SAFETY: memory of that size. Advice comes before the first touch, which chooses the size of pages.
        unsafe { ask_for_pages(size, pages.start, bytes) };
        Ok(Region(Held::Pages(pages)))
    }
}

impl Deref for Region {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            // SAFETY: owned and initialised; a region lends it as its slice only.
            Held::Pages(pages) => unsafe { std::slice::from_raw_parts(pages.start, pages.bytes) },
            Held::Heap(bytes) => bytes,
        }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            // SAFETY: owned and initialised, and borrowed for writing by the caller alone.
            Held::Pages(pages) => unsafe { std::slice::from_raw_parts_mut(pages.start, pages.bytes) },
            Held::Heap(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_zeroed_and_begins_at_a_page() {
        for bytes in [0usize, 1, 4096, 10_000, 5 << 20] {
            let mut region = Region::new(Path::new("file"), bytes).unwrap();
            assert!(region.len() == bytes && region.iter().all(|&byte| byte == 0));
            assert!(bytes == 0 || region.as_ptr().addr().is_multiple_of(PAGE_BYTES));
            region.fill(7);
            assert!(region.iter().all(|&byte| byte == 7));
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_sparse_region_takes_memory_for_the_pages_that_are_touched() {
        let mut region = Region::sparse(Path::new("file"), 1 << 30).unwrap();
        [0, 9 << 20, (1 << 30) - 1].into_iter().for_each(|at| region[at] = 1);
        let mut taken = vec![0u8; region.len() / PAGE_BYTES];
        // SAFETY: the pages of the region, and a byte for each.
        let told = unsafe { libc::mincore(region.as_mut_ptr().cast(), region.len(), taken.as_mut_ptr()) };
        assert_eq!((told, taken.iter().filter(|&&page| page & 1 == 1).count()), (0, 3));
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let place = |line: &str| {
            let (first, last) = line.split_once(' ')?.0.split_once('-')?;
            Some(usize::from_str_radix(first, 16).ok()?..usize::from_str_radix(last, 16).ok()?)
        };
        let mut own = maps.lines().skip_while(|line| place(line).is_none_or(|p| !p.contains(&region.as_ptr().addr())));
        let flags = own.find(|line| line.starts_with("VmFlags:")).unwrap();
        assert!(flags.contains(" nh"), "huge pages may be used: {flags}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn many_small_sparse_regions_take_no_maps() {
        let maps = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        let before = maps();
        let regions: Vec<Region> = (0..1000).map(|_| Region::sparse(Path::new("file"), 4096).unwrap()).collect();
        assert!(regions.iter().all(|region| region.len() == 4096 && region.iter().all(|&byte| byte == 0)));
        assert!(maps() < before + 500);
    }

    #[test]
    fn memory_that_no_machine_has_is_refused() {
        let path = Path::new("graph.imx");
        let mut kept = vec![1u32];
        let refusals = [
            Region::new(path, usize::MAX / 2).map(drop),
            Region::sparse(path, usize::MAX / 2).map(drop),
            reserve::<u64>(path, usize::MAX / 16).map(drop),
            resize(path, &mut kept, usize::MAX / 8, 0),
            append(path, &mut kept, (0..usize::MAX / 8).map(|_| 0)),
        ];
        for refusal in refusals {
            let text = refusal.unwrap_err().to_string();
            assert!(text.starts_with("graph.imx: the system refused "), "{text}");
        }
        resize(path, &mut kept, 3, 5).unwrap();
        assert_eq!(kept, [1, 5, 5]);
    }
}
