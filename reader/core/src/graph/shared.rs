//! What all queries of one search share: parts of the index, parameters, and how a filtered search finds its
//! candidates.

use std::sync::Arc;

use super::apart::Apart;
use super::cache::Cache;
use super::entries::Entries;
use super::file::Graph;
use super::navigation::Navigation;
use super::params::SearchParams;
use super::results::Goal;
use crate::codes::Codes;
use crate::engine::DataFile;
use crate::living::Slots;
use crate::search::Queries;

/// Code distances that cost as much time as one page read. In slot order a code distance takes 9 to 14 nanoseconds (32
/// to 64 bytes a code). A read takes 24 to 30 microseconds: 12 to 18 of work on its page and its vertices' edges, and its
/// share of a device of 85,000 reads a second (two-core EPYC with AVX-512).
const CODE_DISTANCES_PER_PAGE: u64 = 2048;

/// What a search notes besides its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notes {
    /// Nothing.
    Nothing,
    /// The blocks that are read.
    Blocks,
    /// Everything, for a trace.
    Events,
}

/// What all queries of one search share.
pub(super) struct Shared<'a> {
    pub graph: &'a Graph,
    pub codes: &'a Codes,
    pub entries: &'a Entries,
    pub navigation: Option<&'a Navigation>,
    /// Exact vectors, where they were kept apart from the nodes.
    pub apart: Option<Apart<'a>>,
    /// graph.imx, and the file of exact vectors.
    pub files: &'a DataFile,
    pub params: &'a SearchParams,
    pub queries: Queries<'a>,
    pub goal: Goal,
    /// The vertices that may be returned: those of the filter, or what deletions left; all if none.
    pub allowed: Option<&'a Slots>,
    /// The vertices that the search stays among, those of a label; all if none.
    pub within: Option<&'a Slots>,
    pub plan: Plan,
    pub cache: Option<Arc<Cache>>,
    pub notes: Notes,
}

/// How a search finds its candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    /// L: candidates that may be returned.
    pub list_size: usize,
    /// Where edges lead through vertices that are not allowed: candidates of any kind, the nearest ones. Otherwise 0.
    pub through: usize,
    /// Whether all allowed vertices are scored and the nearest of them read, instead of following edges.
    pub scans: bool,
}

impl Plan {
    /// This walk to `n_allowed` vertices without codes in memory, or a scan: that reads all that are allowed, so that it is
    /// cheaper as long as they are no more than the candidates of the walk.
    pub fn or_scan_by_reads(self, n_allowed: u32) -> Self {
        let (n_allowed, candidates) = (n_allowed as usize, self.list_size.saturating_add(self.through));
        if n_allowed <= candidates { Self::scan(self.list_size.max(n_allowed)) } else { self }
    }

    /// This walk to `n_allowed` of `n` vertices, or a scan. At equal recall a walk through all vertices reads about
    /// `L * sqrt(n / n_allowed)` pages more than a scan, which computes `n_allowed` code distances instead. (A million SIFT
    /// vectors, recall 0.95: 1.0 to 1.2 times as many where 1 or 10% are allowed at random, 0.6 times where half are.)
    pub fn or_scan(self, n: u32, n_allowed: u32) -> Self {
        // n_allowed <= CODE_DISTANCES_PER_PAGE * L * sqrt(n / n_allowed), squared; at most 2^118 on either side
        let (n_wide, allowed) = (u128::from(n), u128::from(n_allowed));
        let distances = u128::from(CODE_DISTANCES_PER_PAGE) * (self.list_size as u128).min(n_wide);
        let scans = allowed.pow(3) <= distances.pow(2) * n_wide;
        if scans { Self::scan(self.list_size) } else { self }
    }

    /// Within a label of `n_label` vertices with edges among them, of which `n_allowed` were not deleted: as in an index of
    /// them alone.
    pub fn within(list_size: usize, n_label: u32, n_allowed: u32) -> Self {
        if n_allowed == n_label { Self::unfiltered(list_size) } else { Self::walk(list_size, n_label, n_allowed) }
    }

    /// All vertices may be returned.
    pub fn unfiltered(list_size: usize) -> Self {
        Plan { list_size, through: 0, scans: false }
    }

    fn scan(list_size: usize) -> Self {
        Plan { list_size, through: 0, scans: true }
    }

    /// Reads the nearest L allowed vertices that are met, and of any kind as many as lead to them: the fewer are allowed,
    /// the more. On a million SIFT vectors with a drawn tenth allowed, L / 2, L and 2 L of any kind take 58.8, 54.3 and 55.3
    /// reads for recall 0.95, and with a half allowed 29.8, 31.4 and 34.9. One list of `L * n / n_allowed` vertices, of
    /// which about L are allowed, takes 122 and 35.9. With L = n all are read that edges lead to.
    pub fn walk(list_size: usize, n: u32, n_allowed: u32) -> Self {
        let share = f64::from(n) / f64::from(n_allowed.max(1));
        let scale = if list_size >= n as usize { f64::INFINITY } else { share.sqrt() / 2.0 };
        let through = (list_size as f64 * scale).ceil();
        Plan { list_size, through: through.min(f64::from(n)) as usize, scans: false }
    }
}

impl Shared<'_> {
    /// The vertices that may be returned, where edges lead through others.
    pub fn walked_to(&self) -> Option<&Slots> {
        self.allowed.filter(|_| self.plan.through > 0)
    }

    /// Whether the search may go on from a vertex.
    pub fn leads_on(&self, slot: u32) -> bool {
        self.within.is_none_or(|within| within.contains(slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_codes_a_scan_reads_what_is_allowed() {
        let million = |n_allowed| Plan::walk(64, 1_000_000, n_allowed).or_scan_by_reads(n_allowed);
        for n_allowed in [0, 1, 100, 1_000] {
            assert_eq!(million(n_allowed), Plan::scan(64.max(n_allowed as usize)));
        }
        assert_eq!(million(10_000), Plan { list_size: 64, through: 320, scans: false });
        assert_eq!(million(1_000_000), Plan { list_size: 64, through: 32, scans: false });
    }

    #[test]
    fn few_allowed_vertices_are_scanned_and_many_are_walked_to() {
        let million = |n_allowed| Plan::walk(64, 1_000_000, n_allowed).or_scan(1_000_000, n_allowed);
        for n_allowed in [0, 1, 10, 258_031] {
            assert_eq!(million(n_allowed), Plan::scan(64));
        }
        assert_eq!(million(258_032), Plan { list_size: 64, through: 63, scans: false });
        assert_eq!(million(500_000), Plan { list_size: 64, through: 46, scans: false });
        assert_eq!(million(1_000_000), Plan { list_size: 64, through: 32, scans: false });
    }

    #[test]
    fn a_walk_within_a_label_is_that_of_an_index_of_it_alone() {
        assert_eq!(Plan::within(64, 1_000, 1_000), Plan::unfiltered(64));
        assert_eq!(Plan::within(64, 1_000, 1_000).or_scan_by_reads(1_000), Plan::unfiltered(64));
        assert_eq!(Plan::within(64, 1_000, 64).or_scan_by_reads(64), Plan::scan(64));
        assert_eq!(Plan::within(64, 1_000, 250), Plan { list_size: 64, through: 64, scans: false });
        assert_eq!(Plan::within(64, 1_000, 0).or_scan_by_reads(0), Plan::scan(64), "all are deleted");
    }

    #[test]
    fn a_walk_with_the_longest_list_leaves_nothing_out() {
        assert_eq!(Plan::walk(299, 300, 270), Plan { list_size: 299, through: 158, scans: false });
        assert_eq!(Plan::walk(300, 300, 270), Plan { list_size: 300, through: 300, scans: false });
    }

    #[test]
    fn a_walk_costs_no_more_than_the_scan_that_it_stands_for() {
        for n in [1u32, 300, 70_000, 1_000_000_000, u32::MAX] {
            for list_size in [1usize, 10, 64, 5000, u32::MAX as usize, usize::MAX] {
                for share in [1u32, 2, 9, 100, 1000, 12_345] {
                    let plan = Plan::walk(list_size, n, n / share).or_scan(n, n / share);
                    assert!(plan.through <= n as usize && (plan.through == 0) == plan.scans);
                    let saved =
                        list_size.min(n as usize) as f64 * (f64::from(n) / f64::from((n / share).max(1))).sqrt();
                    let distances = CODE_DISTANCES_PER_PAGE as f64 * saved;
                    assert!(
                        plan.scans == (f64::from(n / share) <= distances)
                            || (f64::from(n / share) / distances - 1.0).abs() < 1e-6
                    );
                }
            }
        }
    }
}
