"""Stages *sample*, *solve*, *hash* and *chain* of an LSH index: parameters, sorted hashes, chained bucket blocks.

The tables are made by an external sort: *hash* projects a range of vectors once and writes, for every table and radius,
records (bucket; fingerprint; vector id) in order; *chain* sorts them and fills blocks. Nothing is read at random.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lists.exact import exact_neighbours
from indexmill.builders.lsh.choose import choose
from indexmill.builders.lsh.expected import Sampled
from indexmill.builders.lsh.hash import TABLES_TOGETHER, Drawn, draw_functions, hash_rows, project, sort_rows
from indexmill.builders.lsh.pack import BlockPacker
from indexmill.builders.lsh.solve import Asked, Solved, extent_of, solve
from indexmill.formats.chunks.reader import Records
from indexmill.formats.chunks.writer import write_runs
from indexmill.formats.errors import ConfigError
from indexmill.formats.lsh.shape import LshShape
from indexmill.formats.pagefile.writer import PageFileWriter
from indexmill.pipeline.draws import BULK, NEAREST, drawn_rows
from indexmill.pipeline.kinds.common.ingest import InputSummary, read_summary
from indexmill.pipeline.mill.external_sort import sorted_records

SAMPLE_VERSION = 3
SOLVE_VERSION = 2
HASH_VERSION = 2
CHAIN_VERSION = 1
#: Two components may differ by a unit in the last place for each time that they were rounded: read, scaled,
#: normalised, rounded again. Their vectors then differ by so many units of their length at most.
_COPY_ROUNDINGS = 4
#: Vectors whose distances say where the radii begin; their nearest others, and other vectors, that these are of.
SAMPLED, NEIGHBOURS, OTHERS = 100, 50, 500
#: Kind of the page file that a chain task leaves for *emit*: sections ``blocks``, without pointers, and ``counts``.
PART_KIND = "LSHP"


class LshPlan(NamedTuple):
    """Arguments that the tasks of an LSH build share.

    Attributes
    ----------
    shape : LshShape
    n_functions : int
    width : float
    radii : tuple of float
    dim, seed : int
    """

    shape: LshShape
    n_functions: int
    width: float
    radii: tuple[float, ...]
    dim: int
    seed: int

    def draw(self) -> Drawn:
        """Return the random parts of the hash functions."""
        s = self.shape
        return draw_functions(s.n_tables, self.n_functions, s.n_radii, self.dim, self.width, self.seed)


def sample_task(vectors: str, metric: str, seed: int, out: str, threads: int) -> None:
    """Write ``nearest.npy`` and ``others.npy``: the distances of `sampled_distances`."""
    rows = np.load(vectors, mmap_mode="r")
    found = sampled_distances(rows, metric, seed, threads)
    np.save(Path(out) / "nearest.npy", found.nearest)
    np.save(Path(out) / "others.npy", found.others)


def sampled_distances(vectors: NDArray[Any], metric: str, seed: int, threads: int) -> Sampled:
    """Return the distances of `SAMPLED` of `vectors`, as queries of `metric`, to their nearest others and to `OTHERS`.

    A vector that is a copy of another up to rounding lies on it: a distance of at most `_COPY_ROUNDINGS` times the
    rounding unit of the vectors' type and the query's length counts as 0. Such distances are no scale of the
    data, and hashes of cells so small would be rounding too.
    """
    n = len(vectors)
    k = min(NEIGHBOURS, n - 1)
    if n < 2:
        return Sampled(np.empty((0, 1)), np.empty((0, 1)))
    rows = drawn_rows(seed, NEAREST, n, SAMPLED)
    queries = vectors[rows]
    if metric == "ip":
        queries = as_hashed(queries)
    _, squared = exact_neighbours(vectors, queries, k, threads, skip=rows)
    distances = np.sqrt(squared.astype(np.float64))
    if vectors.dtype.kind == "f":
        unit = _COPY_ROUNDINGS * float(np.finfo(vectors.dtype).eps)
        lengths = np.linalg.norm(queries.astype(np.float64), axis=1)
        distances[distances <= unit * lengths[:, None]] = 0
    others = vectors[drawn_rows(seed, BULK, n, OTHERS)].astype(np.float64)
    apart = np.stack([np.linalg.norm(others - query, axis=1) for query in queries.astype(np.float64)])
    return Sampled(distances, apart)


def as_hashed(stored: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return stored vectors of metric ip as the queries that they would be: scaled to their norm M, a 0 appended."""
    queries = stored.astype(np.float64)
    norm = np.linalg.norm(queries, axis=1, keepdims=True)
    queries[:, -1] = 0
    own = np.linalg.norm(queries, axis=1, keepdims=True)
    queries *= np.divide(norm, own, out=np.zeros_like(own), where=own > 0)
    scaled: NDArray[np.float32] = queries.astype(np.float32)
    return scaled


def solve_task(ingest: str, sample: str, metric: str, asked: Asked, out: str, threads: int) -> None:
    """Write ``solved.json``.

    Raises
    ------
    ConfigError
        If parameters and data do not go together.
    """
    summary = read_summary(Path(ingest))
    sampled = Sampled(*(np.load(Path(sample) / name) for name in ("nearest.npy", "others.npy")))
    found = solved(asked, summary.n_vectors, extent(summary, metric), sampled)
    (Path(out) / "solved.json").write_text(json.dumps(asdict(found)))


def solved(asked: Asked, n: int, extent: float, sampled: Sampled) -> Solved:
    """Return `solve` of what `choose` makes of `asked`; raise ConfigError for what they refuse."""
    try:
        return solve(choose(asked, n, extent, sampled), n, extent, sampled.nearest[:, 0])
    except ValueError as error:
        raise ConfigError(str(error)) from None


def read_solved(directory: Path) -> Solved:
    """Read what `solve_task` wrote."""
    values = json.loads((directory / "solved.json").read_text())
    return Solved(**{**values, "radii": tuple(values["radii"])})


def extent(summary: InputSummary, metric: str) -> float:
    """Return R_max of the stored vectors."""
    norm = {"l2": None, "cosine": 1.0, "ip": summary.max_norm}[metric]
    return extent_of(np.array(summary.minimum), np.array(summary.maximum), norm)


def hash_task(
    vectors: str, plan: LshPlan, tables: tuple[int, int], first: int, last: int, batch_bytes: int, out: str
) -> None:
    """Write the chunk file of vectors `first` to `last` in a range of tables.

    Keys count the buckets of all radii of the first table, then those of the next; values are fingerprints,
    payloads vector ids. Equal hashes keep the order of vector ids.

    Raises
    ------
    ConfigError
        If the first radius is too small for the vectors.
    """
    rows = np.load(vectors, mmap_mode="r")[first:last]
    shape = plan.shape
    long_runs = last - first >= 2 * shape.buckets_per_table
    try:
        write_runs(
            out, _hashed(rows, plan, tables, first), run_end_encoded=long_runs, batch_bytes=batch_bytes
        )
    except OverflowError:
        raise ConfigError(
            f"first_radius: {plan.radii[0]:.6g} is too small for vectors as far from zero as these; give a larger one"
        ) from None


def _hashed(rows: NDArray[Any], plan: LshPlan, tables: tuple[int, int], first: int) -> Iterator[Records]:
    shape, drawn = plan.shape, plan.draw()
    wide = np.asarray(rows, np.float32)
    low, high = tables
    for start in range(low - low % TABLES_TOGETHER, high, TABLES_TOGETHER):
        projected = project(wide, drawn.projections[start : start + TABLES_TOGETHER])
        for table in range(max(start, low), min(start + TABLES_TOGETHER, high)):
            for i, radius in enumerate(plan.radii):
                offsets, multipliers = drawn.offsets[i, table], drawn.multipliers[table]
                hashes = hash_rows(projected[table - start], radius, plan.width, offsets, multipliers)
                keys, fingerprints, ids = sort_rows(hashes, first, shape.hash_bits, shape.fingerprint_bits)
                keys += np.uint32(((table - low) * shape.n_radii + i) << shape.hash_bits)
                yield Records(keys, fingerprints, ids.reshape(-1, 1))


def chain_task(
    chunks: list[str], shape: LshShape, first: int, last: int, buffer_bytes: int, out: str
) -> None:
    """Fill the blocks of buckets `first` to `last` (keys of *hash*), and count the entries of each bucket.

    Memory: `buffer_bytes` for the sort, the blocks of a piece of it, and 4 bytes a bucket.
    """
    packer = BlockPacker(shape.block_bytes, shape.id_bits, first, last)
    with PageFileWriter(out, PART_KIND, {"first": first, "last": last}) as file:
        with file.section("blocks") as section:
            for keys, fingerprints, payload in sorted_records(chunks, first, last, buffer_bytes=buffer_bytes):
                section.write(packer.add(keys, fingerprints, payload[:, 0]))
            section.write(packer.finish())
        with file.section("counts") as section:
            section.write(packer.counts)
