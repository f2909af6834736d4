"""Stage *labels*: edges that stay within a label (`builders.vamana.labels`), where the job names its column.

A search for the vectors of one label walks along these edges alone. What the manifest says of them: `LabelFacts`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.builders.vamana.connect import connect_unreachable
from indexmill.builders.vamana.labels import LEAST_VECTORS, add_label_edges
from indexmill.formats.errors import ConfigError
from indexmill.formats.index.names import METADATA_NAME
from indexmill.pipeline.kinds.graph.tasks import (
    LABELS,
    copied_graph,
    graph_facts,
    load_graph,
    shard_sizes,
    write_facts,
)

if TYPE_CHECKING:
    from indexmill.formats.sources.source import VectorSource
    from indexmill.pipeline.kinds.graph.tasks import BuildArguments

VERSION = 1
#: Share of a list that edges within the label may take. With 0.3 of 109 places, searches for one of ten labels of
#: sentences read 0.46 of the pages that they read without such edges, with half as many places 0.62; searches without a
#: filter read up to 3% more (docs/benchmarks.md, Filters).
PLACES = 0.3
#: Rows that tell how large labels are.
_FIRST_ROWS = 1024
#: Least places: a graph needs a few edges a vertex.
_LEAST_PLACES = 4


def label_places(max_degree: int) -> int:
    """Return how many edges within its label a list of `max_degree` neighbours gets at most."""
    return min(max(_LEAST_PLACES, round(PLACES * max_degree)), max_degree)


def most_vectors(n: int) -> int:
    """Return the most vectors of a label that gets edges: those of half of all are neighbours of each other anyway."""
    return n // 2


def checked_label_bytes(source: VectorSource, column: str) -> float:
    """Return about how large a value of a column of labels is, judged by the first rows of `source`.

    Raises
    ------
    ConfigError
        If the build does not keep the column, or equal labels may be different values there.
    """
    schema = source.metadata_schema
    names = [] if schema is None else schema.names
    if schema is None or column not in names:
        kept = ", ".join(names) or "none"
        raise ConfigError(
            f"label_column: {column!r} is no metadata column of this build, which keeps {kept}; name it in "
            "metadata_columns, too"
        )
    type_ = schema.field(column).type
    if not _has_labels(type_):
        raise ConfigError(
            f"label_column: {column!r} holds {type_}; expected text, whole numbers, booleans or dates; convert it, or "
            "leave it out"
        )
    batch = next(iter(source.batches(_FIRST_ROWS)))
    return 0.0 if batch.metadata is None else batch.metadata[column].nbytes / len(batch.vectors)


def _has_labels(type_: pa.DataType) -> bool:
    own = type_.value_type if pa.types.is_dictionary(type_) else type_
    is_one = (
        pa.types.is_integer, pa.types.is_string, pa.types.is_large_string, pa.types.is_boolean, pa.types.is_date,
    )  # fmt: skip
    return any(of_type(own) for of_type in is_one)


def read_labels(metadata: Path, column: str) -> NDArray[np.int32]:
    """Return a number for the label of each vector, int32 (n,); -1 where it is missing."""
    values = pq.read_table(metadata, columns=[column])[column]
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    indices = pc.dictionary_encode(values).combine_chunks()
    if isinstance(indices, pa.ChunkedArray):
        indices = pa.concat_arrays(indices.chunks)
    return np.asarray(indices.indices.fill_null(-1), np.int32)


def labels_task(
    vectors: str, graph: str, ingest: str, column: str, p: BuildArguments, out: str, threads: int
) -> None:
    """Write the graph with edges within each label, as `tasks.save_graph` does."""
    directory, old = Path(out), load_graph(Path(graph))
    rows, labels = np.load(vectors, mmap_mode="r"), read_labels(Path(ingest) / METADATA_NAME, column)
    neighbours, degrees = copied_graph(old, directory)
    places, most = label_places(p.max_degree), most_vectors(len(labels))
    counts = np.bincount(labels[labels >= 0], minlength=1)
    has_edges = (counts >= LEAST_VECTORS) & (counts <= most)
    chosen = np.where((labels >= 0) & has_edges[labels], labels, -1)
    edges = add_label_edges(rows, neighbours, degrees, chosen, places, p.vamana, seed=p.seed, threads=threads)
    added = connect_unreachable(rows, neighbours, degrees, old.entry, p.build_list_size) if edges else 0
    neighbours.flush()
    degrees.flush()
    facts = {
        "column": column,
        "least": LEAST_VECTORS,
        "most": most,
        "places": places,
        "labels": int(has_edges.sum()),
        "vectors": int(counts[has_edges].sum()),
        "edges": edges,
    }
    known = graph_facts(Path(graph)) | {LABELS: facts}
    write_facts(directory, old.entry, old.edges_added + added, shard_sizes(Path(graph)), old.misses, known)
