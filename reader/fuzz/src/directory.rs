//! Targets of a whole index directory.

use std::path::Path;

use indexmill_core::graph::{Entry, Policy, SearchOutput, SearchParams};
use indexmill_core::{Error, Index, Result};

use crate::input::{FITTED, PARTS, named, split_flags, write_parts};
use crate::queries::{Made, check_rows};

/// Verifies a directory; one without damage must open, be searched and give ids.
pub fn verify(data: &[u8]) -> Result<()> {
    let (flags, data) = split_flags(data);
    let scratch = write_parts(&PARTS, flags, data);
    first_damage(&scratch.0)?;
    let index = Index::open(&scratch.0, "pread").expect("a verified index opens");
    let all = index.graph.layout().n_vertices as usize;
    search_all(
        &index,
        Call { k: all.min(10), list_size: all, beam_width: 4, threads: 1, inflight: 2, n_queries: 2, seed: 0 },
    )
    .expect("a verified index can be searched");
    Ok(())
}

/// Refuses a damaged directory; every damage must name a file in it.
pub fn first_damage(path: &Path) -> Result<()> {
    let damages = indexmill_core::verify::verify(path);
    let directory = path.to_string_lossy();
    assert!(damages.iter().all(|text| text.contains(&*directory)), "damages that name no file: {damages:?}");
    damages.into_iter().next().map_or(Ok(()), |first| Err(Error::corrupt(path, first, "a sound index", "damage")))
}

/// Searches a directory in which all checksums, digests and sizes fit, so that other faults reach the decoders and the
/// search.
pub fn search(data: &[u8]) -> Result<()> {
    let Some((call, parts)) = data.split_first_chunk::<7>() else {
        return Err(Error::Input("an input shorter than its parameters".into()));
    };
    let scratch = write_parts(&PARTS, FITTED, parts);
    let index = named(&scratch.0, Index::open(&scratch.0, "pread"))?;
    search_all(&index, Call::parse(*call))
}

/// Parameters of the searches of one input.
#[derive(Clone, Copy)]
struct Call {
    k: usize,
    list_size: usize,
    beam_width: usize,
    threads: usize,
    inflight: usize,
    n_queries: usize,
    seed: u64,
}

impl Call {
    fn parse([k, more, beam_width, threads, inflight, n_queries, seed]: [u8; 7]) -> Self {
        Call {
            k: k.into(),
            // Lists shorter than k must be refused, very long ones must not be allocated at once.
            list_size: if more == u8::MAX {
                usize::MAX / 2
            } else {
                (usize::from(k) + usize::from(more)).saturating_sub(1)
            },
            beam_width: beam_width.into(),
            threads: usize::from(threads % 3),
            inflight: usize::from(inflight % 8),
            n_queries: usize::from(n_queries % 4),
            seed: seed.into(),
        }
    }
}

/// Runs every policy from every entry and checks the answers; of several errors returns the first.
fn search_all(index: &Index, call: Call) -> Result<()> {
    let made = Made::new(call.n_queries, index.graph.user_dim(), call.seed);
    let queries = made.queries(index.graph.layout().dtype.query_name());
    let mut outcome = Ok(());
    let mut entries = vec![Entry::Medoid, Entry::Centroids];
    if index.navigation.is_some() {
        entries.push(Entry::Navigation);
    }
    for policy in [Policy::Beam, Policy::Page, Policy::Completion, Policy::Pipeline, Policy::Rounds] {
        for &entry in &entries {
            let Call { k, list_size, beam_width, threads, inflight, .. } = call;
            let params = SearchParams::new(k)
                .list_size(list_size)
                .beam_width(beam_width)
                .policy(policy)
                .entry(entry)
                .threads(threads)
                .inflight(inflight)
                .deterministic(true);
            let found = named(&index.path, index.search(&queries, &params));
            outcome = outcome.and(found.and_then(|output| check_answers(index, &output, call.n_queries)));
        }
    }
    outcome
}

/// Rows of different slots that exist, best first, then nothing.
fn check_answers(index: &Index, output: &SearchOutput, n_queries: usize) -> Result<()> {
    let n = index.graph.layout().n_vertices;
    assert_eq!(output.slots.len(), n_queries * output.k);
    assert_eq!((output.vector_ids.len(), output.counters.len()), (output.slots.len(), n_queries));
    let slots = check_rows(&output.slots, &output.scores, output.k, n, index.graph.metric, true);
    assert!(output.vector_ids.iter().all(|&id| (-1..i64::from(n)).contains(&id)));
    named(&Path::new(&index.path).join("ids.imx"), index.ids.user_ids(&slots)).map(drop)
}
