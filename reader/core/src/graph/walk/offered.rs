//! Vertices that were offered to the candidates of a query lately.
//!
//! Most codes that bounds keep are those of the nearest vertices, to which many edges lead. To offer a vertex again changes
//! nothing, for a list of candidates only gets nearer: where bounds are used, it keeps nothing of what it drops.

use crate::graph::trace::NO_SLOT;

/// Places, one of which a vertex may have: 1 KiB.
const PLACES: usize = 256;

/// Slots, as far as they are remembered: one takes the place of another.
#[derive(Default)]
pub(super) struct Offered(Vec<u32>);

impl Offered {
    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
        self.0.resize(PLACES, NO_SLOT);
    }

    /// Whether `slot` is remembered; else it is from now on.
    pub fn note(&mut self, slot: u32) -> bool {
        std::mem::replace(&mut self.0[slot as usize % PLACES], slot) == slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::candidates::Candidates;
    use crate::search::nearest::key;
    use crate::testing::Random;

    #[test]
    fn candidates_do_not_miss_what_is_not_offered_again() {
        let mut random = Random::new(21);
        let (mut all, mut fewer, mut offered) = (Candidates::default(), Candidates::default(), Offered::default());
        for capacity in [1, 7, 40, 1000] {
            all.reset(capacity, false);
            fewer.reset(capacity, false);
            offered.clear();
            let mut spared = 0;
            for _ in 0..5000 {
                let slot = random.below(700) as u32;
                let key = key((slot * 7919 % 701) as f32, slot);
                all.insert(key);
                if offered.note(slot) {
                    spared += 1;
                } else {
                    fewer.insert(key);
                }
            }
            assert!(all.keys().eq(fewer.keys()) && spared > 1000, "{spared}");
        }
    }
}
