//! Answers of a store on their way to an engine.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::aligned::Aligned;

/// Why a range could not be read.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Refusal {
    /// The object, what happened, and what to do.
    pub message: String,
    /// Whether the same request may succeed later.
    pub passes: bool,
}

impl Refusal {
    /// With what its fields say.
    pub fn new(message: String, passes: bool) -> Self {
        Refusal { message, passes }
    }
}

/// What a store answered.
pub type Answer = Result<Aligned, Refusal>;

/// Answers by the number of their request.
#[derive(Default)]
pub struct Mailbox {
    answers: Mutex<Vec<(u64, Answer)>>,
    arrived: Condvar,
}

impl Mailbox {
    pub fn post(&self, number: u64, answer: Answer) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).push((number, answer));
        self.arrived.notify_one();
    }

    /// Waits for an answer, at most so long.
    pub fn wait(&self, most: Duration) {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.arrived.wait_timeout_while(answers, most, |answers| answers.is_empty()));
    }

    /// Takes all answers.
    pub fn take(&self) -> Vec<(u64, Answer)> {
        std::mem::take(&mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Bytes of an answer that one block takes.
#[derive(Debug, Clone)]
pub struct Piece {
    bytes: Arc<Aligned>,
    start: usize,
    len: usize,
}

impl Piece {
    pub fn none() -> Self {
        Piece { bytes: Arc::default(), start: 0, len: 0 }
    }

    /// `len` bytes of an answer. Those that are less than half of it are copied, so that the rest goes.
    pub fn of(answer: &Arc<Aligned>, start: usize, len: usize) -> Self {
        let piece = Piece { bytes: answer.clone(), start, len };
        if 2 * len < answer.len() { piece.alone() } else { piece }
    }

    /// The same without the rest of its answer.
    pub fn alone(self) -> Self {
        if self.len == self.bytes.len() {
            return self;
        }
        Piece { bytes: Arc::new(Aligned::from(self.content())), start: 0, len: self.len }
    }

    pub fn content(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }

    /// What is in memory for it, and tells it apart from that of other answers.
    pub fn held(&self) -> (*const u8, usize) {
        (self.bytes.as_ptr(), self.bytes.len())
    }
}
