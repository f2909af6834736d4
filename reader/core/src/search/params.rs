//! The parameters of a search and what they may be.

use crate::error::{Error, Result};

/// Reads of one query in flight at most; the device's queue is full long before.
pub const MAX_BEAM_WIDTH: usize = 64;
/// Queries that one thread interleaves at most.
pub const MAX_INFLIGHT: usize = 256;
/// Search threads at most.
pub const MAX_THREADS: usize = 1024;

/// How vertices are chosen for expansion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Lock-step beam search: DiskANN++ Algorithm 1.
    Beam,
    /// Page search with a page heap: DiskANN++ Algorithm 5.
    Page,
}

/// Where a search starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// At the vertex nearest to the mean of all vectors.
    Medoid,
    /// At the vertex of the centroid nearest to the query (DiskANN++ section III).
    Centroids,
}

/// Everything a caller can choose.
#[derive(Debug, Clone)]
pub struct SearchParams {
    /// Answers a query.
    pub k: usize,
    /// L: candidates kept while searching, at least k.
    pub list_size: usize,
    /// W: vertices a query chooses in one hop, so reads it has in flight.
    pub beam_width: usize,
    /// How vertices are chosen.
    pub policy: Policy,
    /// Where to start.
    pub entry: Entry,
    /// Search threads.
    pub threads: usize,
    /// Queries each thread interleaves.
    pub inflight: usize,
}

impl Policy {
    /// The policy called "beam" or "page".
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "beam" => Ok(Policy::Beam),
            "page" => Ok(Policy::Page),
            _ => Err(Error::Config(format!("policy: expected \"beam\" or \"page\", got {name:?}"))),
        }
    }
}

impl Entry {
    /// The entry policy called "medoid" or "centroids".
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "medoid" => Ok(Entry::Medoid),
            "centroids" => Ok(Entry::Centroids),
            _ => Err(Error::Config(format!("entry: expected \"medoid\" or \"centroids\", got {name:?}"))),
        }
    }
}

impl SearchParams {
    /// Refuses what cannot be searched in an index of `n` vertices.
    pub fn check(&self, n: u32) -> Result<()> {
        let (k, l) = (self.k, self.list_size);
        if k == 0 {
            return Err(Error::Input("k: expected at least 1, got 0; ask for one neighbour or more".into()));
        }
        if k > n as usize {
            return Err(Error::Input(format!("k: the index has {n} vectors, got {k}; ask for at most {n} neighbours")));
        }
        if l < k {
            return Err(Error::Input(format!(
                "L: expected at least k = {k}, got {l}; raise L (search_list_size) to {k}"
            )));
        }
        for (name, value, most) in [
            ("beam_width", self.beam_width, MAX_BEAM_WIDTH),
            ("threads", self.threads, MAX_THREADS),
            ("inflight", self.inflight, MAX_INFLIGHT),
        ] {
            if !(1..=most).contains(&value) {
                return Err(Error::Config(format!(
                    "{name}: expected 1..{most}, got {value}; choose one in that range"
                )));
            }
        }
        Ok(())
    }
}
