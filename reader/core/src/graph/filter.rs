//! Which vertices a search may return: `search(allow=...)`.

use std::path::Path;

use super::entries::Entries;
use super::file::Graph;
use crate::error::{Error, Result};
use crate::ids::Ids;
use crate::interrupt::{Stop, go_on};
use crate::living::{Living, Slots};
use crate::memory::reserve;

/// Vector ids asked for at once when a filter is made.
const IDS_AT_ONCE: u32 = 1 << 16;

/// Allowed vertices of which a walk starts at the nearest: with 256 of them a search for vectors of another k-means cell
/// than the query's, half of a million SIFT vectors, needs 77 reads for recall 0.95, with none 109.
const SAMPLE: u32 = 256;

/// A set of slots, without those of deleted vectors: n / 8 bytes, and 1 KiB; as many bytes again for a label. Made once by
/// [`super::Index::filter`] or [`super::Index::label_filter`], used by any number of searches.
#[derive(Debug)]
pub struct Filter {
    allowed: Slots,
    /// All vertices of the label, deleted ones included, where edges within it lead from each to each.
    within: Option<Slots>,
    n: u32,
    /// Up to [`SAMPLE`] of the allowed slots, evenly spread.
    sample: Vec<u32>,
    build_id: [u8; 16],
    /// [`Living::sha256`] of the index that made it.
    deletions: Option<String>,
}

impl Filter {
    /// Takes a bitmap over vector ids; see [`super::Index::filter`], and [`super::Index::label_filter`] for `is_label`.
    pub(super) fn new(
        bitmap: &[u8],
        graph: &Graph,
        ids: &Ids,
        living: Option<&Living>,
        is_label: bool,
        interrupted: Stop<'_>,
    ) -> Result<Self> {
        let n = graph.layout.n_vertices;
        let want = (n as usize).div_ceil(8);
        if bitmap.len() != want {
            let message = format!("allow: expected {want} bytes, one bit for each of {n} vectors");
            return Err(Error::Input(format!("{message}, got {} bytes; pass one bit a vector id", bitmap.len())));
        }
        let mut allowed = Slots::none(&graph.path, n)?;
        let mut within = is_label.then(|| Slots::none(&graph.path, n)).transpose()?;
        let mut slots = reserve(&graph.path, IDS_AT_ONCE.min(n) as usize)?;
        for start in (0..n).step_by(IDS_AT_ONCE as usize) {
            go_on(interrupted)?;
            slots.clear();
            slots.extend(start..n.min(start.saturating_add(IDS_AT_ONCE)));
            for (&slot, id) in slots.iter().zip(ids.vector_ids(&slots)?) {
                let is_allowed = bitmap.get(id as usize / 8).is_some_and(|byte| byte >> (id % 8) & 1 == 1);
                if let Some(within) = within.as_mut().filter(|_| is_allowed) {
                    within.insert(slot);
                }
                if is_allowed && living.is_none_or(|living| living.slots().contains(slot)) {
                    allowed.insert(slot);
                }
            }
        }
        let step = allowed.len().div_ceil(SAMPLE).max(1);
        let sample = allowed.iter().step_by(step as usize).collect();
        let deletions = living.map(|living| living.sha256().to_owned());
        Ok(Filter { allowed, within, n, sample, build_id: graph.build_id, deletions })
    }

    /// Vertices that may be returned.
    pub fn n_allowed(&self) -> u32 {
        self.allowed.len()
    }

    /// A few of the slots that may be returned, evenly spread over them.
    pub(super) fn sample(&self) -> &[u32] {
        &self.sample
    }

    /// The slots that may be returned.
    pub fn allowed(&self) -> &Slots {
        &self.allowed
    }

    /// The vertices that a walk stays among, if edges within a label lead from each of them to each.
    pub(super) fn within(&self) -> Option<&Slots> {
        self.within.as_ref()
    }

    /// Where a walk that stays within the label begins: at the entry vertex of the label whose centroid is nearest to the
    /// query, or at any vertex of it where none is an entry.
    pub(super) fn entry(&self, entries: &Entries, query: &[f32]) -> Option<u32> {
        let within = self.within.as_ref()?;
        entries.nearest_among(query, |slot| within.contains(slot)).or_else(|| within.iter().next())
    }

    /// Refuses a filter of another index than that in directory `path`, or of a generation with other deletions.
    pub(super) fn check(&self, path: &Path, graph: &Graph, living: Option<&Living>) -> Result<()> {
        let other = if self.build_id != graph.build_id || self.n != graph.layout.n_vertices {
            "build"
        } else if self.deletions.as_deref() != living.map(Living::sha256) {
            "generation"
        } else {
            return Ok(());
        };
        let message = format!("allow: the filter was made for another {other} than {}", path.display());
        Err(Error::Input(format!("{message}; make one with this index")))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::common::{Spec, write_index};
    use crate::graph::query::QueryState;
    use crate::graph::results::Goal;
    use crate::graph::{Entry, Index, Policy, SearchParams};
    use crate::search::task::{Query, Step};
    use crate::search::with_ids::WithIds;
    use crate::search::{Queries, Values};

    /// What a scan of every `step`-th vertex does: how often it gives way before its first reads, and the code distances
    /// and expansions of a search for the nearest vertex.
    fn scanned(n: usize, step: usize, with_codes: bool) -> (usize, u64, u64) {
        let spec = Spec { n, dim: 2, max_degree: 2, n_sample: 0, with_codes, ..Spec::default() };
        let written = write_index(spec);
        let index = Index::open(written.path(), "pread").unwrap();
        let mut bitmap = vec![0u8; n.div_ceil(8)];
        (0..n).step_by(step).for_each(|id| bitmap[id / 8] |= 1 << (id % 8));
        let params = SearchParams::new(1)
            .list_size(100)
            .beam_width(1)
            .policy(Policy::Page)
            .entry(Entry::Medoid)
            .threads(1)
            .inflight(1)
            .deterministic(true)
            .allow(Arc::new(index.filter(&bitmap).unwrap()));
        let floats = written.query(3);
        let queries = Queries { values: Values::Float32(&floats), n: 1, dim: 2 };
        let search = index.prepare(&params, &queries, Goal::Nearest(1)).unwrap();
        assert!(search.shared.kind.plan.scans);
        let mut state = WithIds::<QueryState>::default();
        state.start(&search.shared, 0).unwrap();
        let mut turns = 0;
        while state.advance(&search.shared, |_| unreachable!("nothing was read")).unwrap() == Step::Again {
            turns += 1;
        }
        let counters = &index.search(&queries, &params).unwrap().counters[0];
        (turns, counters.code_distances, counters.expansions)
    }

    #[test]
    fn a_scan_gives_way_to_other_queries_and_to_the_caller() {
        // First 65,536 vertices, then the others and the first reads. With codes in nodes all that are allowed are read.
        assert_eq!(scanned(70_000, 1, false), (1, 70_000, 100));
        assert_eq!(scanned(70_000, 200, true), (1, 0, 350));
    }
}
