"""Names of the files of tables and of buckets."""

from __future__ import annotations

from typing import NamedTuple

from indexmill.formats.lsh.shape import LshShape


class PairNames(NamedTuple):
    """Names of a file of tables and of the file of their buckets."""

    tables: str
    buckets: str


#: Of every index, and of those that have added tables.
BASE, ADDED = PairNames("tables.imx", "buckets.imx"), PairNames("added-tables.imx", "added-buckets.imx")


def names_of(shape: LshShape) -> PairNames:
    """Return the names of the files of that shape."""
    return ADDED if shape.is_added else BASE
