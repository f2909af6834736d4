//! Byte codes of float32 rows with one step for all components, and what they leave over; the compiler vectorizes them
//! for each level.
//!
//! Code c of component j means `low[j] + step * c`.

const LANES: usize = 16;
/// Half of the steps of a range.
const HALF: f32 = 127.5;
/// Halvings of the largest component among which the range of codes is chosen.
const HALVINGS: usize = 4;

/// See [`super::level::Kernels::fit_codes`]; inlined into each level.
///
/// # Safety
/// `n` rows of `dim` components each, and room for `dim` values at `low`.
#[inline(always)]
pub unsafe fn fit_codes_portable(rows: *const *const f32, n: usize, dim: usize, low: *mut f32) -> f32 {
    // SAFETY: the caller vouches for `n` rows of `dim` components, and for as many lows.
    let (rows, centre) = unsafe { (std::slice::from_raw_parts(rows, n), std::slice::from_raw_parts_mut(low, dim)) };
    // SAFETY: the same.
    let rows = || rows.iter().map(|&row| unsafe { std::slice::from_raw_parts(row, dim) });
    let share = 1.0 / n as f32;
    centre.fill(0.0);
    for row in rows() {
        centre.iter_mut().zip(row).for_each(|(mean, x)| *mean += x * share);
    }
    let mut largest = [0f32; LANES];
    for row in rows() {
        raise(row, centre, &mut largest);
    }
    let largest = largest.into_iter().fold(0.0, f32::max);
    let mut best = (f32::INFINITY, largest);
    for k in 0..HALVINGS {
        let half = largest / (1 << k) as f32;
        let mut beyond = [0f32; LANES];
        for row in rows() {
            add_beyond(row, centre, half, &mut beyond);
        }
        let step = half / HALF;
        let loss = (n * dim) as f32 * step * step / 12.0 + beyond.iter().sum::<f32>();
        if loss >= best.0 {
            break;
        }
        best = (loss, half);
    }
    centre.iter_mut().for_each(|x| *x -= best.1);
    best.1 / HALF
}

/// See [`super::level::Kernels::encode_u8`]; inlined into each level.
///
/// # Safety
/// `dim` components of the row, `dim` values of `low`, and room for `dim` codes.
#[inline(always)]
pub unsafe fn encode_u8_portable(row: *const f32, low: *const f32, step: f32, dim: usize, codes: *mut u8) -> f32 {
    // SAFETY: the caller vouches for `dim` components, lows and codes.
    let (row, low, codes) = unsafe {
        (
            std::slice::from_raw_parts(row, dim),
            std::slice::from_raw_parts(low, dim),
            std::slice::from_raw_parts_mut(codes, dim),
        )
    };
    let mut left = [0f32; LANES];
    let (xs, last_xs) = row.as_chunks::<LANES>();
    let (lows, last_lows) = low.as_chunks::<LANES>();
    let (outs, last_out) = codes.as_chunks_mut::<LANES>();
    for ((xs, lows), out) in xs.iter().zip(lows).zip(outs) {
        *out = encode_lanes(xs, lows, step, &mut left);
    }
    let n = last_xs.len();
    let (mut xs, mut lows) = ([0f32; LANES], [0f32; LANES]); // lanes without a component leave nothing over
    xs[..n].copy_from_slice(last_xs);
    lows[..n].copy_from_slice(last_lows);
    last_out.copy_from_slice(&encode_lanes(&xs, &lows, step, &mut left)[..n]);
    left.iter().sum()
}

/// Codes of 16 components; adds what they leave over, squared, to each lane.
#[inline(always)]
fn encode_lanes(xs: &[f32; LANES], lows: &[f32; LANES], step: f32, left: &mut [f32; LANES]) -> [u8; LANES] {
    let per_step = 1.0 / step;
    let mut codes = [0i32; LANES];
    for lane in 0..LANES {
        let t = xs[lane] - lows[lane];
        let place = t.mul_add(per_step, 0.5);
        let place = if place > 0.0 { place } else { 0.0 }; // NaN, too
        let place = if place < 255.0 { place } else { 255.0 };
        // SAFETY: from 0 to 255.
        codes[lane] = unsafe { place.to_int_unchecked() };
        let over = (-step).mul_add(codes[lane] as f32, t);
        left[lane] = over.mul_add(over, left[lane]);
    }
    let mut bytes = [0; LANES];
    for lane in 0..LANES {
        bytes[lane] = codes[lane] as u8;
    }
    bytes
}

/// Raises each lane to its largest `|row[i] - centre[i]|`; component i has lane i % 16.
#[inline(always)]
fn raise(row: &[f32], centre: &[f32], largest: &mut [f32; LANES]) {
    for (xs, means) in row.chunks(LANES).zip(centre.chunks(LANES)) {
        for (most, (x, mean)) in largest.iter_mut().zip(xs.iter().zip(means)) {
            let far = (x - mean).abs();
            *most = if far > *most { far } else { *most };
        }
    }
}

/// Adds what every `|row[i] - centre[i]|` exceeds `half` by, squared, to its lane.
#[inline(always)]
fn add_beyond(row: &[f32], centre: &[f32], half: f32, sums: &mut [f32; LANES]) {
    for (xs, means) in row.chunks(LANES).zip(centre.chunks(LANES)) {
        for (sum, (x, mean)) in sums.iter_mut().zip(xs.iter().zip(means)) {
            let far = (x - mean).abs();
            let over = if far > half { far - half } else { 0.0 };
            *sum += over * over;
        }
    }
}
