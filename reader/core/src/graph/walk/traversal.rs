//! What all policies share: distances, the candidates, the results and the vertices that were expanded.

use std::ops::Range;

use super::lists::Lists;
use super::offered::Offered;
use crate::bytes::{u32_at, u32s};
use crate::codes::CodeTable;
use crate::error::Result;
use crate::graph::navigation::NavigationSearch;
use crate::graph::params::{Entry, Policy, SearchParams};
use crate::graph::results::{Counters, Goal, Results};
use crate::graph::shared::{Notes, Shared};
use crate::graph::trace::{Event, EventKind};
use crate::search::candidates::Candidates;
use crate::search::exact;
use crate::search::nearest::key;
use crate::search::queries::Prepared;
use crate::search::stamped::Stamped;

/// Candidates of the search in the navigation graph. On a million SIFT vectors 8 find the nearest sampled vertex as well
/// as 32 do.
const NAVIGATION_LIST_SIZE: usize = 8;
/// Vertices of a filter's sample where a walk through it starts, too.
const ALLOWED_ENTRIES: usize = 8;

/// Reads of a round of `rounds` for each vertex where it starts. In a trial on 100,000 SIFT vectors, with 32 reads a round and
/// recall 0.99, a search from 1, 8 and 32 of 1,024 entry vertices takes 4.5, 4.0 and 3.9 rounds, and 42, 42 and 63 reads.
const READS_PER_ENTRY: usize = 4;

/// Words of a filter that are scanned before the query gives way, at most: up to 65,536 code distances. Fewer where the list
/// of candidates is long.
const WORDS_AT_ONCE: usize = 1024;
/// Vertices of a word.
const WORD_BITS: usize = 64;

/// Neighbours that are gathered before they are scored: prefetched codes of more would push each other out of the nearest
/// cache.
const MOST_GATHERED: usize = 256;

/// Neighbours that are scored at a time while all are candidates: soon there is a bar, which spares most of the others.
const WITHOUT_BAR: usize = 32;

/// State of one query. Memory: up to `1284 * M` bytes, the candidates and the expanded vertices.
#[derive(Default)]
pub(crate) struct Traversal {
    pub query: Prepared,
    table: CodeTable,
    has_table: bool,
    /// The first candidates, until they are scored.
    opening: Vec<u32>,
    pub candidates: Lists,
    pub results: Results,
    expanded: Stamped,
    /// Whether candidates are only measured, without following their edges.
    is_flat: bool,
    /// Words of the filter whose vertices were offered.
    scanned: usize,
    navigation: NavigationSearch,
    navigated: Vec<u64>,
    /// The nearest of a filter's sample.
    sampled: Candidates,
    /// Centroids where a walk of few rounds starts.
    centroids: Vec<(f32, u32)>,
    /// Neighbours of expanded vertices, to be scored.
    gathered: Vec<u32>,
    offered: Offered,
    scratch: Vec<f32>,
    pub counters: Counters,
    /// What happened so far, if it is noted.
    pub events: Option<Vec<Event>>,
}

impl Traversal {
    /// Takes query `i` and finds where to start. `previous` are the results of the query before it, if known.
    pub fn start(&mut self, shared: &Shared<'_>, i: usize, previous: &[u32]) -> Result<()> {
        let (entries, n) = (shared.entries, shared.graph.layout.n_vertices as usize);
        self.query.load(&shared.queries, i, shared.graph.metric);
        self.counters = Counters::default();
        let (list_size, through) = (shared.plan.list_size.min(n), shared.plan.through);
        let (all, allowed) = if through > 0 { (through, list_size) } else { (list_size, 0) };
        self.candidates.reset(all, allowed, matches!(shared.goal, Goal::Within(_)));
        let apart = shared.apart.as_ref();
        let (goal, list_size) = (shared.goal, shared.plan.list_size);
        let goal = apart.map_or(goal, |apart| apart.among_nodes(&self.query, goal, list_size));
        self.results.reset(goal);
        self.expanded.reset();
        self.gathered.clear();
        self.offered.clear();
        self.events = (shared.notes == Notes::Events).then(Vec::new);
        (self.has_table, self.is_flat, self.scanned) = (false, shared.plan.scans, 0);
        self.opening.clear();
        if shared.plan.scans {
            return Ok(());
        }
        let within = shared.params.allow.as_ref().and_then(|filter| filter.entry(entries, &self.query.floats));
        if let Some(entry) = within {
            self.open(entry);
            return Ok(());
        }
        match shared.params.entry {
            Entry::Medoid => self.open(entries.medoid),
            Entry::Navigation => self.navigate(shared)?,
            Entry::Previous if !previous.is_empty() => {
                self.fill_table(shared)?;
                self.gathered.extend_from_slice(previous);
                self.score(shared);
            }
            Entry::Centroids | Entry::Previous => self.enter_centroids(shared)?,
        }
        self.enter_allowed(shared)
    }

    /// Whether it holds more than `most` centroids, of an index with unusually many.
    pub fn is_large(&self, most: usize) -> bool {
        self.centroids.capacity() > most
    }

    /// Starts at the vertex of the nearest centroid; at those of several, where rounds are to be few.
    fn enter_centroids(&mut self, shared: &Shared<'_>) -> Result<()> {
        let (entries, SearchParams { policy, beam_width, .. }) = (shared.entries, shared.params);
        if *policy != Policy::Rounds {
            self.open(entries.nearest(&self.query.floats));
            return Ok(());
        }
        let most = self.candidates.capacity().min(beam_width.div_ceil(READS_PER_ENTRY));
        let mut nearest = std::mem::take(&mut self.centroids);
        entries.nearest_some(&shared.graph.path, &self.query.floats, most, &mut nearest)?;
        nearest.iter().for_each(|&(_, slot)| self.open(slot));
        self.centroids = nearest;
        Ok(())
    }

    /// Starts at allowed vertices, too, where a filter is walked through: the nearest of its sample. They lead to the others
    /// where those that are near the query are not allowed.
    fn enter_allowed(&mut self, shared: &Shared<'_>) -> Result<()> {
        let is_walked = shared.plan.through > 0 && shared.codes.are_held();
        let Some(filter) = shared.params.allow.as_ref().filter(|_| is_walked) else { return Ok(()) };
        self.fill_table(shared)?;
        let (sample, Traversal { table, candidates, sampled, counters, .. }) = (filter.sample(), self);
        sampled.reset(ALLOWED_ENTRIES, false);
        shared.codes.score(table, sample, None, |i, distance| sampled.insert(key(distance, sample[i])));
        counters.code_distances += sample.len() as u64;
        sampled.keys().for_each(|key| candidates.insert(key, Some(filter.allowed())));
        Ok(())
    }

    /// Starts at the vertices that a search of the navigation graph ends with; their scores are known.
    fn navigate(&mut self, shared: &Shared<'_>) -> Result<()> {
        let Some(navigation) = shared.navigation else { return Ok(()) };
        self.fill_table(shared)?;
        let (codes, found) = (shared.codes, &mut self.navigated);
        self.counters.code_distances +=
            navigation.search(codes, &mut self.table, NAVIGATION_LIST_SIZE, &mut self.navigation, found);
        found.iter().for_each(|&key| self.candidates.insert(key, shared.walked_to()));
        Ok(())
    }

    /// Starts at a vertex, beside others that were opened. They are chosen first at any distance, so their scores can wait
    /// until their reads are in flight; without codes in memory they count as farther than all others from then on.
    fn open(&mut self, slot: u32) {
        self.candidates.insert(key(0.0, slot), None);
        if !self.opening.contains(&slot) {
            self.opening.push(slot);
        }
    }

    /// Offers allowed vertices, those of up to [`WORDS_AT_ONCE`]; true if there are no others. If they are few, offering every
    /// one is cheaper than a graph search through all others. Without codes in memory, all of them are read.
    pub fn scan(&mut self, shared: &Shared<'_>) -> Result<bool> {
        let Some(allowed) = shared.allowed else { return Ok(true) };
        if self.scanned == allowed.n_words() {
            return Ok(true);
        }
        let at_once = (self.candidates.insertions_at_once() / WORD_BITS).clamp(1, WORDS_AT_ONCE);
        let words = self.scanned..allowed.n_words().min(self.scanned + at_once);
        self.scanned = words.end;
        let mut slots = allowed.in_words(words).peekable();
        if !shared.codes.are_held() {
            slots.for_each(|slot| self.candidates.insert(key(0.0, slot), None));
            return Ok(self.scanned == allowed.n_words());
        }
        self.fill_table(shared)?;
        while slots.peek().is_some() {
            self.gathered.extend(slots.by_ref().take(MOST_GATHERED));
            self.score(shared);
        }
        Ok(self.scanned == allowed.n_words())
    }

    /// Builds the query's distance table, unless it is built. Called while the first read is in flight.
    pub fn fill_table(&mut self, shared: &Shared<'_>) -> Result<()> {
        if self.has_table {
            return Ok(());
        }
        shared.codes.fill_table(&self.query.floats, &mut self.table)?;
        self.has_table = true;
        if self.opening.is_empty() {
            return Ok(());
        }
        let were_chosen = self.candidates.settled() > 0;
        self.candidates.clear();
        if shared.codes.are_held() {
            self.gathered.append(&mut self.opening);
            self.score(shared);
        } else {
            let far = |slot| key(f32::INFINITY, slot);
            self.opening.drain(..).for_each(|slot| self.candidates.insert(far(slot), shared.walked_to()));
        }
        while were_chosen && self.candidates.pop().is_some() {}
        Ok(())
    }

    /// Whether the neighbour list of `slot` was followed.
    pub fn is_expanded(&self, slot: u32) -> bool {
        self.expanded.get(slot).is_some()
    }

    /// Measures vertices that were read in a block, adds them to the results, and calls `take` with the key of each. Called
    /// once a vertex.
    pub fn measure(&mut self, shared: &Shared<'_>, block: &[u8], mut slots: Range<u32>, mut take: impl FnMut(u64)) {
        let (layout, stored) = (&shared.graph.layout, shared.graph.stored());
        let Traversal { query, scratch, results, counters, events, .. } = self;
        counters.distances += slots.len() as u64;
        let nodes = block[layout.start_of(slots.start)..].chunks(layout.node_bytes).take(slots.len());
        let vectors = nodes.map(|node| &node[..layout.vector_bytes]);
        exact::distances(&stored, query, vectors, scratch, |distance| {
            let Some(slot) = slots.next() else { return };
            note_vertex(events, shared, counters.hops, EventKind::Measure, slot, distance);
            let key = key(distance, slot);
            results.push(key, shared.allowed);
            take(key);
        });
    }

    /// NeighborExpansion (DiskANN++ Algorithm 2, line 1): the neighbours become candidates at the next
    /// [`Traversal::score`], or before it. Bounds are looked up again for a neighbour that had them before: a set of all
    /// that were seen was tried and left out. [`Offered`] spares most of those that bounds keep a second score.
    pub fn expand(&mut self, shared: &Shared<'_>, block: &[u8], slot: u32) -> Result<()> {
        let (graph, codes) = (shared.graph, shared.codes);
        let node = graph.layout.node(&graph.path, block, slot)?;
        *self.expanded.entry(slot) = 1;
        self.counters.expansions += 1;
        self.counters.bytes_used += graph.layout.node_bytes as u64;
        note_vertex(&mut self.events, shared, self.counters.hops, EventKind::Expand, slot, f32::NAN);
        if self.is_flat {
            return Ok(());
        }
        self.fill_table(shared)?;
        let degree = node.neighbours.len() / 4;
        if graph.layout.has_codes() {
            let (allowed, Traversal { table, candidates, .. }) = (shared.walked_to(), &mut *self);
            codes.score_bytes(table, node.codes, candidates.bar(), |i, distance| {
                let neighbour = u32_at(node.neighbours, 4 * i);
                if shared.leads_on(neighbour) {
                    candidates.insert(key(distance, neighbour), allowed);
                }
            });
            self.counters.code_distances += degree as u64;
            return Ok(());
        }
        if self.gathered.len() + degree > MOST_GATHERED {
            self.score(shared);
        }
        let first = self.gathered.len();
        self.gathered.extend(u32s(node.neighbours).filter(|&neighbour| shared.leads_on(neighbour)));
        // Codes are scattered over memory: prefetching all of them first hides most of the waiting.
        codes.prefetch(&self.gathered[first..]);
        Ok(())
    }

    /// Scores the gathered neighbours in one call and offers them to the candidates. The list does not depend on how
    /// many are scored together.
    pub fn score(&mut self, shared: &Shared<'_>) {
        let (allowed, Traversal { table, candidates, gathered, offered, counters, .. }) = (shared.walked_to(), self);
        counters.code_distances += gathered.len() as u64;
        let mut rest = &gathered[..];
        while !rest.is_empty() {
            let bar = candidates.bar();
            let (now, later) = rest.split_at(if bar.is_some() { rest.len() } else { rest.len().min(WITHOUT_BAR) });
            let take = |i: usize, distance| candidates.insert(key(distance, now[i]), allowed);
            shared.codes.score_unless(table, now, bar, |slot| offered.note(slot), take);
            rest = later;
        }
        gathered.clear();
    }
}

fn note_vertex(
    events: &mut Option<Vec<Event>>,
    shared: &Shared<'_>,
    hop: u64,
    kind: EventKind,
    slot: u32,
    distance: f32,
) {
    if let Some(events) = events {
        let (hop, block) = (hop as u32, shared.graph.layout.block_of(slot));
        events.push(Event { kind, hop, block, slot, distance });
    }
}
