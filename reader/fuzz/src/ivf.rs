//! Targets of indexes of kind "ivf".

use indexmill_core::Metric;
use indexmill_core::ivf::centroids::Centroids;
use indexmill_core::ivf::{IvfOutput, IvfParams};
use indexmill_core::search::{Queries, Values};
use indexmill_core::verify::verify;
use indexmill_core::{Error, IvfIndex, Result};

use crate::common::Random;
use crate::input::{FITTED, IVF_PARTS, named, write_page_file, write_parts};

/// Opens centroids.imx and looks at every centroid.
pub fn centroids(data: &[u8]) -> Result<()> {
    let (_scratch, path) = write_page_file("centroids.imx", data);
    let centroids = named(&path, Centroids::open(&path))?;
    assert_eq!(centroids.rows().count(), centroids.n_lists);
    for (list, row) in centroids.rows().enumerate() {
        assert!(row.iter().all(|x| x.is_finite()));
        assert_eq!(centroids.row(list as u32), row);
    }
    Ok(())
}

/// Verifies and searches a directory whose checksums, digests and sizes all fit: what is wrong with it reaches the
/// search.
pub fn ivf(data: &[u8]) -> Result<()> {
    let Some((&[k, nprobe, rerank, inflight, seed], parts)) = data.split_first_chunk::<5>() else {
        return Err(Error::Input("an input shorter than its parameters".into()));
    };
    let scratch = write_parts(&IVF_PARTS, FITTED, parts);
    let damages = verify(&scratch.0);
    let directory = scratch.0.to_string_lossy();
    assert!(damages.iter().all(|text| text.contains(&*directory)), "damages that name no file: {damages:?}");
    let params = IvfParams {
        k: k.into(),
        nprobe: nprobe.into(),
        prune: (seed & 64 > 0).then_some(0.5),
        rerank: rerank.into(),
        threads: 1,
        inflight: usize::from(inflight % 8),
    };
    let outcome = ["pread", "memory"].map(|engine| {
        let index = named(&scratch.0, IvfIndex::open(&scratch.0, engine))?;
        named(&scratch.0, search(&index, &params, seed)).map(drop)
    });
    if let Some(first) = damages.into_iter().next() {
        outcome.into_iter().collect::<Result<()>>()?;
        return Err(Error::Corrupt(first));
    }
    outcome.into_iter().collect()
}

/// Searches for a few vectors and checks the answers.
fn search(index: &IvfIndex, params: &IvfParams, seed: u8) -> Result<IvfOutput> {
    let (n, dim) = (i64::from(index.centroids.n_vectors), index.user_dim());
    let mut random = Random(seed.into());
    let raw: Vec<u8> = (0..3 * dim).map(|_| random.next() as u8).collect();
    let signed: Vec<i8> = raw.iter().map(|&x| x as i8).collect();
    // Large ones overflow to infinity in distances.
    let scale = [0.125, 1.0, 1e19, 1e36][usize::from(seed) % 4];
    let floats: Vec<f32> = signed.iter().map(|&x| f32::from(x) * scale).collect();
    let values = match index.query_dtype() {
        "uint8" => Values::Uint8(&raw),
        "int8" => Values::Int8(&signed),
        _ => Values::Float32(&floats),
    };
    let output = index.search(&Queries { values, n: 3, dim }, params, &mut || false)?;
    let sign = if index.centroids.metric == Metric::L2 { 1.0 } else { -1.0 };
    for (slots, scores) in output.slots.chunks(output.k).zip(output.scores.chunks(output.k)) {
        let found = slots.iter().take_while(|&&s| s >= 0).count();
        let mut seen = slots[..found].to_vec();
        seen.sort_unstable();
        // One that lies in more lists than it may is `verify`'s to find.
        assert!(index.centroids.copies == 1 || seen.windows(2).all(|pair| pair[0] < pair[1]), "twice: {slots:?}");
        assert!(seen.iter().all(|&s| s < n) && slots[found..].iter().all(|&s| s == -1), "{slots:?} of {n}");
        if scores[..found].iter().all(|x| x.is_finite()) {
            assert!(scores[..found].is_sorted_by(|a, b| a * sign <= b * sign), "{scores:?}");
        }
    }
    let slots: Vec<u32> = output.slots.iter().filter_map(|&s| u32::try_from(s).ok()).collect();
    index.ids.user_ids(&slots)?;
    Ok(output)
}
