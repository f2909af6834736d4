"""Arrays as strict as a GPU's, in main memory: code that runs on them uses CuPy's interface and none of NumPy's.

As CuPy does, they refuse arrays of NumPy as operands and become one only by `host`. They know only the
functions and methods listed here, which a test looks up in CuPy where that is installed; and may be given a limit, over
which there is no memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from indexmill.builders.gpu import Gpu, cuda_gpu
from indexmill.formats.errors import ConfigError

#: Functions of the module that may be called, with the keywords that they may be called with.
FUNCTIONS = {
    "add": {"out"}, "arange": set(), "asarray": set(), "ascontiguousarray": set(), "empty": set(), "fmin": {"out"},
    "matmul": set(), "maximum": set(), "where": set(), "zeros": set(),
}  # fmt: skip
#: Methods of arrays, likewise.
METHODS = {
    "argmin": {"axis"}, "astype": set(), "min": {"axis"}, "reshape": set(), "sum": {"axis"}, "transpose": set(),
}  # fmt: skip
_SCALARS = (bool, int, float)


class NoRoom(MemoryError):
    """Stands for CuPy's OutOfMemoryError."""


class StrictArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that only knows its own kind."""

    __array_priority__ = 1000

    def __init__(self, module: StrictArrays, values: np.ndarray) -> None:
        self._module, self._values = module, values
        module.check(values)

    def __array__(self, *arguments: Any, **keywords: Any) -> np.ndarray:
        raise TypeError("an array of a GPU does not become one of NumPy by itself")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None) -> StrictArray:
        assert method == "__call__"
        plain = [_plain(each) for each in inputs]
        with np.errstate(all="ignore"):  # a GPU does not report it
            if out is None:
                return StrictArray(self._module, ufunc(*plain))
            ufunc(*plain, out=_plain(out[0]), casting="same_kind")
        return out[0]

    def __getattr__(self, name: str) -> Any:
        if name in ("shape", "dtype", "size", "ndim"):
            return getattr(self._values, name)
        if name == "T":
            return StrictArray(self._module, self._values.T)
        if name not in METHODS:
            raise AttributeError(name)

        def method(*arguments: Any, **keywords: Any) -> StrictArray:
            assert set(keywords) <= METHODS[name], (name, keywords)
            return StrictArray(self._module, np.asarray(getattr(self._values, name)(*arguments, **keywords)))

        return method

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: Any) -> StrictArray:
        return StrictArray(self._module, np.asarray(self._values[_index(index)]))

    def __setitem__(self, index: Any, value: Any) -> None:
        self._values[_index(index)] = _plain(value)


class StrictArrays:
    """Stands for the module ``cupy``.

    Parameters
    ----------
    limit : int
        Bytes of an array at most.

    Attributes
    ----------
    refused : int
        Arrays for which there was no memory.
    largest_sent : int
        Bytes of the largest array that came from NumPy.
    """

    inf = np.inf

    def __init__(self, limit: int = 1 << 62) -> None:
        self._limit, self.refused, self.largest_sent = limit, 0, 0

    def check(self, values: np.ndarray) -> None:
        """Refuse an array that is too large."""
        if values.nbytes > self._limit:
            self.refused += 1
            raise NoRoom(f"{values.nbytes} bytes")

    def __getattr__(self, name: str) -> Any:
        if name not in FUNCTIONS:
            raise AttributeError(name)

        def function(*arguments: Any, **keywords: Any) -> StrictArray:
            assert set(keywords) <= FUNCTIONS[name], (name, keywords)
            out = keywords.pop("out", None)
            taken = arguments if name == "asarray" else [_plain(each) for each in arguments]
            if name == "asarray":
                self.largest_sent = max(self.largest_sent, arguments[0].nbytes)
            with np.errstate(all="ignore"):
                result = getattr(np, name)(*taken, **({} if out is None else {"out": _plain(out)}))
            return StrictArray(self, np.array(result)) if out is None else out

        return function

    @staticmethod
    def host(array: StrictArray) -> np.ndarray:
        """Return an array of NumPy."""
        return array._values.copy()


def ran_out(error: Exception) -> bool:
    """Whether there was no memory, as a GPU's libraries say it in more than one way."""
    return isinstance(error, NoRoom) or error.args == ("no work space",)


def gpu_problem() -> str | None:
    """Say why there is no GPU to test on, None where there is one."""
    try:
        cuda_gpu()
    except ConfigError as error:
        return f"no GPU can be used: {error}"
    return None


def strict_gpu(
    limit: int = 1 << 62, free: int = 1 << 28, name: str = "strict arrays"
) -> tuple[Gpu, StrictArrays]:
    """Return a GPU with arrays of `limit` bytes at most, which says that `free` are free, and its module."""
    module = StrictArrays(limit)
    software = {"cupy": "0.0 (strict)"}
    return Gpu(module, name, lambda: free, module.host, ran_out, software), module


def _plain(value: Any) -> Any:
    """Return the values of one of our arrays; scalars, shapes and types are their own."""
    if isinstance(value, StrictArray):
        return value._values
    if isinstance(value, np.ndarray):
        raise TypeError("an array of NumPy among those of a GPU")
    assert isinstance(value, (*_SCALARS, tuple, type, np.dtype)), type(value)
    return value


def _index(index: Any) -> Any:
    parts = index if isinstance(index, tuple) else (index,)
    plain = tuple(part if part is None or isinstance(part, slice) else _plain(part) for part in parts)
    return plain if isinstance(index, tuple) else plain[0]
