//! Chosen rows of bytes in the panels of [`block`](crate::distance::block), and a batch that is compared with them.

use super::chosen::MAX_BATCH;
use crate::distance::block::{CHUNK, CHUNK_BYTES, Level, MAX_PANELS, PANEL_POINTS, shift};

/// Chosen rows and a batch of uint8 rows of up to 32,768 components, for one instruction-set level.
pub(super) struct Packed {
    level: &'static Level,
    dim: usize,
    /// Rows of the batch in whole chunks: as uint8, and minus 128; their squared norms and sums.
    rows: Vec<u8>,
    shifted: Vec<i8>,
    norms: [(i32, i32); MAX_BATCH],
    /// Panels of chosen rows and their offsets, as `block` describes them; a chunk is 16 words.
    panels: Vec<u32>,
    offsets: Vec<i32>,
    n_chosen: usize,
    /// Squared distances of the batch, a row of whole panels for each candidate.
    distances: Vec<i32>,
}

impl Packed {
    pub(super) fn new(level: &'static Level) -> Self {
        let level = level.for_rows(MAX_BATCH);
        assert!(level.rows <= MAX_BATCH, "a batch of {MAX_BATCH} rows is no tile of {}", level.name);
        Packed {
            level,
            dim: 0,
            rows: Vec::new(),
            shifted: Vec::new(),
            norms: [(0, 0); MAX_BATCH],
            panels: Vec::new(),
            offsets: Vec::new(),
            n_chosen: 0,
            distances: Vec::new(),
        }
    }

    /// Readies itself for rows of `dim` components.
    pub(super) fn start(&mut self, dim: usize) {
        self.dim = dim;
        let size = MAX_BATCH * self.chunks() * CHUNK;
        self.rows.resize(size, 0);
        self.shifted.resize(size, 0);
    }

    /// Forgets what was chosen.
    pub(super) fn begin(&mut self) {
        self.n_chosen = 0;
    }

    pub(super) fn batch(&self) -> usize {
        self.level.rows
    }

    pub(super) fn n_chosen(&self) -> usize {
        self.n_chosen
    }

    fn chunks(&self) -> usize {
        self.dim.div_ceil(CHUNK)
    }

    fn n_panels(&self) -> usize {
        self.n_chosen.div_ceil(PANEL_POINTS)
    }

    /// Row `i` of the batch.
    pub(super) fn row(&self, i: usize) -> &[u8] {
        &self.rows[i * self.chunks() * CHUNK..][..self.dim]
    }

    /// Lets `fill` write row `i` of the batch.
    pub(super) fn load(&mut self, i: usize, fill: impl FnOnce(&mut [u8])) {
        let at = i * self.chunks() * CHUNK;
        let own = &mut self.rows[at..at + self.dim];
        fill(own);
        shift(own, &mut self.shifted[at..]);
        // SAFETY: a slice holds as many bytes as it says.
        self.norms[i] = unsafe { (self.level.norm)(own.as_ptr(), own.len()) };
    }

    /// Computes the squared distances of the first `m` rows of the batch to all chosen rows.
    pub(super) fn compare(&mut self, m: usize) {
        let (chunks, n_panels) = (self.chunks(), self.n_panels());
        let limits = [i32::MIN; MAX_BATCH];
        let mut scores = [0i32; MAX_BATCH * MAX_PANELS * PANEL_POINTS];
        let mut hits = [0u16; MAX_BATCH * MAX_PANELS];
        self.distances.resize(m * n_panels * PANEL_POINTS, 0);
        for panel in (0..n_panels).step_by(self.level.tiles.len()) {
            let n = self.level.tiles.len().min(n_panels - panel);
            // SAFETY: `shifted` holds the rows of a batch, panels are below `n_panels`, the arrays fit every tile.
            unsafe {
                self.level.tiles[n - 1](
                    self.shifted.as_ptr(),
                    self.panels.as_ptr().cast::<u8>().add(panel * chunks * CHUNK_BYTES),
                    self.offsets.as_ptr().add(panel * PANEL_POINTS),
                    chunks,
                    limits.as_ptr(),
                    scores.as_mut_ptr(),
                    hits.as_mut_ptr(),
                );
            }
            for (i, own) in scores.chunks_exact(n * PANEL_POINTS).take(m).enumerate() {
                let at = (i * n_panels + panel) * PANEL_POINTS;
                let norm = self.norms[i].0;
                self.distances[at..at + own.len()].iter_mut().zip(own).for_each(|(d, &s)| *d = s.wrapping_add(norm));
            }
        }
    }

    /// Squared distances of row `i` of the batch to the chosen rows, in the order of choice, as `compare` found them.
    pub(super) fn distances(&self, i: usize) -> &[i32] {
        &self.distances[i * self.n_panels() * PANEL_POINTS..][..self.n_chosen]
    }

    /// Adds row `i` of the batch to what is chosen.
    pub(super) fn choose(&mut self, i: usize) {
        let (chunks, lane) = (self.chunks(), self.n_chosen % PANEL_POINTS);
        let panel = self.n_chosen / PANEL_POINTS;
        if lane == 0 {
            self.panels.resize(panel * chunks * PANEL_POINTS, 0);
            self.panels.resize((panel + 1) * chunks * PANEL_POINTS, 0);
            self.offsets.resize(panel * PANEL_POINTS, 0);
            self.offsets.resize((panel + 1) * PANEL_POINTS, 0);
        }
        let (norm, sum) = self.norms[i];
        self.offsets[self.n_chosen] = norm - 256 * sum;
        let row = &self.rows[i * chunks * CHUNK..][..self.dim];
        let (whole, rest) = row.as_chunks::<CHUNK>();
        let mut last = [0; CHUNK];
        last[..rest.len()].copy_from_slice(rest);
        let words = self.panels[panel * chunks * PANEL_POINTS..].chunks_exact_mut(PANEL_POINTS);
        for (word, &four) in words.zip(whole.iter().chain([&last])) {
            word[lane] = u32::from_ne_bytes(four);
        }
        self.n_chosen += 1;
    }
}
