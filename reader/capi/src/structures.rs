//! Structures of the header that begin with their size and grow at their end alone.
//!
//! A program stores the size that its header gave the structure, so that a program and a library of one ABI version
//! work together, whichever of them knows more fields.

use std::slice;

use crate::error::Failure;
use crate::pointers::check;

/// Most bytes of a structure: what says more was not filled.
const MOST_BYTES: usize = 4096;

/// A structure that begins with its size in bytes. A field that it gains stands at its end, leaves no gap, and means
/// with 0 what was so before it was there.
///
/// # Safety
/// It is `repr(C)`, its first field is a u32, and every content of its bytes is a valid value.
pub unsafe trait Grows: Copy {
    /// Its size in the first version of this ABI, which never changes: no program has a smaller one.
    const LEAST: usize;
}

/// Refuses a size that no program of this ABI has.
fn check_size<T: Grows>(name: &str, bytes: usize) -> Result<(), Failure> {
    if (T::LEAST..=MOST_BYTES).contains(&bytes) && bytes.is_multiple_of(align_of::<T>()) {
        return Ok(());
    }
    let expected = format!("expected a multiple of {} from {} to {MOST_BYTES}", align_of::<T>(), T::LEAST);
    Err(Failure::invalid(format!("{name}: struct_bytes: {expected}, got {bytes}; store the structure's sizeof there")))
}

/// A structure that a program filled. Fields that the program does not know are those of `defaults`; those that this
/// library does not know must be 0.
///
/// # Safety
/// `from` is null, or valid for reads of the size that it begins with.
pub unsafe fn read<T: Grows>(name: &str, from: *const T, defaults: T) -> Result<T, Failure> {
    check(name, from)?;
    // SAFETY: the size, valid by the contract.
    let bytes = unsafe { from.cast::<u32>().read() } as usize;
    check_size::<T>(name, bytes)?;
    let known = bytes.min(size_of::<T>());
    let mut value = defaults;
    // SAFETY: both have that many bytes, and any content is a valid value.
    unsafe { (&raw mut value).cast::<u8>().copy_from_nonoverlapping(from.cast(), known) };
    // SAFETY: the rest of the structure, valid by the contract.
    let unknown = unsafe { slice::from_raw_parts(from.cast::<u8>().add(known), bytes - known) };
    if let Some(i) = unknown.iter().position(|&byte| byte != 0) {
        let place = format!("{name}: byte {}: expected 0 behind the {known} bytes that this library knows", known + i);
        let advice = "leave newer fields at 0, or install the library of the program's header";
        return Err(Failure::invalid(format!("{place}, got {}; {advice}", unknown[i])));
    }
    Ok(value)
}

/// Room for structures that a call returns, one after the other, each as long as a program says.
#[derive(Clone, Copy)]
pub struct Structures<T> {
    first: *mut T,
    bytes: usize,
}

impl<T: Grows> Structures<T> {
    /// Takes the size from the first structure. Refuses a null or misaligned pointer, and a wrong size.
    ///
    /// # Safety
    /// `first` is null or begins with a u32.
    pub unsafe fn new(name: &str, first: *mut T) -> Result<Self, Failure> {
        check(name, first)?;
        // SAFETY: the size, readable by the contract.
        let bytes = unsafe { first.cast::<u32>().read() } as usize;
        Self::of_size(name, first, bytes)
    }

    /// Room for structures of `bytes` bytes. Refuses a null or misaligned pointer, and a wrong size.
    pub fn of_size(name: &str, first: *mut T, bytes: usize) -> Result<Self, Failure> {
        check(name, first)?;
        check_size::<T>(name, bytes)?;
        Ok(Structures { first, bytes })
    }

    /// Stores structures one after the other, with their size. Fields that this library does not know are 0.
    ///
    /// # Safety
    /// There is room for all.
    pub unsafe fn write(self, values: impl IntoIterator<Item = T>) {
        let known = self.bytes.min(size_of::<T>());
        for (i, value) in values.into_iter().enumerate() {
            // SAFETY: within the room, as long as each says; the size is aligned, as its multiples are.
            unsafe {
                let to = self.first.byte_add(i * self.bytes).cast::<u8>();
                to.copy_from_nonoverlapping((&raw const value).cast(), known);
                to.add(known).write_bytes(0, self.bytes - known);
                to.cast::<u32>().write(self.bytes as u32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::mem::offset_of;

    use super::*;
    use crate::counters::ImCounters;
    use crate::error::{IM_EINVAL, attempt, im_last_error};
    use crate::info::ImInfo;
    use crate::params::ImSearchParams;
    use crate::stats::ImStats;

    /// A structure that has gained `later`.
    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Grown {
        struct_bytes: u32,
        first: u32,
        later: u64,
    }

    // SAFETY: it is repr(C), begins with its size and consists of integers.
    unsafe impl Grows for Grown {
        const LEAST: usize = 8;
    }

    const DEFAULTS: Grown = Grown { struct_bytes: 16, first: 1, later: 2 };

    /// Reads a structure of `bytes` bytes that begins with them; `words` are behind its size.
    fn given(bytes: u32, words: [u32; 5]) -> Result<Grown, String> {
        #[repr(align(8))]
        struct Aligned([u32; 6]);
        let [a, b, c, d, e] = words;
        let memory = Aligned([bytes, a, b, c, d, e]);
        // SAFETY: aligned, and at least as long as it says, or refused.
        attempt(|| unsafe { read("options", memory.0.as_ptr().cast(), DEFAULTS) }).map_err(|code| {
            assert_eq!(code, IM_EINVAL);
            // SAFETY: zero-terminated, and no call follows.
            unsafe { CStr::from_ptr(im_last_error()) }.to_str().unwrap().to_owned()
        })
    }

    #[test]
    fn an_older_program_gets_the_defaults_of_fields_that_it_does_not_know() {
        assert_eq!(given(8, [7; 5]), Ok(Grown { struct_bytes: 8, first: 7, later: DEFAULTS.later }));
        assert_eq!(given(16, [7, 0, 0, 7, 7]), Ok(Grown { struct_bytes: 16, first: 7, later: 0 }));
    }

    #[test]
    fn a_newer_program_is_refused_if_it_sets_what_the_library_does_not_know() {
        assert_eq!(given(24, [7, 9, 0, 0, 0]), Ok(Grown { struct_bytes: 24, first: 7, later: 9 }));
        let message = given(24, [7, 9, 0, 0, 3]).unwrap_err();
        assert!(
            message.starts_with("options: byte 20: expected 0 behind the 16 bytes that this library knows, got 3; ")
        );
    }

    #[test]
    fn sizes_that_no_program_has_are_refused_by_name() {
        for bytes in [0, 4, 12, 4104, u32::MAX] {
            let message = given(bytes, [0; 5]).unwrap_err();
            let start = format!("options: struct_bytes: expected a multiple of 8 from 8 to 4096, got {bytes}; ");
            assert!(message.starts_with(&start), "{message}");
        }
    }

    #[test]
    fn programs_get_as_many_bytes_as_they_have_room_for() {
        let values = [1, 2].map(|first| Grown { struct_bytes: 0, first, later: 3 });
        for (bytes, expected) in [
            (8, [8, 1, 8, 2, 5, 5, 5, 5, 5, 5, 5, 5, 5]),
            (16, [16, 1, 3, 0, 16, 2, 3, 0, 5, 5, 5, 5, 5]),
            (24, [24, 1, 3, 0, 0, 0, 24, 2, 3, 0, 0, 0, 5]),
        ] {
            let mut room = [u64::MAX; 7];
            let words = room.as_mut_ptr().cast::<u32>();
            // SAFETY: 14 words of which 13 are looked at, aligned for u64.
            let got = unsafe {
                slice::from_raw_parts_mut(words, 13).fill(5);
                words.write(bytes);
                let Ok(rooms) = Structures::<Grown>::new("out", words.cast()) else { panic!("refused") };
                rooms.write(values);
                slice::from_raw_parts(words, 13)
            };
            assert_eq!(got, expected);
        }
    }

    /// Where the fields of a structure are, and that they end with its least size.
    macro_rules! assert_layout {
        ($of:ty, $($field:ident $offset:literal),+; ends $end:literal) => {
            $(assert_eq!(offset_of!($of, $field), $offset, "{}", stringify!($field));)+
            assert_eq!(<$of>::LEAST, $end);
            assert!(size_of::<$of>() >= $end);
        };
    }

    /// Fields are added behind these, and these stay. Programs that are compiled already rely on it.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn the_structures_of_abi_3_0_stay_as_they_are() {
        assert_layout!(ImInfo, struct_bytes 0, kind 4, n_vectors 8, dim 16, dtype 24, query_dtype 28, metric 32,
            id_type 36, max_degree 40, n_navigation 44, n_lists 48, n_tables 52; ends 56);
        assert_layout!(ImSearchParams, struct_bytes 0, k 4, search_list_size 8, beam_width 12, policy 16, entry 20,
            threads 24, inflight 28, deterministic 32, reserved 36, allow 40, cancel 48, nprobe 56, rerank 60, prune 64,
            probes 68, candidates 72; ends 80);
        assert_layout!(ImCounters, struct_bytes 0, reserved 4, pages_read 8, bytes_read 16, id_pages_read 24,
            bytes_used 32, hops 40, distances 48, code_distances 56, expansions 64, page_heap_hits 72, cache_hits 80,
            lists 88, list_reads 96, centroid_distances 104, reranked 112, table_reads 120, block_reads 128,
            blocks 136, radii 144, entries 152, candidates 160, vector_reads 168, latency_us 176,
            io_wait_us 180; ends 184);
        assert_layout!(ImStats, struct_bytes 0, reserved 4, queries 8, pages_read 16, bytes_read 24, id_pages_read 32,
            cache_hits 40, errors 48, memory_bytes 56, cache_bytes 64; ends 72);
    }
}
