"""An index of hash tables, opened to make its next generation: blocks are read as they are wanted."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.index.deleted import read_deleted
from indexmill.formats.lsh.index import LshFiles
from indexmill.formats.pagefile.closing import Closing
from indexmill.pipeline.generations.built import BuiltVectors
from indexmill.pipeline.generations.opened import (
    check_input,
    check_there,
    id_type_of,
    open_metadata,
    stated_parameters,
)
from indexmill.pipeline.kinds.lsh.parameters import LshParameters


class OpenedTables(Closing):
    """The parts of one index of hash tables.

    Attributes
    ----------
    path, name : Path
    manifest : Manifest
    parameters : LshParameters
        Of the build, with the solved values.
    files : LshFiles
    n, dim : int
        Vectors, and dimensions of the user's.
    metric : str
    metadata : pyarrow ParquetFile or None
        Rows in vector-id order.
    input_dtype, id_type : str
    ids_bytes : int
        Size of ids.imx.
    vector_ids : uint32 array, shape (n,)
        Those of slots, which are the same.
    user_ids : pyarrow Array or None
    deleted : uint32 array, shape (m,)
        Slots of deleted vectors, ascending.

    Raises
    ------
    InputError
        If there is no index at `path`.
    FormatError
        If a part is damaged or the parts do not belong together.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = self.name = Path(path)
        check_there(self.path)
        with ExitStack() as stack:
            self.files = stack.enter_context(LshFiles(self.path))
            self.manifest = manifest = self.files.manifest
            self.parameters = stated_parameters(LshParameters, self.path, manifest)
            self.metric = self.files.vectors.metric
            self.n, self.dim = self.files.shape.n_vectors, self.files.functions.dim - (self.metric == "ip")
            self.input_dtype = str(manifest.input.get("dtype"))
            self.user_ids: pa.Array | None = self.files.user_ids
            self.vector_ids: NDArray[np.uint32] = np.arange(self.n, dtype=np.uint32)
            self.id_type = id_type_of(self.user_ids)
            self.ids_bytes = os.stat(self.path / "ids.imx").st_size
            self.deleted = read_deleted(self.path, manifest, self.n)
            self.metadata = open_metadata(stack, self.path, manifest)
            check_input(self.path, manifest, self.metadata, self.n, self.dim, "functions.imx")
            self._stack = stack.pop_all()

    @property
    def n_in_tables(self) -> int:
        """Vectors whose entries are in the tables; those of all others are in added tables."""
        return self.files.pairs[0].shape.n_vectors

    @property
    def drift(self) -> dict[str, Any] | None:
        """What earlier appends wrote, None after a build."""
        return self.manifest.lsh.get("drift")

    @property
    def of_build(self) -> BuiltVectors:
        """Vectors of the last build."""
        return BuiltVectors.of(self.drift, self.n)

    @property
    def left(self) -> NDArray[np.int64]:
        """Slots of vectors that are not deleted, ascending: int64 (n - m,)."""
        living = np.ones(self.n, np.bool_)
        living[self.deleted] = False
        return np.flatnonzero(living)
