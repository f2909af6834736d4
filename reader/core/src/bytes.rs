//! Little-endian numbers at offsets of checked byte slices.

/// `N` bytes at `offset`; `None` past the end.
fn array<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk::<N>().copied()
}

/// u16 at `offset`; zero past the end (callers pass whole pages).
pub fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    array(bytes, offset).map_or(0, u16::from_le_bytes)
}

/// u32 at `offset`; zero past the end.
pub fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    array(bytes, offset).map_or(0, u32::from_le_bytes)
}

/// u64 at `offset`; zero past the end.
pub fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    array(bytes, offset).map_or(0, u64::from_le_bytes)
}

/// All u32 values of a payload.
pub fn u32s(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.as_chunks::<4>().0.iter().map(|&b| u32::from_le_bytes(b))
}

/// All f32 values of a payload.
pub fn f32s(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b))
}
