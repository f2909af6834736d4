//! navigation.imx: a small graph over a sample of the vertices (docs/formats/navigation.md), searched in memory for
//! vertices near the query, where the search on disk then starts (the entry policy of Starling and PipeANN).
//!
//! Deviation from both: the graph holds no vectors. A sampled vertex is scored with its PQ code and the query's
//! distance table, so nothing is held twice, and the scores are those of the candidate list that receives them.

use std::path::Path;

use crate::bytes::u32s;
use crate::codes::Codes;
use crate::error::{Error, Result};
use crate::memory::reserve;
use crate::pagefile::{PageFile, Section};
use crate::search::marks::Marks;
use crate::search::nearest::{key, slot_of};

/// Most vertices of a navigation graph: an entry of the candidate list has room for 31 bits and a flag.
const MAX_SAMPLE: u64 = (1 << 31) - 1;
/// Mark of a vertex that was scored.
const SCORED: u8 = 1;
/// Flag of an entry of the candidate list: its neighbours were scored.
const EXPANDED: u64 = 1;
/// Low half of a key, which holds the vertex.
const VERTEX_BITS: u64 = u32::MAX as u64;

/// A graph on sampled vertices, named by *local position*: their rank by slot.
#[derive(Debug)]
pub struct Navigation {
    /// First bytes of the build id.
    pub build_id: [u8; 16],
    /// Slot of each local position, ascending.
    pub slots: Vec<u32>,
    /// Local position where a search starts: the medoid of the sample.
    pub entry: u32,
    /// The neighbours of v are `neighbours[offsets[v]..offsets[v + 1]]`.
    offsets: Vec<u32>,
    neighbours: Vec<u32>,
}

/// Work space of one thread, for any navigation graph. Memory: 8 bytes a candidate, about 16 bytes a vertex scored.
#[derive(Debug, Default)]
pub struct NavigationSearch {
    /// Local positions that were scored.
    marks: Marks,
    /// Ascending keys of `2 * local position + flag`.
    list: Vec<u64>,
    fresh: Vec<u32>,
    fresh_slots: Vec<u32>,
    scores: Vec<f32>,
}

impl Navigation {
    /// Reads the whole file and checks every page and value; `n` is the number of vertices of the index.
    pub fn open(path: &Path, n: u64) -> Result<Self> {
        let file = PageFile::open(path, b"NAVI")?;
        file.field_in("n_vertices", n..=n)?;
        let sample = file.field_in("n_sample", 1..=n.min(MAX_SAMPLE))?;
        let max_degree = file.field_in("max_degree", 1..=512)?;
        let edges = file.field_in("n_edges", 0..=(sample * max_degree).min(u32::MAX.into()))?;
        let entry = file.field_in("entry", 0..=sample - 1)? as u32;
        let sections = [("slots", sample), ("offsets", sample + 1), ("neighbours", edges)];
        let [slots, offsets, neighbours] = sections.map(|(name, count)| file.section(name, Some(4 * count)));
        let checksums = file.load_checksums()?;
        let load = |section: Result<Section>| -> Result<Vec<u32>> {
            let raw = file.read_section(&section?, &checksums)?;
            let mut values = reserve(path, raw.len() / 4)?;
            values.extend(u32s(&raw));
            Ok(values)
        };
        let (slots, offsets, neighbours) = (load(slots)?, load(offsets)?, load(neighbours)?);
        let navigation = Navigation { build_id: file.header.build_id, slots, entry, offsets, neighbours };
        navigation.check(path, n, max_degree)?;
        Ok(navigation)
    }

    fn check(&self, path: &Path, n: u64, max_degree: u64) -> Result<()> {
        let sample = self.slots.len();
        if !self.slots.is_sorted_by(|a, b| a < b) || self.slots.last().is_none_or(|&s| u64::from(s) >= n) {
            return Err(Error::corrupt(
                path,
                "section \"slots\"",
                format!("ascending slots below {n}"),
                "another list",
            ));
        }
        let ends = (self.offsets.first().copied(), self.offsets.last().map(|&end| end as usize));
        if ends != (Some(0), Some(self.neighbours.len())) {
            let expected = format!("offsets from 0 to {}", self.neighbours.len());
            return Err(Error::corrupt(path, "section \"offsets\"", expected, "another list"));
        }
        let fits = |pair: &[u32]| pair[1].checked_sub(pair[0]).is_some_and(|degree| u64::from(degree) <= max_degree);
        if let Some(v) = self.offsets.windows(2).position(|pair| !fits(pair)) {
            let (expected, got) = (format!("0..{max_degree} more than {}", self.offsets[v]), self.offsets[v + 1]);
            return Err(Error::corrupt(path, format!("offset {}", v + 1), expected, got));
        }
        if let Some(at) = self.neighbours.iter().position(|&u| u as usize >= sample) {
            let expected = format!("a local position below {sample}");
            return Err(Error::corrupt(path, format!("neighbour {at}"), expected, self.neighbours[at]));
        }
        Ok(())
    }

    /// Number of sampled vertices, at least 1.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Never true; there is at least one sampled vertex.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Neighbour list of a local position, as local positions.
    pub fn neighbours(&self, local: u32) -> &[u32] {
        let v = local as usize;
        &self.neighbours[self.offsets[v] as usize..self.offsets[v + 1] as usize]
    }

    /// Memory it takes: 8 bytes a sampled vertex, 4 an edge, and 4 more.
    pub fn memory_bytes(&self) -> u64 {
        4 * (self.slots.len() + self.offsets.len() + self.neighbours.len()) as u64
    }

    /// Greedy best-first search (DiskANN Algorithm 1) by code distance, with `list_size` candidates.
    ///
    /// `codes` are those of the index, `table` the query's distance table. `out` gets the keys (`search::nearest`: code
    /// distance, then slot) of the candidates that remain, in ascending order. Returns the number of code distances
    /// computed; no vertex is scored twice.
    pub fn search(
        &self,
        codes: &Codes,
        table: &[f32],
        list_size: usize,
        state: &mut NavigationSearch,
        out: &mut Vec<u64>,
    ) -> u64 {
        state.marks.reset();
        state.list.clear();
        self.score(codes, table, &[self.entry], list_size, state);
        let (mut scored, mut cursor) = (1, 0);
        while let Some(&candidate) = state.list.get(cursor) {
            if candidate & EXPANDED != 0 {
                cursor += 1;
                continue;
            }
            state.list[cursor] |= EXPANDED;
            let neighbours = self.neighbours(slot_of(candidate) >> 1);
            let first = self.score(codes, table, neighbours, list_size, state);
            scored += state.fresh.len() as u64;
            cursor = first.min(cursor + 1);
        }
        out.clear();
        let slot = |entry: u64| u64::from(self.slots[(slot_of(entry) >> 1) as usize]);
        out.extend(state.list.iter().map(|&entry| entry & !VERTEX_BITS | slot(entry)));
        scored
    }

    /// Scores those of `vertices` that were not scored yet and inserts them into the list. Returns the first place of
    /// the list that was taken.
    fn score(
        &self,
        codes: &Codes,
        table: &[f32],
        vertices: &[u32],
        list_size: usize,
        state: &mut NavigationSearch,
    ) -> usize {
        let NavigationSearch { marks, list, fresh, fresh_slots, scores } = state;
        fresh.clear();
        fresh_slots.clear();
        for &vertex in vertices {
            if marks.mark(vertex, SCORED) == 0 {
                let slot = self.slots[vertex as usize];
                codes.prefetch(slot); // scattered: asking for all of them first hides most of the waiting
                fresh.push(vertex);
                fresh_slots.push(slot);
            }
        }
        codes.score(table, fresh_slots, scores);
        let mut first = usize::MAX;
        for (&vertex, &distance) in fresh.iter().zip(scores.iter()) {
            let entry = key(distance, vertex << 1);
            if list.len() == list_size {
                if list.last().is_none_or(|&last| last < entry) {
                    continue;
                }
                list.pop();
            }
            let at = list.partition_point(|&other| other < entry);
            list.insert(at, entry);
            first = first.min(at);
        }
        first
    }
}
