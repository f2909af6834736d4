"""A GPU for matrix products, used through CuPy.

Code for the GPU is written against the part of NumPy's interface that CuPy shares, and gets its array module from a
`Gpu`. With NumPy as the array module, the same code runs in main memory; that is how it is tested without a GPU.

CuPy was chosen because it has NumPy's interface, because its float32 products stay float32 by default, and because it
is small: 300 MB besides CUDA's libraries.

Floats are always added in a fixed order, so results repeat on one model of GPU with one block size. Another model, or
the processor, may round float32 differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

import numpy as np

from indexmill.formats.errors import BudgetError, ConfigError

#: Limits of a block's work space: bytes, and a share of the free memory. Both are powers of two, so that small changes
#: of free memory do not change shapes. One gibibyte keeps any GPU busy.
_MOST_BYTES, _SHARE = 1 << 30, 4
#: Work space below which no smaller block is tried.
_LEAST_BYTES = 1 << 20
#: CUBLAS_STATUS_NOT_INITIALIZED, the answer when a handle does not fit the memory, and CUBLAS_STATUS_ALLOC_FAILED.
_NO_MEMORY = (1, 3)
#: Bytes of rows sent to the GPU at once: enough for few calls, little enough for main memory.
SENT_BYTES = 64 << 20


class Gpu:
    """A GPU, or main memory in its place: its array module and its free memory, for one computation at a time.

    Parameters
    ----------
    arrays : module
        ``cupy``, or ``numpy`` in its place.
    name : str
        Name of the hardware, for messages and records.
    free_bytes : callable
        Returns the number of free bytes.
    host : callable
        Converts an array of the module to a NumPy array.
    ran_out : callable
        Returns whether an exception means that memory ran out.
    software : dict
        Names and versions of the libraries that decide results.
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
        """Reserve the GPU for one computation, and yield its array module; other threads wait.

        Parameters
        ----------
        what : str
            The purpose of the memory, for the error message.

        Raises
        ------
        BudgetError
            If memory runs out even with the smallest blocks.
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

        A block that runs out of memory is repeated at half its size, and the following blocks keep that size.

        Parameters
        ----------
        item_bytes : int
            Approximate memory of an item.
        block : callable
            Must allocate all it needs before it changes anything.
        most : int
            Upper limit of the items in a block.
        """
        least = max(1, _LEAST_BYTES // item_bytes)
        share = max(self.free_bytes() // _SHARE, 1)
        limit = min(_MOST_BYTES, 1 << (share.bit_length() - 1))
        size, first = min(most, max(least, limit // item_bytes)), 0
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
    """Return the GPU that parameter `compute` asks for, or None for ``"cpu"``.

    Raises
    ------
    ConfigError
        If `compute` is ``"cuda"`` and no GPU can be used.
    """
    return None if compute == "cpu" else cuda_gpu()


@cache
def cuda_gpu() -> Gpu:
    """Return CuPy's default GPU (``CUDA_VISIBLE_DEVICES`` chooses another) after a trial product on it.

    Raises
    ------
    ConfigError
        If CuPy is not installed, finds no GPU or lacks a CUDA library, or if products are less precise than float32.
    """
    try:
        import cupy
    except ImportError as error:
        raise ConfigError(
            f"compute: cuda needs CuPy ({error}); pip install 'indexmill[cuda12]' or 'indexmill[cuda13]', by the "
            "version of CUDA that nvidia-smi shows, or take compute cpu"
        ) from None
    try:
        # With TF32 the factors would be rounded, and the sum would be 64 exactly.
        trial = cupy.full((64, 64), 1 + 2.0**-12, cupy.float32)
        precise = float((trial @ trial).min()) > 64
        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    except Exception as error:  # the type depends on what is missing: driver, GPU or libraries
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
        out_of_memory,
        {"cupy": cupy.__version__, "cuda": str(cupy.cuda.runtime.runtimeGetVersion())},
    )


def out_of_memory(error: Exception) -> bool:
    """Whether CuPy had no memory for an array, or cuBLAS none for a handle or for its work space."""
    import cupy

    if isinstance(error, cupy.cuda.cublas.CUBLASError):
        return error.status in _NO_MEMORY
    return isinstance(error, cupy.cuda.memory.OutOfMemoryError)


def uploaded(arrays: Any, rows: Any, dtype: Any) -> Any:
    """Return NumPy `rows` as an array on the GPU, converted to `dtype` there, so that bytes are sent as bytes."""
    return sent(arrays, rows).astype(dtype)


def sent(arrays: Any, rows: Any) -> Any:
    """Return NumPy `rows` as an array on the GPU, sent in parts.

    CuPy pins, and keeps, as much main memory as is sent at once, rounded up to a power of two.
    """
    step = max(1, SENT_BYTES // max(1, rows[:1].nbytes))
    if len(rows) <= step:
        return arrays.asarray(np.ascontiguousarray(rows))
    uploaded_rows = arrays.empty(rows.shape, rows.dtype)
    for first in range(0, len(rows), step):
        uploaded_rows[first : first + step] = arrays.asarray(np.ascontiguousarray(rows[first : first + step]))
    return uploaded_rows
