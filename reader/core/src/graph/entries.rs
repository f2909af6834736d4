//! entries.imx: the vertices a search may start from (docs/formats/entries.md, DiskANN++ section III).

use crate::bytes::{f32s, u32s};
use crate::directory::Directory;
use crate::distance::kernels;
use crate::error::{Error, Result};
use crate::interrupt::Stop;
use crate::memory::collect;
use crate::pagefile::PageFile;

/// Entry vertices in memory: `4 * n_entries * (dim + 1)` bytes.
#[derive(Debug, Clone)]
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

    /// The same vertices after slot s became `slots[s]`.
    pub(crate) fn remapped(&self, slots: &[u32]) -> Self {
        let new = |slot: u32| slots[slot as usize];
        let vertices = self.vertices.iter().map(|&slot| new(slot)).collect();
        Entries { medoid: new(self.medoid), vertices, ..self.clone() }
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

    /// Slots of the `count` centroids nearest to the query (ties: the smaller index), nearest first; one slot may be that of
    /// several.
    pub(super) fn nearest_some(&self, query: &[f32], count: usize) -> Vec<u32> {
        assert_eq!(query.len(), self.dim);
        // SAFETY: both hold `dim` floats.
        let distance = |c: &[f32]| unsafe { (kernels().l2_f32)(query.as_ptr(), c.as_ptr(), self.dim) };
        let mut nearest: Vec<(f32, usize)> = self.centroids.chunks_exact(self.dim).map(distance).zip(0..).collect();
        let count = count.min(nearest.len());
        let by_distance = |a: &(f32, usize), b: &(f32, usize)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        if count < nearest.len() {
            nearest.select_nth_unstable_by(count, by_distance);
            nearest.truncate(count);
        }
        nearest.sort_unstable_by(by_distance);
        nearest.into_iter().map(|(_, at)| self.vertices[at]).collect()
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
