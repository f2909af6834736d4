"""The graph file: nodes come back, lie where the specification says, and hostile ones are rejected."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.oracles.files.hostile import field_offset, patch_page_file, section_offset
from tests.oracles.files.on_page import read_on_page

from indexmill.formats.errors import CorruptFile
from indexmill.formats.graph.file import GraphFile, write_graph
from indexmill.formats.graph.nodes import NodeBlock, NodeFormat
from indexmill.formats.pagefile.field_codes import DTYPE_CODES

PAGE = 4096


def random_nodes(rng: np.random.Generator, n: int, node_format: NodeFormat) -> NodeBlock:
    raw = rng.integers(0, 256, (n, node_format.dim, node_format.element_dtype.itemsize), np.uint8)
    vectors = raw.view(node_format.element_dtype)[
        :, :, 0
    ]  # any bits, NaN too: a format does not interpret them
    degrees = rng.integers(0, node_format.max_degree + 1, n)
    neighbours = rng.integers(0, 2**32, (n, node_format.max_degree), np.uint32)
    inside = np.arange(node_format.max_degree) < degrees[:, None]
    codes = None
    if node_format.code_bytes:
        codes = rng.integers(0, 256, (n, node_format.max_degree, node_format.code_bytes), np.uint8)
    return NodeBlock(vectors, np.where(inside, neighbours % np.uint32(n), neighbours), degrees, codes)


def same_bits(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def assert_same(got: NodeBlock, wanted: NodeBlock) -> None:
    assert same_bits(got.vectors, wanted.vectors)
    assert (got.degrees == wanted.degrees).all()
    inside = np.arange(wanted.neighbours.shape[1]) < wanted.degrees[:, None]
    assert (got.neighbours == np.where(inside, wanted.neighbours, 0)).all()
    assert (got.codes is None) == (wanted.codes is None)
    if got.codes is not None and wanted.codes is not None:
        assert same_bits(got.codes, np.where(inside[..., None], wanted.codes, np.uint8(0)))


def write_small(path: Path, dtype: str = "uint8", n: int = 20, dim: int = 6, R: int = 4) -> NodeBlock:
    node_format = NodeFormat(dim, dtype, R)
    nodes = random_nodes(np.random.default_rng(0), n, node_format)
    write_graph(path, node_format, n, "l2", [nodes])
    return nodes


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_nodes_come_back_whatever_the_type_and_the_blocks(tmp_path: Path, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(sorted(DTYPE_CODES)))
    n, dim = data.draw(st.integers(1, 200)), data.draw(st.sampled_from([1, 3, 50, 2048]))
    code_bytes = data.draw(st.sampled_from([0, 1, 7, 64]))
    node_format = NodeFormat(dim, dtype, data.draw(st.sampled_from([1, 8, 31, 512])), code_bytes)
    metric = data.draw(st.sampled_from(["l2", "ip", "cosine"]))
    max_norm = data.draw(st.floats(0, 1e300))
    nodes = random_nodes(np.random.default_rng(n), n, node_format)
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, n), max_size=5))), n]
    scale = None
    if node_format.quantized:
        scale = (np.arange(dim, dtype=np.float32), np.full(dim, 0.5, np.float32))
    path = tmp_path / "graph.imx"
    blocks = (nodes[a:b] for a, b in pairwise(cuts))
    write_graph(path, node_format, n, metric, blocks, max_norm, scale)
    with GraphFile(path) as graph:
        assert (graph.n_vertices, graph.node_format, graph.metric) == (n, node_format, metric)
        assert graph.max_norm == max_norm
        got_scale = graph.scale()
        assert (got_scale is None) == (scale is None)
        if scale is not None and got_scale is not None:
            assert all(same_bits(a, b) for a, b in zip(got_scale, scale, strict=True))
        assert_same(graph.read_all(), nodes)
        first = data.draw(st.integers(0, n))
        count = data.draw(st.integers(0, n - first))
        assert_same(graph.read_nodes(first, count), nodes[first : first + count])
    found = read_on_page(path)
    assert (found is None) == (code_bytes == 0)
    if found is not None and nodes.codes is not None:
        assert found.problems == []
        for slot in {0, n // 2, n - 1}:
            degree = int(nodes.degrees[slot])
            assert found.neighbours[slot] == nodes.neighbours[slot, :degree].tolist()
            assert found.codes[slot] == [code.tobytes() for code in nodes.codes[slot, :degree]]


@pytest.mark.parametrize(
    ("dtype", "dim", "R"), [("uint8", 6, 4), ("float32", 50, 32), ("float16", 2048, 9), ("int8", 3, 1)]
)
def test_a_node_stands_at_the_address_of_the_specification(
    tmp_path: Path, dtype: str, dim: int, R: int
) -> None:
    path, n = tmp_path / "graph.imx", 45
    nodes = write_small(path, dtype, n, dim, R)
    data, start = path.read_bytes(), section_offset(path, "nodes")
    size = {"uint8": 1, "int8": 1, "float16": 2, "float32": 4}[dtype]
    vector_bytes = (dim * size + 3) // 4 * 4
    node_bytes = vector_bytes + 4 + 4 * R
    used = np.zeros(len(data), bool)
    for s in range(n):
        per_page = 4096 // node_bytes
        if per_page:
            at = start + s // per_page * 4096 + s % per_page * node_bytes
        else:
            at = start + s * -(-node_bytes // 4096) * 4096
        used[at : at + node_bytes] = True
        assert data[at : at + dim * size] == nodes.vectors[s].tobytes()
        assert data[at + dim * size : at + vector_bytes] == bytes(vector_bytes - dim * size)
        degree, *slots = struct.unpack_from(f"<{1 + R}I", data, at + vector_bytes)
        assert degree == nodes.degrees[s]
        assert slots == [*nodes.neighbours[s, :degree], *[0] * (R - degree)]
    end = start + NodeFormat(dim, dtype, R).n_pages(n) * PAGE
    assert not np.frombuffer(data, np.uint8)[start:end][~used[start:end]].any()


def test_blocks_larger_than_the_write_buffer_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexmill.formats.graph.file.BLOCK_BYTES", 2 * PAGE)
    node_format = NodeFormat(50, "float32", 10)  # 16 nodes a page
    nodes = random_nodes(np.random.default_rng(1), 500, node_format)
    cuts = [0, 1, 40, 41, 300, 499, 500]
    blocks = [nodes[a:b] for a, b in pairwise(cuts)]
    write_graph(tmp_path / "graph.imx", node_format, 500, "l2", blocks)
    with GraphFile(tmp_path / "graph.imx") as graph:
        assert_same(graph.read_all(), nodes)
        assert_same(NodeBlock.concatenate(list(graph.blocks())), nodes)


def _with(nodes: NodeBlock, **changes: Any) -> NodeBlock:
    return NodeBlock(**{**vars(nodes), **changes})


def test_the_writer_refuses_nodes_that_do_not_fit_and_names_the_slot(tmp_path: Path) -> None:
    node_format = NodeFormat(4, "int8", 3)
    good = NodeBlock(np.zeros((8, 4), np.int8), np.ones((8, 3), np.uint32), np.full(8, 2))
    degrees, neighbours = good.degrees.copy(), good.neighbours.copy()
    degrees[5], neighbours[6, 1] = 4, 8
    wrong = {
        r"slot 5: degree 4 is not in 0\.\.3": _with(good, degrees=degrees),
        "slot 6: a neighbour is not a slot below 8": _with(good, neighbours=neighbours),
        "vectors: int8": _with(good, vectors=good.vectors.astype(np.uint8)),
        "neighbours: uint32": _with(good, neighbours=good.neighbours.astype(np.int64)),
        "degrees: integers": _with(good, degrees=good.degrees[:7]),
        "7 given for 8": good[:7],
    }
    for message, nodes in wrong.items():
        with pytest.raises(ValueError, match=message):
            write_graph(tmp_path / "graph.imx", node_format, 8, "l2", [nodes])
    with pytest.raises(ValueError, match="a scale belongs to sq16 and sq8"):
        write_graph(tmp_path / "graph.imx", NodeFormat(4, "sq8", 3), 8, "l2", [good])
    assert list(tmp_path.iterdir()) == []


def test_a_node_format_refuses_what_cannot_be() -> None:
    for dim, dtype, R in [
        (0, "int8", 3),
        (4, "int16", 3),
        (4, "int8", 0),
        (4, "int8", 513),
        (2**31, "int8", 3),
    ]:
        with pytest.raises(ValueError, match=r"dim|dtype|max_degree"):
            NodeFormat(dim, dtype, R)


@pytest.mark.parametrize(
    "name", ["n_vertices", "dim", "dtype", "metric", "max_degree", "node_bytes", "nodes_per_page"]
)
@pytest.mark.parametrize("value", [0, 513, 2**32, 2**64 - 1])
def test_a_hostile_field_is_rejected_before_anything_is_allocated(
    tmp_path: Path, name: str, value: int
) -> None:
    path = tmp_path / "graph.imx"
    write_small(path)
    patch_page_file(path, {field_offset(path, name): struct.pack("<Q", value)})
    with pytest.raises(CorruptFile, match=r"graph\.imx: .*expected .*, got .*"):
        GraphFile(path)


@pytest.mark.parametrize(
    ("offset", "message"), [(8, "slot 0: degree 4294967295"), (12, "slot 0: a neighbour is not a slot")]
)
def test_a_hostile_node_is_rejected_when_read(tmp_path: Path, offset: int, message: str) -> None:
    path = tmp_path / "graph.imx"
    write_graph(
        path,
        NodeFormat(6, "uint8", 4),
        20,
        "l2",
        [NodeBlock(np.zeros((20, 6), np.uint8), np.ones((20, 4), np.uint32), np.full(20, 4))],
    )
    patch_page_file(path, {section_offset(path, "nodes") + offset: b"\xff" * 4})
    with GraphFile(path) as graph, pytest.raises(CorruptFile, match=message):
        graph.read_nodes(0, 1)


def test_what_stands_beyond_a_degree_is_read_as_zero_whatever_it_is(tmp_path: Path) -> None:
    path = tmp_path / "graph.imx"
    block = NodeBlock(np.zeros((20, 6), np.uint8), np.ones((20, 4), np.uint32), np.full(20, 2))
    write_graph(path, NodeFormat(6, "uint8", 4), 20, "l2", [block])
    junk = section_offset(path, "nodes") + 12 + 2 * 4
    patch_page_file(path, {junk: b"\xff" * 4, junk + 4: b"\x05\0\0\0"})
    with GraphFile(path) as graph:
        assert b"\xff" * 4 in path.read_bytes()
        assert graph.read_nodes(0, 2).neighbours.tolist() == [[1, 1, 0, 0]] * 2
        assert next(graph.blocks()).neighbours[0].tolist() == [1, 1, 0, 0]


def test_slots_outside_the_graph_cannot_be_read(tmp_path: Path) -> None:
    write_small(tmp_path / "graph.imx")
    with GraphFile(tmp_path / "graph.imx") as graph:
        for first, count in ((0, 21), (20, 1), (-1, 2)):
            with pytest.raises(IndexError, match="20 slots"):
                graph.read_nodes(first, count)
