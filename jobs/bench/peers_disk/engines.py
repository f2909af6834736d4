"""PipeANN and Starling: programs that search a DiskANN index, compiled from their sources outside this repository.

Both print a table with a line for each list size. They are asked for one list size twice, so that the second line is of
a search that the first one warmed up.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from indexmill.jobs.bench.common.curves import Half, Row, Search
from indexmill.jobs.bench.common.dataset import K, read_bin, read_truth, write_bin, write_neighbours
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.common.process import output_of
from indexmill.jobs.bench.programs.workspace import Workspace

#: Modes of PipeANN's program by our names.
PIPEANN_MODES = {"PipeANN, pipeline": 2, "PipeANN, coroutines": 3}
#: Reads in flight of a query: PipeANN's guide says 32; DiskANN's and Starling's have 4.
PIPEANN_WIDTH, STARLING_WIDTH = 32, 4
#: Bytes of an index's components, as these programs call them.
_DTYPE = "uint8"


@dataclass(frozen=True)
class Files:
    """Queries and truth of one half, as a program reads them."""

    queries: Path
    truth: Path


def files_of(space: Workspace, half: Half) -> Files:
    """Write the queries of a half and their true neighbours, unless they are there."""
    first, last = space.halves[half]
    name = f"{first}-{last}"
    found = Files(space.out / f"queries-{name}.u8bin", space.out / f"truth-{name}.gt")
    if not found.truth.exists():
        write_bin(found.queries, read_bin(space.data.query)[first:last])
        write_neighbours(found.truth, *(part[first:last] for part in read_truth(space.data.truth)))
    return found


def pipeann(space: Workspace, sources: Path) -> dict[str, Search]:
    """Return the searches of PipeANN's program by what they are called.

    Parameters
    ----------
    sources : Path
        Folder of its sources, compiled in ``build``.
    """
    program = sources / "build" / "tests" / "search_disk_index"

    def command(mode: int, size: int, files: Files) -> list[object]:
        return [
            program, _DTYPE, space.diskann_index / "ann", THREADS, PIPEANN_WIDTH, files.queries, files.truth, K, "l2",
            mode, 0, size, size,
        ]  # fmt: skip

    columns = ("L", "width", "qps", "latency_us_mean", "latency_us_p99", "hops", "pages_read", "recall")
    return {name: _search(space, partial(command, mode), columns) for name, mode in PIPEANN_MODES.items()}


def starling(space: Workspace, sources: Path) -> dict[str, Search]:
    """Return the search of Starling's program, of DiskANN's index in Starling's order of pages.

    Parameters
    ----------
    sources : Path
        Folder of its sources, compiled in ``release``.
    """
    release, index = sources / "release", laid_out(space, sources)

    def command(size: int, files: Files) -> list[object]:
        options = {
            "data_type": _DTYPE, "dist_fn": "l2", "index_path_prefix": index, "query_file": files.queries,
            "gt_file": files.truth, "result_path": space.out / "starling-results", "num_nodes_to_cache": 0,
            "mem_L": 0, "use_page_search": 1, "use_ratio": 1.0, "disk_file_path": f"{index}_disk.index",
        }  # fmt: skip
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        short = ["-K", K, "-T", THREADS, "-W", STARLING_WIDTH, "-L", size, size]
        return [release / "tests" / "search_disk_index", *words, *short]

    columns = (
        "L", "width", "qps", "latency_us_mean", "latency_us_p999", "pages_read", "cpu", "loaded", "cached", "peak",
        "recall",
    )  # fmt: skip
    return {"Starling": _search(space, command, columns)}


def laid_out(space: Workspace, sources: Path) -> Path:
    """Return the prefix of DiskANN's index in the order of Starling's partitioner, which is made once."""
    folder = space.out / "starling"
    prefix = folder / "ann"
    if (folder / "ann_partition.bin").exists():
        return prefix
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in space.require(space.diskann_index).glob("ann_*"):
        (folder / path.name).symlink_to(path.resolve())
    old, parts = folder / "ann_disk.index", folder / "parts.bin"
    n_vectors, dim = space.data.shape()
    partitioner = sources / "release" / "graph_partition" / "partitioner"
    output_of(
        [partitioner, "-D", dim, "-N", n_vectors, "--index_file", old, "--data_type", _DTYPE, "--gp_file", parts,
         "-T", THREADS, "--ldg_times", 16]
    )  # fmt: skip
    output_of([sources / "release" / "tests" / "utils" / "index_relayout", old, parts], folder)
    old.unlink()
    (folder / "parts.bin_part_tmp.index").rename(old)
    parts.rename(folder / "ann_partition.bin")
    return prefix


def _search(
    space: Workspace, command: Callable[[int, Files], list[object]], columns: tuple[str, ...]
) -> Search:
    def ask(size: int, half: Half) -> Row:
        text = output_of(command(size, files_of(space, half)))
        return last_row(text, columns)

    return ask


def last_row(text: str, columns: tuple[str, ...]) -> Row:
    """Return the last line of a table by its columns; recall as a share.

    Raises
    ------
    RuntimeError
        If there is none.
    """
    for line in reversed(text.splitlines()):
        words = line.split()
        try:
            values = [float(word) for word in words]
        except ValueError:
            continue
        if len(values) == len(columns):
            row = dict(zip(columns, values, strict=True))
            return row | {"L": int(row["L"]), "recall": row["recall"] / 100}
    raise RuntimeError(f"expected a line with the {len(columns)} columns {', '.join(columns)}: {text[-500:]}")
