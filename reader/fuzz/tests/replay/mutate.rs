//! Mutations that break parsers, from a seeded generator.

use indexmill_fuzz::Random;

/// Numbers at the edges of integer types and of sizes that formats use.
const EDGES: [u64; 14] = [
    0,
    1,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    4095,
    4096,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 52,
    1 << 63,
    u64::MAX - 4095,
    u64::MAX,
];

/// One to four changes of `seed`; `other` lends bytes.
pub fn mutate(seed: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..1 + random.below(4) {
        match random.below(8) {
            0 | 1 => flip(&mut bytes, random),
            2 | 3 => overwrite(&mut bytes, random),
            4 => bytes.truncate(random.below(bytes.len() + 1)),
            5 => extend(&mut bytes, random),
            6 => splice(&mut bytes, other, random),
            _ => repeat(&mut bytes, random),
        }
    }
    bytes
}

fn flip(bytes: &mut [u8], random: &mut Random) {
    if !bytes.is_empty() {
        bytes[random.below(bytes.len())] ^= 1 << random.below(8);
    }
}

/// Puts an edge, or a value near the one that was there, over one to eight bytes.
fn overwrite(bytes: &mut [u8], random: &mut Random) {
    let width = 1 << random.below(4);
    if bytes.len() < width {
        return;
    }
    let start = random.below(bytes.len() + 1 - width);
    let place = &mut bytes[start..start + width];
    let mut old = [0u8; 8];
    old[..width].copy_from_slice(place);
    let near = u64::from_le_bytes(old).wrapping_add(random.below(9) as u64).wrapping_sub(4);
    let value = if random.below(3) == 0 { near } else { EDGES[random.below(EDGES.len())] };
    place.copy_from_slice(&value.to_le_bytes()[..width]);
}

fn extend(bytes: &mut Vec<u8>, random: &mut Random) {
    let fill = if random.below(2) == 0 { 0 } else { random.next() as u8 };
    bytes.resize(bytes.len() + 1 + random.below(600), fill);
}

/// Replaces a part by one of `other`, which may be longer or shorter.
fn splice(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let (part, place) = (range(other.len(), random), range(bytes.len(), random));
    bytes.splice(place, other[part].iter().copied());
}

/// Copies a part to another place.
fn repeat(bytes: &mut Vec<u8>, random: &mut Random) {
    let part = range(bytes.len(), random);
    let at = random.below(bytes.len() + 1);
    let part = bytes[part].to_vec();
    let end = bytes.len().min(at + part.len());
    bytes.splice(at..end, part);
}

fn range(len: usize, random: &mut Random) -> std::ops::Range<usize> {
    let start = random.below(len + 1);
    start..start + random.below((len - start).min(64) + 1)
}
