"""Export to a Vamana index of Intel's Scalable Vector Search: three directories (docs/formats/imports.md)."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from uuid import UUID

import numpy as np

from indexmill.formats.exports.graph import ExportedGraph
from indexmill.formats.exports.rows import ID_MAP_NAME, Advance
from indexmill.formats.exports.target import Target, kept

NAME = "svs"
_MAGIC = 0xCAD4A6B2579980FE
_HEADER_BYTES = 1024
_CONFIG = "svs_config.toml"
#: List size in the files.
_SEARCH_LIST = 64


def check(index: ExportedGraph) -> None:
    """SVS supports every graph index; its ids are slots."""


def write(index: ExportedGraph, folder: Path, advance: Advance) -> None:
    """Write ``config``, ``graph`` and ``data``. Memory: a block of nodes."""
    graph_id, data_id = (_uuid(index, part) for part in ("graph", "data"))
    width = index.graph.node_format.max_degree
    parts = {
        "config": _config(index),
        "graph": _graph_config(index, graph_id),
        "data": _data_config(index, data_id),
    }
    for part, text in parts.items():
        (folder / part).mkdir()
        (folder / part / _CONFIG).write_text(f"__version__ = 'v0.0.2'\n\n[object]\n{text}")
    with (
        open(folder / "graph" / "graph_0.svs", "xb") as graph,
        open(folder / "data" / "data_0.svs", "xb") as data,
    ):
        graph.write(_header(index.n, width + 1, graph_id))
        data.write(_header(index.n, index.dim, data_id))
        for first, block in index.blocks():
            rows = np.zeros((len(block), width + 1), "<u4")
            rows[:, 0], rows[:, 1:] = block.degrees, block.neighbours
            graph.write(rows.data)
            data.write(np.ascontiguousarray(index.vectors(first, block), index.dtype).data)
            advance(len(block))


def _uuid(index: ExportedGraph, part: str) -> UUID:
    """Return an id that is always the same for the same index and part."""
    digest = hashlib.sha256(f"{index.build_id} {NAME} {part}".encode()).digest()
    return UUID(bytes=digest[:16], version=4)


def _header(rows: int, columns: int, identity: UUID) -> bytes:
    head = struct.pack("<Q", _MAGIC) + identity.bytes[::-1] + struct.pack("<QQ", rows, columns)
    return head.ljust(_HEADER_BYTES, b"\0")


def _config(index: ExportedGraph) -> str:
    width = index.graph.node_format.max_degree
    alpha = 1.2 if index.metric == "l2" else 0.95  # used only if vectors are added
    return f"""\
__schema__ = 'vamana_index_parameters'
__version__ = 'v0.0.3'
entry_point = {index.entries.medoid}
name = 'vamana index parameters'

    [object.build_parameters]
    __schema__ = 'vamana_build_parameters'
    __version__ = 'v0.0.1'
    alpha = {alpha}
    graph_max_degree = {width}
    max_candidate_pool_size = {3 * width}
    name = 'vamana build parameters'
    prune_to = {width}
    use_full_search_history = true
    window_size = {2 * width}

    [object.search_parameters]
    __schema__ = 'vamana_search_parameters'
    __version__ = 'v0.0.1'
    prefetch_lookahead = 4
    prefetch_step = 1
    search_buffer_capacity = {_SEARCH_LIST}
    search_buffer_visited_set = false
    search_window_size = {_SEARCH_LIST}
"""


def _graph_config(index: ExportedGraph, identity: UUID) -> str:
    return f"""\
__schema__ = 'default_graph'
__version__ = 'v0.0.0'
binary_file = 'graph_0.svs'
eltype = 'uint32'
max_degree = {index.graph.node_format.max_degree}
name = 'graph'
num_vertices = {index.n}
uuid = '{identity}'
"""


def _data_config(index: ExportedGraph, identity: UUID) -> str:
    return f"""\
__schema__ = 'uncompressed_data'
__version__ = 'v0.0.0'
binary_file = 'data_0.svs'
dims = {index.dim}
eltype = '{index.dtype}'
name = 'uncompressed'
num_vectors = {index.n}
uuid = '{identity}'
"""


def snippet(index: ExportedGraph, folder: Path) -> str:
    """Return Python that opens the export."""
    distance = {"l2": "L2", "ip": "MIP", "cosine": "Cosine"}[index.metric]
    config, graph, data = (str(folder / part) for part in ("config", "graph", "data"))
    return f"""\
import numpy as np
import svs  # scalable-vs 0.5
index = svs.Vamana({config!r}, svs.GraphLoader({graph!r}), svs.VectorDataLoader({data!r}),
    svs.DistanceType.{distance}, query_type=svs.{index.dtype}, num_threads=2)
index.search_window_size = {_SEARCH_LIST}
slots, scores = index.search(np.ones((1, {index.dim}), np.{index.dtype}), 10)
# {folder / ID_MAP_NAME} has the user id of each slot
print(slots, scores)
"""


TARGET = Target(
    name=NAME,
    holds=(ExportedGraph,),
    engine="Intel SVS (scalable-vs 0.5)",
    keeps=kept(graph="yes", order="yes", entries="medoid", ids="beside it", metadata="beside it"),
    check=check,
    write=write,
    snippet=snippet,
)
