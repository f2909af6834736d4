"""Small indexes of inverted lists, and the rows of their lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

import indexmill
from indexmill.formats.ivf.index import IvfFiles
from indexmill.formats.ivf.lists import ListReader

LISTS = 7
SMALL: dict[str, Any] = {"kind": "ivf", "lists": LISTS, "batch_vectors": 150, "workers": 1}


def build(out: Path, vectors: NDArray[Any], ids: Any = None, metadata: Any = None, **how: Any) -> Path:
    indexmill.build(vectors, out, ids=ids, metadata=metadata, **{**SMALL, **how})
    return out


def rows_of(index: Path) -> dict[tuple[int, int], bytes]:
    """Bytes of each row, by its list and vector id."""
    found = {}
    with ListReader(IvfFiles(index)) as reader:
        for number in range(len(reader.sizes)):
            for ids, rows in zip(reader.ids(number), reader.rows(number), strict=True):
                found |= {(number, int(i)): row.tobytes() for i, row in zip(ids, rows, strict=True)}
    return found
