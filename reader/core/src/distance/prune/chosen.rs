//! What a prune asks of the rows that it has chosen, whatever their type.

/// Rows compared together, at most: as many as the largest tile that is fast for few rows.
pub const MAX_BATCH: usize = 6;

/// Says whether a chosen vertex at distance `nearest` hides a candidate.
pub fn is_hidden(distance: f32, nearest: f32, slack: f32) -> bool {
    nearest == 0.0 || distance / nearest > slack
}

/// What decides about the candidates of a batch: their distances from the vertex, and every slack of the rule.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// One for each candidate of the batch.
    pub distances: &'a [f32],
    /// Ascending.
    pub slacks: &'a [f32],
}

/// The rows chosen in a round, and some candidates to be compared with them.
pub trait Chosen {
    /// Type of a component.
    type Component: Copy;

    /// Readies itself for candidates: some of `n` rows of `dim` components.
    ///
    /// # Safety
    /// `row(i)` is the address of a row for each i below `n`.
    unsafe fn start(&mut self, dim: usize, n: usize, row: impl Fn(usize) -> *const Self::Component);

    /// Forgets what was chosen.
    fn begin(&mut self);

    /// Candidates compared together, at most `MAX_BATCH`.
    fn batch(&self) -> usize;

    /// Takes a row as candidate `i` of the batch.
    ///
    /// # Safety
    /// A row as `start` was told, which stays where it is, and `i` below [`MAX_BATCH`].
    unsafe fn load(&mut self, i: usize, row: *const Self::Component);

    /// Squared distances of the first candidates of the batch to the nearest chosen row; infinite where there is none.
    ///
    /// They need not be exact, but every slack judges them like the exact ones.
    ///
    /// # Safety
    /// As many candidates were loaded.
    unsafe fn nearest(&mut self, asked: Asked, least: &mut [f32]);

    /// Squared distance of candidates i and j of the batch, exact as `nearest` for j.
    ///
    /// # Safety
    /// Both were loaded.
    unsafe fn between(&self, i: usize, j: usize, asked: Asked) -> f32;

    /// Adds candidate `i` of the batch to what is chosen.
    ///
    /// # Safety
    /// It was loaded.
    unsafe fn choose(&mut self, i: usize);
}
