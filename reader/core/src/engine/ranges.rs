//! An engine that reads blocks of objects in a store, by parallel requests for ranges of bytes, unless they are at hand:
//! in memory, or on disk.
//!
//! Blocks asked for together are sorted by place, and those that lie near each other share a request. A request that
//! takes too long is made again, and the answer that comes first counts; a refused one is made again after a pause. Who
//! makes requests owns their answers, so a request that hangs does not keep the engine, or its buffers.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range as Slots;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::aligned::Aligned;
use super::answer::{Answer, Mailbox, Piece};
use super::contract::{Engine, Finished, Flights, LONGEST_WAIT};
use super::disk::Found;
use super::fetcher::Fetcher;
use super::file::DataFile;
use super::store::{Counted, Limits, Range, Reply};
use crate::error::{Error, Result};

/// A block that was asked for.
#[derive(Debug, Clone, Copy)]
struct Block {
    slot: usize,
    unit: u64,
    bytes: usize,
    /// From the start of all files.
    offset: u64,
    part: usize,
}

/// A range of an object, and the blocks in it.
struct Request {
    range: Range,
    /// With their places in the range.
    blocks: Vec<(Block, usize)>,
    tries: u32,
    /// Tries without an answer so far.
    live: u32,
    asked: Instant,
    /// When each of them began.
    begun: Vec<Arc<OnceLock<Instant>>>,
    /// When to make it again after a refusal.
    again: Option<Instant>,
}

/// See the module's head.
pub struct Ranges {
    fetcher: Arc<Fetcher>,
    file: Arc<DataFile>,
    slot_bytes: usize,
    flights: Flights,
    /// Of each slot, its last block.
    pieces: Vec<Piece>,
    queued: Vec<Block>,
    /// Blocks on disk that are yet to be read, some at each look for answers: reading them waits for the disk.
    on_disk: VecDeque<(Block, Found)>,
    /// Slots of blocks that were at hand.
    at_hand: Vec<usize>,
    /// Of each slot, whether its last block was.
    was_at_hand: Vec<bool>,
    /// Of each slot, whether its blocks are requested even if they are at hand.
    reads_anew: Vec<bool>,
    requests: HashMap<u64, Request>,
    next: u64,
    mailbox: Arc<Mailbox>,
}

impl Ranges {
    /// An engine of `fetcher` over the files that the store has as objects.
    pub fn new(fetcher: Arc<Fetcher>, file: Arc<DataFile>, slots: usize, slot_bytes: usize) -> Self {
        Ranges {
            fetcher,
            file,
            slot_bytes,
            flights: Flights::new(slots),
            pieces: vec![Piece::none(); slots],
            queued: Vec::new(),
            on_disk: VecDeque::new(),
            at_hand: Vec::new(),
            was_at_hand: vec![false; slots],
            reads_anew: vec![false; slots],
            requests: HashMap::new(),
            next: 0,
            mailbox: Arc::default(),
        }
    }

    /// Makes a request, for the first time or again.
    fn send(&mut self, number: u64) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        request.tries += 1;
        request.live += 1;
        (request.asked, request.again) = (Instant::now(), None);
        let began = Arc::default();
        let reply = Reply {
            number,
            range: request.range.clone(),
            began: Arc::downgrade(&began),
            mailbox: Arc::downgrade(&self.mailbox),
            counted: self.fetcher.counted.clone(),
            is_given: false,
        };
        request.begun.push(began);
        self.fetcher.store.read(request.range.clone(), reply);
    }

    /// Takes an answer; a refused request is made again later, unless that is in vain.
    fn take(&mut self, number: u64, answer: Answer, finished: &mut Finished) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        let limits = &self.fetcher.limits;
        let refusal = match answer {
            Ok(bytes) => return self.deliver(number, bytes, finished),
            Err(refusal) => refusal,
        };
        request.live -= 1;
        if refusal.passes && request.tries < limits.tries {
            if request.again.is_none() {
                Counted::add(&self.fetcher.counted.retries, 1);
                request.again = Some(Instant::now() + limits.pause * (1 << (request.tries - 1).min(10)));
            }
            return;
        }
        if refusal.passes && request.live > 0 {
            return; // another try may be answered yet
        }
        let tried = if refusal.passes { format!(" ({} times)", request.tries) } else { String::new() };
        self.fail(number, &format!("{}{tried}", refusal.message), finished);
    }

    fn deliver(&mut self, number: u64, answer: Aligned, finished: &mut Finished) {
        let Some(request) = self.requests.remove(&number) else { return };
        let answer = Arc::new(answer);
        for (block, start) in request.blocks {
            let piece = Piece::of(&answer, start, block.bytes);
            self.pieces[block.slot] = self.fetcher.keep((block.unit, block.bytes), piece);
            self.flights.finish(block.slot);
            finished.done.push(block.slot);
        }
    }

    fn fail(&mut self, number: u64, why: &str, finished: &mut Finished) {
        for (block, _) in self.requests.remove(&number).into_iter().flat_map(|request| request.blocks) {
            self.flights.finish(block.slot);
            finished.failed.push((block.slot, Error::Store(why.to_owned())));
        }
    }

    /// Makes those requests again whose time has come.
    fn repeat(&mut self, finished: &mut Finished) {
        let (now, limits) = (Instant::now(), self.fetcher.limits.clone());
        let due: Vec<u64> = self.requests.iter().filter(|(_, r)| r.due(&limits) <= now).map(|(&n, _)| n).collect();
        for number in due {
            let request = &self.requests[&number];
            let has_timed_out = request.again.is_none();
            if has_timed_out && (request.tries >= limits.tries || request.began().is_none()) {
                let (name, tries) = (request.range.name.clone(), request.tries);
                let why = format!("{name}: no answer within {:?} ({tries} times); run again", limits.timeout);
                self.fail(number, &why, finished);
                continue;
            }
            if has_timed_out {
                Counted::add(&self.fetcher.counted.timeouts, 1);
            }
            self.send(number);
        }
    }

    /// Reads some blocks from disk; those that cannot be used are queued for requests.
    fn load_some(&mut self) {
        let mut bytes = 0;
        while bytes < self.fetcher.limits.look_bytes
            && let Some((block, found)) = self.on_disk.pop_front()
        {
            bytes += block.bytes;
            match self.fetcher.load((block.unit, block.bytes), found) {
                Some(piece) => self.put_at_hand(block.slot, piece),
                None => self.queued.push(block),
            }
        }
    }

    fn put_at_hand(&mut self, slot: usize, piece: Piece) {
        self.pieces[slot] = piece;
        self.at_hand.push(slot);
        self.was_at_hand[slot] = true;
    }

    fn take_answers(&mut self, finished: &mut Finished) {
        for slot in self.at_hand.drain(..) {
            self.flights.finish(slot);
            finished.done.push(slot);
        }
        for (number, answer) in self.mailbox.take() {
            self.take(number, answer, finished);
        }
        self.repeat(finished);
    }
}

impl Request {
    /// When the last try began, if it has.
    fn began(&self) -> Option<Instant> {
        self.begun.last()?.get().copied()
    }

    /// When something is to be done unless an answer comes. A request that was not made, because others hang, waits for as
    /// long as all of its tries may take.
    fn due(&self, limits: &Limits) -> Instant {
        match (self.again, self.began()) {
            (Some(again), _) => again,
            (None, Some(began)) => began + limits.timeout,
            (None, None) => self.asked + limits.timeout * limits.tries,
        }
    }
}

impl Engine for Ranges {
    fn slots(&self) -> usize {
        self.pieces.len()
    }

    fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    fn bytes(&self) -> usize {
        let mut answers = HashSet::new();
        self.pieces.iter().map(Piece::held).filter(|&(start, _)| answers.insert(start)).map(|(_, bytes)| bytes).sum()
    }

    fn counts_rounds(&self) -> bool {
        true
    }

    fn takes_round(&self, slot: usize) -> bool {
        !self.was_at_hand[slot]
    }

    fn release(&mut self, slot: usize) {
        if !self.flights.is_flying(slot) {
            self.pieces[slot] = Piece::none();
        }
    }

    fn read_anew(&mut self, slots: Slots<usize>, anew: bool) {
        self.reads_anew[slots].fill(anew);
    }

    fn forget(&mut self, error: &Error) -> bool {
        let Error::Corrupt(wrong) = error else { return false };
        self.fetcher.forget(&self.file.units_of(&wrong.path));
        true
    }

    fn queue_part(&mut self, slot: usize, unit: u64, bytes: usize) -> Result<()> {
        assert!(bytes <= self.slot_bytes, "{bytes} bytes into a buffer of {}", self.slot_bytes);
        self.flights.start(slot);
        self.was_at_hand[slot] = false;
        if !self.reads_anew[slot]
            && let Some(piece) = self.fetcher.kept((unit, bytes))
        {
            self.put_at_hand(slot, piece);
            return Ok(());
        }
        self.pieces[slot] = Piece::none();
        let offset = self.file.offset_of(unit);
        let (part, _) = self.file.locate(offset);
        let block = Block { slot, unit, bytes, offset, part };
        if !self.reads_anew[slot]
            && let Some(found) = self.fetcher.on_disk(&self.file, offset, bytes)
        {
            self.on_disk.push_back((block, found));
        } else {
            self.queued.push(block);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let mut queued = std::mem::take(&mut self.queued);
        queued.sort_unstable_by_key(|block| (block.offset, block.bytes));
        let limits = self.fetcher.limits.clone();
        let mut first = 0;
        while first < queued.len() {
            let start = queued[first].offset;
            let (mut end, mut n) = (start + queued[first].bytes as u64, 1);
            for block in &queued[first + 1..] {
                let new_end = end.max(block.offset + block.bytes as u64);
                let is_near = block.offset <= end.saturating_add(limits.gap_bytes);
                if block.part != queued[first].part || !is_near || new_end - start > limits.request_bytes {
                    break;
                }
                (end, n) = (new_end, n + 1);
            }
            let (name, offset) = self.file.object_at(start);
            let places = queued[first..first + n].iter().map(|&block| (block, (block.offset - start) as usize));
            let (blocks, now) = (places.collect(), Instant::now());
            let range = Range { name, offset, bytes: (end - start) as usize };
            let request = Request { range, blocks, tries: 0, live: 0, asked: now, begun: Vec::new(), again: None };
            self.requests.insert(self.next, request);
            self.next += 1;
            self.send(self.next - 1);
            first += n;
        }
        queued.clear();
        self.queued = queued;
        Ok(())
    }

    fn reap_each(&mut self, finished: &mut Finished) -> Result<()> {
        self.load_some();
        self.flush()?;
        if self.at_hand.is_empty() && self.on_disk.is_empty() && !self.requests.is_empty() {
            let due = self.requests.values().map(|request| request.due(&self.fetcher.limits)).min();
            let left = due.map_or(LONGEST_WAIT, |due| due.saturating_duration_since(Instant::now()));
            self.mailbox.wait(left.min(LONGEST_WAIT).max(Duration::from_micros(100)));
        }
        self.take_answers(finished);
        Ok(())
    }

    fn poll_each(&mut self, finished: &mut Finished) -> Result<()> {
        self.load_some();
        self.flush()?;
        if self.flights.count() > 0 {
            self.take_answers(finished);
        }
        Ok(())
    }

    fn buffer(&self, slot: usize) -> &[u8] {
        self.flights.check_idle(slot);
        self.pieces[slot].content()
    }
}
