//! An engine that reads blocks of objects in a store, by parallel requests for ranges of bytes.
//!
//! Blocks asked for together are sorted by place, and those that lie near each other share a request. A request that
//! takes too long is made again, and the answer that comes first counts; a refused one is made again after a pause. The
//! threads that make requests own their answers, so a request that hangs does not keep the engine, or its buffers.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::contract::{Engine, Finished, Flights, LONGEST_WAIT};
use super::fetcher::{Fetcher, Piece};
use super::file::DataFile;
use super::store::{Counted, Limits, Refusal};
use crate::error::{Error, Result};

/// What a store answered.
type Answer = std::result::Result<Vec<u8>, Refusal>;

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
    name: Arc<str>,
    /// In the object.
    offset: u64,
    bytes: usize,
    /// With their places in the range.
    blocks: Vec<(Block, usize)>,
    tries: u32,
    asked: Instant,
    /// When the last one began.
    began: Arc<OnceLock<Instant>>,
    /// When to make it again after a refusal.
    again: Option<Instant>,
}

/// Answers by the number of their request.
#[derive(Default)]
struct Mailbox {
    answers: Mutex<Vec<(u64, Answer)>>,
    arrived: Condvar,
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
    /// Slots of blocks that were in memory.
    at_hand: Vec<usize>,
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
            at_hand: Vec::new(),
            requests: HashMap::new(),
            next: 0,
            mailbox: Arc::default(),
        }
    }

    /// Makes a request, for the first time or again.
    fn send(&mut self, number: u64) -> Result<()> {
        let Some(request) = self.requests.get_mut(&number) else { return Ok(()) };
        request.tries += 1;
        (request.asked, request.began, request.again) = (Instant::now(), Arc::default(), None);
        let (name, offset, bytes, began) = (request.name.clone(), request.offset, request.bytes, request.began.clone());
        let (store, counted, mailbox) =
            (self.fetcher.store.clone(), self.fetcher.counted.clone(), self.mailbox.clone());
        self.fetcher.spawn(Box::new(move || {
            let _ = began.set(Instant::now());
            Counted::add(&counted.requests, 1);
            let read = catch_unwind(AssertUnwindSafe(|| store.read(&name, offset, bytes)));
            let answer = read
                .unwrap_or_else(|panic| Err(Refusal { message: Error::panicked(&*panic).to_string(), passes: false }));
            let answer = answer.and_then(|got| {
                Counted::add(&counted.bytes, got.len() as u64);
                let message = || format!("{name}: {} bytes at offset {offset}, expected {bytes}", got.len());
                if got.len() == bytes { Ok(got) } else { Err(Refusal { message: message(), passes: true }) }
            });
            mailbox.answers.lock().unwrap_or_else(PoisonError::into_inner).push((number, answer));
            mailbox.arrived.notify_one();
        }))
    }

    /// Takes an answer; a refused request is made again later, unless that is in vain.
    fn take(&mut self, number: u64, answer: Answer, finished: &mut Finished) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        let limits = &self.fetcher.limits;
        let refusal = match answer {
            Ok(bytes) => return self.deliver(number, bytes, finished),
            Err(refusal) => refusal,
        };
        if refusal.passes && request.tries < limits.tries {
            if request.again.is_none() {
                Counted::add(&self.fetcher.counted.retries, 1);
                request.again = Some(Instant::now() + limits.pause * (1 << (request.tries - 1).min(10)));
            }
            return;
        }
        let tried = if refusal.passes { format!(" ({} times)", request.tries) } else { String::new() };
        self.fail(number, &format!("{}{tried}", refusal.message), finished);
    }

    fn deliver(&mut self, number: u64, bytes: Vec<u8>, finished: &mut Finished) {
        let Some(request) = self.requests.remove(&number) else { return };
        let bytes = Arc::new(bytes);
        for (block, start) in request.blocks {
            let piece = Piece { bytes: bytes.clone(), start, len: block.bytes };
            self.fetcher.keep((block.unit, block.bytes), &piece);
            self.pieces[block.slot] = piece;
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
    fn repeat(&mut self, finished: &mut Finished) -> Result<()> {
        let (now, limits) = (Instant::now(), self.fetcher.limits.clone());
        let due: Vec<u64> = self.requests.iter().filter(|(_, r)| r.due(&limits) <= now).map(|(&n, _)| n).collect();
        for number in due {
            let request = &self.requests[&number];
            let has_timed_out = request.again.is_none();
            if has_timed_out && (request.tries >= limits.tries || request.began.get().is_none()) {
                let (name, tries) = (request.name.clone(), request.tries);
                let why = format!("{name}: no answer within {:?} ({tries} times); run again", limits.timeout);
                self.fail(number, &why, finished);
                continue;
            }
            if has_timed_out {
                Counted::add(&self.fetcher.counted.timeouts, 1);
            }
            self.send(number)?;
        }
        Ok(())
    }

    fn take_answers(&mut self, finished: &mut Finished) -> Result<()> {
        for slot in self.at_hand.drain(..) {
            self.flights.finish(slot);
            finished.done.push(slot);
        }
        let answers = std::mem::take(&mut *self.mailbox.answers.lock().unwrap_or_else(PoisonError::into_inner));
        for (number, answer) in answers {
            self.take(number, answer, finished);
        }
        self.repeat(finished)
    }
}

impl Request {
    /// When something is to be done unless an answer comes. A request that no thread took up, because others hang, waits
    /// for as long as all of its tries may take.
    fn due(&self, limits: &Limits) -> Instant {
        match (self.again, self.began.get()) {
            (Some(again), _) => again,
            (None, Some(&began)) => began + limits.timeout,
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
        self.pieces.iter().map(|piece| piece.len).sum()
    }

    fn counts_rounds(&self) -> bool {
        true
    }

    fn queue_part(&mut self, slot: usize, unit: u64, bytes: usize) -> Result<()> {
        assert!(bytes <= self.slot_bytes, "{bytes} bytes into a buffer of {}", self.slot_bytes);
        self.flights.start(slot);
        if let Some(piece) = self.fetcher.kept((unit, bytes)) {
            self.pieces[slot] = piece;
            self.at_hand.push(slot);
            return Ok(());
        }
        let offset = self.file.offset_of(unit);
        let (part, _) = self.file.locate(offset);
        self.queued.push(Block { slot, unit, bytes, offset, part });
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
            let (bytes, began) = ((end - start) as usize, Arc::default());
            let request = Request { name, offset, bytes, blocks, tries: 0, asked: now, began, again: None };
            self.requests.insert(self.next, request);
            self.next += 1;
            self.send(self.next - 1)?;
            first += n;
        }
        queued.clear();
        self.queued = queued;
        Ok(())
    }

    fn reap_each(&mut self, finished: &mut Finished) -> Result<()> {
        self.flush()?;
        if self.at_hand.is_empty() && !self.requests.is_empty() {
            let due = self.requests.values().map(|request| request.due(&self.fetcher.limits)).min();
            let left = due.map_or(LONGEST_WAIT, |due| due.saturating_duration_since(Instant::now()));
            let answers = self.mailbox.answers.lock().unwrap_or_else(PoisonError::into_inner);
            let most = left.min(LONGEST_WAIT).max(Duration::from_micros(100));
            drop(self.mailbox.arrived.wait_timeout_while(answers, most, |answers| answers.is_empty()));
        }
        self.take_answers(finished)
    }

    fn poll_each(&mut self, finished: &mut Finished) -> Result<()> {
        self.flush()?;
        if self.flights.count() == 0 { Ok(()) } else { self.take_answers(finished) }
    }

    fn buffer(&self, slot: usize) -> &[u8] {
        self.flights.check_idle(slot);
        self.pieces[slot].content()
    }
}
