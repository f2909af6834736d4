//! Targets of indexes of kind "ivf".

use std::sync::Arc;

use indexmill_core::ivf::IvfParams;
use indexmill_core::ivf::centroids::Centroids;
use indexmill_core::{Error, IvfIndex, Result};

use crate::directory::first_damage;
use crate::input::{FITTED, IVF_PARTS, named, write_page_file, write_parts};
use crate::queries::{LATER, MAPPED, Made, check_ids, check_rows, later};

/// Opens centroids.imx and looks at every centroid.
pub fn centroids(data: &[u8]) -> Result<()> {
    let (_scratch, directory, path) = write_page_file("centroids.imx", data);
    let centroids = named(&path, Centroids::open(&directory, &mut || false))?;
    assert_eq!(centroids.rows().count(), centroids.n_lists);
    for (list, row) in centroids.rows().enumerate() {
        assert!(row.iter().all(|x| x.is_finite()));
        assert_eq!(centroids.row(list as u32), row);
    }
    Ok(())
}

/// Verifies and searches a directory in which all checksums, digests and sizes fit, so that other faults reach the
/// search.
pub fn ivf(data: &[u8]) -> Result<()> {
    let Some((&[flags, k, nprobe, rerank, inflight, seed], parts)) = data.split_first_chunk::<6>() else {
        return Err(Error::Input("an input shorter than its parameters".into()));
    };
    let scratch = write_parts(&IVF_PARTS, FITTED, parts);
    let verdict = first_damage(&scratch.0);
    let params = IvfParams::new(k.into(), nprobe.into())
        .prune((seed & 64 > 0).then_some(0.5f32))
        .rerank(rerank.into())
        .threads(1)
        .inflight(usize::from(inflight % 8));
    let outcome = [if flags & MAPPED > 0 { "mmap" } else { "pread" }, "memory"].map(|engine| {
        let index = Arc::new(named(&scratch.0, IvfIndex::open(&scratch.0, engine))?);
        named(&scratch.0, search(&index, &params, seed, flags & LATER > 0, verdict.is_ok()))
    });
    outcome.into_iter().collect::<Result<()>>().and(verdict)
}

/// Searches for a few vectors and checks the answers.
fn search(index: &Arc<IvfIndex>, params: &IvfParams, seed: u8, is_later: bool, is_sound: bool) -> Result<()> {
    let made = Made::new(3, index.user_dim(), seed.into());
    let queries = made.queries(index.query_dtype());
    let output = if is_later {
        later(|done| index.search_later(queries.copied(), params.clone(), done))?
    } else {
        index.search(&queries, params)?
    };
    let (n, metric) = (index.centroids.n_vectors, index.centroids.metric);
    // Without copies, a vector that lies in several lists is `verify`'s to find.
    let are_distinct = is_sound || index.centroids.copies > 1;
    check_rows(&output.slots, &output.scores, output.k, n, metric, are_distinct);
    // Slots are vector ids.
    check_ids(&index.ids, index.living.as_deref(), &output.slots, &output.slots, &output.user_ids)
}
