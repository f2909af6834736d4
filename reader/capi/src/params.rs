//! How to search.

use indexmill_core::Index;
use indexmill_core::graph::{Entry, Policy, SearchParams};

use crate::error::{Failure, guard};
use crate::filter::ImFilter;
use crate::pointers::{Room, borrow};

/// Policy: lock-step beam search, one vertex a read (DiskANN++ Algorithm 1).
pub const IM_POLICY_BEAM: u32 = 0;
/// Policy: page search with a page heap (DiskANN++ Algorithm 5).
pub const IM_POLICY_PAGE: u32 = 1;
/// Policy: each read handled when it arrives (AIO-ANN Algorithm 1).
pub const IM_POLICY_COMPLETION: u32 = 2;
/// Policy: page search without a barrier between reads.
pub const IM_POLICY_PIPELINE: u32 = 3;

/// Entry: the vertex nearest to the mean of all vectors.
pub const IM_ENTRY_MEDOID: u32 = 0;
/// Entry: the vertex of the centroid nearest to the query.
pub const IM_ENTRY_CENTROIDS: u32 = 1;
/// Entry: the nearest vertices of the navigation graph; refused where the index has none.
pub const IM_ENTRY_NAVIGATION: u32 = 2;
/// Entry: the results of the query that its thread answered before (AIO-ANN); a deterministic search takes it with
/// threads = inflight = 1 only.
pub const IM_ENTRY_PREVIOUS: u32 = 3;
/// Entry: IM_ENTRY_NAVIGATION where the index has a navigation graph, else IM_ENTRY_CENTROIDS.
pub const IM_ENTRY_AUTO: u32 = 4;

/// How to search. Let im_search_params_default fill it, then change what you want to: a structure that it did not fill,
/// or that comes from another version of this header, is recognised by struct_bytes and refused.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ImSearchParams {
    /// sizeof(ImSearchParams), stored by im_search_params_default.
    pub struct_bytes: u32,
    /// Answers a query, at most the number of vectors; a range search ignores it. Default 10.
    pub k: u32,
    /// Candidates kept, at least k; larger is slower and finds more. Default 64.
    pub search_list_size: u32,
    /// Reads of one query in flight at most, 1 .. 64. Default 8.
    pub beam_width: u32,
    /// IM_POLICY_BEAM .. IM_POLICY_PIPELINE. Default IM_POLICY_PIPELINE.
    pub policy: u32,
    /// IM_ENTRY_MEDOID .. IM_ENTRY_AUTO. Default IM_ENTRY_AUTO.
    pub entry: u32,
    /// Search threads of the call, the calling one among them, 1 .. 1024. Default 1.
    pub threads: u32,
    /// Queries that each thread interleaves, 1 .. 256. Default 8.
    pub inflight: u32,
    /// 1: reads are taken up in the order in which they were chosen, so that results and counters repeat bit for bit;
    /// 0: as they arrive, which makes a difference under IM_POLICY_PIPELINE and with IM_ENTRY_PREVIOUS only. Default 1.
    pub deterministic: u32,
    /// The vectors that may be returned; null for all. Borrowed for the call; one filter may serve
    /// several at once. Default null.
    pub allow: *const ImFilter,
}

const STRUCT_BYTES: u32 = size_of::<ImSearchParams>() as u32;

const DEFAULT: ImSearchParams = ImSearchParams {
    struct_bytes: STRUCT_BYTES,
    k: 10,
    search_list_size: 64,
    beam_width: 8,
    policy: IM_POLICY_PIPELINE,
    entry: IM_ENTRY_AUTO,
    threads: 1,
    inflight: 8,
    deterministic: 1,
    allow: std::ptr::null(),
};

/// Fills `*out` with the defaults; `struct_bytes` is sizeof(ImSearchParams). Returns 0, or IM_EINVAL and leaves `*out`
/// alone if the program was compiled with another version of the structure.
///
/// Threads: any, at any time. Ownership: `*out` is the caller's.
///
/// # Safety
/// `out` is null or has room for `struct_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn im_search_params_default(out: *mut ImSearchParams, struct_bytes: usize) -> i32 {
    guard(|| {
        let room = Room::new("im_search_params_default: out", out)?;
        check_size("im_search_params_default: struct_bytes", struct_bytes)?;
        // SAFETY: as large as ours, and writable by the caller's contract.
        unsafe { room.write(DEFAULT) };
        Ok(0)
    })
}

fn check_size(name: &str, bytes: usize) -> Result<(), Failure> {
    if bytes == STRUCT_BYTES as usize {
        return Ok(());
    }
    let advice = "fill the structure with im_search_params_default, and compile with the header of this library";
    Err(Failure::invalid(format!("{name}: expected {STRUCT_BYTES}, got {bytes}; {advice}")))
}

/// Parameters as the core takes them.
///
/// # Safety
/// `params` is null or readable, its filter null or alive.
pub unsafe fn core_params(params: *const ImSearchParams, index: &Index) -> Result<SearchParams, Failure> {
    // SAFETY: null or readable by the contract; of a shorter structure only the first field is used.
    let struct_bytes = *unsafe { borrow("params", params.cast::<u32>()) }?;
    check_size("params: struct_bytes", struct_bytes as usize)?;
    // SAFETY: as above, and of the size that we know.
    let params = unsafe { borrow("params", params) }?;
    let allow = match params.allow.is_null() {
        true => None,
        // SAFETY: alive by the contract.
        false => Some(unsafe { borrow("params: allow", params.allow) }?.inner.clone()),
    };
    Ok(SearchParams {
        k: params.k as usize,
        list_size: params.search_list_size as usize,
        beam_width: params.beam_width as usize,
        policy: policy(params.policy)?,
        entry: entry(params.entry, index)?,
        threads: params.threads as usize,
        inflight: params.inflight as usize,
        deterministic: match params.deterministic {
            0 => false,
            1 => true,
            other => return Err(unknown("deterministic", "0 or 1", other)),
        },
        allow,
    })
}

fn policy(code: u32) -> Result<Policy, Failure> {
    Ok(match code {
        IM_POLICY_BEAM => Policy::Beam,
        IM_POLICY_PAGE => Policy::Page,
        IM_POLICY_COMPLETION => Policy::Completion,
        IM_POLICY_PIPELINE => Policy::Pipeline,
        other => return Err(unknown("policy", "IM_POLICY_BEAM .. IM_POLICY_PIPELINE (0 .. 3)", other)),
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
