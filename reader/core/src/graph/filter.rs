//! Which vertices a search may return: `search(allow=...)`.

use std::ops::Range;
use std::path::Path;

use super::file::Graph;
use crate::error::{Error, Result};
use crate::ids::Ids;
use crate::memory::resize;

/// Vector ids asked for at once when a filter is made.
const IDS_AT_ONCE: u32 = 1 << 16;

/// A set of slots: n / 8 bytes. Made once by [`super::Index::filter`], used by any number of searches.
#[derive(Debug)]
pub struct Filter {
    words: Vec<u64>,
    n: u32,
    n_allowed: u32,
    build_id: [u8; 16],
}

impl Filter {
    /// Takes a bitmap over vector ids; see [`super::Index::filter`].
    pub(super) fn new(bitmap: &[u8], graph: &Graph, ids: &Ids, interrupted: &mut dyn FnMut() -> bool) -> Result<Self> {
        let n = graph.layout.n_vertices;
        let want = (n as usize).div_ceil(8);
        if bitmap.len() != want {
            let message = format!("allow: expected {want} bytes, one bit for each of {n} vectors");
            return Err(Error::Input(format!("{message}, got {} bytes; pass one bit a vector id", bitmap.len())));
        }
        let mut words = Vec::new();
        resize(&graph.path, &mut words, (n as usize).div_ceil(64), 0u64)?;
        let mut n_allowed = 0;
        let mut slots = Vec::with_capacity(IDS_AT_ONCE.min(n) as usize);
        for start in (0..n).step_by(IDS_AT_ONCE as usize) {
            if interrupted() {
                return Err(Error::Interrupted);
            }
            slots.clear();
            slots.extend(start..n.min(start.saturating_add(IDS_AT_ONCE)));
            for (&slot, id) in slots.iter().zip(ids.vector_ids(&slots)?) {
                let is_allowed = bitmap.get(id as usize / 8).is_some_and(|byte| byte >> (id % 8) & 1 == 1);
                words[slot as usize / 64] |= u64::from(is_allowed) << (slot % 64);
                n_allowed += u32::from(is_allowed);
            }
        }
        Ok(Filter { words, n, n_allowed, build_id: graph.build_id })
    }

    /// Whether a vertex may be returned.
    pub fn allows(&self, slot: u32) -> bool {
        self.words.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    /// Vertices that may be returned.
    pub fn n_allowed(&self) -> u32 {
        self.n_allowed
    }

    /// The slots that may be returned, ascending.
    pub fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots_in(0..self.n_words())
    }

    /// Words of 64 slots each.
    pub(super) fn n_words(&self) -> usize {
        self.words.len()
    }

    /// Those in some words.
    pub(super) fn slots_in(&self, words: Range<usize>) -> impl Iterator<Item = u32> + '_ {
        words.clone().zip(&self.words[words]).flat_map(|(i, &word)| {
            std::iter::successors((word != 0).then_some(word), |&rest| {
                let next = rest & (rest - 1);
                (next != 0).then_some(next)
            })
            .map(move |rest| i as u32 * 64 + rest.trailing_zeros())
        })
    }

    /// Refuses a filter of another index than that in directory `path`.
    pub(super) fn check(&self, path: &Path, graph: &Graph) -> Result<()> {
        if self.build_id != graph.build_id || self.n != graph.layout.n_vertices {
            let message = format!("allow: the filter was made for another build than {}", path.display());
            return Err(Error::Input(format!("{message}; make one with this index")));
        }
        Ok(())
    }
}
