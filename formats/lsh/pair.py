"""A pair of files, of tables and of the buckets that their pointers lead to; an index has one or two of them.

Two, where vectors were appended since the tables were written: added tables hold the entries of those vectors alone.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from indexmill.formats.index.manifest import Manifest
from indexmill.formats.index.names import MANIFEST_NAME
from indexmill.formats.lsh import tables
from indexmill.formats.lsh.buckets import BucketsFile
from indexmill.formats.lsh.names import ADDED, names_of
from indexmill.formats.lsh.shape import LshShape
from indexmill.formats.lsh.tables import TablesFile
from indexmill.formats.pagefile.frame import corrupt
from indexmill.formats.pagefile.reader import PageFile


class TablePair(NamedTuple):
    """Tables and their buckets, opened; `shape` is theirs."""

    tables: TablesFile
    buckets: BucketsFile

    @property
    def shape(self) -> LshShape:
        """Sizes of both files."""
        return self.buckets.shape


def open_pairs(stack: ExitStack, path: Path, manifest: Manifest, shape: LshShape) -> tuple[TablePair, ...]:
    """Open the pairs of an index into `stack`: the tables, and behind them the added ones if there are some.

    Parameters
    ----------
    shape : LshShape
        Of the whole index.

    Raises
    ------
    FormatError
        If a file is damaged, does not belong to the index, or is there without its other half.
    """
    there = {entry.name for entry in manifest.files}.intersection(ADDED)
    if not there:
        return (_opened(stack, path, manifest, shape),)
    if len(there) < len(ADDED):
        expected = f"{' and '.join(ADDED)}, or neither"
        raise corrupt(path / MANIFEST_NAME, "files", expected, f"only {', '.join(there)}")
    with PageFile(path / ADDED.tables, tables.KIND) as file:
        first_slot = file.field("first_slot", 1, shape.n_vectors - 1)
    base = replace(shape, n_vectors=first_slot)
    return tuple(_opened(stack, path, manifest, one) for one in (base, base.beside(shape.n_vectors)))


def _opened(stack: ExitStack, path: Path, manifest: Manifest, shape: LshShape) -> TablePair:
    names = names_of(shape)
    ids = {entry.name: manifest.header_build_id(entry) for entry in manifest.files}
    return TablePair(
        stack.enter_context(TablesFile(path / names.tables, shape, ids[names.tables])),
        stack.enter_context(BucketsFile(path / names.buckets, shape, ids[names.buckets])),
    )
