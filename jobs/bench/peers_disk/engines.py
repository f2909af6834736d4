"""PipeANN and Starling: programs that search a DiskANN index, compiled from their sources outside this repository.

Both print a table with a line for each list size. They are asked for the first list size twice, so that the first line
is of a search that warms up, and is not counted. Both can enter by a small graph in memory of a hundredth of the
vectors, as their guides say; PipeANN's pipeline does not run without it.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from indexmill.jobs.bench.common.curves import Half, Row
from indexmill.jobs.bench.common.dataset import K, read_bin, read_truth, write_bin, write_neighbours
from indexmill.jobs.bench.common.parameters import ALPHA, SEED, THREADS
from indexmill.jobs.bench.common.process import output_of
from indexmill.jobs.bench.programs.workspace import Workspace

#: Modes of PipeANN's program by our names.
PIPEANN_MODES = {"PipeANN, pipeline": 2, "PipeANN, coroutines": 3}
#: Reads in flight of a query from which the fastest are chosen: PipeANN's guide says 32, Starling's 4.
PIPEANN_WIDTHS, STARLING_WIDTHS = (8, 32), (2, 4, 8)
#: Whether PipeANN's rings have kernel threads that poll, which share the processors with its own.
_POLLING: dict[str, list[str]] = {"kernel polls": [], "without polling": ["NO_SQPOLL=1"]}
#: List size of the search of the graph in memory, as in PipeANN's guide; 0 is without one.
ENTRY_SIZE = 10
#: One vector in so many is in that graph.
ONE_IN = 100
#: Edges and list size of that graph, as the two guides have them.
PIPEANN_MEMORY, STARLING_MEMORY = (32, 64), (48, 128)
#: Bytes of an index's components, as these programs call them.
_DTYPE = "uint8"
#: The file that tells which graph of DiskANN, by its time of change, a folder of a peer was made of.
_MADE = "made.json"

#: Seconds within which a program searches all its list sizes; what takes longer counts as not measured.
LIMIT_S = 90
#: Searches of one half of the queries with growing list sizes; their rows.
Sweep: TypeAlias = Callable[[Sequence[int], Half], list[Row]]
#: Sweeps of one peer by their settings.
Settings: TypeAlias = dict[str, Sweep]


@dataclass(frozen=True)
class Files:
    """Queries and truth of one half, as a program reads them."""

    queries: Path
    truth: Path


@dataclass(frozen=True)
class Program:
    """One of the programs.

    Attributes
    ----------
    prepare : function
        Makes what it needs beside DiskANN's index in a new folder, of its sources.
    searches : function
        Returns its searches by what they are called, of its sources and that folder.
    """

    prepare: Callable[[Workspace, Path, Path], None]
    searches: Callable[[Workspace, Path, Path], dict[str, Settings]]


def files_of(space: Workspace, half: Half) -> Files:
    """Write the queries of a half and their true neighbours, unless they are there."""
    first, last = space.halves[half]
    name = f"{first}-{last}"
    found = Files(space.out / f"queries-{name}.u8bin", space.out / f"truth-{name}.gt")
    if not found.truth.exists():
        write_bin(found.queries, read_bin(space.data.query)[first:last])
        write_neighbours(found.truth, *(part[first:last] for part in read_truth(space.data.truth)))
    return found


def prepared(space: Workspace, name: str, sources: Path) -> Path:
    """Return the folder of a program's own files of DiskANN's index, which is made once for each such index."""
    folder = space.out / name
    graph = space.require(space.diskann_index) / "ann_disk.index"
    made_of = graph.stat().st_mtime_ns
    if (folder / _MADE).exists() and json.loads((folder / _MADE).read_text())["made_of"] == made_of:
        return folder
    print(f"  preparing {name}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file in ("ann_disk.index", "ann_pq_compressed.bin"):
        (folder / file).symlink_to((space.diskann_index / file).resolve())
    write_pivots(space.diskann_index / "ann_pq_pivots.bin", folder / "ann_pq_pivots.bin")
    PROGRAMS[name].prepare(space, sources, folder)
    (folder / _MADE).write_text(json.dumps({"made_of": made_of}))
    return folder


def version_of(sources: Path) -> str:
    """Return the commit of a checkout; it ends in ``-dirty`` where files were changed.

    Raises
    ------
    RuntimeError
        If the folder is no checkout.
    """
    command = ["git", "-C", sources, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    return output_of(command).strip()


def write_pivots(source: Path, target: Path) -> None:
    """Write DiskANN's PQ centres with a table of the order of components, which earlier releases had and both read.

    The file is an array {u32 n, u32 1, u64 offsets} of where the arrays begin that follow, and its end.
    """
    n_offsets, *_ = np.fromfile(source, "<u4", 2)
    offsets = np.fromfile(source, "<u8", n_offsets, offset=8)
    whole = source.read_bytes()
    dim, *_ = np.frombuffer(whole, "<u4", 2, int(offsets[1]))
    order = np.concatenate([[dim, 1], np.arange(dim)]).astype("<u4").tobytes()
    at = int(offsets[2])
    moved = np.concatenate([offsets[:3], offsets[2:] + np.uint64(len(order))])
    head = np.array([len(moved), 1], "<u4").tobytes() + moved.astype("<u8").tobytes()
    target.write_bytes(head + whole[len(head) : at] + order + whole[at:])


def write_sample(space: Workspace, folder: Path) -> tuple[Path, Path]:
    """Write one in `ONE_IN` of the vectors, and their rows, as both programs read them."""
    vectors = read_bin(space.data.base)
    rows = np.random.default_rng(SEED).choice(len(vectors), len(vectors) // ONE_IN, replace=False)
    rows.sort()
    found = folder / "sample_data.bin", folder / "sample_ids.bin"
    for path, values in zip(found, (vectors[rows], rows[:, None].astype("<u4")), strict=True):
        with open(path, "wb") as file:
            np.array(values.shape, "<u4").tofile(file)
            values.tofile(file)
    return found


def _prepare_pipeann(space: Workspace, sources: Path, folder: Path) -> None:
    """Build PipeANN's graph in memory."""
    data, ids = write_sample(space, folder)
    build = sources / "build" / "tests" / "build_memory_index"
    output_of(
        [build, _DTYPE, data, ids, folder / "ann_mem.index", 0, 0, *PIPEANN_MEMORY, ALPHA, THREADS, "l2"]
    )


def _search_pipeann(space: Workspace, sources: Path, folder: Path) -> dict[str, Settings]:
    program = sources / "build" / "tests" / "search_disk_index"

    def command(
        mode: int, environment: list[str], width: int, sizes: Sequence[int], files: Files
    ) -> list[object]:
        return [
            "env", *environment, program, _DTYPE, folder / "ann", THREADS, width, files.queries, files.truth, K, "l2",
            mode, ENTRY_SIZE, *sizes,
        ]  # fmt: skip

    columns = ("L", "width", "qps", "latency_us_mean", "latency_us_p999", "hops", "pages_read", "recall")
    return {
        name: {
            f"width {width}, {polling}": _sweep(space, partial(command, mode, environment, width), columns)
            for width in PIPEANN_WIDTHS
            for polling, environment in _POLLING.items()
        }
        for name, mode in PIPEANN_MODES.items()
    }


def _prepare_starling(space: Workspace, sources: Path, folder: Path) -> None:
    """Put the nodes into the order of Starling's partitioner, and build its graph in memory."""
    release, old, parts = sources / "release", folder / "ann_disk.index", folder / "parts.bin"
    partitioner = release / "graph_partition" / "partitioner"
    output_of(
        [partitioner, "--index_file", old, "--data_type", _DTYPE, "--gp_file", parts, "-T", THREADS,
         "--ldg_times", 16]
    )  # fmt: skip
    output_of([release / "tests" / "utils" / "index_relayout", old, parts])
    old.unlink()
    (folder / "parts_tmp.index").rename(old)
    parts.rename(folder / "ann_partition.bin")
    for round_kept in folder.glob("parts.bin.ivf*"):
        round_kept.unlink()
    write_sample(space, folder)
    degree, size = STARLING_MEMORY
    output_of(
        [release / "tests" / "build_memory_index", "--data_type", _DTYPE, "--dist_fn", "l2", "--data_path",
         folder / "sample", "--index_path_prefix", folder / "memory", "-R", degree, "-L", size, "--alpha", ALPHA,
         "-T", THREADS]
    )  # fmt: skip


def _search_starling(space: Workspace, sources: Path, folder: Path) -> dict[str, Settings]:
    prefix = folder / "ann"

    def command(entry: int, width: int, sizes: Sequence[int], files: Files) -> list[object]:
        options = {
            "data_type": _DTYPE, "dist_fn": "l2", "index_path_prefix": prefix, "query_file": files.queries,
            "gt_file": files.truth, "result_path": folder / "results", "num_nodes_to_cache": 0,
            "mem_L": entry, "mem_index_path": folder / "memory", "use_page_search": 1, "use_ratio": 1.0,
            "disk_file_path": f"{prefix}_disk.index",
        }  # fmt: skip
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        short = ["-K", K, "-T", THREADS, "-W", width, "-L", *sizes]
        return [sources / "release" / "tests" / "search_disk_index", *words, *short]

    columns = (
        "L", "width", "qps", "latency_us_mean", "latency_us_p999", "pages_read", "cpu", "loaded", "cached", "peak",
        "recall",
    )  # fmt: skip
    entries = {"medoid": 0, "graph in memory": ENTRY_SIZE}
    settings = {
        f"width {width}, {name}": _sweep(space, partial(command, entry, width), columns)
        for width in STARLING_WIDTHS
        for name, entry in entries.items()
    }
    return {"Starling": settings}


#: By the argument that names the folder of their compiled sources.
PROGRAMS: Mapping[str, Program] = {
    "pipeann": Program(_prepare_pipeann, _search_pipeann),
    "starling": Program(_prepare_starling, _search_starling),
}


def _sweep(
    space: Workspace, command: Callable[[Sequence[int], Files], list[object]], columns: tuple[str, ...]
) -> Sweep:
    def ask(sizes: Sequence[int], half: Half) -> list[Row]:
        text = output_of(command([sizes[0], *sizes], files_of(space, half)), limit_s=LIMIT_S)
        return rows_of(text, columns, len(sizes))

    return ask


def rows_of(text: str, columns: tuple[str, ...], n_rows: int) -> list[Row]:
    """Return the last lines of a table by its columns; recall as a share.

    Raises
    ------
    RuntimeError
        If there are not so many.
    """
    found = []
    for line in text.splitlines():
        try:
            values = [float(word) for word in line.split()]
        except ValueError:
            continue
        if len(values) == len(columns):
            row = dict(zip(columns, values, strict=True))
            found.append(row | {"L": int(row["L"]), "recall": row["recall"] / 100})
    if len(found) < n_rows:
        raise RuntimeError(
            f"expected {n_rows} lines with the {len(columns)} columns {', '.join(columns)}: {text[-500:]}"
        )
    return found[-n_rows:]
