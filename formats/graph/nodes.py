"""Nodes of a graph: the arithmetic of their addresses, and conversion to and from pages (docs/formats/graph.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.graph.codes import MAX_BYTES
from indexmill.formats.pagefile.frame import PAGE_BYTES, block_checksums

_ELEMENTS = {"float32": "<f4", "float16": "<f2", "uint8": "u1", "int8": "i1", "sq16": "<u2", "sq8": "u1"}
#: Most neighbours of a list.
MAX_DEGREE = 512
#: Bytes of the checksum that a group of nodes with codes begins with.
_CHECKSUM_BYTES = 4


@dataclass(frozen=True)
class NodeFormat:
    """Sizes and addresses of the nodes of one graph.

    Attributes
    ----------
    dim : int
        Number of components of a stored vector.
    dtype : {"float32", "float16", "uint8", "int8", "sq16", "sq8"}
    max_degree : int
        R, 1 to 512.
    code_bytes : int
        Bytes of the code that each neighbour has in the node; 0 where codes are in memory.
    """

    dim: int
    dtype: str
    max_degree: int
    code_bytes: int = 0

    def __post_init__(self) -> None:
        if self.dtype not in _ELEMENTS:
            raise ValueError(f"dtype: one of {', '.join(_ELEMENTS)}, not {self.dtype!r}")
        if not 1 <= self.max_degree <= MAX_DEGREE:
            raise ValueError(f"max_degree: 1..{MAX_DEGREE}, not {self.max_degree}")
        if not 0 <= self.code_bytes <= MAX_BYTES:
            raise ValueError(f"code_bytes: 0..{MAX_BYTES}, not {self.code_bytes}")
        if self.dim < 1 or self.group_bytes >= 2**31:
            raise ValueError(f"dim: at least 1 and a node below 2 GiB, not {self.dim}")

    @property
    def element_dtype(self) -> np.dtype[Any]:
        """Type of one stored component."""
        return np.dtype(_ELEMENTS[self.dtype])

    @property
    def quantized(self) -> bool:
        """Whether components are codes of a scale (sq16, sq8)."""
        return self.dtype in ("sq16", "sq8")

    @property
    def vector_bytes(self) -> int:
        """Bytes of a vector, rounded up to a multiple of 4."""
        return -(-self.dim * self.element_dtype.itemsize // 4) * 4

    @property
    def node_bytes(self) -> int:
        """Bytes of a node: vector, degree, R neighbours, their codes; a multiple of 4."""
        return -(-(self.vector_bytes + self.list_bytes) // 4) * 4

    @property
    def list_bytes(self) -> int:
        """Bytes of a list with its degree, and of the codes of its neighbours."""
        return 4 + (4 + self.code_bytes) * self.max_degree

    @property
    def head_bytes(self) -> int:
        """Bytes of a group before its first node: its own checksum, if nodes hold codes."""
        return _head_bytes(self.code_bytes)

    @property
    def nodes_per_page(self) -> int:
        """Nodes on a page; 0 if a node is larger than a page."""
        return (PAGE_BYTES - self.head_bytes) // self.node_bytes

    @property
    def pages_per_node(self) -> int:
        """Pages of a node; 1 if several nodes share a page."""
        return -(-(self.head_bytes + self.node_bytes) // PAGE_BYTES)

    @property
    def nodes_per_group(self) -> int:
        """Nodes read together: those of a page, or 1."""
        return max(1, self.nodes_per_page)

    @property
    def group_bytes(self) -> int:
        """Bytes read together: a page, or the pages of a node."""
        return self.pages_per_node * PAGE_BYTES

    def n_pages(self, n_vertices: int) -> int:
        """Return the number of pages of section ``nodes`` for `n_vertices` nodes."""
        return -(-n_vertices // self.nodes_per_group) * self.pages_per_node

    def group_dtype(self) -> np.dtype[Any]:
        """Return the structured type of a page of nodes, or of the pages of one node."""
        return group_dtype(self.element_dtype, self.dim, self.vector_bytes, self.max_degree, self.code_bytes)


def group_dtype(
    element: np.dtype[Any], dim: int, vector_bytes: int, width: int, code_bytes: int = 0
) -> np.dtype[Any]:
    """Return the structured type of a page of nodes, or of the pages of one node that is larger than a page.

    Parameters
    ----------
    vector_bytes : int
        Bytes of a vector, padding included.
    width : int
        Most neighbours of a node.
    code_bytes : int
        Bytes of the code of each neighbour. If there are any, a checksum precedes the nodes, and a node is padded to a
        multiple of 4 bytes.
    """
    lists_at, codes_at = vector_bytes + 4, vector_bytes + 4 + 4 * width
    names, offsets = ["vector", "degree", "neighbours"], [0, vector_bytes, lists_at]
    formats: list[Any] = [(element, (dim,)), "<u4", ("<u4", (width,))]
    if code_bytes:
        names.append("codes")
        offsets.append(codes_at)
        formats.append(("u1", (width, code_bytes)))
    head, node_bytes = _head_bytes(code_bytes), codes_at + -(-code_bytes * width // 4) * 4
    node: Any = {"names": names, "formats": formats, "offsets": offsets, "itemsize": node_bytes}
    n_nodes, n_pages = max(1, (PAGE_BYTES - head) // node_bytes), -(-(head + node_bytes) // PAGE_BYTES)
    group: Any = {
        "names": ["nodes"],
        "formats": [(np.dtype(node), (n_nodes,))],
        "offsets": [head],
        "itemsize": n_pages * PAGE_BYTES,
    }
    kind: np.dtype[Any] = np.dtype(group)
    return kind


def _head_bytes(code_bytes: int) -> int:
    return _CHECKSUM_BYTES if code_bytes else 0


@dataclass(frozen=True, eq=False)
class NodeBlock:
    """Nodes of consecutive slots.

    Attributes
    ----------
    vectors : array of the stored element type, shape (m, dim)
    neighbours : uint32 array, shape (m, R)
        Slots; entries beyond a node's degree are undefined.
    degrees : integer array, shape (m,)
    codes : uint8 array, shape (m, R, code_bytes), optional
        Of the neighbours, where nodes hold them; those beyond a node's degree are undefined.
    """

    vectors: NDArray[Any]
    neighbours: NDArray[np.uint32]
    degrees: NDArray[Any]
    codes: NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> NodeBlock:
        codes = None if self.codes is None else self.codes[rows]
        return NodeBlock(self.vectors[rows], self.neighbours[rows], self.degrees[rows], codes)

    @staticmethod
    def concatenate(blocks: Sequence[NodeBlock]) -> NodeBlock:
        """Join `blocks`, at least one, in order."""
        if len(blocks) == 1:
            return blocks[0]
        codes = [block.codes for block in blocks if block.codes is not None]
        return NodeBlock(
            np.concatenate([block.vectors for block in blocks]),
            np.concatenate([block.neighbours for block in blocks]),
            np.concatenate([block.degrees for block in blocks]),
            np.concatenate(codes) if codes else None,
        )


def check_block(node_format: NodeFormat, block: NodeBlock, n_vertices: int, first: int) -> NodeBlock:
    """Return `block` with zeros beyond each degree.

    Raises
    ------
    ValueError
        If shapes, types, degrees or neighbours of `block`, which starts at slot `first`, are invalid.
    """
    f, m = node_format, len(block.vectors)
    if block.vectors.dtype != f.element_dtype or block.vectors.shape != (m, f.dim):
        got = f"{block.vectors.dtype} {block.vectors.shape}"
        raise ValueError(f"vectors: {f.element_dtype} of shape (m, {f.dim}), not {got}")
    if block.neighbours.dtype != np.uint32 or block.neighbours.shape != (m, f.max_degree):
        got = f"{block.neighbours.dtype} {block.neighbours.shape}"
        raise ValueError(f"neighbours: uint32 of shape ({m}, {f.max_degree}), not {got}")
    if block.degrees.dtype.kind not in "iu" or block.degrees.shape != (m,):
        raise ValueError(
            f"degrees: integers of shape ({m},), not {block.degrees.dtype} {block.degrees.shape}"
        )
    wanted = (m, f.max_degree, f.code_bytes) if f.code_bytes else None
    got_codes = None if block.codes is None else block.codes.shape
    if got_codes != wanted or (block.codes is not None and block.codes.dtype != np.uint8):
        raise ValueError(f"codes of neighbours: uint8 of shape {wanted}, not {got_codes}")
    bad = np.flatnonzero((block.degrees < 0) | (block.degrees > f.max_degree))
    if len(bad):
        raise ValueError(f"slot {first + bad[0]}: degree {block.degrees[bad[0]]} is not in 0..{f.max_degree}")
    cleaned = NodeBlock(block.vectors, _without_junk(block), block.degrees, _codes_without_junk(block))
    bad = np.flatnonzero(cleaned.neighbours.max(axis=1) >= n_vertices)
    if len(bad):
        raise ValueError(f"slot {first + bad[0]}: a neighbour is not a slot below {n_vertices}")
    return cleaned


def pack_nodes(node_format: NodeFormat, block: NodeBlock, first: int) -> NDArray[np.uint8]:
    """Return the pages of a checked `block`, whose first node, in slot `first`, starts a page: uint8."""
    pages = pack_groups(node_format.group_dtype(), block)
    if node_format.code_bytes:
        groups = pages.reshape(-1, node_format.group_bytes)
        head = node_format.head_bytes
        numbers = np.arange(len(groups), dtype="<u4") + np.uint32(first // node_format.nodes_per_group)
        groups[:, :head] = (block_checksums(groups[:, head:]) ^ numbers).view(np.uint8).reshape(-1, head)
    return pages


def pack_groups(kind: np.dtype[Any], block: NodeBlock) -> NDArray[np.uint8]:
    """Return `block`, whose first node starts a page, as pages of type `kind`, see `group_dtype`: uint8.

    Lists of `kind` may be longer than those of the block; places without a neighbour are zero. Codes of neighbours are
    written as they are, so a block with codes is a checked one.
    """
    (group,), (m, width) = kind["nodes"].shape, block.neighbours.shape
    pages = np.zeros(-(-m // group), kind)
    whole = m // group
    for rows, nodes in (
        (slice(0, whole * group), pages["nodes"][:whole]),
        (slice(whole * group, m), pages["nodes"][whole:, : m % group]),
    ):
        part = block[rows]
        nodes["vector"] = part.vectors.reshape(nodes["vector"].shape)
        nodes["degree"] = part.degrees.reshape(nodes["degree"].shape)
        nodes["neighbours"][..., :width] = _without_junk(part).reshape(*nodes["degree"].shape, width)
        if part.codes is not None:
            nodes["codes"] = part.codes.reshape(nodes["codes"].shape)
    return pages.view(np.uint8)


def unpack_nodes(node_format: NodeFormat, pages: bytes) -> NodeBlock:
    """Return all node places of whole pages; unused places are zero."""
    nodes = np.frombuffer(pages, dtype=node_format.group_dtype())["nodes"].reshape(-1)
    names = ["vector", "neighbours", "degree", *(["codes"] if node_format.code_bytes else [])]
    return NodeBlock(*(np.ascontiguousarray(nodes[name]) for name in names))


def _without_junk(block: NodeBlock) -> NDArray[np.uint32]:
    """Return the neighbours, with zeros beyond each node's degree."""
    places = np.arange(block.neighbours.shape[1])
    return np.where(places < block.degrees[:, None], block.neighbours, np.uint32(0))


def _codes_without_junk(block: NodeBlock) -> Any:
    """Return the codes of neighbours, with zeros beyond each node's degree; None if there are none."""
    if block.codes is None:
        return None
    places = np.arange(block.neighbours.shape[1])
    return np.where((places < block.degrees[:, None])[..., None], block.codes, np.uint8(0))
