"""Where matrix products run besides the processor: a GPU, through CuPy.

All that runs there is written once, against the part of NumPy's interface that CuPy has, and gets its array module
from a `Gpu`; with NumPy in CuPy's place the same code runs in main memory, which is how it is tested where
there is no GPU. CuPy, because it has that interface, so that nothing is written twice; because a product of float32
is one of float32 unless it is told otherwise; and because it is small, 300 MB beside CUDA's libraries.

Nothing here adds floats in an order that may change, so that results repeat on one model of GPU with blocks of one
size. On another, or on the processor, float32 may round differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

import numpy as np

from indexmill.formats.errors import BudgetError, ConfigError

#: Work space of a block: at most this, and at most that share of what is free, both as powers of two, so that a little
#: more or less of free memory changes no shape. A gibibyte keeps any GPU busy.
_MOST_BYTES, _SHARE = 1 << 30, 4
#: Work space below which a smaller block is not worth trying.
_LEAST_BYTES = 1 << 20
#: CUBLAS_STATUS_NOT_INITIALIZED, with which no handle is made where there is no room for one, and _ALLOC_FAILED.
_NO_MEMORY = (1, 3)
#: Bytes of rows that travel to the GPU at once: few calls, and little main memory.
_SENT_BYTES = 64 << 20


class Gpu:
    """Memory that arrays lie in, and the array module that computes there; one computation at a time.

    Parameters
    ----------
    arrays : module
        ``cupy``, or ``numpy`` in its stead.
    name : str
        Of the hardware, for messages and records.
    free_bytes : callable
        Returns how many bytes are free.
    host : callable
        Turns an array of the module into one of NumPy.
    ran_out : callable
        Whether an exception means that there is too little memory.
    software : dict
        Name and version of the libraries that decide results.
    """

    def __init__(
        self,
        arrays: Any,
        name: str,
        free_bytes: Callable[[], int],
        host: Callable[[Any], Any],
        ran_out: Callable[[Exception], bool],
        software: dict[str, str] | None = None,
    ) -> None:
        self.name, self.free_bytes, self.host = name, free_bytes, host
        self.software = software or {}
        self._arrays, self._ran_out = arrays, ran_out
        self._lock = Lock()

    @contextmanager
    def use(self, what: str) -> Iterator[Any]:
        """Hold the GPU for one computation, and get its array module; threads wait for each other.

        Raises
        ------
        BudgetError
            If memory runs out even for the least blocks of `what`.
        """
        with self._lock:
            try:
                yield self._arrays
            except Exception as error:
                if not self._ran_out(error):
                    raise
                raise BudgetError(
                    f"compute: {self.name} has too little free memory for {what} ({error}); free some of it, or take "
                    "compute cpu"
                ) from None

    def blocks(self, n: int, item_bytes: int, block: Callable[[int, int], None], most: int = 1 << 62) -> None:
        """Call ``block(first, last)`` for consecutive parts of ``range(n)`` that fit the free memory.

        When one runs out of memory it is tried again at half its size, as are those that follow.

        Parameters
        ----------
        item_bytes : int
            What an item takes, about.
        block : callable
            Must change nothing before it has allocated all it needs.
        most : int
            Items of a block at most.
        """
        least = max(1, _LEAST_BYTES // item_bytes)
        share = max(self.free_bytes() // _SHARE, 1)
        room = min(_MOST_BYTES, 1 << (share.bit_length() - 1))
        size, first = min(most, max(least, room // item_bytes)), 0
        while first < n:
            last = min(first + size, n)
            try:
                block(first, last)
            except Exception as error:
                if not self._ran_out(error) or last - first <= least:
                    raise
                size = (last - first) // 2
                continue
            first = last


def open_gpu(compute: str) -> Gpu | None:
    """Return where products run by the parameter of that name: None for ``"cpu"``.

    Raises
    ------
    ConfigError
        If it is ``"cuda"`` and no GPU can be used.
    """
    return None if compute == "cpu" else cuda_gpu()


@cache
def cuda_gpu() -> Gpu:
    """Return the GPU that CuPy takes by default (``CUDA_VISIBLE_DEVICES`` chooses another), having tried it.

    Raises
    ------
    ConfigError
        If CuPy is not installed, finds no GPU or misses a library of CUDA, or products are less precise than float32.
    """
    try:
        import cupy
    except ImportError as error:
        raise ConfigError(
            f"compute: cuda needs CuPy ({error}); pip install 'indexmill[cuda12]' or 'indexmill[cuda13]', by the "
            "version of CUDA that nvidia-smi shows, or take compute cpu"
        ) from None
    try:
        # No sum of such products is a whole number, unless TF32 has rounded them.
        trial = cupy.full((64, 64), 1 + 2.0**-12, cupy.float32)
        precise = float((trial @ trial).min()) > 64
        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    except Exception as error:  # of many types, by what is missing: driver, GPU, libraries
        raise ConfigError(
            f"compute: cuda: CuPy {cupy.__version__} cannot compute on a GPU here ({type(error).__name__}: {error}); "
            "nvidia-smi tells whether there is one; pip install 'indexmill[cuda12]' or 'indexmill[cuda13]' for the "
            "CUDA that it shows, or take compute cpu"
        ) from None
    if not precise:
        raise ConfigError(
            "compute: cuda: products of float32 are rounded to TF32 here; unset CUPY_TF32 and NVIDIA_TF32_OVERRIDE"
        )
    pool = cupy.get_default_memory_pool()
    return Gpu(
        cupy,
        properties["name"].decode(),
        lambda: int(cupy.cuda.runtime.memGetInfo()[0] + pool.free_bytes()),
        cupy.asnumpy,
        _ran_out,
        {"cupy": cupy.__version__, "cuda": str(cupy.cuda.runtime.runtimeGetVersion())},
    )


def _ran_out(error: Exception) -> bool:
    """Whether CuPy had no memory for an array, or cuBLAS none for a handle or for work space of its own."""
    import cupy

    if isinstance(error, cupy.cuda.cublas.CUBLASError):
        return error.status in _NO_MEMORY
    return isinstance(error, cupy.cuda.memory.OutOfMemoryError)


def uploaded(arrays: Any, rows: Any, dtype: Any) -> Any:
    """Return rows of NumPy as an array of the GPU, converted there: bytes travel as bytes."""
    return sent(arrays, rows).astype(dtype)


def sent(arrays: Any, rows: Any) -> Any:
    """Return rows of NumPy as an array of the GPU, having sent some after the other.

    For what travels at once CuPy pins as much main memory, rounded up to a power of two, and keeps it.
    """
    some = max(1, _SENT_BYTES // max(1, rows[:1].nbytes))
    if len(rows) <= some:
        return arrays.asarray(np.ascontiguousarray(rows))
    there = arrays.empty(rows.shape, rows.dtype)
    for first in range(0, len(rows), some):
        there[first : first + some] = arrays.asarray(np.ascontiguousarray(rows[first : first + some]))
    return there
