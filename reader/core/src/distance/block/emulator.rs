//! AMX for tests on a CPU without it: executes the instructions of `amx`, at which the CPU raises SIGILL.
//!
//! Decodes exactly the forms that `amx` has (operands in tile registers, memory at `[rax]` or `[rax + rcx]`) and checks
//! shapes as the CPU does. Anything else ends the process as SIGILL does. Tile registers belong to a thread.

use std::cell::UnsafeCell;
use std::sync::Once;

const REGISTERS: usize = 8;
const MAX_ROWS: usize = 16;
const ROW_BYTES: usize = 64;
/// Bytes of an instruction, and of one that has an index register.
const BYTES: i64 = 5;
const INDEXED_BYTES: i64 = 6;
/// How an instruction begins: three-byte VEX, opcode map 2, no register beyond the first eight.
const VEX_MAP_2: [u8; 2] = [0xc4, 0xe2];
/// SIB of `[rax + rcx]`.
const RAX_AND_RCX: u8 = 0x08;

#[derive(Clone, Copy)]
struct Register {
    rows: usize,
    row_bytes: usize,
    bytes: [[u8; ROW_BYTES]; MAX_ROWS],
}

const EMPTY: Register = Register { rows: 0, row_bytes: 0, bytes: [[0; ROW_BYTES]; MAX_ROWS] };

thread_local! {
    // Constant and without a destructor, so that a signal handler may use it.
    static TILES: UnsafeCell<[Register; REGISTERS]> = const { UnsafeCell::new([EMPTY; REGISTERS]) };
}

/// Handles SIGILL for the whole process from now on.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a zeroed sigaction is a valid one, and the handler has the type that SA_SIGINFO asks for.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = handle;
            action.sa_sigaction = handler as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(libc::SIGILL, &raw const action, std::ptr::null_mut()), 0);
        }
    });
}

extern "C" fn handle(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands over the context of this thread, whose next instruction has raised the signal; an
    // instruction that is not ours raises it again, without a handler.
    unsafe {
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let rip = &raw mut registers[libc::REG_RIP as usize];
        let (rax, rcx) = (registers[libc::REG_RAX as usize] as usize, registers[libc::REG_RCX as usize] as usize);
        match TILES.with(|tiles| execute(&mut *tiles.get(), *rip as *const u8, rax as *mut u8, rcx)) {
            Some(bytes) => *rip += bytes,
            None => {
                libc::signal(libc::SIGILL, libc::SIG_DFL);
            }
        }
    }
}

/// Executes the instruction at `code`; returns its size, or `None` if it is another one or the CPU would refuse it.
///
/// # Safety
/// `code` is an instruction that the CPU refused, and `rax` and `rcx` are what its registers held.
unsafe fn execute(tiles: &mut [Register; REGISTERS], code: *const u8, rax: *mut u8, rcx: usize) -> Option<i64> {
    // SAFETY: the CPU has read an instruction of at least five bytes if it begins as ours do.
    let (vex, operands) = unsafe {
        if *code.cast::<[u8; 2]>() != VEX_MAP_2 {
            return None;
        }
        (*code.add(2), *code.add(4))
    };
    // SAFETY: likewise.
    let opcode = unsafe { *code.add(3) };
    let (prefix, third) = (vex & 7, usize::from(!vex >> 3 & 15));
    let (form, first, second) = (operands >> 6, usize::from(operands >> 3 & 7), usize::from(operands & 7));
    let in_memory = form == 0 && second == 4;
    // SAFETY: memory is that of the instruction, for which its own code vouches.
    unsafe {
        match (opcode, prefix) {
            (0x49, 0) if operands == 0 => configure(tiles, &*rax.cast::<[u8; 64]>())?, // ldtilecfg [rax]
            (0x49, 0) if operands == 0xc0 => *tiles = [EMPTY; REGISTERS],              // tilerelease
            (0x49, 3) if form == 3 && second == 0 => usable(&mut tiles[first])?.bytes = EMPTY.bytes, // tilezero
            (0x4b, 2 | 3) if in_memory && *code.add(5) == RAX_AND_RCX => {
                let tile = usable(&mut tiles[first])?;
                for row in 0..tile.rows {
                    let (place, bytes) = (rax.wrapping_add(row * rcx), tile.bytes[row].as_mut_ptr());
                    if prefix == 3 {
                        std::ptr::copy_nonoverlapping(place, bytes, tile.row_bytes); // tileloadd
                    } else {
                        std::ptr::copy_nonoverlapping(bytes, place, tile.row_bytes); // tilestored
                    }
                }
                return Some(INDEXED_BYTES);
            }
            (0x5e, 2) if form == 3 => multiply(tiles, first, second, third)?, // tdpbsud
            _ => return None,
        }
    }
    Some(BYTES)
}

/// A register that has a shape.
fn usable(tile: &mut Register) -> Option<&mut Register> {
    (tile.rows > 0).then_some(tile)
}

/// Takes shapes from the 64 bytes of `ldtilecfg`, which empties the registers.
fn configure(tiles: &mut [Register; REGISTERS], shapes: &[u8; 64]) -> Option<()> {
    let unused = shapes[1..16].iter().chain(&shapes[32..48]).chain(&shapes[56..]);
    if shapes[0] != 1 || unused.into_iter().any(|&byte| byte != 0) {
        return None;
    }
    for (i, tile) in tiles.iter_mut().enumerate() {
        let row_bytes = usize::from(u16::from_le_bytes([shapes[16 + 2 * i], shapes[17 + 2 * i]]));
        let rows = usize::from(shapes[48 + i]);
        if rows > MAX_ROWS || row_bytes > ROW_BYTES || (rows == 0) != (row_bytes == 0) {
            return None;
        }
        *tile = Register { rows, row_bytes, ..EMPTY };
    }
    Some(())
}

/// Adds to 32-bit sums the products of four signed bytes of a row of `a` and four unsigned bytes of a column of `b`.
fn multiply(tiles: &mut [Register; REGISTERS], sum: usize, a: usize, b: usize) -> Option<()> {
    if sum == a || sum == b || a == b || b >= REGISTERS {
        return None;
    }
    let (a, b, sum) = (tiles[a], tiles[b], usable(&mut tiles[sum])?);
    if a.rows != sum.rows || b.row_bytes != sum.row_bytes || a.row_bytes != 4 * b.rows {
        return None;
    }
    for (total, signed) in sum.bytes[..sum.rows].iter_mut().zip(&a.bytes) {
        for (column, total) in total[..sum.row_bytes].as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let mut value = i32::from_le_bytes(*total);
            for (four, row) in signed[..a.row_bytes].as_chunks::<4>().0.iter().zip(&b.bytes) {
                let unsigned = &row[4 * column..][..4];
                value += four.iter().zip(unsigned).map(|(&s, &u)| i32::from(s as i8) * i32::from(u)).sum::<i32>();
            }
            *total = value.to_le_bytes();
        }
    }
    Some(())
}
