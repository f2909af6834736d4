"""The workers of a platform, such as a host and its drives, and how long each takes for some batches.

Equation 8 of the Batch Similarity Search paper (section 5.5): T(d) = T_loading(d) + T_searching(d) of every worker.
Both terms are known exactly up to the worker's two rates: lists have so many bytes, and those that queries probe hold
so many vectors.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import ConfigError, FormatError
from indexmill.formats.ivf.batch import list_pages
from indexmill.formats.ivf.index import IvfFiles
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.pipeline.join.spans import Span

_MB, _MILLION = 1e6, 1e6
_MOST_WORKERS = 256
#: Places where batches may be cut: of all together, about, and of each at least.
_CUTS, _LEAST_CUTS = 65_536, 16


@dataclass(frozen=True)
class Worker:
    """A worker that loads batches and searches them.

    Attributes
    ----------
    name : str
    load_mb_s : float, optional
        Megabytes (10^6) that it loads a second; None: measured with a piece of a batch.
    compare_m_s : float, optional
        Millions of vectors that it compares with queries a second; None: measured likewise.
    overlap : bool
        Whether it loads the next batch while it searches one. The paper's workers do not.
    throttle : bool
        Whether it is slowed to the rates declared, to emulate a slower one.
    threads : int
    watts, idle_watts : float
        While it works and while it waits.
    path : str, optional
        Folder of its own storage, to which its batches are copied: it reads no others. None: it reads the index.
    """

    name: str
    load_mb_s: float | None = None
    compare_m_s: float | None = None
    overlap: bool = True
    throttle: bool = False
    threads: int = 1
    watts: float = 0.0
    idle_watts: float = 0.0
    path: str | None = None

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

    def seconds(self, n_bytes: float, compares: float) -> float:
        """Return the seconds of loads and of searches: their sum, or the longer of both if they overlap."""
        load, search = self.load_seconds(n_bytes), self.search_seconds(compares)
        return max(load, search) if self.overlap else load + search


@dataclass(frozen=True)
class Piece:
    """A batch or a part of it, which a worker loads and searches at once.

    Attributes
    ----------
    span : Span
    n_bytes, compares : float
        Bytes to load; pairs of a query and a vector to compare.
    rows : float
        Vectors in its lists.
    """

    span: Span
    n_bytes: float
    compares: float
    rows: float

    @property
    def cost(self) -> tuple[float, float]:
        """Bytes and compares."""
        return self.n_bytes, self.compares


@dataclass(frozen=True)
class Costs:
    """The costs of searching some lists, on any worker: in the order of batches, and of the lists in their files.

    Consecutive lists of a batch that are not told apart share an entry.

    Attributes
    ----------
    spans : int64 array, shape (n, 3)
        Lists of each entry, as in `Span`.
    n_bytes, compares, rows : float64 arrays, shape (n,)
        As in `Piece`.
    """

    spans: NDArray[np.int64]
    n_bytes: NDArray[np.float64]
    compares: NDArray[np.float64]
    rows: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.spans)

    @classmethod
    def even(cls, batches: int, lists: int, n_bytes: float, compares: float, rows: float) -> Costs:
        """Return the costs of equal batches of equal lists; bytes, compares and rows are of all together."""
        n = batches * lists
        numbers, entries = np.divmod(np.arange(n), lists)
        spans = np.stack([numbers, entries, entries + 1], axis=1)
        return cls(spans, *(np.full(n, whole / n) for whole in (n_bytes, compares, rows)))

    @property
    def edges(self) -> NDArray[np.int64]:
        """Entries that do not follow their predecessor in a batch, and the number of entries; ascending."""
        batch, first, last = self.spans.T
        begins = (batch[1:] != batch[:-1]) | (first[1:] != last[:-1])
        return np.unique(np.concatenate([[0], np.flatnonzero(begins) + 1, [len(self)]]))

    def pieces(self, first: int, last: int) -> list[Piece]:
        """Return the entries from `first` up to but not including `last` as few pieces."""
        inside = self.edges[(self.edges > first) & (self.edges < last)].tolist()
        cuts = [first, *inside, last] if last > first else []
        return [self._piece(a, b) for a, b in pairwise(cuts)]

    def first_of(self, at: int, share: float) -> tuple[Piece, list[Span]]:
        """Return the first lists of run `at` of lists that follow each other, and those behind them, if any.

        Parameters
        ----------
        share : float
            Of all compares that the first lists have, unless the run has fewer.
        """
        first, end = self.edges[at : at + 2].tolist()
        compares = np.cumsum(self.compares[first:end])
        last = first + 1 + int(np.searchsorted(compares, min(share * self.compares.sum(), compares[-1])))
        return self._piece(first, last), [self._piece(last, end).span] if last < end else []

    def _piece(self, first: int, last: int) -> Piece:
        batch, begin, _ = self.spans[first].tolist()
        sums = (float(column[first:last].sum()) for column in (self.n_bytes, self.compares, self.rows))
        return Piece(Span(batch, begin, int(self.spans[last - 1, 2])), *sums)


def costs_of(files: IvfFiles, probes: NDArray[np.int64], spans: Sequence[Span]) -> Costs:
    """Return the costs of lists of an index; those of a batch that cannot be opened are the average of the others.

    Parameters
    ----------
    probes : int64 array, shape (n_lists,)
        Queries that probe each list.
    spans : sequence of Span
    """
    known: dict[Span, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
    cuts = max(_LEAST_CUTS, _CUTS // max(1, len(spans)))
    for span in spans:
        try:
            known[span] = _list_costs(files, probes, span, cuts)
        except (FormatError, OSError):
            continue  # the search finds it again and names it
    totals = [columns.sum(axis=1) for _, columns in known.values()]
    mean = np.mean(totals, axis=0) if totals else np.ones(3)
    parts, columns = [np.empty((0, 3), np.int64)], [np.empty((3, 0))]
    for span in spans:
        ends, costs = known.get(span, (np.array([span.last]), mean[:, None]))
        starts = np.concatenate([[span.first], ends[:-1]])
        parts.append(np.stack([np.full(len(ends), span.batch), starts, ends], axis=1))
        columns.append(costs)
    return Costs(np.concatenate(parts), *np.concatenate(columns, axis=1))


def _list_costs(
    files: IvfFiles, probes: NDArray[np.int64], span: Span, cuts: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return where a batch may be cut, ends (n,), and the costs up to there, (3, n): bytes, compares and rows."""
    with files.open_batch(span.batch) as batch:
        entries = batch.directory[span.first : span.last]
        sizes = entries["size"].astype(np.int64)
        n_bytes = list_pages(sizes, batch.row_bytes) * PAGE_BYTES
        columns = np.stack([n_bytes, probes[entries["list"]] * sizes, sizes]).astype(np.float64)
    loaded = np.cumsum(n_bytes)
    inside = np.searchsorted(loaded, loaded[-1] * np.arange(1, cuts) / cuts) + 1
    ends = np.unique(np.append(inside, len(entries)))
    return span.first + ends, np.add.reduceat(columns, np.append(0, ends[:-1]), axis=1)


def worker_seconds(worker: Worker, pieces: Iterable[tuple[float, float]]) -> float:
    """Return when a worker has finished pieces, one after the other: T(d) of Equation 8.

    Deviation: with `overlap` a piece is loaded while the one before it is searched.

    Parameters
    ----------
    pieces : iterable of (float, float)
        `Piece.cost` of each.
    """
    costs = list(pieces)
    loads = [worker.load_seconds(n_bytes) for n_bytes, _ in costs]
    searches = [worker.search_seconds(compares) for _, compares in costs]
    if not worker.overlap or not loads:
        return sum(loads) + sum(searches)
    inside = sum(max(load, search) for load, search in zip(loads[1:], searches, strict=False))
    return loads[0] + inside + searches[-1]


def read_platform(path: str | Path) -> list[Worker]:
    """Read the workers of a TOML file: tables ``[[worker]]`` with the attributes of `Worker`, and ``count``.

    The path of workers with a count has ``{}`` where their number stands.

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
    if count == 1:
        return [made]
    if made.path is not None and "{}" not in made.path:
        raise ConfigError(
            f"{where}: path: {made.path} is one folder, for {count} workers; write {{}} where their number stands"
        )
    return [
        replace(made, name=f"{made.name}-{i}", path=made.path and made.path.replace("{}", str(i)))
        for i in range(count)
    ]


def _check(where: str, key: str, value: Any) -> None:
    """Refuse a value of the wrong type or range."""
    if key == "name":
        return
    if key == "path":
        right, what = isinstance(value, str) and Path(value).is_absolute(), "the absolute path of a folder"
    elif key in ("overlap", "throttle"):
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
