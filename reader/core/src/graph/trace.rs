//! What a search did, event by event: [`super::Index::search_traced`].
//!
//! A query notes its events in order. Under `page`, `completion` and `rounds`, which handle the reads of a round as they
//! arrive, the events that follow an arrival are sorted by slot, so that a trace repeats where the search does. Without a trace
//! each event costs a branch.

use std::collections::HashMap;

use super::params::Policy;

/// Stands for no slot: n is at most this, and slots are below n.
pub const NO_SLOT: u32 = u32::MAX;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum EventKind {
    /// A block was asked for.
    Read,
    /// A block was taken from the cache for a vertex that was chosen.
    Cached,
    /// The exact distance of a vertex was computed.
    Measure,
    /// The neighbour list of a vertex was followed.
    Expand,
}

/// One step of a query.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The round, from 1. Under `pipeline` the position of a read in its chain of reads, and for other events the
    /// length of the longest chain so far. The largest is the query's `hops`.
    pub hop: u32,
    /// Block that was read, or that holds the vertex.
    pub block: u32,
    /// The vertex; [`NO_SLOT`] for a block that was read or taken from the cache.
    pub slot: u32,
    /// Exact distance of the vertex, smaller is nearer in every metric; NaN where there is no vertex.
    pub distance: f32,
}

/// Events of a block of queries.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Trace {
    /// Those of query i are `events[starts[i]..starts[i + 1]]`.
    pub starts: Vec<usize>,
    /// In order of time, except that events at the arrival of a round's reads are in the order of slots.
    pub events: Vec<Event>,
}

/// Appends the events of a finished query. Every expanded vertex is measured, perhaps later, so the distances of
/// expansions are filled in here.
pub(super) fn finish(events: &[Event], policy: Policy, out: &mut Vec<Event>) {
    let start = out.len();
    let measured = events.iter().filter(|event| event.kind == EventKind::Measure);
    let distances: HashMap<u32, f32> = measured.map(|event| (event.slot, event.distance)).collect();
    out.extend(events.iter().map(|&event| match event.kind {
        EventKind::Expand => Event { distance: distances.get(&event.slot).copied().unwrap_or(f32::NAN), ..event },
        _ => event,
    }));
    let by_arrival = |kind: EventKind| match policy {
        Policy::Page | Policy::Rounds => kind == EventKind::Measure,
        Policy::Completion => matches!(kind, EventKind::Measure | EventKind::Expand),
        Policy::Beam | Policy::Pipeline => false,
    };
    for run in out[start..].chunk_by_mut(|a, b| (a.kind, a.hop) == (b.kind, b.hop)) {
        if by_arrival(run[0].kind) {
            run.sort_by_key(|event| event.slot);
        }
    }
}
