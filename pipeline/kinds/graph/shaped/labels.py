"""Stage *labels*: edges that stay within a label (`builders.vamana.labels`), where the job names its column.

A search for the vectors of one label walks along these edges alone. What the manifest says of them is told in
docs/formats/manifest.md, key ``graph.labels``.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.builders.vamana.labels import LEAST_VECTORS, add_label_edges
from indexmill.formats.errors import ConfigError
from indexmill.formats.index.names import METADATA_NAME
from indexmill.pipeline.kinds.graph.shaped.asked import NEAREST
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
    from indexmill.pipeline.kinds.graph.parameters import Parameters
    from indexmill.pipeline.kinds.graph.tasks import BuildArguments

VERSION = 3
#: Share of a list that edges within a label may take, for labels of up to `FEW` vectors; how much more for each time
#: that a label has twice as many; and the most. In a simulation of sentences with lists of 109, at recall 0.95, a walk
#: among 5,000 vectors reads 53 pages with 0.3 of the places, 50 with 0.4. A walk among 20,000 reads 72 and 59, and 56
#: with 0.5. Searches without a filter read 1%, 3% and 4% more (docs/benchmarks.md, Filters).
PLACES, FEW, MORE, MOST_PLACES = 0.3, 5_000, 0.05, 0.5
#: Rows that tell how large labels are, and the largest share of the vectors of a label that gets edges.
_FIRST_ROWS, _MOST_SHARE = 1024, 0.5
#: Rows of the column that are read at a time.
ROWS_AT_ONCE = 65_536
#: Shortest list that gets edges within labels: it has 4 places for them, and a graph needs a few edges a vertex.
LEAST_DEGREE = 14


def check_labels(p: Parameters) -> None:
    """Refuse a job with a column of labels whose searches would not use edges within them, or whose lists are short.

    Raises
    ------
    ConfigError
    """
    if not p.codes_on_page:
        raise ConfigError(
            "label_column: goes with --codes-on-page: where codes are in memory, a search for one label compares the "
            "codes of all its vectors and follows no edges within it; add that, or leave --label-column "
            "out and search with --where"
        )
    if p.max_degree < LEAST_DEGREE:
        raise ConfigError(
            f"label_column: lists of {p.max_degree} neighbours have no room for edges within labels; give -R "
            f"{LEAST_DEGREE} or more, or leave --label-column out"
        )


def label_places(max_degree: int, n_vectors: int) -> int:
    """Return how many edges within a label of `n_vectors` a list of `max_degree` neighbours gets at most."""
    doublings = math.log2(max(n_vectors, FEW) / FEW)
    return round(min(PLACES + MORE * doublings, MOST_PLACES) * max_degree)


def most_vectors(n: int) -> int:
    """Return the most vectors of a label that gets edges: those of half of all are neighbours of each other anyway."""
    return int(_MOST_SHARE * n)


class LabelColumn(NamedTuple):
    """What the first rows tell of a column of labels.

    Attributes
    ----------
    row_bytes : float
        Bytes a row that its different values take. Only they are held while the column is read, each once, and a number
        for each row.
    share : float
        Share of the vectors that have the label of a vector, on average over those whose label gets edges.
    """

    row_bytes: float
    share: float


def checked_labels(source: VectorSource, column: str) -> LabelColumn:
    """Return what the first rows of `source` tell of a column of labels.

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
            "--metadata-columns, too"
        )
    type_ = schema.field(column).type
    if not _has_labels(type_):
        raise ConfigError(
            f"label_column: {column!r} holds {type_}; expected text, whole numbers, booleans or dates; convert it, or "
            "leave it out"
        )
    batch = next(iter(source.batches(_FIRST_ROWS)))
    if batch.metadata is None:
        return LabelColumn(0.0, _MOST_SHARE)
    values = batch.metadata[column]
    if pa.types.is_dictionary(values.type):  # a slice of one holds all its values
        values = values.cast(values.type.value_type)
    counts = pc.value_counts(values.drop_null()).field("counts").to_numpy()
    shares = counts[counts <= _MOST_SHARE * len(values)] / len(values)
    share = float(shares @ shares / shares.sum()) if len(shares) else _MOST_SHARE
    return LabelColumn(values.unique().nbytes / len(batch.vectors), share)


def _has_labels(type_: pa.DataType) -> bool:
    own = type_.value_type if pa.types.is_dictionary(type_) else type_
    is_one = (
        pa.types.is_integer, pa.types.is_string, pa.types.is_large_string, pa.types.is_boolean, pa.types.is_date,
    )  # fmt: skip
    return any(of_type(own) for of_type in is_one)


def read_labels(metadata: Path, column: str) -> NDArray[np.int32]:
    """Return a number for the label of each vector, int32 (n,); -1 where it is missing.

    Text is read as numbers of the different values, of which each is held once for each part of the file.
    """
    with pq.ParquetFile(metadata, read_dictionary=[column]) as file:
        batches = file.iter_batches(ROWS_AT_ONCE, columns=[column])
        encoded = pa.chunked_array([_encoded(batch.column(column)) for batch in batches]).unify_dictionaries()
    labels = np.empty(len(encoded), np.int32)
    first = 0
    for chunk in encoded.chunks:
        labels[first : first + len(chunk)] = chunk.indices.fill_null(-1)
        first += len(chunk)
    return labels


def _encoded(values: pa.Array) -> pa.DictionaryArray:
    """Return values as numbers of those that are different, unless they are so already."""
    return values if pa.types.is_dictionary(values.type) else pc.dictionary_encode(values)


def labels_task(
    vectors: str,
    graph: str,
    ingest: str,
    column: str,
    nearest: str | None,
    p: BuildArguments,
    out: str,
    threads: int,
) -> None:
    """Write the graph with edges within each label, as `tasks.save_graph` does.

    Parameters
    ----------
    nearest : str, optional
        Directory of stage *nearest*, where a sample of queries shaped the graph.
    """
    directory, old = Path(out), load_graph(Path(graph))
    rows, labels = np.load(vectors, mmap_mode="r"), read_labels(Path(ingest) / METADATA_NAME, column)
    neighbours, degrees = copied_graph(old, directory)
    places, most = partial(label_places, p.max_degree), most_vectors(len(labels))
    counts = np.bincount(labels[labels >= 0], minlength=1)
    has_edges = (counts >= LEAST_VECTORS) & (counts <= most)
    chosen = np.where((labels >= 0) & has_edges[labels], labels, -1)
    asked = None if nearest is None else np.load(Path(nearest) / NEAREST)
    edges = add_label_edges(
        rows,
        neighbours,
        degrees,
        old.entry,
        chosen,
        places,
        p.vamana,
        seed=p.seed,
        nearest=asked,
        threads=threads,
    )
    neighbours.flush()
    degrees.flush()
    facts = {
        "column": column,
        "least": LEAST_VECTORS,
        "most": most,
        "places": places(int(counts[has_edges].max(initial=0))),
        "labels": int(has_edges.sum()),
        "vectors": int(counts[has_edges].sum()),
        "edges": edges.within,
    }
    known = graph_facts(Path(graph)) | {LABELS: facts}
    write_facts(
        directory, old.entry, old.edges_added + edges.linked, shard_sizes(Path(graph)), old.misses, known
    )
