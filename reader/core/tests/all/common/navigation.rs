//! Small navigation graphs: a ring with random chords.

use super::Random;
use super::files::{le, page_file};

/// What is in a navigation.imx.
#[derive(Clone)]
pub struct SmallNavigation {
    pub n_vertices: usize,
    pub max_degree: usize,
    pub entry: usize,
    pub slots: Vec<u32>,
    pub lists: Vec<Vec<u32>>,
}

impl SmallNavigation {
    /// `n_sample` of `n` slots; every one can be reached from every other.
    pub fn random(n: usize, n_sample: usize, seed: u64) -> Self {
        let mut random = Random(seed ^ 0x7a71);
        let mut slots: Vec<u32> = (0..n as u32).collect();
        (1..n).for_each(|i| slots.swap(i, random.below(i + 1)));
        slots.truncate(n_sample);
        slots.sort_unstable();
        let max_degree = 5;
        let list = |v: usize, random: &mut Random| {
            let mut list = if n_sample > 1 { vec![((v + 1) % n_sample) as u32] } else { Vec::new() };
            for _ in 0..random.below(max_degree) {
                let other = random.below(n_sample) as u32;
                if !list.contains(&other) {
                    list.push(other);
                }
            }
            list
        };
        let lists = (0..n_sample).map(|v| list(v, &mut random)).collect();
        SmallNavigation { n_vertices: n, max_degree, entry: random.below(n_sample), slots, lists }
    }

    pub fn file(&self) -> Vec<u8> {
        let mut offsets = vec![0u32];
        self.lists.iter().for_each(|list| offsets.push(offsets[offsets.len() - 1] + list.len() as u32));
        let fields = [
            ("n_vertices", self.n_vertices as u64),
            ("n_sample", self.slots.len() as u64),
            ("max_degree", self.max_degree as u64),
            ("n_edges", self.lists.concat().len() as u64),
            ("entry", self.entry as u64),
        ];
        let words = |values: &[u32]| le(values.iter().map(|x| x.to_le_bytes()));
        let sections =
            [("slots", words(&self.slots)), ("offsets", words(&offsets)), ("neighbours", words(&self.lists.concat()))];
        page_file(b"NAVI", &[0; 16], &fields, &sections)
    }
}
