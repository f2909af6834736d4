"""`--allow FILE` and `--where CONDITION`: which vectors a search may return."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.reader.filters import Allowed, as_mask
from indexmill.reader.set import IndexSet

if TYPE_CHECKING:
    from indexmill.reader.index import Index


def allowed_vectors(allow: Path | None, where: str | None, index: Index) -> Allowed | None:
    """Return the vectors that both options allow, for `Index.filter` and for the truth; None without options.

    The condition is evaluated once. Without a file it may name a label, which its mask would not say.

    Raises
    ------
    InputError
        If one does not fit the index.
    """
    if allow is not None:
        return Allowed(_mask(allow, where, index))
    if where is None:
        return None
    with _as_option():
        return index.allowed(where)


def as_filter(allow: Path | None, where: str | None, index: Index | IndexSet) -> Any:
    """Return what both options allow as `search` takes it; None without options.

    A set takes a condition alone, of which each part makes its filter.

    Raises
    ------
    InputError
        If one does not fit the index; a set refuses a condition when it is searched.
    """
    if isinstance(index, IndexSet):
        return where if allow is None else _mask(allow, where, index)
    chosen = allowed_vectors(allow, where, index)
    return None if chosen is None else index.filter(chosen)


def _mask(allow: Path, where: str | None, index: Index | IndexSet) -> NDArray[np.bool_]:
    """Return the vectors of a file that also satisfy a condition, if there is one; bool, shape (n_vectors,)."""
    if where is None:
        return read_allowed(allow, index)
    with _as_option():
        mask = index.where(where)
    return mask & read_allowed(allow, index)


@contextmanager
def _as_option() -> Iterator[None]:
    """Name `--where` in an error, as the reader names ``where``."""
    try:
        yield
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
