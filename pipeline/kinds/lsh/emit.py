"""Stage *emit* of an LSH index: blocks get their pointers and checksums, and all files their place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.lsh.solve import Solved
from indexmill.formats.index.ids import write_ids
from indexmill.formats.index.vectors import RowFormat, write_vectors
from indexmill.formats.lsh.blocks import seal_blocks
from indexmill.formats.lsh.buckets import write_buckets
from indexmill.formats.lsh.functions import HashFunctions, SearchDefaults, write_functions
from indexmill.formats.lsh.shape import LshShape, pointers_to
from indexmill.formats.lsh.tables import write_tables
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.formats.pagefile.mapped import create_npy
from indexmill.formats.pagefile.reader import PageFile
from indexmill.pipeline.kinds.common.ingest import InputSummary, read_ids, read_summary
from indexmill.pipeline.kinds.common.record import seal
from indexmill.pipeline.kinds.lsh.tasks import PART_KIND, LshPlan, extent
from indexmill.pipeline.mill.ahead import read_ahead

VERSION = 2
#: Bytes of blocks sealed at a time: whole pages.
_STEP_BYTES = 4 << 20


class Part(NamedTuple):
    """A file of a chain task, and the range of (table, radius) pairs of its buckets, counted by table."""

    path: str
    first: int
    last: int


def emit_task(
    ingest: str,
    parts: Sequence[Part],
    plan: LshPlan,
    metric: str,
    solved: Solved,
    defaults: SearchDefaults,
    out: str,
    threads: int,
    advance: Any = None,
) -> None:
    """Write all files of an index except its manifest, stamped with the build id.

    Memory: of the largest part 28 bytes a bucket, 8 a block; 24 MiB of blocks; ids. The pointers are a mapped file.
    """
    directory, source = Path(out), Path(ingest)
    summary = read_summary(source)
    shape = plan.shape
    vectors = np.load(source / "vectors.npy", mmap_mode="r")
    row = RowFormat(vectors.shape[1], vectors.dtype.name)
    write_vectors(directory / "vectors.imx", row, len(vectors), metric, vectors, summary.max_norm)
    functions = HashFunctions(*plan.draw(), np.array(plan.radii), plan.width)
    write_functions(directory / "functions.imx", shape, functions, defaults)
    chains = _Chains(directory / "pointers.npy", shape, parts)
    blocks = read_ahead(chains.sealed(advance))
    write_buckets(directory / "buckets.imx", shape, chains.n_blocks, max(chains.longest), blocks)
    write_tables(directory / "tables.imx", shape, chains.pointers)
    chains.close()
    write_ids(directory / "ids.imx", np.arange(len(vectors), dtype=np.uint32), read_ids(source))
    seal(directory, {"lsh": lsh_facts(solved, summary, metric, shape) | chains.facts()}, source)


def lsh_facts(solved: Solved, summary: InputSummary, metric: str, shape: LshShape) -> dict[str, Any]:
    """Return the facts of the hash functions for the manifest."""
    return {
        "radii": list(solved.radii),
        "p1": round(solved.p1, 6),
        "p2": round(solved.p2, 6),
        "rho": round(solved.rho, 6),
        "success": round(solved.success, 6),
        "max_abs": float(np.abs([summary.minimum, summary.maximum]).max()),
        "extent": extent(summary, metric),
        "bitmap_bytes": shape.bitmap_bytes,
    }


class _Chains:
    """Chains of all parts, laid one after the other.

    Attributes
    ----------
    n_blocks : int
    buckets, blocks, longest : list of int
        Of each radius: buckets with entries, blocks, blocks of the longest chain.
    pointers : uint64 array, shape (n_radii, n_tables, 2^u)
        Mapped.
    """

    def __init__(self, path: Path, shape: LshShape, parts: Sequence[Part]) -> None:
        self._path = path
        self._shape = shape
        self._parts = parts
        self.buckets, self.blocks, self.longest = ([0] * shape.n_radii for _ in range(3))
        self.pointers = create_npy(path, np.uint64, (shape.n_radii, shape.n_tables, shape.buckets_per_table))
        self.n_blocks = 0
        for part in parts:
            self._lay(part)

    def close(self) -> None:
        """Remove the mapped pointers."""
        del self.pointers
        self._path.unlink()

    def facts(self) -> dict[str, Any]:
        """Return the facts of the chains for the manifest."""
        return {
            "n_buckets": sum(self.buckets),
            "n_blocks": self.n_blocks,
            "buckets": self.buckets,
            "blocks": self.blocks,
            "longest_chain": self.longest,
        }

    def _lengths(self, file: PageFile, part: Part) -> NDArray[np.int64]:
        """Return the blocks of each bucket, shape (tables and radii of the part, 2^u)."""
        buckets = self._shape.buckets_per_table
        section = file.section("counts", 4 * (part.last - part.first) * buckets)
        counts = np.frombuffer(section, "<u4").reshape(-1, buckets)
        return -(-counts.astype(np.int64) // self._shape.capacity)

    def _entries(self, part: Part) -> NDArray[np.uint64]:
        """Return the numbers of the table entries of a part's buckets, in the order of the part."""
        tables, radii = np.divmod(np.arange(part.first, part.last, dtype=np.uint64), self._shape.n_radii)
        first = (radii * self._shape.n_tables + tables) * self._shape.buckets_per_table
        return (first[:, None] + np.arange(self._shape.buckets_per_table, dtype=np.uint64)).reshape(-1)

    def _lay(self, part: Part) -> None:
        with PageFile(part.path, PART_KIND) as file:
            lengths = self._lengths(file, part)
        for both, mine in zip(range(part.first, part.last), lengths, strict=True):
            table, radius = divmod(both, self._shape.n_radii)
            starts = self.n_blocks + np.cumsum(mine) - mine
            self.pointers[radius, table] = pointers_to(starts, mine, self._shape.block_bytes)
            laid = int(mine.sum())
            self.n_blocks += laid
            self.blocks[radius] += laid
            self.buckets[radius] += int(np.count_nonzero(mine))
            self.longest[radius] = max(self.longest[radius], int(mine.max()))

    def sealed(self, advance: Any) -> Iterator[NDArray[np.uint8]]:
        """Yield all blocks in order, with pointers and checksums; tells `advance` the entries of each part."""
        size = self._shape.block_bytes
        step, base = _STEP_BYTES // size, 0
        for part in self._parts:
            with PageFile(part.path, PART_KIND) as file:
                ends = np.cumsum(self._lengths(file, part))  # of each bucket's chain
                entries, n_blocks = self._entries(part), int(ends[-1])
                file.payload_bytes("blocks", n_blocks * size)
                for first in range(0, n_blocks, step):
                    numbers = np.arange(first, min(first + step, n_blocks))
                    mine = np.searchsorted(ends, numbers, side="right")
                    pages = -(-len(numbers) * size // PAGE_BYTES)
                    data = file.read_pages("blocks", first * size // PAGE_BYTES, pages)
                    blocks = np.frombuffer(data, np.uint8)[: len(numbers) * size].reshape(-1, size).copy()
                    following = pointers_to(base + numbers + 1, ends[mine] - numbers - 1, size)
                    seal_blocks(blocks, following, entries[mine])
                    yield blocks
                base += n_blocks
            if advance is not None:
                advance((part.last - part.first) * self._shape.n_vectors)
