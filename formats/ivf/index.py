"""An IVF index directory, opened, and the checks of its content (docs/formats/ivf.md)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from indexmill.formats.index.deleted import read_deleted_bits
from indexmill.formats.index.ids import read_ids
from indexmill.formats.index.manifest import FileEntry, Manifest, parse_manifest
from indexmill.formats.index.together import read_together
from indexmill.formats.index.vectors import VECTORS_NAME, VectorsFile
from indexmill.formats.ivf.batch import BatchFile, batch_name, batch_number
from indexmill.formats.ivf.centroids import CENTROIDS_NAME, read_centroids
from indexmill.formats.pagefile.frame import corrupt


class IvfFiles:
    """An IVF index, opened; manifest and centroids are read at once, batches are opened one by one.

    Parameters
    ----------
    directory : path
    manifest : Manifest, optional
        Of one of its generations; by default that of the present one.

    Attributes
    ----------
    manifest : Manifest
    centroids : Centroids
    batches : list of FileEntry
        Batch files by number; missing or damaged files are found when they are opened.
    deleted : uint8 array
        A bit for each vector id, 1 if it was deleted, as `read_deleted_bits` returns them.

    Raises
    ------
    OtherKind
        If it is an index of another kind.
    FormatError
        If the manifest, the centroids or the deletions cannot be used.
    """

    def __init__(self, directory: str | Path, manifest: Manifest | None = None) -> None:
        self.path = Path(directory)
        read_together(directory, lambda: self._read(manifest))

    def _read(self, manifest: Manifest | None) -> None:
        self.manifest = manifest or parse_manifest(self.path, ("ivf",))
        self.identity = self.manifest.page_file_build_id
        self.centroids = read_centroids(self.path / CENTROIDS_NAME, self.identity)
        self.batches = self._batches()
        self.deleted = read_deleted_bits(self.path, self.manifest, self.centroids.n_vectors)

    def _batches(self) -> list[FileEntry]:
        files = [file for file in self.manifest.files if batch_number(file.name) is not None]
        names = [batch_name(i) for i in range(self.centroids.n_batches)]
        if [file.name for file in files] != names:
            where = self.path / CENTROIDS_NAME
            raise corrupt(where, "field 'n_batches'", f"{len(files)} as in the manifest", len(names))
        return files

    def batch_sizes(self) -> list[int]:
        """Return the number of vectors of each batch, according to the manifest."""
        return [int(size) for size in self.manifest.ivf["batches"]]

    def open_batch(self, number: int) -> BatchFile:
        """Open the file of one batch.

        Raises
        ------
        FormatError
            If the file is missing, damaged or of another build.
        """
        path = self.path / self.batches[number].name
        c = self.centroids
        if not path.is_file():
            raise corrupt(path, "file", f"{self.batches[number].bytes} bytes", "no such file")
        identity = self.manifest.header_build_id(self.batches[number])
        return BatchFile(path, number, c.n_lists, c.row_bytes, identity, c.copies)

    def user_ids(self) -> pa.Array | None:
        """Return the user id of each vector by vector id, or None if user ids are the vector ids.

        Raises
        ------
        FormatError
            If ids.imx is damaged or disagrees with the centroids.
        """
        path = self.path / "ids.imx"
        vector_ids, user_ids = read_ids(path, self.identity)
        if len(vector_ids) != self.centroids.n_vectors or not np.array_equal(
            vector_ids, np.arange(len(vector_ids), dtype=np.uint32)
        ):
            what = f"0..{self.centroids.n_vectors - 1} in order"
            raise corrupt(path, "section 'vector_ids'", what, "others")
        return user_ids


def vectors_problems(index: IvfFiles) -> Iterator[str]:
    """Yield a message if the exact vectors, if there are any, disagree with the lists."""
    path, c = index.path / VECTORS_NAME, index.centroids
    if not any(file.name == VECTORS_NAME for file in index.manifest.files):
        return
    with VectorsFile(path, index.identity) as file:
        got = (file.n_vectors, file.row_format.dim, file.row_format.dtype, file.metric)
    wanted = (c.n_vectors, c.dim, c.dtype, c.metric)
    if got != wanted:
        yield str(corrupt(path, "fields", f"{wanted} as in {CENTROIDS_NAME}", got))
