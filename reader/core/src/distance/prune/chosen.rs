//! What a prune asks of the rows that it has chosen, whatever their type.

/// Rows compared together, at most: as many as the largest tile that is fast for few rows.
pub const MAX_BATCH: usize = 6;

/// The rows chosen in a round, and some candidates to be compared with them.
pub trait Chosen {
    /// Type of a component.
    type Component: Copy;

    /// Forgets what was chosen, and readies itself for rows of `dim` components.
    fn begin(&mut self, dim: usize);

    /// Candidates compared together, at most `MAX_BATCH`.
    fn batch(&self) -> usize;

    /// Takes a row as candidate `i` of the batch.
    unsafe fn load(&mut self, i: usize, row: *const Self::Component);

    /// Squared distances of the first candidates of the batch to the nearest chosen row; infinite where there is none.
    unsafe fn nearest(&mut self, least: &mut [f32]);

    /// Squared distance of two candidates of the batch.
    unsafe fn between(&self, i: usize, j: usize) -> f32;

    /// Adds candidate `i` of the batch to what is chosen.
    unsafe fn choose(&mut self, i: usize);
}
