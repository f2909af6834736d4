//! What a search looks in, an index or several together, and the search that is made of it.

use std::path::Path;
use std::sync::Arc;

use super::graphs::Graphs;
use crate::engine::Storage;
use crate::error::{Error, Result};
use crate::graph::apart::Apart;
use crate::graph::cache::Caches;
use crate::graph::filter::Identity;
use crate::graph::params::{Entry, SearchParams};
use crate::graph::query::QueryState;
use crate::graph::results::Goal;
use crate::graph::shared::{Notes, Plan, Shared};
use crate::living::Slots;
use crate::search::Queries;
use crate::search::parts::Parts;
use crate::search::task::Search;
use crate::search::with_ids::{self, IdSource, IdsOf, WithIds, buffers_with_ids};

/// The indexes of a search, without what it looks for.
pub(crate) struct Scope<'a> {
    /// Of the index, or the set.
    pub path: &'a Path,
    pub graphs: Graphs<'a>,
    /// Vertices of all graphs.
    pub n_vertices: u32,
    pub routes: Option<&'a [bool]>,
    pub apart: Option<Apart<'a>>,
    pub living: Option<&'a Slots>,
    /// What filters are made for.
    pub identity: Identity<'a>,
    pub caches: Option<Arc<Caches>>,
    pub ids: Parts<IdsOf<'a>>,
    pub storage: &'a Storage,
}

impl<'a> Scope<'a> {
    /// The search for `queries`.
    pub fn prepare(
        self,
        params: &'a SearchParams,
        queries: &Queries<'a>,
        goal: Goal,
    ) -> Result<Search<'a, WithIds<QueryState>>> {
        let Scope { path, graphs, n_vertices: n, routes, apart, living, identity, caches, ids, storage } = self;
        let are_codes_held = graphs.any().codes.are_held();
        params.check(n, goal)?;
        queries.check(&graphs.any().graph.stored())?;
        let needs_codes = matches!(params.entry, Entry::Navigation | Entry::Previous);
        if needs_codes && !are_codes_held {
            let message = format!("entry: {} has its codes in the nodes, not in memory", path.display());
            return Err(Error::Config(format!("{message}; use entry \"centroids\" or \"medoid\"")));
        }
        let lacking = graphs.iter().find(|(_, member)| member.navigation.is_none());
        if let Some((_, member)) = lacking.filter(|_| params.entry == Entry::Navigation) {
            let directory = member.graph.path.parent().unwrap_or(path);
            let message = format!("entry \"navigation\": {} has no navigation graph", directory.display());
            return Err(Error::Config(format!("{message}; use entry \"centroids\", or build it with one")));
        }
        let (allowed, is_filtered) = match &params.allow {
            Some(filter) => {
                filter.check(path, &identity)?;
                (Some(filter.allowed()), true)
            }
            None => (living, false),
        };
        let (list_size, n_allowed) = (params.list_size, allowed.map_or(n, Slots::len));
        let within = params.allow.as_ref().and_then(|filter| filter.within());
        let walk = match within {
            Some(label) => Plan::within(list_size, label.len(), n_allowed),
            None => Plan::walk(list_size, n, n_allowed),
        };
        let plan = if allowed.is_none() {
            Plan::unfiltered(list_size)
        } else if !is_filtered && n_allowed >= n.div_ceil(2) {
            walk
        } else if are_codes_held {
            walk.or_scan(n, n_allowed)
        } else {
            walk.or_scan_by_reads(n_allowed)
        };
        let block_bytes = graphs.layout().block_bytes();
        let slot_bytes = block_bytes.max(apart.as_ref().map_or(0, Apart::unit_bytes));
        let (n, n_vertices, queries, files) = (queries.n, n as usize, *queries, &*storage.file);
        let notes = Notes::Nothing;
        let kind = Shared {
            graphs,
            n_vertices,
            routes,
            apart,
            files,
            params,
            queries,
            goal,
            allowed,
            within,
            plan,
            caches,
            notes,
        };
        let k = if let Goal::Nearest(k) = goal { Some(k) } else { None };
        let width = buffers_with_ids(ids.any().ids, params.beam_width, k);
        let shared = with_ids::Shared { kind, ids: Some(IdSource { parts: ids, files: Some(files), width }) };
        let (&SearchParams { threads, inflight, .. }, keeps_state) = (params, params.entry == Entry::Previous);
        Ok(Search { shared, source: storage, n, threads, inflight, width, slot_bytes, keeps_state })
    }
}
