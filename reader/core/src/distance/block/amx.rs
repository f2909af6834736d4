//! AMX: products of matrices of bytes in tile registers, 16 rows of 64 bytes each.
//!
//! `tdpbsud` adds to a matrix of 16 queries and 16 points the products of 16 chunks: its first operand has a query a
//! row (64 signed bytes), its second a chunk a row (four unsigned bytes of each of 16 points), as a panel has it. Four
//! tile registers hold the sums of 32 queries and two panels, two the queries, two the panels.
//!
//! Intrinsics of AMX are not in stable Rust, so each instruction is inline assembly, in as few forms as possible: memory
//! is always at `[rax]` or `[rax + rcx]`. The compiler itself never touches tile registers, hence they keep their values
//! from one instruction here to the next. `emulator` runs the same instructions for tests on a CPU without them.

use std::arch::asm;
use std::arch::x86_64::*;

use super::avx512::{self, finish};
use super::level::{CHUNK, CHUNK_BYTES, Level, MAX_ROWS, PANEL_POINTS, READY_ROWS};

/// Rows of a tile register, and chunks of one of them.
const TILE_ROWS: usize = 16;
const DEPTH: usize = 16;
const ROWS: usize = 2 * TILE_ROWS;

/// The kernel for CPUs with AMX for 8-bit integers, and AVX-512 with VNNI.
pub static LEVEL: Level = Level {
    depth: DEPTH,
    begin,
    end,
    few_rows: Some(&avx512::LEVEL),
    ..Level::plain("amx", ROWS, &[tile::<1>, tile::<2>], avx512::norm, avx512::least)
};
const _: () = assert!(ROWS <= MAX_ROWS && READY_ROWS.is_multiple_of(ROWS));

/// Says whether this CPU has AMX; asks the system for its registers, which it gives to the process for good.
///
/// # Errors
/// Why the system refuses.
pub fn is_granted() -> Result<bool, String> {
    const TILE_AND_INT8: u32 = 1 << 24 | 1 << 25; // CPUID.(7, 0).EDX
    const TILE_STATE: u32 = 1 << 17 | 1 << 18; // of XCR0: configuration and data
    const ARCH_REQ_XCOMP_PERM: libc::c_int = 0x1023;
    const TILE_DATA: libc::c_int = 18;
    let is_wide = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni");
    if !is_wide {
        return Ok(false);
    }
    // SAFETY: a CPU with AVX-512 has leaf 7. (Newer compilers know that the call is safe anywhere.)
    #[allow(unused_unsafe)]
    let has_amx = unsafe { __cpuid_count(7, 0) }.edx & TILE_AND_INT8 == TILE_AND_INT8;
    if !has_amx {
        return Ok(false);
    }
    let saved: u32;
    // SAFETY: a CPU with AVX-512 in use has XGETBV, which changes the named registers alone.
    unsafe { asm!("xgetbv", in("ecx") 0, out("eax") saved, out("edx") _, options(nomem, nostack, preserves_flags)) };
    if saved & TILE_STATE != TILE_STATE {
        return Err("this CPU has AMX, but the system does not save its registers".into());
    }
    // SAFETY: takes two numbers and changes what this process may use.
    if unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) } != 0 {
        let error = std::io::Error::last_os_error();
        return Err(format!("this CPU has AMX, but the system does not let this process use it: {error}"));
    }
    Ok(true)
}

/// Shapes of the eight tile registers, as `ldtilecfg` reads them.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Registers of the sums: of the first and the second 16 queries with the first panel, then with the second one.
const SUMS: [u8; 4] = [0, 1, 2, 3];
/// Registers of the queries and of the panels.
const QUERIES: [u8; 2] = [4, 5];
const POINTS: [u8; 2] = [6, 7];

/// Gives the tile registers their shapes.
///
/// # Safety
/// A thread that may use AMX, and at least one chunk.
unsafe fn begin(chunks: usize) {
    let depth = chunks.min(DEPTH);
    let mut shapes = Shapes { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
    let mut set = |registers: &[u8], rows: usize, row_bytes: usize| {
        for &register in registers {
            shapes.rows[usize::from(register)] = rows as u8;
            shapes.row_bytes[usize::from(register)] = row_bytes as u16;
        }
    };
    set(&SUMS, TILE_ROWS, size_of::<i32>() * PANEL_POINTS);
    set(&QUERIES, TILE_ROWS, depth * CHUNK);
    set(&POINTS, depth, CHUNK_BYTES);
    // SAFETY: 64 bytes that ask for no more than the registers have.
    unsafe { asm!("ldtilecfg [rax]", in("rax") &raw const shapes, options(readonly, nostack, preserves_flags)) }
}

/// Empties the tile registers, so that the system need not save them.
///
/// # Safety
/// A thread that may use AMX.
unsafe fn end() {
    // SAFETY: no value in them is needed.
    unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) }
}

/// Sets all sums of a register to zero.
///
/// # Safety
/// A register of the shape that `begin` gave.
#[inline(always)]
unsafe fn zero<const TILE: u8>() {
    // SAFETY: changes a tile register alone.
    unsafe { asm!("tilezero tmm{tile}", tile = const TILE, options(nomem, nostack, preserves_flags)) }
}

/// Loads the rows of a register, `stride` bytes apart.
///
/// # Safety
/// `from` has the rows of the register, which has the shape that `begin` gave.
#[inline(always)]
unsafe fn load<const TILE: u8>(from: *const u8, stride: usize) {
    // SAFETY: the caller vouches for the memory.
    unsafe {
        asm!(
            "tileloadd tmm{tile}, [rax + rcx]",
            tile = const TILE, in("rax") from, in("rcx") stride,
            options(readonly, nostack, preserves_flags)
        )
    }
}

/// Stores the rows of a register, `stride` bytes apart.
///
/// # Safety
/// `to` has room for the rows of the register, which has the shape that `begin` gave.
#[inline(always)]
unsafe fn store<const TILE: u8>(to: *mut i32, stride: usize) {
    // SAFETY: the caller vouches for the memory.
    unsafe {
        asm!(
            "tilestored [rax + rcx], tmm{tile}",
            tile = const TILE, in("rax") to, in("rcx") stride,
            options(nostack, preserves_flags)
        )
    }
}

/// Adds the products of signed queries and unsigned points.
///
/// # Safety
/// Registers of the shapes that `begin` gave.
#[inline(always)]
unsafe fn multiply<const SUM: u8, const QUERY: u8, const POINT: u8>() {
    // SAFETY: changes a tile register alone.
    unsafe {
        asm!(
            "tdpbsud tmm{sum}, tmm{query}, tmm{point}",
            sum = const SUM, query = const QUERY, point = const POINT,
            options(nomem, nostack, preserves_flags)
        )
    }
}

/// # Safety
/// What `Tile` says, after `begin` for as many chunks, and AVX-512 F.
#[target_feature(enable = "avx512f")]
unsafe fn tile<const PANELS: usize>(
    queries: *const i8,
    panels: *const u8,
    offsets: *const i32,
    chunks: usize,
    limits: *const i32,
    scores: *mut i32,
    hits: *mut u16,
) -> bool {
    let depth = chunks.min(DEPTH);
    let stride = chunks.next_multiple_of(depth) * CHUNK;
    let (upper, lower) = (queries.cast::<u8>(), queries.cast::<u8>().wrapping_add(TILE_ROWS * stride));
    let (left, right) = (panels, panels.wrapping_add(chunks * CHUNK_BYTES));
    // SAFETY: 32 rows of `stride` bytes, and panels of `chunks` chunks: the last step begins `depth` before their end.
    unsafe {
        zero::<{ SUMS[0] }>();
        zero::<{ SUMS[1] }>();
        zero::<{ SUMS[2] }>();
        zero::<{ SUMS[3] }>();
        for step in 0..chunks.div_ceil(depth) {
            let point = (step * depth).min(chunks - depth) * CHUNK_BYTES;
            let query = step * depth * CHUNK;
            load::<{ POINTS[0] }>(left.add(point), CHUNK_BYTES);
            load::<{ QUERIES[0] }>(upper.add(query), stride);
            multiply::<{ SUMS[0] }, { QUERIES[0] }, { POINTS[0] }>();
            load::<{ QUERIES[1] }>(lower.add(query), stride);
            multiply::<{ SUMS[1] }, { QUERIES[1] }, { POINTS[0] }>();
            if PANELS == 2 {
                load::<{ POINTS[1] }>(right.add(point), CHUNK_BYTES);
                multiply::<{ SUMS[2] }, { QUERIES[0] }, { POINTS[1] }>();
                multiply::<{ SUMS[3] }, { QUERIES[1] }, { POINTS[1] }>();
            }
        }
        // Sums go where the scores will be: a row has those of all its panels.
        let (row, half) = (PANELS * PANEL_POINTS, TILE_ROWS * PANELS * PANEL_POINTS);
        store::<{ SUMS[0] }>(scores, row * size_of::<i32>());
        store::<{ SUMS[1] }>(scores.add(half), row * size_of::<i32>());
        if PANELS == 2 {
            store::<{ SUMS[2] }>(scores.add(PANEL_POINTS), row * size_of::<i32>());
            store::<{ SUMS[3] }>(scores.add(half + PANEL_POINTS), row * size_of::<i32>());
        }
    }
    let mut any = 0;
    for r in 0..ROWS {
        // SAFETY: one limit a row; 16 offsets a panel; 16 scores and one mask a row and panel.
        unsafe {
            let limit = _mm512_set1_epi32(*limits.add(r));
            for p in 0..PANELS {
                let (at, offsets) = (r * PANELS + p, offsets.add(p * PANEL_POINTS));
                let scores = scores.add(at * PANEL_POINTS);
                any |= finish(_mm512_loadu_si512(scores.cast()), offsets, limit, scores, hits.add(at));
            }
        }
    }
    any != 0
}
