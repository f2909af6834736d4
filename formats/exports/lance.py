"""A dataset of Lance, which LanceDB opens as a table: rows in list order, and an IVF index with our lists.

Written by pylance itself, to which centroids, the list of every row and the codebook are given. It computes codes
again; those of what a code stands for are that code.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.codes import MAX_CENTRES
from indexmill.formats.errors import ConfigError
from indexmill.formats.exports.idmap import narrow
from indexmill.formats.exports.lists import ExportedLists, ListBlock
from indexmill.formats.exports.target import Target, cannot_hold
from indexmill.formats.metadata import add_metadata

NAME = "lance"
#: LanceDB's name of the table is that of the directory.
TABLE = "vectors"
FOLDER_NAME = f"{TABLE}.lance"
#: The list of every row, which is read once.
_LISTS_NAME = ".lists.lance"
#: Rows of a file of the dataset, whose first row id is a multiple of 2^32.
_FILE_ROWS, _FRAGMENT_BITS = 1 << 20, 32


def check(index: ExportedLists) -> None:
    """Refuse what Lance's indexes cannot rank as we do, and to go on without pylance."""
    shared = index.shared
    if index.metric == "ip" and shared.codec != "flat":
        action = "build with --codec flat, or export to faiss-ivf"
        raise cannot_hold(NAME, "inner products of lists with codec", shared.codec, "those with flat", action)
    if shared.codebook is not None:
        sizes = np.diff(shared.codebook.offsets)
        if len(np.unique(sizes)) > 1:
            action = f"build with --pq-bytes that divides {shared.dim}, or export to faiss-ivf"
            got = f"{sizes.min()} and {sizes.max()} components"
            raise cannot_hold(NAME, "chunks of", got, "chunks of one size", action)
    _pylance()


def _pylance() -> Any:
    try:
        return import_module("lance")
    except ImportError as error:
        raise ConfigError(
            f"to: {NAME}: the files are written by Lance's own library, which is missing ({error}); "
            "pip install 'indexmill[lance]'"
        ) from error


def write(index: ExportedLists, folder: Path, advance: Callable[[int], None]) -> None:
    """Write the dataset and its index. Memory: that of pylance, which sorts rows by list, and blocks of 4 MiB."""
    lance = _pylance()
    batches = _batches(index, advance)
    first = next(batches)
    reader = pa.RecordBatchReader.from_batches(first.schema, _chain(first, batches))
    dataset = lance.write_dataset(reader, str(folder / FOLDER_NAME), max_rows_per_file=_FILE_ROWS)
    counts = [(fragment.fragment_id, fragment.count_rows()) for fragment in dataset.get_fragments()]
    lance.write_dataset(_lists_of(index, counts), str(folder / _LISTS_NAME), max_rows_per_file=index.n_rows)
    shared = index.shared
    codec: dict[str, Any] = {}
    if shared.codebook is not None:
        codec = {"num_sub_vectors": shared.row_bytes, "pq_codebook": _codebook(index)}
    dataset.create_index(
        "vector",
        "IVF_PQ" if codec else "IVF_FLAT",
        metric=_metric(index),
        num_partitions=shared.n_lists,
        ivf_centroids=np.ascontiguousarray(shared.centroids),
        precomputed_partition_dataset=str(folder / _LISTS_NAME),
        **codec,
    )
    shutil.rmtree(folder / _LISTS_NAME)


def _metric(index: ExportedLists) -> str:
    """Lance's metric: codes of unit vectors are compared by distance, as we do; inner product is one of distances."""
    return "cosine" if index.metric == "cosine" and index.shared.codec == "flat" else "L2"


def _batches(index: ExportedLists, advance: Callable[[int], None]) -> Iterator[pa.RecordBatch]:
    for block in index.blocks():
        yield from pa.table(_columns(index, block)).combine_chunks().to_batches()
        advance(len(block.ids))


def _chain(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others


def _columns(index: ExportedLists, block: ListBlock) -> dict[str, Any]:
    """Return the columns of some rows: partition, vector_id, id, vector, then metadata."""
    columns: dict[str, Any] = {
        "partition": pa.array(block.lists),
        "vector_id": pa.array(block.ids.astype(np.int64)),
        "id": narrow(index.names_of(block.ids)),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(block.vectors.ravel()), index.shared.dim),
    }
    add_metadata(columns, index.metadata_of(block.ids))
    return columns


def _lists_of(index: ExportedLists, counts: list[tuple[int, int]]) -> pa.Table:
    """Return row id and list of every row; `counts` are the numbers of the dataset's files and their rows."""
    rows = np.concatenate(
        [
            (np.uint64(number) << np.uint64(_FRAGMENT_BITS)) + np.arange(n, dtype=np.uint64)
            for number, n in counts
        ]
    )
    lists = np.repeat(np.arange(index.shared.n_lists, dtype=np.uint32), index.lists.sizes)
    return pa.table({"row_id": pa.array(rows), "partition": pa.array(lists)})


def _codebook(index: ExportedLists) -> NDArray[np.float32]:
    """Return the pivots as Lance has them, [chunk, centre, component]; a centre that is missing is the first."""
    assert index.shared.codebook is not None
    pivots = index.shared.codebook.pivots
    whole = np.concatenate([pivots, np.repeat(pivots[:1], MAX_CENTRES - len(pivots), axis=0)])
    by_chunk = whole.reshape(MAX_CENTRES, index.shared.row_bytes, -1).transpose(1, 0, 2)
    return np.ascontiguousarray(by_chunk)


def snippet(index: ExportedLists, folder: Path) -> str:
    """Return Python that opens the export."""
    lines = [
        "import numpy as np",
        "import lance  # pylance",
        f"table = lance.dataset({str(folder / FOLDER_NAME)!r})",
    ]
    lines.append(f"query = np.ones({index.dim}, np.float32)")
    if index.metric == "ip":
        norm = index.shared.max_norm
        lines.append(
            "query = np.append(query, np.float32(0))  # for the component that makes all lengths equal"
        )
        lines.append(f"# inner product = (query @ query + {norm * norm!r} - _distance) / 2")
    if index.metric == "cosine" and _metric(index) == "L2":
        lines.append("query /= np.linalg.norm(query)  # cosine = 1 - _distance / 2")
    if index.repeats:
        lines.append("# a vector may be several rows: ask for more than 10, and pass over what comes again")
    probes = f"'nprobes': {index.probes}, 'maximum_nprobes': {index.probes}"
    lines += [
        f"nearest = {{'column': 'vector', 'q': query, 'k': 10, {probes}}}",
        "print(table.to_table(nearest=nearest, columns=['id', '_distance']))",
    ]
    return "\n".join(lines) + "\n"


TARGET = Target(
    name=NAME,
    kinds=("ivf",),
    engine="Lance (pylance 14), LanceDB",
    keeps={
        "graph": "no",
        "codes": "yes",
        "clusters": "yes",
        "order": "in lists",
        "pages": "no",
        "entries": "no",
        "ids": "yes",
        "metadata": "yes",
    },
    rebuilds="its index, from our centroids, lists and codebook; vectors are float32",
    passes=1,
    check=check,
    write=write,
    snippet=snippet,
)
