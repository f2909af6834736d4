"""graph.imx with codes of neighbours, read from its bytes by the specification alone (docs/formats/graph.md)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

PAGE = 4096
#: Element types by field ``dtype``.
_ELEMENTS = {1: "<f4", 2: "<f2", 3: "u1", 4: "i1", 5: "<u2", 6: "u1"}


@dataclass
class OnPageNodes:
    """Nodes in slot order.

    Attributes
    ----------
    vectors : array of the stored element type, shape (n, dim)
    neighbours : list of lists of int
    codes : list of lists of bytes
        Of each neighbour in turn.
    pages_per_block, nodes_per_block : int
    problems : list of str
        What the specification does not allow.
    """

    vectors: NDArray[Any]
    pages_per_block: int
    nodes_per_block: int
    neighbours: list[list[int]] = field(default_factory=list)
    codes: list[list[bytes]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_on_page(path: Path) -> OnPageNodes | None:
    """Read all nodes of a graph.imx; None if its nodes hold no codes."""
    data = path.read_bytes()
    n_sections, n_fields = struct.unpack_from("<HH", data, 36)
    first = {}
    for i in range(n_sections):
        name, page, _, _ = struct.unpack_from("<16sQQQ", data, 64 + 40 * i)
        first[name.rstrip(b"\0").decode()] = page * PAGE
    fields = {}
    for i in range(n_fields):
        name, value = struct.unpack_from("<16sQ", data, 64 + 40 * n_sections + 24 * i)
        fields[name.rstrip(b"\0").decode()] = value
    if "code_bytes" not in fields:
        return None
    n, dim, width, code_bytes = (fields[name] for name in ("n_vertices", "dim", "max_degree", "code_bytes"))
    element = np.dtype(_ELEMENTS[fields["dtype"]])
    lists_at = (dim * element.itemsize + 3) // 4 * 4
    codes_at = lists_at + 4 + 4 * width
    node_bytes = (codes_at + code_bytes * width + 3) // 4 * 4
    shared = (PAGE - 4) // node_bytes
    pages = 1 if shared else (4 + node_bytes + PAGE - 1) // PAGE
    nodes = OnPageNodes(np.zeros((n, dim), element), pages, max(1, shared))
    for number in range((n + nodes.nodes_per_block - 1) // nodes.nodes_per_block):
        begin = first["nodes"] + number * pages * PAGE
        block = data[begin : begin + pages * PAGE]
        if struct.unpack_from("<I", block)[0] ^ number != google_crc32c.value(block[4:]):
            nodes.problems.append(f"{path}: block {number}: its checksum")
        for place in range(nodes.nodes_per_block):
            node = block[4 + place * node_bytes : 4 + (place + 1) * node_bytes]
            slot = number * nodes.nodes_per_block + place
            if slot >= n:
                if any(node):
                    nodes.problems.append(f"{path}: block {number}: something behind the last node")
                continue
            (degree,) = struct.unpack_from("<I", node, lists_at)
            nodes.vectors[slot] = np.frombuffer(node, element, dim)
            nodes.neighbours.append(list(struct.unpack_from(f"<{degree}I", node, lists_at + 4)))
            codes = [node[codes_at + j * code_bytes :][:code_bytes] for j in range(degree)]
            nodes.codes.append(codes)
            ends = (lists_at + 4 + 4 * degree, codes_at, codes_at + code_bytes * degree, node_bytes)
            if any(node[ends[0] : ends[1]]) or any(node[ends[2] : ends[3]]):
                nodes.problems.append(f"{path}: slot {slot}: something behind its neighbours")
    return nodes
