"""The workers of a platform, such as a host and its drives, and how long each takes for some batches.

Equation 8 of the Batch Similarity Search paper (section 5.5): T(d) = T_loading(d) + T_searching(d) of every worker.
Both terms are known exactly up to the worker's two rates: a batch has so many bytes, and the lists that queries probe
in it hold so many vectors.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import ConfigError, FormatError
from indexmill.formats.ivf.index import IvfFiles

_MB, _MILLION = 1e6, 1e6
_MOST_WORKERS = 256


@dataclass(frozen=True)
class Worker:
    """A worker that loads batches and searches them.

    Attributes
    ----------
    name : str
    load_mb_s : float, optional
        Megabytes (10^6) that it loads a second; None: measured with its first batch.
    compare_m_s : float, optional
        Millions of vectors that it compares with queries a second; None: measured likewise.
    overlap : bool
        Whether it loads the next batch while it searches one. The paper's workers do not.
    throttle : bool
        Whether it is slowed to the rates declared, to emulate a slower one.
    threads : int
    watts, idle_watts : float
        While it works and while it waits.
    """

    name: str
    load_mb_s: float | None = None
    compare_m_s: float | None = None
    overlap: bool = True
    throttle: bool = False
    threads: int = 1
    watts: float = 0.0
    idle_watts: float = 0.0

    @property
    def measured(self) -> bool:
        """Whether a rate is to be measured, because none is declared."""
        return self.load_mb_s is None or self.compare_m_s is None

    def load_seconds(self, n_bytes: float) -> float:
        """Return the seconds of a load at the declared rate."""
        assert self.load_mb_s is not None
        return n_bytes / (self.load_mb_s * _MB)

    def search_seconds(self, compares: float) -> float:
        """Return the seconds of a search at the declared rate."""
        assert self.compare_m_s is not None
        return compares / (self.compare_m_s * _MILLION)

    def rate(self, n_bytes: float, compares: float) -> float:
        """Return how many batches of a size it finishes in a second, after the first one."""
        load, search = self.load_seconds(n_bytes), self.search_seconds(compares)
        return 1 / (max(load, search) if self.overlap else load + search)


@dataclass(frozen=True)
class Costs:
    """The cost of searching each batch, on any worker.

    Attributes
    ----------
    n_bytes, compares : float64 arrays, shape (n_batches,)
        Bytes to load; pairs of a query and a vector to compare.
    """

    n_bytes: NDArray[np.float64]
    compares: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.n_bytes)


def costs_of(files: IvfFiles, probes: NDArray[np.int64]) -> Costs:
    """Return the costs of an index's batches; one that cannot be opened costs as much as the others do on average.

    Parameters
    ----------
    probes : int64 array, shape (n_lists,)
        Queries that probe each list.
    """
    n_bytes, compares = np.full(len(files.batches), np.nan), np.full(len(files.batches), np.nan)
    for number in range(len(files.batches)):
        try:
            with files.open_batch(number) as batch:
                entries = batch.directory
                n_bytes[number] = batch.lists_bytes
                compares[number] = float(probes[entries["list"]] @ entries["size"].astype(np.int64))
        except (FormatError, OSError):
            continue  # the search finds it again and names it
    known = ~np.isnan(n_bytes)
    for column in (n_bytes, compares):
        column[~known] = column[known].mean() if known.any() else 1.0
    return Costs(n_bytes, compares)


def worker_seconds(worker: Worker, costs: Costs, batches: Sequence[int]) -> float:
    """Return when a worker has finished batches, one after the other: T(d) of Equation 8.

    Deviation: with `overlap` a batch is loaded while the one before it is searched.
    """
    loads = [worker.load_seconds(costs.n_bytes[number]) for number in batches]
    searches = [worker.search_seconds(costs.compares[number]) for number in batches]
    if not worker.overlap or not loads:
        return sum(loads) + sum(searches)
    inside = sum(max(load, search) for load, search in zip(loads[1:], searches, strict=False))
    return loads[0] + inside + searches[-1]


def read_platform(path: str | Path) -> list[Worker]:
    """Read the workers of a TOML file: tables ``[[worker]]`` with the attributes of `Worker`, and ``count``.

    Raises
    ------
    ConfigError
        Naming the worker and the key.
    """
    try:
        document = tomllib.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"platform: {path}: {error}; expected a TOML file of [[worker]] tables") from None
    tables = document.get("worker")
    if set(document) != {"worker"} or not isinstance(tables, list) or not tables:
        raise ConfigError(
            f"platform: {path}: expected [[worker]] tables and nothing else, got {sorted(document)}"
        )
    workers = []
    for place, table in enumerate(tables):
        workers += _workers(f"platform: {path}: worker {place + 1}", table)
    if len(workers) > _MOST_WORKERS:
        raise ConfigError(f"platform: {path}: {len(workers)} workers; give at most {_MOST_WORKERS}")
    return workers


def _workers(where: str, table: Any) -> list[Worker]:
    known = {field.name: field for field in fields(Worker)}
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise ConfigError(f"{where}: expected a table with a name, a string; add one")
    where = f"{where} ({table['name']})"
    unknown = sorted(set(table) - set(known) - {"count"})
    if unknown:
        raise ConfigError(f"{where}: unknown key {unknown[0]!r}; choose from count, {', '.join(known)}")
    for key, value in table.items():
        _check(where, key, value)
    count = table.get("count", 1)
    made = Worker(**{key: value for key, value in table.items() if key != "count"})
    if made.throttle and made.measured:
        raise ConfigError(f"{where}: throttle needs the rates to slow it to; give load_mb_s and compare_m_s")
    return [made] if count == 1 else [replace(made, name=f"{made.name}-{i}") for i in range(count)]


def _check(where: str, key: str, value: Any) -> None:
    """Refuse a value of the wrong type or range."""
    if key == "name":
        return
    if key in ("overlap", "throttle"):
        right, what = isinstance(value, bool), "true or false"
    elif key in ("count", "threads"):
        right = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST_WORKERS
        what = f"a whole number from 1 to {_MOST_WORKERS}"
    else:
        least = 0.0 if "watts" in key else 1e-9
        right = isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value < 1e12
        what = "a number of at least 0" if "watts" in key else "a number above 0"
    if not right:
        raise ConfigError(f"{where}: {key}: expected {what}, got {value!r}; correct it")
