//! Which buffers belong to a read in flight: the device writes into those, so nobody else may touch them.

/// One flag a buffer. Asking for a buffer in a wrong state is a bug of the caller's, and ends in a panic.
pub struct Flights {
    flying: Vec<bool>,
    count: usize,
}

impl Flights {
    /// `slots` buffers, all idle.
    pub fn new(slots: usize) -> Self {
        Flights { flying: vec![false; slots], count: 0 }
    }

    /// Reads in flight.
    pub fn count(&self) -> usize {
        self.count
    }

    /// A read into the buffer begins.
    pub fn start(&mut self, slot: usize) {
        self.check_idle(slot);
        self.flying[slot] = true;
        self.count += 1;
    }

    /// The read into the buffer ended.
    pub fn finish(&mut self, slot: usize) {
        assert!(self.flying[slot], "buffer {slot} is not in flight");
        self.flying[slot] = false;
        self.count -= 1;
    }

    /// Panics if a read into the buffer is in flight.
    pub fn check_idle(&self, slot: usize) {
        assert!(!self.flying[slot], "buffer {slot} is in flight");
    }
}
