//! Memory that the system refuses is an error of the call that needs it, at every step.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::common::{Spec, write_index};
use crate::deleted::deletion::delete;
use indexmill_core::{Error, Index, Result};

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
            Err(Error::Config(message)) => assert!(message.contains("the system refused"), "{message}"),
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
