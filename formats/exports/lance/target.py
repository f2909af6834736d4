"""Export to a Lance dataset, which LanceDB opens as a table: rows in list order, and an IVF index with our lists.

pylance writes the dataset, given the centroids, the list of every row and the codebook. It computes codes again; the
code of a decoded vector is the original one. It sorts in memory, so every file of the dataset is indexed separately,
and the parts are merged.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.exports.idmap import narrow
from indexmill.formats.exports.lance.library import NAME, arguments_of, check_codebook, pylance, write_segment
from indexmill.formats.exports.lists import ExportedLists, ListBlock
from indexmill.formats.exports.rows import Advance
from indexmill.formats.exports.target import Target, cannot_hold, kept
from indexmill.formats.index.metadata import add_metadata

#: Name of the table in LanceDB, which is that of the directory.
TABLE = "vectors"
FOLDER_NAME = f"{TABLE}.lance"
#: Name of the index of the column.
_INDEX_NAME = "vector_idx"
#: Temporary dataset with the list of every row of a file.
_LISTS_NAME = ".lists.lance"
#: Bytes of vectors in a file of the dataset, and the most files, which may make files larger.
_FILE_BYTES, _MOST_FILES = 4 << 20, 128
#: The first row id of a file is a multiple of 2^32.
_FRAGMENT_BITS = 32


def check(index: ExportedLists) -> None:
    """Refuse an index that Lance would rank differently, and a missing pylance."""
    shared = index.shared
    if shared.rabitq is not None:
        raise cannot_hold(
            NAME, "lists with codec", "rabitq", "those with flat, sq8 or pq", "build with another --codec"
        )
    if index.metric == "ip" and shared.codec != "flat":
        action = "build with --codec flat, or export to faiss-ivf"
        raise cannot_hold(NAME, "inner products of lists with codec", shared.codec, "those with flat", action)
    check_codebook(shared)
    pylance()


def write(index: ExportedLists, folder: Path, advance: Advance) -> None:
    """Write the dataset and its index, file by file.

    Memory: blocks of 4 MiB, and that of pylance: 45 MB, and two to three times the vectors of a file.
    """
    lance = pylance()
    batches = _batches(index, advance)
    first = next(batches)
    reader = pa.RecordBatchReader.from_batches(first.schema, _chain(first, batches))
    place = folder / FOLDER_NAME
    dataset = lance.write_dataset(reader, str(place), max_rows_per_file=file_rows(index))
    segments = _segments(index, dataset, folder / _LISTS_NAME, advance)
    if len(segments) > 1:
        segments = [dataset.merge_existing_index_segments(segments)]
    dataset.commit_existing_index_segments(_INDEX_NAME, "vector", segments)
    for other in (place / "_indices").iterdir():
        if other.name != segments[0].uuid:
            shutil.rmtree(other)


def file_rows(index: ExportedLists) -> int:
    """Return the rows of a file of the dataset."""
    row_bytes = 4 * index.shared.dim
    return max(_FILE_BYTES // row_bytes, -(-index.n_rows // _MOST_FILES), 1)


def _segments(index: ExportedLists, dataset: Any, scratch: Path, advance: Advance) -> list[Any]:
    """Index every file separately, because pylance sorts in memory; all parts have the same centroids."""
    shared = index.shared
    arguments = arguments_of(shared.centroids, shared.codebook, _metric(index), _INDEX_NAME)
    segments, ends, begun = [], np.cumsum(index.lists.sizes), 0
    for fragment in dataset.get_fragments():
        number, n = fragment.fragment_id, fragment.count_rows()
        assigned = _lists_of(ends, number, begun, n)
        segments.append(write_segment(dataset, "vector", [number], assigned, arguments, scratch))
        begun += n
        advance(n)
    return segments


def _metric(index: ExportedLists) -> str:
    """Return Lance's metric: distances also rank codes of unit vectors, and inner product, as they do for us."""
    return "cosine" if index.metric == "cosine" and index.shared.codec == "flat" else "L2"


def _batches(index: ExportedLists, advance: Advance) -> Iterator[pa.RecordBatch]:
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


def _lists_of(
    ends: NDArray[np.int64], number: int, begun: int, n: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
    """Return row id and list of the `n` rows of a file from row `begun` on; `ends` are the ends of lists."""
    places = np.arange(n, dtype=np.uint64)
    lists = np.searchsorted(ends, np.arange(begun, begun + n), side="right").astype(np.uint32)
    row_ids = (np.uint64(number) << np.uint64(_FRAGMENT_BITS)) + places
    return row_ids, lists


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
    holds=(ExportedLists,),
    engine="Lance (pylance 14), LanceDB",
    keeps=kept(codes="yes", clusters="yes", order="in lists", ids="yes", metadata="yes"),
    rebuilds="its index, from our centroids, lists and codebook; vectors are float32",
    passes=2,
    check=check,
    write=write,
    snippet=snippet,
)
