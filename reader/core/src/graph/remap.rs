//! Views of an index in another order of slots: [`Index::remapped`], the simulator that judges orders.
//!
//! The same code searches a view and an index. The engine of a view composes the pages of the new order of nodes in
//! memory, when they are asked for. Everything else that has slots (codes, entries, navigation graph, ids) is
//! translated when the view is made. So the results of a view, and in a deterministic search its counters, are those of
//! an index that was written in that order, query by query; times are not.

use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};

use super::file::Graph;
use super::in_use::InUse;
use super::index::Index;
use super::nodes::{Nodes, Pages};
use crate::engine::{EngineChoice, Storage};
use crate::error::{Error, Result};
use crate::memory::{collect, reserve};
use crate::search::pool::Pool;

/// Stands for no slot: n is at most this, and slots are below n.
const UNSET: u32 = u32::MAX;

impl Index {
    /// The same index as if the vertex in slot `order[s]` lived in slot `s`; `order` is a permutation of the slots.
    ///
    /// The first call on an index reads all nodes into memory, as much as graph.imx and vectors.imx take; the index and
    /// its views share them. First calls at the same time each read them, and one copy is kept. A view takes 8 bytes a
    /// vertex for the maps besides its own codes, entries and navigation graph, and starts without a cache. `path` and
    /// `manifest` are those of the original index; a filter of one does not fit the other.
    ///
    /// # Errors
    /// `Input` if `order` is not a permutation of 0..n; `Config` where memory does not allow a view; what [`Index::search`]
    /// finds in damaged files.
    pub fn remapped(&self, order: &[u32]) -> Result<Index> {
        self.remapped_unless(order, &mut || false)
    }

    /// As [`Index::remapped`], with `interrupted` as in [`Index::filter_unless`].
    pub fn remapped_unless(&self, order: &[u32], interrupted: &mut dyn FnMut() -> bool) -> Result<Index> {
        let (n, path) = (self.graph.layout.n_vertices, &self.graph.path);
        let slots = inverse(order, n, &self.graph)?;
        let nodes = self.nodes(interrupted)?;
        let home = |&slot: &u32| self.pages.as_ref().map_or(slot, |pages| pages.order[slot as usize]);
        let homes = Arc::new(collect(path, order.len(), order.iter().map(home))?);
        let entries = self.entries.remapped(path, &slots)?;
        let navigation = self.navigation.as_ref().map(|navigation| navigation.remapped(path, &slots)).transpose()?;
        let living = self.living.as_ref().map(|living| living.remapped(path, order)).transpose()?;
        let home_slots = if self.pages.is_some() { inverse(&homes, n, &self.graph)? } else { slots };
        let files = self.storage.file.clone();
        let pages = Arc::new(Pages { nodes: nodes.clone(), order: homes.clone(), slots: home_slots, files });
        Ok(Index {
            path: self.path.clone(),
            manifest: self.manifest.clone(),
            graph: self.graph.composed(identity(&self.graph, order)),
            codes: self.codes.remapped(path, order)?,
            entries,
            navigation,
            vectors: None,
            ids: self.ids.remapped(homes),
            living: living.map(Arc::new),
            metadata: self.metadata.clone(),
            storage: Storage { engine: EngineChoice::remapped(pages.clone()), file: self.storage.file.clone() },
            pool: Pool::default(),
            cache: InUse::default(),
            nodes: OnceLock::from(nodes),
            pages: Some(pages),
        })
    }

    /// The nodes of the file, read by the first call. No lock is held meanwhile, for `interrupted` may ask the index.
    fn nodes(&self, interrupted: &mut dyn FnMut() -> bool) -> Result<Arc<Nodes>> {
        if let Some(nodes) = self.nodes.get() {
            return Ok(nodes.clone());
        }
        let loaded = Arc::new(Nodes::load(&self.graph, self.vectors.as_ref(), interrupted)?);
        Ok(self.nodes.get_or_init(|| loaded).clone())
    }
}

/// Position of each slot in `order`.
fn inverse(order: &[u32], n: u32, graph: &Graph) -> Result<Vec<u32>> {
    let refused = |place: String, expected: String, got: String| {
        Error::Input(format!("{place}: expected {expected}, got {got}; pass a permutation of the slots 0..{}", n - 1))
    };
    if order.len() != n as usize {
        return Err(refused("order".into(), format!("{n} slots"), order.len().to_string()));
    }
    let mut positions: Vec<u32> = reserve(&graph.path, order.len())?;
    positions.resize(order.len(), UNSET);
    for (at, &slot) in (0u32..).zip(order) {
        let place = || format!("order: position {at}");
        let Some(position) = positions.get_mut(slot as usize) else {
            return Err(refused(place(), format!("a slot below {n}"), slot.to_string()));
        };
        if *position != UNSET {
            let got = format!("{slot}, which position {position} has");
            return Err(refused(place(), "a slot of no other position".into(), got));
        }
        *position = at;
    }
    Ok(positions)
}

/// A build id for the view: equal orders of one index have the same.
fn identity(graph: &Graph, order: &[u32]) -> [u8; 16] {
    let mut hash = Sha256::new_with_prefix(graph.build_id);
    order
        .chunks(1024)
        .for_each(|part| hash.update(part.iter().flat_map(|slot| slot.to_le_bytes()).collect::<Vec<_>>()));
    *hash.finalize().first_chunk().expect("a digest has 32 bytes")
}
