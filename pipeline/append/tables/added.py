"""Added tables: the entries of vectors appended since the tables were written, in a pair of files beside these.

The tables stay as they are: an append takes over their files. An append to an index with added tables writes these
anew with its own vectors. So it costs the entries of all vectors added since the tables were written, a pass over
vectors and ids, and one over a pointer for every bucket. Added tables stay few: a bucket that both tables have takes a
search two reads more, and the files of each append hold all vectors that were added before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from indexmill.builders.lsh.rechain import Widths
from indexmill.formats.lsh.names import ADDED, BASE
from indexmill.formats.lsh.shape import LshShape
from indexmill.pipeline.generations.outputs import write_all
from indexmill.pipeline.generations.tables.chains import Chains
from indexmill.pipeline.generations.tables.form import TablesForm
from indexmill.pipeline.generations.tables.opened import OpenedTables
from indexmill.pipeline.generations.tables.parts import ChainPart
from indexmill.pipeline.generations.tables.written import Arrived, Written, noted_values, other_outputs

#: Vectors of the tables for each one that added tables may have at most: with more, an append writes all tables anew.
#: With a tenth nearly every bucket has two chains. docs/benchmarks.md (Indexes that live) has the time of each append
#: up to there, and of the one after it, which writes all tables anew.
LEAST_SHARE = 10


def shape_beside(tables: LshShape, n: int) -> LshShape | None:
    """Return the shape of the added tables of `n` vectors beside `tables`; None if these are written anew.

    The choice depends on numbers of vectors alone.
    """
    if (n - tables.n_vectors) * LEAST_SHARE > tables.n_vectors:
        return None
    return tables.beside(n)


class AddedTables:
    """Added tables of an index with the vectors of those it has, and new ones; see `NewTables`.

    Parameters
    ----------
    index : OpenedTables
    shape : LshShape
        As `shape_beside` returns.
    arrived : Arrived

    Attributes
    ----------
    stay : sequence of str
        Names of the files that the result takes over.
    """

    stay: Sequence[str] = BASE

    def __init__(self, index: OpenedTables, shape: LshShape, arrived: Arrived) -> None:
        self._index, self.shape, self._arrived = index, shape, arrived

    def write(self, directory: Path, scratch: Path, advance: Callable[[int], None]) -> Written:
        """Write all files but the tables that stay, and the manifest, to `directory`; `advance` counts entries.

        Raises
        ------
        IndexmillError
            As `Chains.write`.
        """
        index, shape = self._index, self.shape
        form, left = TablesForm.common([index]), [np.arange(index.n)]
        write_all(other_outputs(scratch, [index], left, self._arrived, form), directory, advance)
        numbers, widths = np.arange(index.n, dtype=np.uint32), Widths(shape.id_bits, shape.fingerprint_bits)
        before = [ChainPart(pair, numbers, widths) for pair in index.files.pairs[1:]]
        chains = Chains(shape, [*before, self._arrived.part(index.n, index, shape)])
        chains.write(directory / ADDED.tables, scratch, advance)
        added = {"vectors": shape.n_covered, "bitmap_bytes": shape.bitmap_bytes, **chains.facts()}
        return Written({**noted_values(scratch), "added": added}, None, [None])
