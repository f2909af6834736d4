//! entries.imx: the vertices a search may start from (docs/formats/entries.md, DiskANN++ section III).

use std::path::Path;

use crate::bytes::{f32s, u32s};
use crate::directory::Directory;
use crate::distance::kernels;
use crate::error::{Error, Result};
use crate::interrupt::Stop;
use crate::memory::{collect, make_room};
use crate::pagefile::PageFile;

/// Entry vertices in memory: `4 * n_entries * (dim + 1)` bytes.
#[derive(Debug)]
pub struct Entries {
    /// First bytes of the build id.
    pub build_id: [u8; 16],
    dim: usize,
    /// Slot nearest to the mean of all vectors.
    pub medoid: u32,
    centroids: Vec<f32>,
    vertices: Vec<u32>,
}

impl Entries {
    /// Reads entries.imx of a directory and checks every page and value; `n` and `dim` are those of the graph.
    pub fn open(directory: &Directory, n: u64, dim: u64, interrupted: Stop<'_>) -> Result<Self> {
        let file = PageFile::open_in(directory, "entries.imx", b"ENTR")?;
        let path = &file.path;
        file.expect_fields([("n_vertices", n), ("dim", dim)])?;
        let medoid = file.field_in("medoid", 0..=n - 1)?;
        let c = file.field_in("n_entries", 1..=u64::from(u32::MAX))?;
        let checksums = file.load_checksums(interrupted)?;
        let bytes = c.checked_mul(dim).and_then(|x| x.checked_mul(4)).unwrap_or(u64::MAX);
        let raw = file.read_section(&file.section("centroids", Some(bytes))?, &checksums, interrupted)?;
        let centroids = collect(path, raw.len() / 4, f32s(&raw))?;
        if let Some(at) = centroids.iter().position(|x| !x.is_finite()) {
            return Err(Error::corrupt(path, format!("centroid {}", at as u64 / dim), "finite numbers", centroids[at]));
        }
        let raw = file.read_section(&file.section("vertices", Some(4 * c))?, &checksums, interrupted)?;
        let vertices = collect(path, raw.len() / 4, u32s(&raw))?;
        if let Some(at) = vertices.iter().position(|&s| u64::from(s) >= n) {
            return Err(Error::corrupt(path, format!("vertex {at}"), format!("a slot below {n}"), vertices[at]));
        }
        let build_id = file.header.build_id;
        Ok(Entries { build_id, dim: dim as usize, medoid: medoid as u32, centroids, vertices })
    }

    /// The same vertices after slot s became `slots[s]`; `path` names the index in the error where memory does not allow it.
    pub(crate) fn remapped(&self, path: &Path, slots: &[u32]) -> Result<Self> {
        let new = |&slot: &u32| slots[slot as usize];
        let centroids = collect(path, self.centroids.len(), self.centroids.iter().copied())?;
        let vertices = collect(path, self.vertices.len(), self.vertices.iter().map(new))?;
        Ok(Entries { build_id: self.build_id, dim: self.dim, medoid: new(&self.medoid), centroids, vertices })
    }

    /// Number of centroids, at least 1.
    pub fn len(&self) -> usize {
        self.vertices.len()
    }

    /// The vertices a search may start from: the medoid, then those of the centroids.
    pub fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::once(self.medoid).chain(self.vertices.iter().copied())
    }

    /// Never true; there is at least one centroid.
    pub fn is_empty(&self) -> bool {
        self.vertices.is_empty()
    }

    /// Memory it takes: `4 * n_entries * (dim + 1)` bytes.
    pub fn memory_bytes(&self) -> u64 {
        (size_of_val(&*self.centroids) + size_of_val(&*self.vertices)) as u64
    }

    /// Slot of the centroid nearest to the query (ties: the smaller index). Takes `n_entries` distances.
    ///
    /// # Panics
    /// If the query has not as many dimensions as the centroids.
    pub fn nearest(&self, query: &[f32]) -> u32 {
        self.nearest_among(query, |_| true).unwrap_or(self.medoid)
    }

    /// Writes the `count` centroids nearest to the query (ties: the smaller index) to `nearest`, nearest first: distance and
    /// slot of each. One slot may be that of several. `path` names the index in the error where memory does not allow it.
    pub(super) fn nearest_some(
        &self,
        path: &Path,
        query: &[f32],
        count: usize,
        nearest: &mut Vec<(f32, u32)>,
    ) -> Result<()> {
        assert_eq!(query.len(), self.dim);
        // SAFETY: both hold `dim` floats.
        let distance = |c: &[f32]| unsafe { (kernels().l2_f32)(query.as_ptr(), c.as_ptr(), self.dim) };
        nearest.clear();
        make_room(path, nearest, self.len())?;
        nearest.extend(self.centroids.chunks_exact(self.dim).map(distance).zip(0..));
        let by_distance = |a: &(f32, u32), b: &(f32, u32)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        if count < nearest.len() {
            nearest.select_nth_unstable_by(count, by_distance);
            nearest.truncate(count);
        }
        nearest.sort_unstable_by(by_distance);
        nearest.iter_mut().for_each(|(_, at)| *at = self.vertices[*at as usize]);
        Ok(())
    }

    /// As [`Entries::nearest`], of the centroids whose slot `is_among` accepts; `None` if there is none.
    pub(super) fn nearest_among(&self, query: &[f32], is_among: impl Fn(u32) -> bool) -> Option<u32> {
        assert_eq!(query.len(), self.dim);
        let mut best = (f32::INFINITY, None);
        for (centroid, &slot) in self.centroids.chunks_exact(self.dim).zip(&self.vertices) {
            if !is_among(slot) {
                continue;
            }
            // SAFETY: both hold `dim` floats.
            let distance = unsafe { (kernels().l2_f32)(query.as_ptr(), centroid.as_ptr(), self.dim) };
            if distance < best.0 {
                best = (distance, Some(slot));
            }
        }
        best.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_centroids_of_each_query_are_sorted_in_the_same_memory() {
        let (dim, n) = (2usize, 40u32);
        let centroids: Vec<f32> = (0..n).flat_map(|i| [(i * 7 % n) as f32, (i % 3) as f32]).collect();
        let vertices = (0..n).map(|i| 1000 - i).collect();
        let entries = Entries { build_id: [0; 16], dim, medoid: 5, centroids, vertices };
        let (path, mut nearest, mut place) = (Path::new("entries.imx"), Vec::new(), None);
        for count in [3, 40, 1, 100] {
            let query = [count as f32 / 2.0, 1.0];
            entries.nearest_some(path, &query, count, &mut nearest).unwrap();
            let away = |c: &[f32]| (c[0] - query[0]).powi(2) + (c[1] - query[1]).powi(2);
            let mut want: Vec<(f32, u32)> = entries.centroids.chunks(dim).map(away).zip(0..).collect();
            want.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            want.truncate(count);
            want.iter_mut().for_each(|(_, at)| *at = 1000 - *at);
            assert_eq!(nearest, want);
            assert_eq!(*place.get_or_insert(nearest.as_ptr()), nearest.as_ptr());
        }
    }
}
