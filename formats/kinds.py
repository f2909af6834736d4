"""The kind of each page file of an index, by its name."""

from __future__ import annotations

from indexmill.formats.graph import codes, entries, file, navigation
from indexmill.formats.graph.navigation import NAVIGATION_NAME
from indexmill.formats.index import ids, vectors
from indexmill.formats.index.vectors import VECTORS_NAME
from indexmill.formats.ivf import batch, centroids
from indexmill.formats.ivf.centroids import CENTROIDS_NAME
from indexmill.formats.lsh import buckets, functions, tables

#: Kind of each page file of an index, by name.
FILE_KINDS = {
    "codes.imx": codes.KIND,
    "entries.imx": entries.KIND,
    "graph.imx": file.KIND,
    "ids.imx": ids.KIND,
    NAVIGATION_NAME: navigation.KIND,
    VECTORS_NAME: vectors.KIND,
    "functions.imx": functions.KIND,
    "tables.imx": tables.KIND,
    "buckets.imx": buckets.KIND,
    CENTROIDS_NAME: centroids.KIND,
}


def page_file_kind(name: str) -> str | None:
    """Return the kind of an index's page file by its name; None for files that are not page files."""
    return batch.KIND if batch.batch_number(name) is not None else FILE_KINDS.get(name)
