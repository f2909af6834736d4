//! What only tests ask of the generator.

pub use crate::random::Random;

impl Random {
    pub fn float(&mut self) -> f32 {
        self.fraction() as f32
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}
