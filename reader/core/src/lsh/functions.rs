//! functions.imx: hash functions, radii and parameters (docs/formats/lsh.md).

use std::path::Path;

use crate::bytes::{f32s, u64_at};
use crate::directory::Directory;
use crate::distance::kernels;
use crate::error::{Error, Result};
use crate::interrupt::Stop;
use crate::memory::collect;
use crate::pagefile::PageFile;
use crate::stored::MAX_DIM;

/// Everything that decides in which bucket a vector lies, in memory: `4 L m (dim + r) + 8 L m + 8 r` bytes.
#[derive(Debug, Clone)]
pub struct Functions {
    /// First bytes of the build id.
    pub build_id: [u8; 16],
    /// n.
    pub n_vectors: u32,
    /// Dimensions as stored.
    pub dim: usize,
    /// m.
    pub n_functions: usize,
    /// L.
    pub n_tables: usize,
    /// S: candidates that a search of one radius examines by default.
    pub candidates: u64,
    /// T: further buckets of each table that a search looks at by default.
    pub probes: usize,
    /// c.
    pub ratio: f64,
    /// w.
    pub width: f64,
    /// u.
    pub hash_bits: u32,
    /// B.
    pub block_bytes: usize,
    /// R of each of the r radii, ascending.
    pub radii: Vec<f64>,
    projections: Vec<f32>,
    offsets: Vec<f32>,
    multipliers: Vec<u64>,
}

/// Where a hash leads: a bucket of its table, and the bits that entries there hold some of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// Below 2^u.
    pub bucket: u32,
    /// The other bits of the hash, `32 - u`; the lowest of them are the fingerprint.
    pub rest: u32,
}

impl Functions {
    /// Reads functions.imx of a directory and checks every page and value.
    pub fn open(directory: &Directory, interrupted: Stop<'_>) -> Result<Self> {
        let file = PageFile::open_in(directory, "functions.imx", b"LSHF")?;
        let path = &file.path;
        let n = file.field_in("n_vectors", 1..=u64::from(u32::MAX))?;
        let dim = file.field_in("dim", 1..=MAX_DIM + 1)?;
        let m = file.field_in("n_functions", 1..=256)?;
        let l = file.field_in("n_tables", 1..=65535)?;
        let r = file.field_in("n_radii", 1..=256)?;
        let hash_bits = file.field_in("hash_bits", 0..=31)? as u32;
        let (id_bits, fingerprint_bits) = widths_of(n, hash_bits);
        file.expect_fields([("id_bits", id_bits.into()), ("fingerprint_bits", fingerprint_bits.into())])?;
        let block_bytes = file.field_in("block_bytes", 128..=4096)?;
        if !block_bytes.is_power_of_two() {
            return Err(Error::corrupt(path, "field \"block_bytes\"", "a power of two in 128..4096", block_bytes));
        }
        let checksums = file.load_checksums(interrupted)?;
        let mut read = |name: &str, values: Option<u64>, bytes: u64| {
            let payload = values.and_then(|values| values.checked_mul(bytes)).unwrap_or(u64::MAX);
            file.read_section(&file.section(name, Some(payload))?, &checksums, interrupted)
        };
        let multipliers = read("multipliers", Some(l * m), 8)?;
        let functions = Functions {
            build_id: file.header.build_id,
            n_vectors: n as u32,
            dim: dim as usize,
            n_functions: m as usize,
            n_tables: l as usize,
            candidates: file.field_in("candidates", 1..=u64::MAX)?,
            probes: file.field_in("probes", 0..=65535)? as usize,
            ratio: f64::from_bits(file.field("ratio")?),
            width: f64::from_bits(file.field("width")?),
            hash_bits,
            block_bytes: block_bytes as usize,
            radii: read("radii", Some(r), 8)?.as_chunks::<8>().0.iter().map(|&b| f64::from_le_bytes(b)).collect(),
            projections: floats(path, &read("projections", (l * m).checked_mul(dim), 4)?)?,
            offsets: floats(path, &read("offsets", Some(r * l * m), 4)?)?,
            multipliers: collect(path, multipliers.len() / 8, multipliers.chunks_exact(8).map(|b| u64_at(b, 0)))?,
        };
        functions.check(path)?;
        Ok(functions)
    }

    fn check(&self, path: &Path) -> Result<()> {
        let refuse = |place: &str, expected: &str, got: f64| Err(Error::corrupt(path, place, expected, got));
        if !(self.ratio.is_finite() && self.ratio > 1.0) {
            return refuse("field \"ratio\"", "a number above 1", self.ratio);
        }
        if !(self.width.is_finite() && self.width > 0.0) {
            return refuse("field \"width\"", "a number above 0", self.width);
        }
        for (name, values) in [("projections", &self.projections), ("offsets", &self.offsets)] {
            if let Some(at) = values.iter().position(|x| !x.is_finite()) {
                return refuse(&format!("section {name:?}: value {at}"), "a finite number", f64::from(values[at]));
            }
        }
        let bad = |&b: &f32| b < 0.0 || f64::from(b) > f64::from(self.width as f32);
        if let Some(at) = self.offsets.iter().position(bad) {
            let (place, got) = (format!("section \"offsets\": value {at}"), f64::from(self.offsets[at]));
            return refuse(&place, &format!("a number in 0..{}", self.width), got);
        }
        if let Some(at) = self.multipliers.iter().position(|m| m % 2 == 0) {
            let place = format!("section \"multipliers\": value {at}");
            return Err(Error::corrupt(path, place, "an odd number", self.multipliers[at]));
        }
        for (i, &radius) in self.radii.iter().enumerate() {
            let least = if i == 0 { 0.0 } else { self.radii[i - 1] };
            if !(radius.is_finite() && radius > least) {
                return refuse(&format!("section \"radii\": value {i}"), &format!("a number above {least}"), radius);
            }
        }
        Ok(())
    }

    /// r.
    pub fn n_radii(&self) -> usize {
        self.radii.len()
    }

    /// Number of (radius, table, bucket).
    pub fn n_entries(&self) -> u64 {
        ((self.n_radii() * self.n_tables) as u64) << self.hash_bits
    }

    /// Number of an entry of tables.imx.
    pub fn entry(&self, radius: usize, table: usize, bucket: u32) -> u64 {
        (((radius * self.n_tables + table) as u64) << self.hash_bits) + u64::from(bucket)
    }

    /// Memory it takes.
    pub fn memory_bytes(&self) -> u64 {
        let Functions { projections, offsets, multipliers, radii, .. } = self;
        (size_of_val(&**projections) + size_of_val(&**offsets) + size_of_val(&**multipliers) + size_of_val(&**radii))
            as u64
    }

    /// `a . vector` for each function of each table, `[L, m]`: what all radii share. L m products of dim components.
    pub fn project(&self, vector: &[f32], out: &mut Vec<f32>) {
        assert_eq!(vector.len(), self.dim);
        let product = kernels().ip_f32;
        out.clear();
        // SAFETY: rows and vector hold `dim` floats.
        out.extend(
            self.projections.chunks_exact(self.dim).map(|a| unsafe { product(a.as_ptr(), vector.as_ptr(), self.dim) }),
        );
    }

    /// a of the functions of one table.
    pub fn projections(&self, table: usize) -> impl Iterator<Item = &[f32]> {
        let per_table = self.n_functions * self.dim;
        self.projections[table * per_table..][..per_table].chunks_exact(self.dim)
    }

    /// `a . vector` for the functions of one table, `[m]`.
    pub fn project_table(&self, table: usize, vector: &[f32], out: &mut Vec<f32>) {
        assert_eq!(vector.len(), self.dim);
        let product = kernels().ip_f32;
        out.clear();
        // SAFETY: rows and vector hold `dim` floats.
        out.extend(self.projections(table).map(|a| unsafe { product(a.as_ptr(), vector.as_ptr(), self.dim) }));
    }

    /// `t` of the functions of one table at one radius; `projected` is what [`Functions::project_table`] gives.
    pub fn positions<'a>(
        &'a self,
        radius: usize,
        table: usize,
        projected: &'a [f32],
    ) -> impl Iterator<Item = f64> + 'a {
        let (r, width, m) = (self.radii[radius], self.width, self.n_functions);
        let offsets = &self.offsets[(radius * self.n_tables + table) * m..][..m];
        projected.iter().zip(offsets).map(move |(&x, &b)| (f64::from(x) / r + f64::from(b)) / width)
    }

    /// Multipliers of one table.
    pub fn multipliers(&self, table: usize) -> &[u64] {
        &self.multipliers[table * self.n_functions..][..self.n_functions]
    }

    /// The compound hash of one table at one radius, before it is cut to 32 bits: the sum mod 2^64.
    pub fn sum(&self, radius: usize, table: usize, projected: &[f32]) -> u64 {
        let terms = self.positions(radius, table, projected).zip(self.multipliers(table));
        terms.fold(0u64, |sum, (t, &multiplier)| sum.wrapping_add(multiplier.wrapping_mul(floor(t) as u64)))
    }

    /// Where a sum leads.
    pub fn address(&self, sum: u64) -> Address {
        let v = sum >> 32;
        let bucket = v & ((1 << self.hash_bits) - 1);
        Address { bucket: bucket as u32, rest: (v >> self.hash_bits) as u32 }
    }
}

/// Bits of a slot and of a fingerprint in the entries of tables of slots up to `n`, which is at least 1.
pub(super) fn widths_of(n: u64, hash_bits: u32) -> (u32, u32) {
    let id_bits = (u64::BITS - (n - 1).leading_zeros()).max(1);
    (id_bits, (32 - hash_bits).min(40 - id_bits))
}

/// The largest integer up to `t`; saturates. (The portable `f64::floor` is a call.)
pub fn floor(t: f64) -> i64 {
    let truncated = t as i64;
    truncated.saturating_sub(i64::from(truncated as f64 > t))
}

fn floats(path: &Path, raw: &[u8]) -> Result<Vec<f32>> {
    collect(path, raw.len() / 4, f32s(raw))
}

#[cfg(test)]
mod tests {
    use super::floor;

    #[test]
    fn floor_rounds_down_and_saturates() {
        for t in [-3.0, -2.5, -1e-9, 0.0, 0.999, 1.0, 7.5, 2f64.powi(53), -(2f64.powi(53)), 1e18, -1e18] {
            assert_eq!(floor(t), t.floor() as i64, "{t}");
        }
        assert_eq!((floor(1e300), floor(-1e300), floor(f64::NAN)), (i64::MAX, i64::MIN, 0));
    }
}
