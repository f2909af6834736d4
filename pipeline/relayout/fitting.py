"""An order by name or from a file, fitted to an unpacked index within a limit of work."""

from __future__ import annotations

from dataclasses import asdict, dataclass, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import InputError
from indexmill.formats.pagefile.mapped import scratch_array
from indexmill.layout.order import Work
from indexmill.layout.portfolio import ORDERS
from indexmill.pipeline.relayout.unpacked import UnpackedIndex

#: Name in the manifest of an order that came from a file.
FROM_FILE = "file"


@dataclass(frozen=True)
class Fitted:
    """An order and how it came to be.

    Attributes
    ----------
    name : str
        A key of `layout.portfolio.ORDERS`, or `FROM_FILE`.
    order : uint32 array, shape (n,)
        Vector id in each slot.
    parameters : dict
        Fields of the order's class.
    work, work_limit : int, int or None
        Units spent and allowed (`layout.order.Work`).
    choice : dict or None
        Why it was chosen; None where it was asked for.
    query_log : dict or None
        What a log of queries changed; None without a log.
    """

    name: str
    order: NDArray[np.uint32]
    parameters: dict[str, Any]
    work: int = 0
    work_limit: int | None = None
    choice: dict[str, Any] | None = None
    query_log: dict[str, Any] | None = None


def fit(
    name: str,
    unpacked: UnpackedIndex,
    nodes_per_page: int,
    seed: int,
    threads: int,
    work_limit: int | None,
    scratch: Path,
) -> Fitted:
    """Fit the order called `name`; its mapped files are in the directory `scratch`."""
    given, work = (unpacked.graph, unpacked.points, nodes_per_page, seed), Work(work_limit)
    order = ORDERS[name].fit(*given, threads=threads, work=work, scratch=partial(scratch_array, scratch))
    return Fitted(name, order, parameters_of(name), work.spent, work_limit)


def parameters_of(name: str) -> dict[str, Any]:
    """Return the fields of the order called `name`."""
    kind = ORDERS[name]
    return asdict(kind) if is_dataclass(kind) and not isinstance(kind, type) else {}


def read_order(path: Path, n: int) -> Fitted:
    """Read an order from a .npy file of n integers: the vector id in each slot.

    Raises
    ------
    InputError
        If it is no permutation of [0, n), naming the position.
    """
    try:
        order = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(
            f"{path}: not a .npy file that can be read: {error}; write one with numpy.save"
        ) from error
    what = f"expected a permutation of the vector ids 0 to {n - 1}"
    if (
        not isinstance(order, np.ndarray)
        or order.ndim != 1
        or order.dtype.kind not in "iu"
        or len(order) != n
    ):
        got = f"{order.dtype} of shape {order.shape}" if isinstance(order, np.ndarray) else "an archive"
        raise InputError(f"{path}: {what}, got {got}; slot s holds vector order[s]")
    wrong = np.flatnonzero((order < 0) | (order >= n))
    if len(wrong):
        raise InputError(f"{path}: position {wrong[0]}: {what}, got {order[wrong[0]]}")
    first = np.full(n, -1, np.int64)
    first[order[::-1]] = np.arange(n - 1, -1, -1)  # the earliest position of each value is written last
    again = np.flatnonzero(first[order] != np.arange(n))
    if len(again):
        value = order[again[0]]
        raise InputError(
            f"{path}: position {again[0]}: {what}, got {value} again, after position {first[value]}"
        )
    return Fitted(FROM_FILE, order.astype(np.uint32), {})
