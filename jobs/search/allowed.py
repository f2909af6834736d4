"""`--allow FILE` and `--where CONDITION`: which vectors a search may return."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.reader.filters import as_mask
from indexmill.reader.set import IndexSet

if TYPE_CHECKING:
    from indexmill.reader.index import Index


def allowed_vectors(
    allow: Path | None, where: str | None, index: Index | IndexSet
) -> NDArray[np.bool_] | None:
    """Return the vectors that both options allow, bool, shape (n_vectors,); None without options.

    Raises
    ------
    InputError
        If one does not fit the index.
    """
    if where is None:
        return None if allow is None else read_allowed(allow, index)
    try:
        mask = index.where(where)
    except InputError as error:
        raise InputError(f"--{error}") from None
    return mask if allow is None else mask & read_allowed(allow, index)


def as_filter(allow: Path | None, where: str | None, index: Index | IndexSet) -> Any:
    """Return what both options allow as `search` takes it; None without options.

    Of one index that is a filter, made of a condition alone where there is no file: it may name a label, which its mask
    would not say. A set takes the condition, of which each part makes its filter.

    Raises
    ------
    InputError
        If one does not fit the index; a set refuses a condition when it is searched.
    """
    chosen = where if allow is None else allowed_vectors(allow, where, index)
    if chosen is None or isinstance(index, IndexSet):
        return chosen
    try:
        return index.filter(chosen)
    except InputError as error:
        raise InputError(f"--{error}") from None


def read_allowed(path: Path, index: Index | IndexSet) -> NDArray[np.bool_]:
    """Read a .npy file of one boolean a vector, or of vector ids; bool array, shape (n_vectors,).

    Raises
    ------
    InputError
        If the file is missing or no .npy file, or if its array does not fit the index.
    """
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"--allow: {path}: no such file; write one with numpy.save") from None
    except (OSError, ValueError, EOFError) as error:
        raise InputError(
            f"--allow: {path}: expected a .npy file of booleans or vector ids ({error}); write one with numpy.save"
        ) from None
    if not isinstance(array, np.ndarray):
        raise InputError(
            f"--allow: {path}: expected one array, got an .npz archive; write one with numpy.save"
        )
    try:
        return as_mask(array, len(index))
    except InputError as error:
        raise InputError(f"--allow: {path}: {str(error).removeprefix('allow: ')}") from None
