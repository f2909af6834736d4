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

/// Code distances that cost as much time as one page read. In slot order a code distance takes 7 to 15 nanoseconds (16
/// to 32 bytes a code). A read takes 10 to 20 microseconds: the work on its page and its share of a device of 85,000
/// reads a second.
const CODE_DISTANCES_PER_PAGE: u64 = 1024;

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
    pub plan: Plan,
    pub cache: Option<Arc<Cache>>,
    pub notes: Notes,
}

/// How a search finds its candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    /// L, longer where a filter leaves few of the candidates.
    pub list_size: usize,
    /// Whether all allowed vertices are scored and the nearest of them read, instead of following edges.
    pub scans: bool,
}

impl Plan {
    /// Edges are followed with a list that has room for L of the `n_allowed` vertices, of `n`. So an index is searched as
    /// long as deletions left half of its vertices: then the list is at most twice as long.
    pub fn followed(list_size: usize, n: u32, n_allowed: u32) -> Self {
        let followed = (list_size as u64).min(n.into()) * u64::from(n);
        Plan { list_size: list_size.max(followed.div_ceil(n_allowed.max(1).into()) as usize), scans: false }
    }

    /// For `n_allowed` of `n` vertices without codes in memory: a scan reads all that are allowed, so that it is cheaper as
    /// long as they are fewer than the reads of a search through all.
    pub fn filtered_by_reads(list_size: usize, n: u32, n_allowed: u32) -> Self {
        let (n, n_allowed) = (u64::from(n), u64::from(n_allowed.max(1)));
        let followed = ((list_size as u64).min(n) * n).div_ceil(n_allowed);
        let scans = n_allowed <= followed;
        Plan { list_size: if scans { list_size.max(n_allowed as usize) } else { followed as usize }, scans }
    }

    /// For `n_allowed` of `n` vertices.
    ///
    /// Edges do not know the filter: L allowed candidates need a list of `L * n / n_allowed`, and as many reads. A scan
    /// computes `n_allowed` code distances instead. Taking the cheaper of the two also bounds the list: it is never
    /// longer than `sqrt(L * n / CODE_DISTANCES_PER_PAGE)`, or L.
    pub fn filtered(list_size: usize, n: u32, n_allowed: u32) -> Self {
        let (n, n_allowed) = (u64::from(n), u64::from(n_allowed.max(1)));
        let followed = (list_size as u64).min(n) * n;
        let scans = n_allowed * n_allowed <= followed.saturating_mul(CODE_DISTANCES_PER_PAGE);
        let list_size = if scans { list_size } else { followed.div_ceil(n_allowed) as usize };
        Plan { list_size, scans }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_codes_a_scan_reads_what_is_allowed() {
        let million = |n_allowed| Plan::filtered_by_reads(64, 1_000_000, n_allowed);
        for n_allowed in [0, 1, 100, 8_000] {
            assert_eq!(million(n_allowed), Plan { list_size: 64.max(n_allowed as usize), scans: true });
        }
        assert_eq!(million(8_001), Plan { list_size: 8_000, scans: false });
        assert_eq!(million(1_000_000), Plan { list_size: 64, scans: false });
    }

    #[test]
    fn few_allowed_vertices_are_scanned_and_many_are_reached_by_a_longer_list() {
        let million = |n_allowed| Plan::filtered(64, 1_000_000, n_allowed);
        for n_allowed in [0, 1, 10, 256_000] {
            assert_eq!(million(n_allowed), Plan { list_size: 64, scans: true });
        }
        assert_eq!(million(256_001), Plan { list_size: 250, scans: false });
        assert_eq!(million(500_000), Plan { list_size: 128, scans: false });
        assert_eq!(million(1_000_000), Plan { list_size: 64, scans: false });
    }

    #[test]
    fn what_deletions_leave_is_reached_by_a_longer_list() {
        for (n, n_living, want) in [(1000, 1000, 64), (1000, 999, 65), (1000, 900, 72), (1000, 500, 128), (30, 15, 64)]
        {
            assert_eq!(Plan::followed(64, n, n_living), Plan { list_size: want, scans: false });
        }
    }

    #[test]
    fn the_list_stays_as_short_as_a_scan_is_cheap() {
        for n in [1u32, 300, 70_000, 1_000_000_000, u32::MAX] {
            for list_size in [1usize, 10, 64, 5000, usize::MAX] {
                for share in [1u32, 2, 9, 100, 1000, 12_345] {
                    let plan = Plan::filtered(list_size, n, n / share);
                    let bound = (list_size.min(n as usize) as f64 * f64::from(n) / 1024.0).sqrt();
                    assert!(plan.list_size == list_size || plan.list_size as f64 <= bound.max(list_size as f64) + 1.0);
                    assert!(
                        plan.scans || plan.list_size as u64 * u64::from(n / share) >= list_size as u64 * u64::from(n)
                    );
                }
            }
        }
    }
}
