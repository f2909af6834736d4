//! Memory that the system refuses is an error of the call that needs it, at every step.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;

use crate::common::ivf::{IvfSpec, write_ivf};
use crate::common::lsh::{LshSpec, write_lsh};
use crate::common::searches::{params, with_queries};
use crate::common::{Spec, write_index};
use crate::deleted::deletion::delete;
use indexmill_core::graph::Policy;
use indexmill_core::ivf::IvfParams;
use indexmill_core::lsh::{InMemory, LshParams};
use indexmill_core::search::{Queries, Values};
use indexmill_core::verify::verify;
use indexmill_core::{Error, Index, IvfIndex, LshIndex, Result};

/// Bytes of an allocation that may be refused: more than pieces of work take.
const LARGE: usize = 4200;

thread_local! {
    /// Large allocations of this thread before the one that is refused, if one is to be.
    static BEFORE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The memory of the tests.
struct Refusing;

#[global_allocator]
static MEMORY: Refusing = Refusing;

fn is_refused(bytes: usize) -> bool {
    let counts = |before: &Cell<Option<usize>>| {
        let left = before.get().filter(|_| bytes >= LARGE);
        if let Some(left) = left {
            before.set(left.checked_sub(1));
        }
        left == Some(0)
    };
    BEFORE.try_with(counts).unwrap_or(false)
}

// SAFETY: what is not refused is the system's.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller says.
        if is_refused(layout.size()) { std::ptr::null_mut() } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller says.
        if is_refused(layout.size()) { std::ptr::null_mut() } else { unsafe { System.alloc_zeroed(layout) } }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as the caller says.
        if is_refused(bytes) { std::ptr::null_mut() } else { unsafe { System.realloc(start, layout, bytes) } }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as the caller says.
        unsafe { System.dealloc(start, layout) }
    }
}

/// Refuses each large allocation of `call`, one at a time; their number. An allocation that must not fail ends the process.
fn refused_everywhere<T>(call: impl Fn() -> Result<T>) -> usize {
    for before in 0.. {
        BEFORE.set(Some(before));
        let returned = call();
        let is_whole = BEFORE.take().is_some();
        match returned {
            Ok(_) => {
                assert!(is_whole, "allocation {before} was refused in vain");
                return before;
            }
            Err(Error::Config(message)) => {
                let is_told = message.contains("the system refused") || message.contains("do not fit in memory");
                assert!(is_told, "{message}");
            }
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("no call allocates for ever")
}

#[test]
fn making_a_view() {
    // A node a page, so that there are checksums of many.
    let n = 1100;
    let written = write_index(Spec { n, dim: 2, max_degree: 510, n_sample: n, ..Spec::default() });
    delete(written.path(), n, &[7, 9]);
    let index = Index::open(written.path(), "pread").unwrap();
    let order: Vec<u32> = (0..n as u32).rev().collect();
    let view = index.remapped(&order).unwrap(); // reads the nodes, which stay
    assert_eq!(refused_everywhere(|| index.remapped(&order)), 7, "two maps, and five lists for the navigation graph");
    assert_eq!(refused_everywhere(|| view.remapped(&order)), 8, "a map more");
}

/// A damage, or memory that a verification lacks, as an error.
fn verified(path: &Path) -> Result<()> {
    verify(path).into_iter().next().map_or(Ok(()), |damage| Err(Error::Config(damage)))
}

/// Queries of a search, one in flight at a time, and results of each: many results in all, and few vertices that a query
/// has met, for which memory must not be refused.
const QUERIES: usize = 60;
const K: usize = 20;

#[test]
fn opening_searching_and_verifying_a_graph() {
    // Its user ids are text.
    let n = 1500;
    let written = write_index(Spec { n, id_type: 3, n_sample: n, ..Spec::default() });
    let open = || Index::open(written.path(), "pread");
    assert!(refused_everywhere(open) > 4, "codes, navigation graph and checksums");
    let index = open().unwrap();
    let bitmap = vec![0xff; n.div_ceil(8)];
    assert!(refused_everywhere(|| index.filter(&bitmap)) > 4, "slots and their ids");
    let params = params(K, K, Policy::Beam).inflight(1);
    let search = || with_queries(&written, QUERIES, |queries| index.search(queries, &params));
    assert!(refused_everywhere(search) > 8, "pages of nodes, results and their ids");
    index.ids.hold().unwrap(); // pages straight from the system, of which the allocator knows nothing
    assert!(refused_everywhere(search) > 4, "results and their ids");
    assert!(refused_everywhere(|| verified(written.path())) > 10);
}

#[test]
fn searching_and_verifying_lists() {
    let written = write_ivf(IvfSpec { n: 1500, n_lists: 4, with_vectors: true, ..IvfSpec::default() });
    let floats = written.vectors[..QUERIES].concat();
    let index = IvfIndex::open(written.path(), "pread").unwrap(); // so small that nothing large is allocated
    let queries = Queries { values: Values::Float32(&floats), n: QUERIES, dim: written.spec.dim };
    let params = IvfParams::new(K, 2).threads(1).inflight(1);
    assert!(refused_everywhere(|| index.search(&queries, &params)) > 3);
    assert!(refused_everywhere(|| verified(written.path())) > 10);
}

#[test]
fn opening_searching_and_verifying_tables() {
    let written = write_lsh(LshSpec { n: 1500, hash_bits: 12, ..LshSpec::default() });
    let floats = written.vectors[..QUERIES].concat();
    let open = || LshIndex::open(written.path(), "pread", InMemory::default());
    assert!(refused_everywhere(open) > 0);
    let index = open().unwrap();
    let queries = Queries { values: Values::Float32(&floats), n: QUERIES, dim: written.spec.dim };
    let params = LshParams::new(K).threads(1).inflight(1);
    assert!(refused_everywhere(|| index.search(&queries, &params)) > 3);
    assert!(refused_everywhere(|| verified(written.path())) > 10);
}
