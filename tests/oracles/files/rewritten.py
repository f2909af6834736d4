"""The same index with another graph or other centroids, written through `indexmill.formats` alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from indexmill.formats.graph.file import GraphFile, write_graph
from indexmill.formats.graph.nodes import NodeBlock
from indexmill.formats.index.manifest import Manifest, read_manifest, seal_files, write_manifest
from indexmill.formats.ivf.centroids import CENTROIDS_NAME, Centroids, read_centroids, write_centroids

Change = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def rewrite_graph(index: Path, out: Path, change: Change) -> Path:
    """Write `index` to `out` with the neighbours and degrees that `change` returns for its own."""
    shutil.copytree(index, out)
    manifest = read_manifest(index)
    with GraphFile(index / "graph.imx") as graph:
        nodes = graph.read_all()
        node_format, metric, max_norm, scale = graph.node_format, graph.metric, graph.max_norm, graph.scale()
    neighbours, degrees = change(nodes.neighbours, nodes.degrees)
    block = NodeBlock(nodes.vectors, np.ascontiguousarray(neighbours), np.ascontiguousarray(degrees))
    (out / "graph.imx").unlink()
    write_graph(out / "graph.imx", node_format, len(degrees), metric, [block], max_norm, scale)
    return _sealed(out, manifest)


def rewrite_centroids(index: Path, out: Path, change: Callable[[Centroids], Centroids]) -> Path:
    """Write an IVF index to `out` with what `change` returns for its centroids and codec."""
    shutil.copytree(index, out)
    made = change(read_centroids(index / CENTROIDS_NAME))
    (out / CENTROIDS_NAME).unlink()
    write_centroids(out / CENTROIDS_NAME, made)
    return _sealed(out, read_manifest(index, ("ivf",)))


def _sealed(out: Path, manifest: Manifest) -> Path:
    build_id, files = seal_files(out, [entry.name for entry in manifest.files])
    fields = {name: getattr(manifest, name) for name in Manifest.__dataclass_fields__}
    (out / "manifest.json").unlink()
    write_manifest(out, Manifest(**{**fields, "build_id": build_id, "files": files}))
    return out
