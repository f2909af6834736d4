"""UMAP takes the graph of the transformer, made symmetric.

umap-learn is no requirement of the other tests: `make ecosystem` installs it and runs this file.
"""

from __future__ import annotations

import numpy as np
import pytest

from indexmill import NeighborsTransformer

umap = pytest.importorskip("umap")


def test_umap_takes_the_graph_made_symmetric_and_keeps_groups_apart() -> None:
    of = np.arange(120) % 2
    rows = np.random.default_rng(3).normal(20 * of[:, None], 1, (120, 8)).astype(np.float32)
    graph = NeighborsTransformer(15).fit_transform(rows)
    reducer = umap.UMAP(n_neighbors=15, metric="precomputed", init="random", n_epochs=200, random_state=0)
    points = reducer.fit_transform(graph.maximum(graph.T))
    assert points.shape == (120, 2)
    centres = np.stack([points[of == group].mean(axis=0) for group in (0, 1)])
    nearest = np.linalg.norm(points[:, None] - centres, axis=2).argmin(axis=1)
    assert np.mean(nearest == of) > 0.95
