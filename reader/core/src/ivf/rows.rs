//! Distances of a query to the rows of a list, in the codec they have.

use super::batch::Batch;
use super::centroids::{Centroids, Codec};
use super::rabitq::{RabitQ, is_sound, length_and_factor};
use super::shared::Compared;
use crate::codes::{CodeTable, Codebook};
use crate::distance::kernels;
use crate::error::{Error, Place, Result};
use crate::memory::make_room;
use crate::metric::Metric;
use crate::stored::Dtype;

/// Rows of a list from which on bounds of their distances are worth making. With them a search of a million SIFT vectors
/// takes 0.87 of the processor time in 4,096 lists (32 of them probed), and 0.88 in 512 (4 probed), on a two-core EPYC
/// with AVX-512.
const FEWEST_BOUNDED: usize = 256;

/// Work space of one query after the other.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// Squared distances, or negated inner products, of the rows that were scanned last; infinite for some of those beyond
    /// the bar.
    pub(super) distances: Vec<f32>,
    /// Of PQ.
    codes: CodeTable,
    /// Of RaBitQ.
    table: Vec<f32>,
    /// List of the table, once it is filled; under inner product one of PQ serves all lists.
    table_of: Option<u32>,
    residual: Vec<f32>,
    scratch: Vec<f32>,
}

impl Rows {
    /// Forgets the query before.
    pub(super) fn reset(&mut self) {
        self.table_of = None;
    }

    /// Measures the first `n` rows of `rows`, which are those of `list` from row `first` on and aligned for their type.
    ///
    /// Codes are looked up in a table: of the query's residual to the centroid, or for PQ codes under inner product of
    /// the whole query, where the product with the centroid is added. Rows that are farther than `bar`, if there is a bar,
    /// need not be measured.
    ///
    /// # Panics
    /// If query and rows are not what the centroids say.
    pub(super) fn scan(
        &mut self,
        centroids: &Centroids,
        query: Compared<'_>,
        (batch, list, first): (&Batch, u32, u32),
        bar: Option<f32>,
        rows: &[u8],
        n: usize,
    ) -> Result<()> {
        let rows = &rows[..n * centroids.row_bytes];
        self.distances.clear();
        make_room(&batch.path, &mut self.distances, n)?;
        match &centroids.codec {
            Codec::Flat | Codec::Sq8 => self.measure(centroids, query, rows, n),
            Codec::Pq(book) => {
                if book.n_centres() < 256
                    && let Some(&code) = rows.iter().find(|&&code| usize::from(code) >= book.n_centres())
                {
                    let place = Place::in_page(batch.list(list).page, format!("codes of list {list}"));
                    return Err(Error::corrupt(&batch.path, place, format!("below {}", book.n_centres()), code));
                }
                self.measure_pq(centroids, book, query, list, bar, rows)?;
            }
            Codec::RabitQ(code) => {
                if !self.estimate(centroids, code, query, list, rows)? {
                    return batch.check_rows(code, list, first, rows);
                }
            }
        }
        Ok(())
    }

    /// Whether the table for a list is still to be filled, with `residual`: the query minus `part` of the centroid, or
    /// without a part the whole query, for all lists. `table_of` names the list again once the table is filled.
    fn prepare(&mut self, centroids: &Centroids, query: Compared<'_>, list: u32, part: Option<f32>) -> bool {
        if self.table_of.is_some_and(|of| part.is_none() || of == list) {
            return false;
        }
        self.residual.clear();
        match part {
            None => self.residual.extend_from_slice(query.floats),
            Some(part) => {
                self.residual.extend(query.floats.iter().zip(centroids.row(list)).map(|(x, c)| x - part * c));
            }
        }
        self.table_of = None;
        true
    }

    /// Measures PQ rows.
    fn measure_pq(
        &mut self,
        centroids: &Centroids,
        book: &Codebook,
        query: Compared<'_>,
        list: u32,
        bar: Option<f32>,
        rows: &[u8],
    ) -> Result<()> {
        let (is_ip, m) = (centroids.metric == Metric::Ip, centroids.row_bytes);
        let n = rows.len() / m;
        if self.prepare(centroids, query, list, (!is_ip).then_some(1.0)) {
            let (of, is_bounded) = (&self.residual, !is_ip && n >= FEWEST_BOUNDED);
            self.codes.fill(&centroids.path, is_bounded, |entries| {
                if is_ip { book.fill_products(of, entries) } else { book.fill_table(of, entries) }
            })?;
            self.table_of = Some(list);
        }
        self.distances.resize(n, f32::INFINITY);
        let distances = &mut self.distances;
        self.codes.score(n, |i| &rows[i * m..][..m], bar, |_| false, |i, distance| distances[i] = distance);
        if is_ip {
            assert_eq!(query.floats.len(), centroids.dim);
            let (floats, centre) = (query.floats.as_ptr(), centroids.row(list).as_ptr());
            // SAFETY: both hold `dim` floats.
            let product = unsafe { (kernels().ip_f32)(floats, centre, centroids.dim) };
            self.distances.iter_mut().for_each(|distance| *distance -= product);
        }
        Ok(())
    }

    /// Estimates the distances of RaBitQ rows: |q - x|^2 = |q - c|^2 + |r|^2 - 2 <q - c, r>. Stored vectors of inner
    /// product have one length M, so that <c, r> = (M^2 - |c|^2 - |r|^2) / 2 is known; what is left of the query, q - a c
    /// with a = <q, c> / |c|^2, is the least: -<q, x> = -<q, c> - a <c, r> - <q - a c, r>.
    /// Returns whether all lengths and factors can be.
    fn estimate(
        &mut self,
        centroids: &Centroids,
        code: &RabitQ,
        query: Compared<'_>,
        list: u32,
        rows: &[u8],
    ) -> Result<bool> {
        let (dim, kernels) = (centroids.dim, kernels());
        assert_eq!(query.floats.len(), dim);
        let (floats, centre) = (query.floats.as_ptr(), centroids.row(list).as_ptr());
        let (part, base, of_length, of_product) = if centroids.metric == Metric::Ip {
            // SAFETY: both hold `dim` floats.
            let (product, square) =
                unsafe { ((kernels.ip_f32)(floats, centre, dim), (kernels.ip_f32)(centre, centre, dim)) };
            let part = if square > 0.0 { product / square } else { 0.0 };
            let rest = (centroids.max_norm * centroids.max_norm - f64::from(square)) as f32;
            (part, -(product + 0.5 * part * rest), 0.5 * part, 1.0)
        } else {
            // SAFETY: both hold `dim` floats.
            (1.0, unsafe { (kernels.l2_f32)(floats, centre, dim) }, 1.0, 2.0)
        };
        if self.prepare(centroids, query, list, Some(part)) {
            code.fill_table(&centroids.path, &self.residual, &mut self.table)?;
            self.table_of = Some(list);
        }
        code.products(&self.table, rows, &mut self.distances);
        let mut are_sound = true;
        for (distance, row) in self.distances.iter_mut().zip(rows.chunks_exact(centroids.row_bytes)) {
            let (length, factor) = length_and_factor(row);
            are_sound &= is_sound(length) && is_sound(factor);
            *distance = (base + of_length * length) - of_product * (factor * *distance);
        }
        Ok(are_sound)
    }

    /// Measures rows that hold components.
    fn measure(&mut self, centroids: &Centroids, query: Compared<'_>, rows: &[u8], n: usize) {
        let (kernels, stored, dim) = (kernels(), centroids.stored(), centroids.dim);
        let align = if stored.dtype == Dtype::Float32 { 4 } else { stored.dtype.bytes() as usize };
        assert!(rows.as_ptr().addr().is_multiple_of(align) && query.floats.len() == dim);
        let is_integer = matches!(stored.dtype, Dtype::Uint8 | Dtype::Int8);
        assert!(!is_integer || query.bytes.len() == dim);
        self.scratch.resize(dim, 0.0);
        let (floats, bytes, out) = (query.floats.as_ptr(), query.bytes.as_ptr(), self.scratch.as_mut_ptr());
        let is_ip = centroids.metric == Metric::Ip;
        let float = |row: *const f32| {
            // SAFETY: `dim` floats each.
            if is_ip {
                unsafe { -(kernels.ip_f32)(floats, row, dim) }
            } else {
                unsafe { (kernels.l2_f32)(floats, row, dim) }
            }
        };
        for i in 0..n {
            let row = rows[i * centroids.row_bytes..].as_ptr();
            // SAFETY: a row holds `dim` components of its type (`Centroids`) and is aligned for them, as asserted; so do
            // `scratch` and the query, which has bytes if the type is an integer; the scale holds 2 * `dim`.
            let distance = unsafe {
                match stored.dtype {
                    Dtype::Uint8 => (kernels.l2_u8)(bytes, row, dim),
                    Dtype::Int8 => (kernels.l2_i8)(bytes.cast(), row.cast(), dim),
                    Dtype::Float16 if is_ip => -(kernels.ip_f16)(floats, row.cast(), dim),
                    Dtype::Float16 => (kernels.l2_f16)(floats, row.cast(), dim),
                    Dtype::Sq8 => {
                        let (min, step) = stored.scale.split_at(dim);
                        (kernels.unscale_u8)(row, min.as_ptr(), step.as_ptr(), dim, out);
                        float(out)
                    }
                    _ => float(row.cast()),
                }
            };
            self.distances.push(distance);
        }
    }
}
