//! Bytes at many places of ids.imx, fetched page by page, each page once, in any order of arrival.
//!
//! Pages come in waves of at most [`WAVE_PAGES`], each with the pages of section "crc" that tell their checksums. Bytes
//! are copied when their page arrives, and are used once the wave was checked: a file makes the caller hold at most a wave
//! more than what passed its checksums.

use std::path::Path;

use crate::bytes::u32_at;
use crate::checksum;
use crate::error::Result;
use crate::memory::{make_room, resize};
use crate::pagefile::{PAGE_BYTES, check_crc};

/// Pages of a wave, at most.
const WAVE_PAGES: usize = 256;
/// Checksums in a page of section "crc".
const CRCS_PER_PAGE: u64 = PAGE_BYTES as u64 / 4;

/// Bytes that are wanted.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// From the start of the file.
    start: u64,
    end: u64,
    /// Where they go.
    to: usize,
}

/// A page of the wave.
#[derive(Debug, Clone, Copy)]
struct Sheet {
    number: u64,
    /// Checksum by section "crc".
    want: u32,
    got: u32,
}

/// See the module's head. Memory: 24 bytes a run, the bytes, and 4 KiB for a wave.
#[derive(Debug, Default)]
pub(super) struct Gather {
    /// Neither starts nor ends descend.
    runs: Vec<Run>,
    bytes: Vec<u8>,
    /// Runs that end before `page`.
    n_past: usize,
    /// First page that no wave had.
    page: u64,
    sheets: Vec<Sheet>,
    /// Pages of section "crc" of the wave, and the section's first page.
    crc_pages: Vec<u64>,
    first_crc_page: u64,
    /// Pages of the wave that were asked for, those of section "crc" first.
    n_asked: usize,
}

/// Page of section "crc", which begins at `first`, that tells the checksum of page `number`; and where in it.
fn crc_of(first: u64, number: u64) -> (u64, usize) {
    let i = number - 1;
    (first + i / CRCS_PER_PAGE, (i % CRCS_PER_PAGE) as usize * 4)
}

impl Gather {
    /// Forgets everything. Section "crc" begins at page `first_crc_page`.
    pub fn reset(&mut self, first_crc_page: u64) {
        self.runs.clear();
        self.bytes.clear();
        (self.n_past, self.page, self.first_crc_page) = (0, 0, first_crc_page);
        self.end_wave();
    }

    fn end_wave(&mut self) {
        self.sheets.clear();
        self.crc_pages.clear();
        self.n_asked = 0;
    }

    /// Makes room for `n` runs.
    pub fn make_room(&mut self, path: &Path, n: usize) -> Result<()> {
        make_room(path, &mut self.runs, n)
    }

    /// Wants `bytes` bytes from `start` of the file on; they follow the bytes wanted before. Neither starts nor ends may
    /// descend.
    pub fn want(&mut self, start: u64, bytes: u64) {
        let to = self.n_bytes();
        self.runs.push(Run { start, end: start + bytes, to });
    }

    /// Bytes wanted in all.
    pub fn n_bytes(&self) -> usize {
        self.runs.last().map_or(0, |run| run.to + (run.end - run.start) as usize)
    }

    /// Takes all bytes from a copy of the file's pages from `first_page` on; false if it does not have all of them.
    pub fn take_held(&mut self, path: &Path, first_page: u64, pages: &[u8]) -> Result<bool> {
        let begin = first_page * PAGE_BYTES as u64;
        let end = begin + pages.len() as u64;
        let (is_before, is_after) = (|run: &Run| run.start < begin, |run: &Run| run.end > end);
        if self.runs.first().is_some_and(is_before) || self.runs.last().is_some_and(is_after) {
            return Ok(false);
        }
        self.end_wave();
        self.bytes.clear();
        let total = self.n_bytes();
        make_room(path, &mut self.bytes, total)?;
        for run in &self.runs {
            self.bytes.extend_from_slice(&pages[(run.start - begin) as usize..(run.end - begin) as usize]);
        }
        Ok(true)
    }

    /// Checks the pages of the wave, all of which have arrived.
    pub fn check_wave(&self, path: &Path) -> Result<()> {
        self.sheets.iter().try_for_each(|sheet| check_crc(path, sheet.number, sheet.want, sheet.got))
    }

    /// Begins the next wave; false if all bytes are here.
    pub fn begin_wave(&mut self, path: &Path) -> Result<bool> {
        self.end_wave();
        while self.sheets.len() < WAVE_PAGES
            && let Some(number) = self.next_page()
        {
            let (crc_page, _) = crc_of(self.first_crc_page, number);
            if self.crc_pages.last() != Some(&crc_page) {
                self.crc_pages.push(crc_page);
            }
            self.sheets.push(Sheet { number, want: 0, got: 0 });
        }
        let end = self.page * PAGE_BYTES as u64;
        let (n_begun, total) = (self.runs.partition_point(|run| run.start < end), self.n_bytes());
        if let Some(run) = n_begun.checked_sub(1).map(|last| self.runs[last]) {
            make_room(path, &mut self.bytes, total)?;
            resize(path, &mut self.bytes, run.to + (run.end.min(end) - run.start) as usize, 0)?;
        }
        Ok(!self.sheets.is_empty())
    }

    /// The next page that has wanted bytes.
    fn next_page(&mut self) -> Option<u64> {
        loop {
            let run = self.runs.get(self.n_past)?;
            let page = self.page.max(run.start / PAGE_BYTES as u64);
            if run.end > run.start.max(page * PAGE_BYTES as u64) {
                self.page = page + 1;
                return Some(page);
            }
            self.n_past += 1;
        }
    }

    /// A page of the wave that was not asked for yet.
    pub fn ask(&mut self) -> Option<u64> {
        let i = self.n_asked;
        let number = match self.crc_pages.get(i) {
            Some(&number) => number,
            None => self.sheets.get(i - self.crc_pages.len())?.number,
        };
        self.n_asked += 1;
        Some(number)
    }

    /// Takes page `number`, which was asked for.
    pub fn take(&mut self, number: u64, page: &[u8]) {
        if number >= self.first_crc_page {
            for sheet in &mut self.sheets {
                let (crc_page, at) = crc_of(self.first_crc_page, sheet.number);
                if crc_page == number {
                    sheet.want = u32_at(page, at);
                }
            }
            return;
        }
        if let Ok(i) = self.sheets.binary_search_by_key(&number, |sheet| sheet.number) {
            self.sheets[i].got = checksum::of_page(page);
        }
        let begin = number * PAGE_BYTES as u64;
        let end = begin + PAGE_BYTES as u64;
        let first = self.runs.partition_point(|run| run.end <= begin);
        for run in self.runs[first..].iter().take_while(|run| run.start < end) {
            let (from, until) = (run.start.max(begin), run.end.min(end));
            let to = run.to + (from - run.start) as usize;
            let content = &page[(from - begin) as usize..(until - begin) as usize];
            self.bytes[to..to + content.len()].copy_from_slice(content);
        }
    }

    /// The bytes wanted, one run after the other.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Memory that an idle state keeps, in bytes wanted.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity().max(self.runs.capacity() * size_of::<Run>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pagefile::Page;
    use crate::testing::Random;

    /// Pages 1 .. of a file with their checksums behind them, as in a page file.
    fn file(random: &mut Random, n_pages: usize) -> (Vec<Page>, u64) {
        let mut pages = vec![[0u8; PAGE_BYTES]];
        for _ in 0..n_pages {
            pages.push(std::array::from_fn(|_| random.below(256) as u8));
        }
        let mut crcs: Vec<u8> = pages[1..].iter().flat_map(|page| checksum::of_page(page).to_le_bytes()).collect();
        crcs.resize(crcs.len().next_multiple_of(PAGE_BYTES), 0);
        let first_crc_page = pages.len() as u64;
        pages.extend(crcs.as_chunks::<PAGE_BYTES>().0);
        (pages, first_crc_page)
    }

    /// What is gathered if the pages of a wave arrive in an order that `random` chooses, and the pages read.
    fn gathered(gather: &mut Gather, pages: &[Page], random: &mut Random) -> Result<usize> {
        let (path, mut n_read) = (Path::new("ids.imx"), 0);
        while gather.begin_wave(path)? {
            let mut wave: Vec<u64> = std::iter::from_fn(|| gather.ask()).collect();
            n_read += wave.len();
            while !wave.is_empty() {
                let number = wave.swap_remove(random.below(wave.len()));
                gather.take(number, &pages[number as usize]);
            }
            gather.check_wave(path)?;
        }
        Ok(n_read)
    }

    /// Runs of a file of `n_pages` pages that ascend as the contract says, with empty and long ones.
    fn runs(random: &mut Random, n_pages: usize) -> Vec<(u64, u64)> {
        let (mut at, last) = (PAGE_BYTES as u64, (n_pages + 1) as u64 * PAGE_BYTES as u64);
        let mut runs = Vec::new();
        while at < last {
            let longest = [1, 9, 9, 5000, 20_000][random.below(5)];
            let bytes = (random.below(longest) as u64).min(last - at);
            runs.push((at, bytes));
            at += bytes + [0, 0, 3, 4096, 9000][random.below(5)];
        }
        runs
    }

    #[test]
    fn gathered_bytes_are_those_of_the_file_in_any_order_of_arrival() {
        let mut random = Random::new(3);
        for n_pages in [1, 2, 7, 40, 300, 1100] {
            let (pages, first_crc_page) = file(&mut random, n_pages);
            let whole = pages.as_flattened();
            let runs = runs(&mut random, n_pages);
            let (mut gather, mut want) = (Gather::default(), Vec::new());
            gather.reset(first_crc_page);
            for &(start, bytes) in &runs {
                gather.want(start, bytes);
                want.extend_from_slice(&whole[start as usize..][..bytes as usize]);
            }
            let n_read = gathered(&mut gather, &pages, &mut random).unwrap();
            assert!(gather.bytes() == want);
            let mut touched: Vec<u64> = runs
                .iter()
                .filter(|run| run.1 > 0)
                .flat_map(|&(start, bytes)| start / 4096..=(start + bytes - 1) / 4096)
                .collect();
            touched.dedup();
            let waves = touched.chunks(WAVE_PAGES);
            let of_crc = |wave: &[u64]| 1 + (wave[wave.len() - 1] - 1) / 1024 - (wave[0] - 1) / 1024;
            assert_eq!(n_read as u64, waves.map(|wave| wave.len() as u64 + of_crc(wave)).sum::<u64>());
            assert!(gather.take_held(Path::new("ids.imx"), 1, &whole[PAGE_BYTES..]).unwrap() && gather.bytes() == want);
        }
    }

    #[test]
    fn runs_that_overlap_share_their_page() {
        let (pages, first_crc_page) = file(&mut Random::new(4), 3);
        let mut gather = Gather::default();
        gather.reset(first_crc_page);
        [(8184, 16), (8192, 16), (8192, 16)].into_iter().for_each(|(start, bytes)| gather.want(start, bytes));
        assert_eq!(gathered(&mut gather, &pages, &mut Random::new(1)).unwrap(), 3);
        let whole = pages.as_flattened();
        assert_eq!(gather.bytes(), [&whole[8184..8200], &whole[8192..8208], &whole[8192..8208]].concat());
        assert!(!gather.take_held(Path::new("ids.imx"), 2, &whole[2 * PAGE_BYTES..]).unwrap(), "it begins before");
        assert!(
            !gather.take_held(Path::new("ids.imx"), 1, &whole[PAGE_BYTES..][..PAGE_BYTES]).unwrap(),
            "it ends later"
        );
    }

    #[test]
    fn a_damaged_page_is_named_and_ends_the_gathering_within_a_wave() {
        let (mut pages, first_crc_page) = file(&mut Random::new(5), 600);
        pages[3][17] ^= 1;
        let mut gather = Gather::default();
        gather.reset(first_crc_page);
        gather.want(4096, 600 * 4096);
        let error = gathered(&mut gather, &pages, &mut Random::new(1)).unwrap_err().to_string();
        assert!(error.starts_with("ids.imx: page 3: expected CRC32C"), "{error}");
        assert_eq!(gather.bytes().len(), WAVE_PAGES * PAGE_BYTES, "memory is used as pages pass");
    }
}
