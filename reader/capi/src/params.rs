//! How to search.

use indexmill_core::graph::{Entry, Policy, SearchParams};
use indexmill_core::ivf::IvfParams;
use indexmill_core::lsh::LshParams;
use indexmill_core::{Error, Index, IvfIndex};

use crate::cancel::ImCancel;
use crate::error::{Failure, guard};
use crate::filter::ImFilter;
use crate::pointers::optional;
use crate::structures::{Grows, Structures, read};

/// Policy: lock-step beam search, one vertex a read (DiskANN++ Algorithm 1).
pub const IM_POLICY_BEAM: u32 = 0;
/// Policy: page search with a page heap (DiskANN++ Algorithm 5).
pub const IM_POLICY_PAGE: u32 = 1;
/// Policy: each read handled when it arrives (AIO-ANN Algorithm 1).
pub const IM_POLICY_COMPLETION: u32 = 2;
/// Policy: page search without a barrier between reads.
pub const IM_POLICY_PIPELINE: u32 = 3;
/// Policy: page search in as few rounds of reads as it can, for storage that takes long to answer. Libraries
/// that do not know it yet refuse it.
pub const IM_POLICY_ROUNDS: u32 = 4;

/// Entry: the vertex nearest to the mean of all vectors.
pub const IM_ENTRY_MEDOID: u32 = 0;
/// Entry: the vertex of the centroid nearest to the query; under IM_POLICY_ROUNDS those of several.
pub const IM_ENTRY_CENTROIDS: u32 = 1;
/// Entry: the nearest vertices of the navigation graph; refused where the index has none.
pub const IM_ENTRY_NAVIGATION: u32 = 2;
/// Entry: the results of the query that its thread answered before (AIO-ANN); a deterministic search takes it with
/// threads = inflight = 1 only.
pub const IM_ENTRY_PREVIOUS: u32 = 3;
/// Entry: IM_ENTRY_NAVIGATION where the index has a navigation graph, else IM_ENTRY_CENTROIDS.
pub const IM_ENTRY_AUTO: u32 = 4;

/// As ImSearchParams.rerank or probes: the default of the index.
pub const IM_DEFAULT: u32 = 4294967295;

/// Lists probed by default.
const DEFAULT_NPROBE: usize = 16;
/// Candidates measured exactly for each answer by default, where lists hold codes.
const DEFAULT_RERANK: usize = 10;

/// How to search. Let im_search_params_default fill it, then change what you want to. Fields of another kind of index
/// are ignored, except `allow`: a filter is refused where the index is no graph.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ImSearchParams {
    /// sizeof(ImSearchParams), stored by im_search_params_default.
    pub struct_bytes: u32,
    /// Answers a query, at most the number of vectors; a range search ignores it. Default 10.
    pub k: u32,
    /// Graphs: candidates kept (L in messages), at least k; larger is slower and finds more. Default 64.
    pub search_list_size: u32,
    /// Graphs: reads of one query in flight at most, 1 .. 64. Default 8.
    pub beam_width: u32,
    /// Graphs: IM_POLICY_BEAM .. IM_POLICY_ROUNDS. Default IM_POLICY_PIPELINE.
    pub policy: u32,
    /// Graphs: IM_ENTRY_MEDOID .. IM_ENTRY_AUTO. Default IM_ENTRY_AUTO.
    pub entry: u32,
    /// Threads that work for the call, 1 .. 1024: the calling one and threads of the index (see im_search). While the
    /// index is busy, more of its threads may take queries of the call, but at most threads x inflight of these are in
    /// progress at once. Default 1.
    pub threads: u32,
    /// Queries of the call that a thread interleaves at most, 1 .. 256. Default 8.
    pub inflight: u32,
    /// Graphs: 1: results and counters repeat bit for bit, because reads are handled in the order in which they were
    /// chosen; 0: reads are handled as they arrive, which matters under IM_POLICY_PIPELINE and with IM_ENTRY_PREVIOUS
    /// only. Default 1.
    pub deterministic: u32,
    /// 0.
    pub reserved: u32,
    /// Graphs: the vectors that may be returned; null for all. Borrowed for the call; one filter may serve several
    /// calls at once. Default null.
    pub allow: *const ImFilter,
    /// What may end the call early (see im_cancel); null for nothing. Borrowed for the call; one handle may serve
    /// several calls at once. Default null.
    pub cancel: *const ImCancel,
    /// Inverted lists: lists of nearest centroids to probe; 0 for 16, or all if there are fewer. Default 0.
    pub nprobe: u32,
    /// Inverted lists: candidates measured by their exact vectors, at least k, or 0 for none; IM_DEFAULT for ten
    /// times k where lists hold codes and the index has exact vectors. Default IM_DEFAULT.
    pub rerank: u32,
    /// Inverted lists: leave out those whose centroid is farther than 1 + this times the nearest one; below 0, leave
    /// out none. Default -1.
    pub prune: f32,
    /// Hash tables: further buckets of each table; IM_DEFAULT for those of the index. Default IM_DEFAULT.
    pub probes: u32,
    /// Hash tables: vectors that a radius may measure; 0 for those of the index. Default 0.
    pub candidates: u64,
}

// SAFETY: it is repr(C), begins with its size and consists of numbers and pointers.
unsafe impl Grows for ImSearchParams {
    const LEAST: usize = 64 + 2 * size_of::<*const ImFilter>();
}

const DEFAULT: ImSearchParams = ImSearchParams {
    struct_bytes: size_of::<ImSearchParams>() as u32,
    k: 10,
    search_list_size: 64,
    beam_width: 8,
    policy: IM_POLICY_PIPELINE,
    entry: IM_ENTRY_AUTO,
    threads: 1,
    inflight: 8,
    deterministic: 1,
    reserved: 0,
    allow: std::ptr::null(),
    cancel: std::ptr::null(),
    nprobe: 0,
    rerank: IM_DEFAULT,
    prune: -1.0,
    probes: IM_DEFAULT,
    candidates: 0,
};

/// Fills `*out` with the defaults; `struct_bytes` is sizeof(ImSearchParams). Returns 0 or an error code.
///
/// Threads: any, at any time. Ownership: `*out` is the caller's.
///
/// # Safety
/// `out` is null or has room for `struct_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_search_params_default(out: *mut ImSearchParams, struct_bytes: usize) -> i32 {
    guard(|| {
        let room = Structures::of_size("im_search_params_default: out", out, struct_bytes)?;
        // SAFETY: writable by the caller's contract.
        unsafe { room.write([DEFAULT]) };
        Ok(0)
    })
}

/// Parameters that a caller gave.
pub struct Given<'a> {
    params: ImSearchParams,
    /// The vectors that may be returned.
    pub allow: Option<&'a ImFilter>,
    cancel: Option<&'a ImCancel>,
}

impl<'a> Given<'a> {
    /// Checks the structure and its pointers. A call that was cancelled before it began ends here.
    ///
    /// # Safety
    /// `params` is null or readable; its filter and its cancel handle are null or alive for `'a`.
    pub unsafe fn new(params: *const ImSearchParams) -> Result<Self, Failure> {
        // SAFETY: null or readable by the contract.
        let params = unsafe { read("params", params, DEFAULT) }?;
        if params.reserved != 0 {
            let message = format!("params: reserved: expected 0, got {}", params.reserved);
            return Err(Failure::invalid(format!("{message}; fill the structure with im_search_params_default")));
        }
        // SAFETY: alive by the contract.
        let allow = unsafe { optional("params: allow", params.allow) }?;
        // SAFETY: as above.
        let cancel = unsafe { optional("params: cancel", params.cancel) }?;
        let given = Given { params, allow, cancel };
        if given.is_cancelled() { Err(Error::Interrupted.into()) } else { Ok(given) }
    }

    /// Whether the caller wants the call to end.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_some_and(ImCancel::is_set)
    }

    /// For a graph.
    pub fn graph(&self, index: &Index) -> Result<SearchParams, Failure> {
        let params = &self.params;
        Ok(SearchParams::new(params.k as usize)
            .list_size(params.search_list_size as usize)
            .beam_width(params.beam_width as usize)
            .policy(policy(params.policy)?)
            .entry(entry(params.entry, index)?)
            .threads(params.threads as usize)
            .inflight(params.inflight as usize)
            .deterministic(match params.deterministic {
                0 => false,
                1 => true,
                other => return Err(unknown("deterministic", "0 or 1", other)),
            })
            .allow(self.allow.map(|filter| filter.inner.clone())))
    }

    /// For inverted lists.
    pub fn lists(&self, index: &IvfIndex) -> IvfParams {
        let (params, k) = (&self.params, self.params.k as usize);
        let most = index.centroids.n_vectors as usize;
        IvfParams::new(
            k,
            match params.nprobe {
                0 => DEFAULT_NPROBE.min(index.centroids.n_lists),
                nprobe => nprobe as usize,
            },
        )
        .prune(if params.prune < 0.0 { None } else { Some(params.prune) })
        .rerank(match params.rerank {
            IM_DEFAULT if index.vectors.is_some() => DEFAULT_RERANK.saturating_mul(k).min(most),
            IM_DEFAULT => 0,
            rerank => rerank as usize,
        })
        .threads(params.threads as usize)
        .inflight(params.inflight as usize)
    }

    /// For hash tables.
    pub fn tables(&self) -> LshParams {
        let params = &self.params;
        LshParams::new(params.k as usize)
            .candidates((params.candidates > 0).then_some(params.candidates))
            .probes((params.probes != IM_DEFAULT).then_some(params.probes as usize))
            .threads(params.threads as usize)
            .inflight(params.inflight as usize)
    }
}

fn policy(code: u32) -> Result<Policy, Failure> {
    Ok(match code {
        IM_POLICY_BEAM => Policy::Beam,
        IM_POLICY_PAGE => Policy::Page,
        IM_POLICY_COMPLETION => Policy::Completion,
        IM_POLICY_PIPELINE => Policy::Pipeline,
        IM_POLICY_ROUNDS => Policy::Rounds,
        other => return Err(unknown("policy", "IM_POLICY_BEAM .. IM_POLICY_ROUNDS (0 .. 4)", other)),
    })
}

fn entry(code: u32, index: &Index) -> Result<Entry, Failure> {
    Ok(match code {
        IM_ENTRY_MEDOID => Entry::Medoid,
        IM_ENTRY_CENTROIDS => Entry::Centroids,
        IM_ENTRY_NAVIGATION => Entry::Navigation,
        IM_ENTRY_PREVIOUS => Entry::Previous,
        IM_ENTRY_AUTO if index.navigation.is_some() => Entry::Navigation,
        IM_ENTRY_AUTO => Entry::Centroids,
        other => return Err(unknown("entry", "IM_ENTRY_MEDOID .. IM_ENTRY_AUTO (0 .. 4)", other)),
    })
}

fn unknown(field: &str, expected: &str, got: u32) -> Failure {
    Failure::invalid(format!("params: {field}: expected {expected}, got {got}; choose one of them"))
}
