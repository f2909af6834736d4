"""Recall curves: a cost at the recall that is compared, and the list sizes worth measuring."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, TypeAlias

#: Recall@10 at which costs are compared, and the one of the headline figures.
RECALLS = (0.90, 0.95, 0.98)
RECALL = 0.95
#: Recalls on the tuning queries at which the reported list sizes lie: around each of `RECALLS`, near enough for the
#: line between them, and far enough at the ends for the other queries, whose recall differs by up to a percent.
POINTS = (0.87, 0.91, 0.94, 0.96, 0.972, 0.988)
#: Recalls on the tuning queries between which settings are compared at `RECALL`; they move recall by a percent at most.
AROUND = (0.93, 0.97)
#: List sizes of a first sweep: steps of about 1.4, from the least that holds K results.
COARSE_SIZES = (10, 14, 20, 28, 40, 56, 80, 112, 160, 224)
#: The same for vectors whose codes are hard: they go on.
LONG_SIZES = (*COARSE_SIZES, 320, 448, 640, 896)
#: Inverted lists that a query probes in a first sweep, in steps of about 1.4 too.
PROBES = (1, 2, 3, 4, 6, 8, 11, 16, 22, 32, 45, 64, 90, 128, 181, 256, 362, 512)

Row: TypeAlias = dict[str, Any]
#: Rows of each search of a round.
Round: TypeAlias = dict[str, list[Row]]
Rows: TypeAlias = Sequence[Mapping[str, Any]]
Half: TypeAlias = Literal["tune", "report"]
#: The first of some queries, and the one after the last.
Span: TypeAlias = tuple[int, int]
#: A search of one half of the queries with one list size: its row of figures (see `serving.make_row`).
Search: TypeAlias = Callable[[int, Half], Row]


def value_at(rows: Rows, name: str, recall: float = RECALL, of: str = "recall") -> float | None:
    """Interpolate `name` linearly between the two rows, next by L, around `recall`; None without them.

    `of` is the key of the recall: ``recall`` for recall@10, ``recall1`` for recall@1.
    """
    ordered = sorted(rows, key=lambda row: row["L"])
    for low, high in pairwise(ordered):
        if low[of] <= recall <= high[of]:
            span = high[of] - low[of]
            part = (recall - low[of]) / span if span else 0.0
            return float(low[name] + part * (high[name] - low[name]))
    return None


def coarse_sweep(search: Search, most: float = POINTS[-1], sizes: Sequence[int] = COARSE_SIZES) -> list[Row]:
    """Search the tuning queries with growing list sizes until recall passes `most`, with two at least."""
    rows: list[Row] = []
    for size in sizes:
        rows.append(search(size, "tune"))
        if len(rows) > 1 and rows[-1]["recall"] >= most:
            break
    return rows


def sizes_at(rows: Rows, recalls: Sequence[float] = POINTS) -> list[int]:
    """List sizes with about these recalls by a first sweep; the ends of the sweep stand for what it did not reach."""
    ends = {False: min(row["L"] for row in rows), True: max(row["L"] for row in rows)}
    least = min(row["recall"] for row in rows)
    sizes = set()
    for recall in recalls:
        size = value_at(rows, "L", recall)
        sizes.add(ends[recall > least] if size is None else round(size))
    return sorted(sizes)


def sweep(search: Search, sizes: Sequence[int]) -> list[Row]:
    """Search the reported queries with each list size; the first search warms up and is not counted."""
    search(sizes[0], "report")
    return [search(size, "report") for size in sizes]


def trial(search: Search, sizes: Sequence[int], half: Half = "tune") -> list[Row]:
    """Search with each list size without warming up: to choose between settings, or where time does not count."""
    return [search(size, half) for size in sizes]


def tuned_trial(
    search: Search, sizes: Sequence[int] = COARSE_SIZES, tuning: Search | None = None
) -> tuple[list[Row], list[Row]]:
    """Sweep the tuning queries, then search the reported ones around `RECALLS` without warming up; rows of both.

    `tuning` is the search that sweeps, where another than `search` is faster and finds the same.
    """
    tuned = coarse_sweep(search if tuning is None else tuning, sizes=sizes)
    return tuned, trial(search, sizes_at(tuned), "report")


def summaries(rows: Sequence[Row]) -> list[Row]:
    """Return rows for the record: without what each query cost, figures to seven digits."""
    return [{name: _short(value) for name, value in row.items() if name != "queries"} for row in rows]


def tuned_sizes(searches: Mapping[str, Search], points: Sequence[float] = POINTS) -> dict[str, list[int]]:
    """Return the list sizes to report of each search, chosen on the tuning queries."""
    return {name: sizes_at(coarse_sweep(search), points) for name, search in searches.items()}


def in_turns(searches: Mapping[str, Search], sizes: Mapping[str, Sequence[int]], rounds: int) -> list[Round]:
    """Search the reported queries round by round, one search after the other in each."""
    return [{name: sweep(search, sizes[name]) for name, search in searches.items()} for _ in range(rounds)]


def at_recalls(figure: Callable[[float], Any], recalls: Sequence[float] = RECALLS) -> dict[str, Any]:
    """Return a figure at each recall, by its name in records."""
    return {key(recall): figure(recall) for recall in recalls}


def ratio(a: float | None, b: float | None) -> float | None:
    """Return a / b; None if either could not be measured."""
    return None if a is None or not b else a / b


def key(recall: float) -> str:
    """Return the name of a recall in records."""
    return f"{recall:.2f}"


def _short(value: Any) -> Any:
    return float(f"{value:.7g}") if isinstance(value, float) else value
