"""A faiss file at the place where the fields of its graph, or of its inverted lists, begin."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.imports.faiss_file import ID_MAPS, FaissFile, IndexHeader


class OpenedFaiss(NamedTuple):
    """A faiss file that was read up to the name of its index.

    Attributes
    ----------
    file : FaissFile
    kind : str
        The four characters that name the index.
    outer : IndexHeader or None
        Header of the IndexIDMap around the index, if there is one.
    """

    file: FaissFile
    kind: str
    outer: IndexHeader | None

    def ids_at_end(self, n: int) -> NDArray[np.int64] | None:
        """Map the ids behind an index of `n` vectors, and check that the file ends there.

        Returns
        -------
        int64 array, shape (n,), or None
            None without an IndexIDMap.

        Raises
        ------
        CorruptFile
            If there is not one id for each vector, or more bytes follow.
        """
        ids = None if self.outer is None else self.file.ids(self.outer, n)
        self.file.check_end()
        return ids


def open_faiss(path: str | Path) -> OpenedFaiss:
    """Read a faiss file up to the name of its index, past the header of an IndexIDMap.

    Raises
    ------
    InputError
        If there is no such file.
    FormatError
        If the file is damaged, or its metric is not l2 or ip.
    """
    file = FaissFile(path)
    kind, outer = file.name("kind of index"), None
    if kind in ID_MAPS:
        outer = file.header()
        kind = file.name("kind of the index within")
    return OpenedFaiss(file, kind, outer)
