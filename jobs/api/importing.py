"""Options and runs of an import, shared by `indexmill import` and `indexmill.import_index`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from indexmill.formats.errors import ConfigError
from indexmill.formats.location import local_path
from indexmill.jobs.choices import one_of, size_of

if TYPE_CHECKING:
    from indexmill.formats.imports.index import ImportedIndex
    from indexmill.formats.imports.lists import ImportedLists
    from indexmill.pipeline.imports.graph import ImportOptions
    from indexmill.pipeline.mill.progress import Progress

#: Programs whose indexes are read.
PROGRAMS = ("diskann", "faiss", "svs", "jvector")


def open_imported(
    program: str, path: str | os.PathLike[str], dtype: str | None, pq_bytes: int | None
) -> ImportedIndex | ImportedLists:
    """Open the index of another program, with its own codes unless `pq_bytes` is given.

    Raises
    ------
    ConfigError
        If the program is unknown, or its files state their type and `dtype` is given.
    IndexmillError
        If the index cannot be read.
    """
    if one_of(program, PROGRAMS, "program") != "diskann" and dtype is not None:
        raise ConfigError(f"dtype: {dtype}: files of {program} state their type; leave it out")
    path = local_path(path, "path")
    if program == "faiss":
        from indexmill.formats.imports.faiss import open_faiss

        return open_faiss(path)
    if program == "svs":
        from indexmill.formats.imports.svs import open_svs

        return open_svs(path)
    if program == "jvector":
        from indexmill.formats.imports.jvector import open_jvector

        return open_jvector(path, with_codes=pq_bytes is None)
    from indexmill.formats.imports.diskann import open_diskann

    return open_diskann(path, dtype, with_codes=pq_bytes is None)


def run_imported(
    index: ImportedIndex | ImportedLists, options: ImportOptions, progress: Progress | None
) -> dict[str, Any]:
    """Import a graph or inverted lists; returns the manifest."""
    from indexmill.formats.imports.index import ImportedIndex
    from indexmill.formats.imports.lists import ImportedLists
    from indexmill.pipeline.imports.graph import run_import
    from indexmill.pipeline.imports.lists import run_import_lists

    runs: dict[str, Any] = {ImportedIndex.becomes: run_import, ImportedLists.becomes: run_import_lists}
    manifest: dict[str, Any] = runs[index.becomes](index, options, progress)
    return manifest


def import_options(
    out: str | os.PathLike[str], ids: Any, id_column: str | None, memory: int | str | None = None, **how: Any
) -> ImportOptions:
    """Check the options of an import.

    Parameters
    ----------
    ids : path or sequence of int, str or bytes, optional
    memory : int or str, optional
        In bytes or as ``"4GiB"``.
    **how
        Other attributes of `ImportOptions`.

    Raises
    ------
    ConfigError, InputError
        Naming the option, or the file of ids.
    """
    from indexmill.formats.imports.ids import read_id_file
    from indexmill.jobs.api.ids import given_ids
    from indexmill.pipeline.imports.graph import ImportOptions

    found, id_type = (None, "none") if ids is None else given_ids(ids, id_column, read_id_file)
    size = None if memory is None else size_of(memory, "memory")
    return ImportOptions(local_path(out, "out"), ids=found, id_type=id_type, memory=size, **how)
