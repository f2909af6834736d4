"""An export to DiskANN beyond 2^32 bytes: what is written far behind is where its header says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.support.sizes.far import CODE_BYTES, N_FAR, R, code_blocks, far_graph, far_nodes
from tests.support.sizes.sparse import BYTES_32, need_holes, on_disk

from indexmill.formats.exports import diskann
from indexmill.formats.graph.codes import Codebook
from indexmill.formats.graph.entries import EntryVertices
from indexmill.formats.graph.file import GraphFile
from indexmill.formats.graph.nodes import NodeBlock
from indexmill.formats.pagefile.frame import PAGE_BYTES

DIM = 900


class StepsOver:
    """A file to write, of which what lies behind the first page and ends before 2^32 bytes is left out."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> None:
        first, size = self._file.tell(), memoryview(data).nbytes
        if first >= PAGE_BYTES and first + size <= BYTES_32:
            self._file.seek(size, os.SEEK_CUR)
        else:
            self._file.write(data)


@contextmanager
def stepping_over(path: Path, mode: str) -> Iterator[StepsOver]:
    with open(path, mode) as file:
        yield StepsOver(file)


def test_nodes_beyond_two_to_the_32_bytes_are_where_the_header_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_holes(tmp_path)
    made = far_graph(tmp_path / "index", DIM, BYTES_32 // PAGE_BYTES)
    monkeypatch.setattr(diskann, "open", stepping_over, raising=False)
    chunks = np.linspace(0, DIM, CODE_BYTES + 1).astype(np.uint32)
    (out := tmp_path / "ann").mkdir()
    with GraphFile(made.path / "graph.imx") as graph:

        def blocks() -> Iterator[tuple[int, NodeBlock]]:
            first = 0
            for block in graph.blocks():
                yield first, block
                first += len(block)

        index: Any = SimpleNamespace(
            n=made.n, metric="l2", ids="slot", exact=None, graph=graph,
            entries=EntryVertices(made.n - 1, np.zeros((1, DIM), np.float32), np.array([made.n - 2], np.uint32)),
            codes=SimpleNamespace(
                codebook=Codebook(np.zeros((2, DIM), np.float32), chunks), blocks=lambda: code_blocks(made.n)
            ),
            blocks=blocks,
        )  # fmt: skip
        diskann.write(index, out, lambda nodes: None)
    path, far = out / "ann_disk.index", far_nodes(made.n, DIM)
    n, dim, medoid, node_bytes, per_sector = np.fromfile(path, "<u8", 5, offset=8).tolist()
    assert (n, dim, medoid, per_sector) == (made.n, DIM, made.n - 1, 1)
    assert int(np.fromfile(path, "<u8", 1, offset=72)[0]) == path.stat().st_size > BYTES_32
    assert on_disk(path) < 64 << 20
    node = np.dtype([("vector", "<f4", DIM), ("degree", "<u4"), ("neighbours", "<u4", R)])
    assert node.itemsize == node_bytes
    sector = np.dtype({"names": ["node"], "formats": [node], "offsets": [0], "itemsize": PAGE_BYTES})
    found = np.fromfile(path, sector, offset=PAGE_BYTES * (1 + made.n - N_FAR))["node"]
    assert np.array_equal(found["vector"], far.vectors)
    assert np.array_equal(found["neighbours"], far.neighbours)
