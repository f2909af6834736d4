"""A complete valid small index, written through `indexmill.formats` alone.

Vectors are whole numbers or eighths, so that under l2 every distance is exact in float32 in any order of the
sum (below 256 dimensions): two readers agree to the last bit, ties included.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.formats.graph.codes import Codebook, write_codes
from indexmill.formats.graph.entries import EntryVertices, write_entries
from indexmill.formats.graph.file import ScaleArrays, write_graph
from indexmill.formats.graph.navigation import NAVIGATION_NAME, Navigation, write_navigation
from indexmill.formats.graph.nodes import NodeBlock, NodeFormat
from indexmill.formats.index.ids import write_ids
from indexmill.formats.index.manifest import Manifest, seal_files, write_manifest
from indexmill.formats.kinds import KINDS


@dataclass(frozen=True)
class Aids:
    """Parts that a search uses beside the graph.

    Attributes
    ----------
    n_chunks, n_entries : int
        Most bytes of a code, and most entry vertices beside the medoid.
    n_navigation : int
        Vertices of the navigation graph, at most n; 0 for none.
    rotated : bool
        Whether codes are of rotated vectors; components change places and signs, so that no bit is lost.
    on_page : bool
        Whether nodes hold the codes of their neighbours; there is no navigation graph then.
    """

    n_chunks: int = 4
    n_entries: int = 3
    n_navigation: int = 30
    rotated: bool = False
    on_page: bool = False


@dataclass
class Contents:
    """Vectors, graph and codes of an index.

    Attributes
    ----------
    vectors : array, shape (n, dim)
        The user's vectors, in vector-id order.
    stored : array, shape (n, stored dim)
        Node vectors in slot order, in the stored element type.
    neighbours, degrees : uint32 arrays, shape (n, R) and (n,)
        In slots; zero beyond the degree.
    vector_ids : uint32 array, shape (n,)
        Vector id of each slot.
    user_ids : pyarrow Array or None
        User id of each slot.
    """

    node_format: NodeFormat
    vectors: NDArray[Any]
    stored: NDArray[Any]
    scale: ScaleArrays | None
    max_norm: float
    neighbours: NDArray[np.uint32]
    degrees: NDArray[np.uint32]
    codebook: Codebook
    codes: NDArray[np.uint8]
    entries: EntryVertices
    navigation: Navigation | None
    vector_ids: NDArray[np.uint32]
    user_ids: pa.Array | None


@dataclass
class SmallIndex(Contents):
    """An index as it was written."""

    path: Path
    manifest: Manifest


def write_small_index(
    path: str | Path,
    n: int = 200,
    dim: int = 16,
    dtype: str = "float32",
    metric: str = "l2",
    R: int = 8,
    seed: int = 0,
    order: str = "random",
    id_type: str = "int64",
    metadata: bool = False,
    aids: Aids = Aids(),
) -> SmallIndex:
    """Write an index of n random vectors.

    Parameters
    ----------
    dtype : {"float32", "float16", "uint8", "int8", "sq16", "sq8"}
        Of the nodes; sq16 and sq8 nodes quantize float32 vectors.
    metric : {"l2", "ip", "cosine"}
        ip and cosine: not with uint8 and int8.
    R : int
        Most neighbours; they are the next vertex of a ring, which connects the graph, and near vertices.
    order : {"random", "identity"}
        Layout.
    id_type : {"none", "int64", "uint64", "string", "binary"}
    """
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    contents = _contents(rng, random_vectors(rng, n, dim, dtype), dtype, metric, R, order, id_type, aids)
    if aids.n_navigation and not aids.on_page:
        contents.navigation = random_navigation(np.random.default_rng(seed), n, min(aids.n_navigation, n))
    names = _write_parts(path, contents, metric)
    if metadata:
        pq.write_table(pa.table({"colour": [f"c{i % 5}" for i in range(n)]}), path / "metadata.parquet")
        names.append("metadata.parquet")
    parameters = {"max_degree": R, "metric": metric, "order": order, "seed": seed}
    return SmallIndex(**vars(contents), path=path, manifest=_seal(path, names, contents, parameters))


def _contents(
    rng: np.random.Generator,
    vectors: NDArray[Any],
    dtype: str,
    metric: str,
    R: int,
    order: str,
    id_type: str,
    aids: Aids,
) -> Contents:
    """Draw graph, codes, entries and ids of an index of `vectors`; it has no navigation graph yet."""
    by_id, max_norm = _stored_space(vectors, metric)
    n = len(vectors)
    vector_ids = (rng.permutation(n) if order == "random" else np.arange(n)).astype(np.uint32)
    space = by_id[vector_ids]  # in slot order from here on
    code_bytes = min(aids.n_chunks, space.shape[1]) if aids.on_page else 0
    node_format = NodeFormat(space.shape[1], dtype, R, code_bytes)
    stored, scale = _elements(space, node_format)
    neighbours, degrees = _graph(rng, space, R)
    rotation = _rotation(rng, space.shape[1]) if aids.rotated else None
    codebook, codes = _quantize(rng, space if rotation is None else space @ rotation, aids.n_chunks)
    entries = _entries(rng, space, aids.n_entries)
    return Contents(
        node_format=node_format,
        vectors=vectors,
        stored=stored,
        scale=scale,
        max_norm=max_norm,
        neighbours=neighbours,
        degrees=degrees,
        codebook=replace(codebook, rotation=rotation),
        codes=codes,
        entries=entries,
        navigation=None,
        vector_ids=vector_ids,
        user_ids=random_user_ids(rng, n, id_type),
    )


def _write_parts(path: Path, contents: Contents, metric: str) -> list[str]:
    """Write the files of the graph, its codes, entries and ids, in two blocks each; return their names."""
    n, R = contents.neighbours.shape
    beyond = np.where(np.arange(R) < contents.degrees[:, None], 0, 2**32 - 1 - n).astype(np.uint32)
    junk = contents.neighbours + beyond
    cuts = [(0, n // 3), (n // 3, n)]
    beside = contents.codes[contents.neighbours] | np.where(beyond, 255, 0).astype(np.uint8)[..., None]
    blocks = (
        NodeBlock(
            contents.stored[a:b],
            junk[a:b],
            contents.degrees[a:b],
            beside[a:b] if contents.node_format.code_bytes else None,
        )
        for a, b in cuts
    )
    write_graph(
        path / "graph.imx", contents.node_format, n, metric, blocks, contents.max_norm, contents.scale
    )
    write_codes(path / "codes.imx", contents.codebook, n, (contents.codes[a:b] for a, b in cuts))
    write_entries(path / "entries.imx", contents.entries, n)
    write_ids(path / "ids.imx", contents.vector_ids, contents.user_ids)
    names = list(KINDS["graph"].required)
    if contents.navigation is not None:
        write_navigation(path / NAVIGATION_NAME, contents.navigation, n)
        names.append(NAVIGATION_NAME)
    return names


def _seal(path: Path, names: list[str], contents: Contents, parameters: dict[str, Any]) -> Manifest:
    """Stamp the files with their build id, and write the manifest."""
    build_id, files = seal_files(path, names)
    vectors, degrees = contents.vectors, contents.degrees
    n, dim = vectors.shape
    manifest = Manifest(
        kind="graph",
        build_id=build_id,
        parameters=parameters,
        input={"n_vectors": n, "dim": dim, "dtype": str(vectors.dtype), "fingerprint": "0" * 64},
        software={"indexmill": "0.1.0"},
        layout={"order": parameters["order"]},
        graph={
            "mean_degree": float(degrees.mean()),
            "min_degree": int(degrees.min()),
            "max_degree": int(degrees.max()),
        },
        certificate=None,
        files=files,
    )
    write_manifest(path, manifest)
    return manifest


def random_vectors(rng: np.random.Generator, n: int, dim: int, dtype: str) -> NDArray[Any]:
    """Vectors a user would give for nodes of `dtype`; none is zero."""
    if dtype in ("uint8", "int8"):
        info = np.iinfo(dtype)
        vectors = rng.integers(info.min, info.max + 1, (n, dim)).astype(dtype)
    else:
        vectors = (rng.integers(-64, 65, (n, dim)) / 8).astype("float16" if dtype == "float16" else "float32")
    vectors[(vectors == 0).all(axis=1), 0] = 1
    return vectors


def random_user_ids(rng: np.random.Generator, n: int, id_type: str) -> pa.Array | None:
    """n different ids, the extremes of the type among them; the first string is empty."""
    if id_type == "none":
        return None
    if id_type in ("int64", "uint64"):
        info = np.iinfo(id_type)
        ends = [info.max, info.min] if n > 1 else [info.max]
        middle = 10**12 + 7 * rng.permutation(n - len(ends))
        return pa.array(np.concatenate([np.array(ends, id_type), middle.astype(id_type)]))
    texts = ["", *(f"ключ-{i}" * int(rng.integers(1, 4)) for i in range(1, n))]
    if id_type == "string":
        return pa.array(texts, pa.string())
    return pa.array([text.encode() + b"\x00\xff" for text in texts], pa.binary())


def random_navigation(rng: np.random.Generator, n: int, sample: int, max_degree: int = 6) -> Navigation:
    """A ring with random chords over `sample` of n slots: every vertex can be reached."""
    slots = np.sort(rng.choice(n, sample, replace=False)).astype(np.uint32)
    lists = []
    for v in range(sample):
        chords = rng.integers(sample, size=int(rng.integers(max_degree))).tolist()
        lists.append([u for u in dict.fromkeys([(v + 1) % sample, *chords]) if u != v])
    offsets = np.cumsum([0, *map(len, lists)]).astype(np.uint32)
    neighbours = np.array([u for one in lists for u in one], np.uint32)
    return Navigation(slots, offsets, neighbours, int(rng.integers(sample)), max_degree)


def _stored_space(vectors: NDArray[Any], metric: str) -> tuple[NDArray[np.float32], float]:
    """Float32 vectors whose Euclidean order is the metric's, and M (see graph.md)."""
    x = vectors.astype(np.float64)
    if metric == "cosine":
        return (x / np.linalg.norm(x, axis=1)[:, None]).astype(np.float32), 0.0
    if metric == "l2":
        return x.astype(np.float32), 0.0
    squares = (x**2).sum(axis=1)
    appended = np.sqrt(squares.max() - squares)
    return np.hstack([x, appended[:, None]]).astype(np.float32), float(np.sqrt(squares.max()))


def _elements(space: NDArray[np.float32], node_format: NodeFormat) -> tuple[NDArray[Any], ScaleArrays | None]:
    if not node_format.quantized:
        return space.astype(node_format.element_dtype), None
    levels = 255 if node_format.dtype == "sq8" else 65535
    minimum, maximum = space.min(axis=0), space.max(axis=0)
    step = np.where(maximum > minimum, (maximum - minimum) / levels, 1).astype(np.float32)
    codes = np.clip(np.rint((space - minimum) / step), 0, levels)
    return codes.astype(node_format.element_dtype), (minimum, step)


def _graph(rng: np.random.Generator, space: NDArray[np.float32], R: int) -> tuple[NDArray[Any], NDArray[Any]]:
    n = len(space)
    neighbours = np.zeros((n, R), np.uint32)
    degrees = np.zeros(n, np.uint32)
    ring = rng.permutation(n)
    after = np.empty(n, np.int64)
    after[ring] = np.roll(ring, -1)
    columns = np.ascontiguousarray(space.T)  # sums along them are the quicker ones
    for v in range(n):
        distances = ((columns - columns[:, v : v + 1]) ** 2).sum(axis=0)
        close = np.flatnonzero(distances <= np.partition(distances, min(2 * R, n) - 1)[min(2 * R, n) - 1])
        near = close[np.argsort(distances[close], kind="stable")][: 2 * R].tolist()
        wanted = int(rng.integers(min(2, R), R + 1))
        chosen = [u for u in dict.fromkeys([int(after[v]), *near]) if u != v][:wanted]
        neighbours[v, : len(chosen)] = chosen
        degrees[v] = len(chosen)
    return neighbours, degrees


def _rotation(rng: np.random.Generator, dim: int) -> NDArray[np.float32]:
    rotation = np.zeros((dim, dim), np.float32)
    rotation[np.arange(dim), rng.permutation(dim)] = rng.choice([-1, 1], dim)
    return rotation


def _quantize(
    rng: np.random.Generator, space: NDArray[np.float32], n_chunks: int
) -> tuple[Codebook, NDArray[np.uint8]]:
    n, dim = space.shape
    m = min(n_chunks, dim)
    offsets = (np.arange(m + 1) * dim // m).astype(np.uint32)
    pivots = space[np.sort(rng.choice(n, min(n, 256, 32), replace=False))]
    codes = np.empty((n, m), np.uint8)
    for j in range(m):
        columns = slice(int(offsets[j]), int(offsets[j + 1]))
        distances = ((space[:, None, columns] - pivots[None, :, columns]) ** 2).sum(axis=2)
        codes[:, j] = distances.argmin(axis=1)
    return Codebook(pivots, offsets), codes


def _entries(rng: np.random.Generator, space: NDArray[np.float32], n_entries: int) -> EntryVertices:
    c = min(n_entries, len(space))
    centroids = space[rng.choice(len(space), c, replace=False)] + np.float32(0.25)
    nearest = [int(((space - centre) ** 2).sum(axis=1).argmin()) for centre in centroids]
    medoid = int(((space - space.mean(axis=0)) ** 2).sum(axis=1).argmin())
    return EntryVertices(medoid, centroids, np.array(nearest, np.uint32))
