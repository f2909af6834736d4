//! Queries of the targets that search, ways to ask them, and what every answer must be.

use std::sync::mpsc;

use indexmill_core::ids::{Ids, UserIds};
use indexmill_core::living::Living;
use indexmill_core::search::{Queries, Ticket, Values};
use indexmill_core::{Metric, Result};

use crate::common::Random;

/// Flag: begins a search, and waits until it calls back.
pub const LATER: u8 = 64;
/// Flag: reads from a map of the files.
pub const MAPPED: u8 = 128;

/// Random queries of every type.
pub struct Made {
    n: usize,
    dim: usize,
    unsigned: Vec<u8>,
    signed: Vec<i8>,
    floats: Vec<f32>,
}

impl Made {
    /// `n` queries of `dim` components. Large ones overflow to infinity in hashes, and the largest are refused.
    pub fn new(n: usize, dim: usize, seed: u64) -> Self {
        let mut random = Random(seed);
        let unsigned: Vec<u8> = (0..n * dim).map(|_| random.next() as u8).collect();
        let signed: Vec<i8> = unsigned.iter().map(|&x| x as i8).collect();
        let scale = [0.125, 1.0, 1e15, 1e36][seed as usize % 4];
        let floats = signed.iter().map(|&x| f32::from(x) * scale).collect();
        Made { n, dim, unsigned, signed, floats }
    }

    /// Those of a type, by the name of which an index asks for them.
    pub fn queries(&self, query_dtype: &str) -> Queries<'_> {
        let values = match query_dtype {
            "uint8" => Values::Uint8(&self.unsigned),
            "int8" => Values::Int8(&self.signed),
            _ => Values::Float32(&self.floats),
        };
        Queries { values, n: self.n, dim: self.dim }
    }
}

/// What a search that calls back finds.
pub fn later<T: Send + 'static>(begin: impl FnOnce(Box<dyn FnOnce(Result<T>) + Send>) -> Result<Ticket>) -> Result<T> {
    let (done, found) = mpsc::channel();
    begin(Box::new(move |outcome| {
        done.send(outcome).ok();
    }))?;
    found.recv().expect("a search that began calls back")
}

/// Panics unless what was found is left, and is found again by its ids. `vector_ids` and `user_ids` are those of `slots`,
/// each -1 where nothing was found.
pub fn check_ids(
    ids: &Ids,
    living: Option<&Living>,
    slots: &[i64],
    vector_ids: &[i64],
    user_ids: &UserIds,
) -> Result<()> {
    let present: Vec<u32> = slots.iter().filter_map(|&slot| u32::try_from(slot).ok()).collect();
    let is_left = |&slot: &u32| living.is_none_or(|living| living.slots().contains(slot));
    assert!(present.iter().all(is_left), "deleted slots in {present:?}");
    ids.user_ids(&present)?;
    let of_vectors = UserIds::Int64(vector_ids.to_vec());
    let found = ids.find(if *user_ids == UserIds::None { &of_vectors } else { user_ids })?;
    assert_eq!(found.len(), slots.len());
    assert!(found.iter().zip(slots).all(|(id, &slot)| id.is_some() || slot < 0), "{found:?} of slots {slots:?}");
    Ok(())
}

/// Panics unless each row of `k` has slots below `n`, different ones if they must be, best first, then nothing.
pub fn check_rows(slots: &[i64], scores: &[f32], k: usize, n: u32, metric: Metric, are_distinct: bool) {
    let (n, sign) = (i64::from(n), if metric == Metric::L2 { 1.0 } else { -1.0 });
    assert_eq!(slots.len(), scores.len());
    for (slots, scores) in slots.chunks(k.max(1)).zip(scores.chunks(k.max(1))) {
        let found = slots.iter().take_while(|&&s| s >= 0).count();
        let mut seen = slots[..found].to_vec();
        seen.sort_unstable();
        assert!(!are_distinct || seen.windows(2).all(|pair| pair[0] < pair[1]), "a slot twice: {slots:?}");
        assert!(seen.iter().all(|&s| s < n) && slots[found..].iter().all(|&s| s == -1), "{slots:?} of {n}");
        assert!(scores[found..].iter().all(|x| x.is_nan()));
        // A vector that is not a number has no place in the order.
        if scores[..found].iter().all(|x| x.is_finite()) {
            assert!(scores[..found].is_sorted_by(|a, b| a * sign <= b * sign), "{scores:?}");
        }
    }
}
