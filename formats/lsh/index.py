"""All parts of an LSH index, opened (docs/formats/lsh.md)."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.index import ids
from indexmill.formats.index.manifest import read_manifest
from indexmill.formats.index.vectors import VECTORS_NAME, VectorsFile
from indexmill.formats.lsh import functions
from indexmill.formats.lsh.pair import open_pairs
from indexmill.formats.pagefile.closing import Closing
from indexmill.formats.pagefile.frame import check_agreement, corrupt


class LshFiles(Closing):
    """All parts of one LSH index, opened; every page file has the build id that the manifest states.

    Functions and ids are read completely; vectors, tables and buckets on demand.

    Attributes
    ----------
    manifest : Manifest
    shape : LshShape
        Of the whole index.
    pairs : tuple of TablePair
        Tables and their buckets: of the first slots, and of the others where there are added tables.
    functions : HashFunctions
    defaults : SearchDefaults
    vectors : VectorsFile
    user_ids : pyarrow Array or None
        User id of each slot; None if user ids are the vector ids, which are the slots.

    Raises
    ------
    FormatError
        If a part is damaged or the parts do not belong together.
    """

    def __init__(self, directory: str | Path) -> None:
        self.path = path = Path(directory)
        self.manifest = read_manifest(directory, ("lsh",))
        identity = self.manifest.page_file_build_id
        self.shape, self.functions, self.defaults = functions.read_functions(path / "functions.imx", identity)
        with ExitStack() as stack:
            self.vectors = stack.enter_context(VectorsFile(path / VECTORS_NAME, identity))
            self.pairs = open_pairs(stack, path, self.manifest, self.shape)
            vector_ids, self.user_ids = ids.read_ids(path / "ids.imx", identity)
            fields = (
                (VECTORS_NAME, "n_vectors", self.vectors.n_vectors, self.shape.n_vectors),
                (VECTORS_NAME, "dim", self.vectors.row_format.dim, self.functions.dim),
                ("ids.imx", "n_vertices", len(vector_ids), self.shape.n_vectors),
            )
            check_agreement(path, "functions.imx", fields)
            if not np.array_equal(vector_ids, np.arange(len(vector_ids))):
                raise corrupt(
                    path / "ids.imx", "section 'vector_ids'", "each slot its own vector id", "others"
                )
            self._stack = stack.pop_all()

    def cells(self, table: int, vectors: NDArray[np.floating | np.integer]) -> NDArray[np.float64]:
        """Return the grid positions t of `vectors` in one table, float64 (n_radii, n_functions, n_vectors)."""
        f = self.functions
        projected = (f.projections[table] @ vectors.astype(np.float32).T).astype(np.float64)
        offsets = f.offsets[:, table, :, None].astype(np.float64)
        cells: NDArray[np.float64] = (projected / f.radii[:, None, None] + offsets) / f.width
        return cells

    def hashes(self, table: int, cells: NDArray[np.float64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return what hashes of `cells`, shape (n_radii, n_functions, n), lead to.

        Returns
        -------
        buckets, rests : uint64 arrays, shape (n_radii, n)
            The rest of a hash are its bits above those that choose the bucket; a fingerprint is the lowest of them.
        """
        whole = np.floor(cells).astype(np.int64).view(np.uint64)
        v = (self.functions.multipliers[table][:, None] * whole).sum(axis=1, dtype=np.uint64) >> np.uint64(32)
        bits = np.uint64(self.shape.hash_bits)
        return v & (np.uint64(1) << bits) - np.uint64(1), v >> bits
