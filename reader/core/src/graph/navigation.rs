//! navigation.imx: a small graph over a sample of the vertices (docs/formats/navigation.md), searched in memory for
//! vertices near the query, where the search on disk then starts (the entry policy of Starling and PipeANN).
//!
//! Deviation from both: the graph holds no vectors. A sampled vertex is scored with its PQ code and the query's
//! distance table. So nothing is held twice, and the scores compare with those in the candidate list that receives
//! them.

use std::path::Path;

use crate::bytes::u32s;
use crate::codes::{CodeTable, Codes};
use crate::directory::Directory;
use crate::error::{Error, Result};
use crate::interrupt::Stop;
use crate::manifest::NAVIGATION_FILE;
use crate::memory::{collect, reserve, resize};
use crate::pagefile::{PageFile, Section};
use crate::search::candidates::Candidates;
use crate::search::nearest::{distance_of, key, slot_of};

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

/// Memory for one search at a time of any navigation graph.
#[derive(Debug, Default)]
pub struct NavigationSearch {
    /// Keys of local positions.
    candidates: Candidates,
    /// Slots of the neighbours that are scored.
    slots: Vec<u32>,
}

impl Navigation {
    /// Reads navigation.imx of a directory and checks every page and value; `n` is the number of vertices of the index.
    pub fn open(directory: &Directory, n: u64, interrupted: Stop<'_>) -> Result<Self> {
        let file = PageFile::open_in(directory, NAVIGATION_FILE, b"NAVI")?;
        let path = &file.path;
        file.field_in("n_vertices", n..=n)?;
        let sample = file.field_in("n_sample", 1..=n)?;
        let max_degree = file.field_in("max_degree", 1..=512)?;
        let edges = file.field_in("n_edges", 0..=(sample * max_degree).min(u32::MAX.into()))?;
        let entry = file.field_in("entry", 0..=sample - 1)? as u32;
        let sections = [("slots", sample), ("offsets", sample + 1), ("neighbours", edges)];
        let [slots, offsets, neighbours] = sections.map(|(name, count)| file.section(name, Some(4 * count)));
        let checksums = file.load_checksums(interrupted)?;
        let mut load = |section: Result<Section>| -> Result<Vec<u32>> {
            let raw = file.read_section(&section?, &checksums, interrupted)?;
            collect(path, raw.len() / 4, u32s(&raw))
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

    /// The same graph after slot s became `slots[s]`; local positions are ranks by slot again. `path` names the index in the
    /// error where memory does not allow it.
    pub(crate) fn remapped(&self, path: &Path, slots: &[u32]) -> Result<Self> {
        let sample = self.slots.len();
        let mut ranked = collect(path, sample, self.slots.iter().map(|&s| slots[s as usize]).zip(0u32..))?;
        ranked.sort_unstable();
        let mut ranks = Vec::new();
        resize(path, &mut ranks, sample, 0)?;
        ranked.iter().zip(0..).for_each(|(&(_, local), rank)| ranks[local as usize] = rank);
        let (mut offsets, mut neighbours) = (reserve(path, sample + 1)?, reserve(path, self.neighbours.len())?);
        offsets.push(0);
        for &(_, local) in &ranked {
            neighbours.extend(self.neighbours(local).iter().map(|&other| ranks[other as usize]));
            offsets.push(neighbours.len() as u32);
        }
        let slots = collect(path, sample, ranked.iter().map(|&(slot, _)| slot))?;
        Ok(Navigation { build_id: self.build_id, slots, entry: ranks[self.entry as usize], offsets, neighbours })
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
    /// computed.
    pub fn search(
        &self,
        codes: &Codes,
        table: &mut CodeTable,
        list_size: usize,
        state: &mut NavigationSearch,
        out: &mut Vec<u64>,
    ) -> u64 {
        state.candidates.reset(list_size, false);
        let mut scored = self.offer(codes, table, &[self.entry], state);
        while let Some(vertex) = state.candidates.pop() {
            scored += self.offer(codes, table, self.neighbours(vertex), state);
        }
        out.clear();
        // Slots ascend with local positions, so the order of keys stays.
        let slot = |local: u64| self.slots[slot_of(local) as usize];
        out.extend(state.candidates.keys().map(|local| key(distance_of(local), slot(local))));
        scored
    }

    /// Scores local positions in one call and offers them to the candidates; returns their number.
    fn offer(&self, codes: &Codes, table: &mut CodeTable, vertices: &[u32], state: &mut NavigationSearch) -> u64 {
        let NavigationSearch { candidates, slots } = state;
        slots.clear();
        slots.extend(vertices.iter().map(|&vertex| self.slots[vertex as usize]));
        codes.prefetch(slots); // scattered: prefetching all of them first hides most of the waiting
        codes.score(table, slots, candidates.bar(), |i, distance| candidates.insert(key(distance, vertices[i])));
        vertices.len() as u64
    }
}
