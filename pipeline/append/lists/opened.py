"""An index of inverted lists, opened to be extended; batches are opened as they are read."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.index.deleted import read_deleted
from indexmill.formats.index.manifest import read_manifest
from indexmill.formats.index.vectors import VECTORS_NAME, VectorsFile
from indexmill.formats.ivf.index import IvfFiles, vectors_problems
from indexmill.formats.pagefile.closing import Closing
from indexmill.formats.pagefile.frame import corrupt
from indexmill.pipeline.generations.built import BuiltVectors
from indexmill.pipeline.generations.opened import (
    check_input,
    check_there,
    id_type_of,
    open_metadata,
    stated_parameters,
)
from indexmill.pipeline.kinds.ivf.parameters import IvfParameters

#: Bytes of lists that one batch may have where the index has a single one: those fit the memory of any join.
_SINGLE_BATCH_BYTES = 64 << 20


class OpenedLists(Closing):
    """The parts of one index of inverted lists.

    Attributes
    ----------
    path : Path
    manifest : Manifest
    parameters : IvfParameters
        Of the build.
    files : IvfFiles
    n, dim : int
        Vectors, and dimensions of the user's.
    vectors : VectorsFile or None
        Exact vectors, where the index has them besides codes.
    metadata : pyarrow ParquetFile or None
        Rows in vector-id order.
    input_dtype, id_type : str
    ids_bytes : int
        Size of ids.imx.
    vector_ids : uint32 array, shape (n,)
        Those of slots, which are the same.
    user_ids : pyarrow Array or None
    deleted : uint32 array, shape (m,)
        Vector ids of deleted vectors, ascending.

    Raises
    ------
    FormatError
        If a part is damaged or the parts do not belong together.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = self.name = Path(path)
        check_there(self.path)
        self.manifest = manifest = read_manifest(self.path, ("ivf",))
        self.parameters = stated_parameters(IvfParameters, self.path, manifest)
        self.files = IvfFiles(self.path, manifest)
        shared = self.files.centroids
        self.n, self.dim = shared.n_vectors, shared.dim - (shared.metric == "ip")
        self.input_dtype = str(manifest.input.get("dtype"))
        self.user_ids: pa.Array | None = self.files.user_ids()
        self.vector_ids: NDArray[np.uint32] = np.arange(self.n, dtype=np.uint32)
        self.id_type = id_type_of(self.user_ids)
        self.ids_bytes = os.stat(self.path / "ids.imx").st_size
        self.deleted = read_deleted(self.path, manifest, self.n)
        for problem in vectors_problems(self.files):
            raise corrupt(self.path / VECTORS_NAME, "fields", "those of centroids.imx", problem)
        with ExitStack() as stack:
            self.vectors = None
            if any(entry.name == VECTORS_NAME for entry in manifest.files):
                self.vectors = stack.enter_context(VectorsFile(self.path / VECTORS_NAME, self.files.identity))
            self.metadata = open_metadata(stack, self.path, manifest)
            check_input(self.path, manifest, self.metadata, self.n, self.dim, "centroids.imx")
            self._stack = stack.pop_all()

    @property
    def drift(self) -> dict[str, Any] | None:
        """What earlier appends wrote, None after a build."""
        return self.manifest.ivf.get("drift")

    @property
    def of_build(self) -> BuiltVectors:
        """Vectors of the last build."""
        return BuiltVectors.of(self.drift, self.n)

    @property
    def at_build(self) -> int:
        """How many vectors the last build had, those that compactions removed since included."""
        recorded = (self.drift or {}).get("vectors_at_build")
        return self.of_build.n if recorded is None else int(recorded)

    @property
    def left(self) -> NDArray[np.int64]:
        """Vector ids of vectors that are not deleted, ascending: int64 (n - m,)."""
        living = np.ones(self.n, np.bool_)
        living[self.deleted] = False
        return np.flatnonzero(living)

    @property
    def most_vectors(self) -> int:
        """Vectors that a batch may have."""
        shared = self.files.centroids
        asked = self.parameters.batch_vectors or self.n
        if asked < self.at_build:
            return asked
        return max(asked, _SINGLE_BATCH_BYTES // ((shared.row_bytes + 4) * shared.copies))
