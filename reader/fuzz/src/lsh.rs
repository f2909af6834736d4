//! Targets of indexes of kind "lsh".

use std::sync::Arc;

use indexmill_core::lsh::functions::Functions;
use indexmill_core::lsh::{InMemory, LshParams};
use indexmill_core::vectors::Vectors;
use indexmill_core::{Error, LshIndex, Result};

use crate::directory::first_damage;
use crate::input::{FITTED, LSH_PARTS, named, write_page_file, write_parts};
use crate::queries::{LATER, MAPPED, Made, check_ids, check_rows, later};

/// Opens functions.imx and hashes a few vectors at every radius of every table.
pub fn functions(data: &[u8]) -> Result<()> {
    let (_scratch, directory, path) = write_page_file("functions.imx", data);
    let functions = named(&path, Functions::open(&directory, &mut || false))?;
    let (mut projected, mut of_table) = (Vec::new(), Vec::new());
    for value in [0.0, -1.5, f32::MAX] {
        let vector = vec![value; functions.dim];
        functions.project(&vector, &mut projected);
        for (table, part) in projected.chunks_exact(functions.n_functions).enumerate() {
            functions.project_table(table, &vector, &mut of_table);
            assert!(part.iter().zip(&of_table).all(|(a, b)| a.to_bits() == b.to_bits()));
            for radius in 0..functions.n_radii() {
                let address = functions.address(functions.sum(radius, table, part));
                assert!(u64::from(address.bucket) < 1 << functions.hash_bits);
                assert!(u64::from(address.rest) < 1 << (32 - functions.hash_bits));
                assert!(functions.entry(radius, table, address.bucket) < functions.n_entries());
            }
        }
    }
    Ok(())
}

/// Opens vectors.imx both ways; what is in memory is what is in the file.
pub fn vectors(data: &[u8]) -> Result<()> {
    let (_scratch, directory, path) = write_page_file("vectors.imx", data);
    let stored = named(&path, Vectors::open(&directory, false, &mut || false))?;
    let bytes = std::fs::read(&path).expect("it was just written");
    let held = named(&path, Vectors::open(&directory, true, &mut || false));
    let mut outcome = Ok(());
    for slot in 0..stored.n_vectors {
        let unit = stored.unit_of(slot);
        let content = &bytes[stored.offset_of(unit) as usize..][..stored.unit_bytes()];
        outcome = outcome.and(named(&path, stored.check_unit(unit, content)));
        if let Ok(held) = &held {
            assert_eq!(held.held(slot), Some(stored.row(content, slot)));
        }
    }
    assert_eq!(outcome.is_ok(), held.is_ok());
    outcome
}

/// Verifies and searches a directory in which all checksums (except those of blocks), digests and sizes fit, so that
/// other faults reach the search.
pub fn lsh(data: &[u8]) -> Result<()> {
    let Some((&[flags, k, candidates, probes, inflight, seed], parts)) = data.split_first_chunk::<6>() else {
        return Err(Error::Input("an input shorter than its parameters".into()));
    };
    let scratch = write_parts(&LSH_PARTS, FITTED, parts);
    let verdict = first_damage(&scratch.0);
    let params = LshParams::new(k.into())
        .candidates((candidates > 0).then_some(u64::from(candidates)))
        .probes(usize::from(probes % 20))
        .threads(1)
        .inflight(usize::from(inflight % 8));
    let outcome = [
        (if flags & MAPPED > 0 { "mmap" } else { "pread" }, InMemory::default()),
        ("pread", InMemory::default().vectors(true).tables(true)),
        ("memory", InMemory::default()),
    ]
    .map(|(engine, held)| {
        let index = Arc::new(named(&scratch.0, LshIndex::open(&scratch.0, engine, held))?);
        named(&scratch.0, search(&index, &params, seed, flags & LATER > 0))
    });
    outcome.into_iter().collect::<Result<()>>().and(verdict)
}

/// Searches for a few vectors and checks the answers.
fn search(index: &Arc<LshIndex>, params: &LshParams, seed: u8, is_later: bool) -> Result<()> {
    let made = Made::new(3, index.user_dim(), seed.into());
    let queries = made.queries(index.vectors.dtype().query_name());
    let output = if is_later {
        later(|done| index.search_later(queries.copied(), params.clone(), done))?
    } else {
        index.search(&queries, params)?
    };
    let (n, metric) = (index.functions.n_vectors, index.vectors.metric);
    check_rows(&output.slots, &output.scores, output.k, n, metric, true);
    // Slots are vector ids.
    check_ids(&index.ids, index.living.as_deref(), &output.slots, &output.slots, &output.user_ids)
}
