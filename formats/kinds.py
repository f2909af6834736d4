"""The files of an index of each kind, and what else its manifest has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from indexmill.formats.graph import codes, entries, file, navigation
from indexmill.formats.graph.navigation import NAVIGATION_NAME
from indexmill.formats.index import ids, vectors
from indexmill.formats.index.names import is_deleted_name
from indexmill.formats.index.vectors import VECTORS_NAME
from indexmill.formats.ivf import batch, centroids
from indexmill.formats.ivf.centroids import CENTROIDS_NAME
from indexmill.formats.lsh import buckets, functions, tables
from indexmill.formats.lsh.names import ADDED, BASE


class KindFiles(NamedTuple):
    """What is special to the indexes of one kind.

    Attributes
    ----------
    required : dict of str to str
        Page files that every such index has, and the kind in the header of each.
    keys : dict of str to bool
        Keys of its manifest, and whether each may be null or missing.
    searched_by : str
        The command that searches it.
    optional : callable
        Returns the kind in the header of a further page file by its name; None if there is no such file.
    """

    required: Mapping[str, str]
    keys: Mapping[str, bool]
    searched_by: str
    optional: Callable[[str], str | None]


#: Kind in the header of the file of deletions, which an index of any kind may have.
DELETED_KIND = "DELS"


def _of_lists(name: str) -> str | None:
    return batch.KIND if batch.batch_number(name) is not None else {VECTORS_NAME: vectors.KIND}.get(name)


KINDS = {
    "graph": KindFiles(
        {"codes.imx": codes.KIND, "entries.imx": entries.KIND, "graph.imx": file.KIND, "ids.imx": ids.KIND},
        {"layout": False, "graph": False, "drift": True}, "search",
        {NAVIGATION_NAME: navigation.KIND, VECTORS_NAME: vectors.KIND}.get,
    ),
    "lsh": KindFiles(
        {BASE.buckets: buckets.KIND, "functions.imx": functions.KIND, "ids.imx": ids.KIND,
         BASE.tables: tables.KIND, VECTORS_NAME: vectors.KIND},
        {"lsh": False}, "search", {ADDED.buckets: buckets.KIND, ADDED.tables: tables.KIND}.get,
    ),
    "ivf": KindFiles(
        {CENTROIDS_NAME: centroids.KIND, "ids.imx": ids.KIND},
        {"ivf": False}, "search` or `indexmill join", _of_lists,
    ),
}  # fmt: skip


def page_file_kind(name: str) -> str | None:
    """Return the kind of an index's page file by its name; None for files that are not page files."""
    if is_deleted_name(name):
        return DELETED_KIND
    return next(filter(None, (one.required.get(name) or one.optional(name) for one in KINDS.values())), None)


def has_added_tables(names: Iterable[str]) -> bool:
    """Return whether an index with files of these names has added tables (docs/formats/lsh.md)."""
    return not set(ADDED).isdisjoint(names)
