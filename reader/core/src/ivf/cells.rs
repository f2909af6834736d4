//! The lists that a query probes: those of the nearest centroids, nearest first.
//!
//! With a graph over the centroids they are found by greedy search (SPANN, section 3.2, where SPTAG does it). Without
//! one all centroids are measured, and exactly the nearest are probed. In both cases distances in float64 decide, added
//! in the order of the join, and ties go to the smaller number.

use super::centroids::{CellGraph, Centroids};
use crate::distance::{kernels, prefetch_row};
use crate::error::Result;
use crate::memory::make_room;
use crate::search::candidates::Candidates;
use crate::search::nearest::{distance_of, key, slot_of};

/// Candidates of a search of the graph: so many times the lists wanted, but at least [`LEAST_CANDIDATES`].
const CANDIDATES: usize = 2;
const LEAST_CANDIDATES: usize = 64;
/// Larger than the relative error of a float32 distance of up to 2^24 components.
const ROUNDING: f32 = 1e-4;

/// Bytes of centroids that a query measures before it gives way.
const BYTES_AT_ONCE: usize = 16 << 20;

/// Work space of one query after the other: [`CellSearch::begin`], [`CellSearch::search`] until it is true, and
/// [`CellSearch::choose`].
#[derive(Debug, Default)]
pub(super) struct CellSearch {
    candidates: Candidates,
    /// Of the centroids that may be among the nearest.
    keys: Vec<u64>,
    /// Whether `keys` has all of these.
    is_found: bool,
    /// Those that were measured in float64.
    ranked: Vec<(f64, u32)>,
    n_measured: u64,
}

impl CellSearch {
    /// Begins to look for the `n` nearest lists of another query.
    pub(super) fn begin(&mut self, centroids: &Centroids, n: usize) -> Result<()> {
        (self.n_measured, self.is_found) = (0, false);
        self.keys.clear();
        self.ranked.clear();
        if walked(centroids, n).is_some() {
            self.candidates.reset((CANDIDATES * n).max(LEAST_CANDIDATES).min(centroids.n_lists), false);
            return Ok(());
        }
        make_room(&centroids.path, &mut self.keys, centroids.n_lists)
    }

    /// Measures further centroids for a moment; true if all that may be among the `n` nearest were measured in float64.
    pub(super) fn search(&mut self, centroids: &Centroids, query: &[f32], n: usize) -> Result<bool> {
        assert_eq!(query.len(), centroids.dim);
        let at_once = (BYTES_AT_ONCE / size_of_val(query)).max(1);
        if !self.is_found {
            let is_found = match walked(centroids, n) {
                Some(graph) => self.walk(centroids, graph, query, at_once),
                None => self.scan(centroids, query, n, at_once),
            };
            if !is_found {
                return Ok(false);
            }
            make_room(&centroids.path, &mut self.ranked, self.keys.len())?;
            self.is_found = true;
        }
        Ok(self.rank(centroids, query, at_once))
    }

    /// Writes the `n` nearest lists to `out`; with `prune` only those within (1 + prune) times the distance of the
    /// nearest (SPANN, section 3.3). Returns the number of measured centroids.
    pub(super) fn choose(&mut self, n: usize, prune: Option<f32>, out: &mut Vec<u32>) -> u64 {
        self.ranked.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        self.ranked.truncate(n);
        let reach = prune.map_or(f64::INFINITY, |slack| {
            let slack = 1.0 + f64::from(slack);
            self.ranked.first().map_or(0.0, |nearest| nearest.0) * slack * slack
        });
        out.clear();
        // Overflow to infinity leaves nothing to compare: the nearest one is probed whatever it is.
        let near = self.ranked.iter().enumerate().filter(|&(i, &(d, _))| i == 0 || d <= reach);
        out.extend(near.map(|(_, &(_, list))| list));
        self.n_measured
    }

    /// Measures the next centroids, and in the end keeps every list that may be among the n nearest.
    fn scan(&mut self, centroids: &Centroids, query: &[f32], n: usize, at_once: usize) -> bool {
        let (l2, first) = (kernels().l2_f32, self.keys.len());
        let rows = centroids.rows().skip(first).take(at_once);
        self.keys.extend(rows.zip(first as u32..).map(|(row, list)| {
            // SAFETY: both hold `dim` floats: the query as asserted, a row by its making.
            key(unsafe { l2(query.as_ptr(), row.as_ptr(), centroids.dim) }, list)
        }));
        self.n_measured = self.keys.len() as u64;
        if self.keys.len() < centroids.n_lists {
            return false;
        }
        if n < self.keys.len() {
            let (_, &mut last, _) = self.keys.select_nth_unstable(n - 1);
            let reach = key(distance_of(last) * (1.0 + ROUNDING), u32::MAX);
            self.keys.retain(|&key| key <= reach);
        }
        true
    }

    /// Greedy best-first search (DiskANN Algorithm 1).
    fn walk(&mut self, centroids: &Centroids, graph: &CellGraph, query: &[f32], at_once: usize) -> bool {
        let (l2, dim) = (kernels().l2_f32, centroids.dim);
        let CellSearch { candidates, keys, n_measured, .. } = self;
        let mut offer = |candidates: &mut Candidates, cells: &[u32]| {
            cells.iter().for_each(|&cell| prefetch_row(centroids.row(cell).as_ptr().cast(), 4 * dim));
            for &cell in cells {
                // SAFETY: as above.
                candidates.insert(key(unsafe { l2(query.as_ptr(), centroids.row(cell).as_ptr(), dim) }, cell));
            }
            *n_measured += cells.len() as u64;
            cells.len()
        };
        let mut left = at_once.min(candidates.insertions_at_once());
        if candidates.is_empty() {
            offer(candidates, &[graph.entry]);
        }
        while let Some(cell) = candidates.pop() {
            left = left.saturating_sub(offer(candidates, graph.neighbours(cell)));
            if left == 0 {
                return false;
            }
        }
        keys.extend(candidates.keys());
        true
    }

    /// Measures the next of the centroids that were found in float64; true if none is left.
    fn rank(&mut self, centroids: &Centroids, query: &[f32], at_once: usize) -> bool {
        let lists = self.keys[self.ranked.len()..].iter().take(at_once).map(|&key| slot_of(key));
        self.ranked.extend(lists.map(|list| (distance(query, centroids.row(list)), list)));
        self.ranked.len() == self.keys.len()
    }
}

/// The graph in which the `n` nearest lists are looked for, if it is not better to measure all centroids.
fn walked(centroids: &Centroids, n: usize) -> Option<&CellGraph> {
    centroids.graph.as_ref().filter(|_| n < centroids.n_lists)
}

/// Squared distance in float64, in four partial sums, as the join adds them.
fn distance(a: &[f32], b: &[f32]) -> f64 {
    let mut sums = [0f64; 4];
    let square = |x: f32, y: f32| (f64::from(x) - f64::from(y)) * (f64::from(x) - f64::from(y));
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<4>(), b.as_chunks::<4>());
    for (a, b) in a.iter().zip(b) {
        for (sum, (&x, &y)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += square(x, y);
        }
    }
    for (&x, &y) in a_rest.iter().zip(b_rest) {
        sums[0] += square(x, y);
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::ivf::{IvfSpec, write_ivf};
    use crate::ivf::IvfIndex;

    #[test]
    fn a_query_gives_way_while_it_measures_centroids_and_while_it_ranks_them() {
        let written = write_ivf(IvfSpec { n: 2, dim: 65_536, n_lists: 100, n_batches: 1, ..IvfSpec::default() });
        let centroids = &IvfIndex::open(written.path(), "pread").unwrap().centroids;
        let (query, mut cells, mut turns, mut chosen) = (written.query(1), CellSearch::default(), 0, Vec::new());
        cells.begin(centroids, 100).unwrap();
        while !cells.search(centroids, &query, 100).unwrap() {
            turns += 1;
        }
        assert_eq!(turns, 2, "64 are measured at once, and again at once");
        assert_eq!(cells.choose(100, None, &mut chosen), 100);
        let mut want: Vec<u32> = (0..100).collect();
        want.sort_by(|&a, &b| distance(&query, centroids.row(a)).total_cmp(&distance(&query, centroids.row(b))));
        assert_eq!(chosen, want);
    }
}
