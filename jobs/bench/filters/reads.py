"""Parts: page reads of filtered searches at equal recall, and of an index of the allowed vectors alone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.curves import (
    LONG_SIZES,
    RECALL,
    Search,
    coarse_sweep,
    sizes_at,
    summaries,
    trial,
    value_at,
)
from indexmill.jobs.bench.common.dataset import read_bin, write_bin
from indexmill.jobs.bench.common.intervals import curve, figure_at, ratio_at
from indexmill.jobs.bench.embed import formats
from indexmill.jobs.bench.embed.sets import SENTENCES, Case
from indexmill.jobs.bench.filters.columns import KINDS, ONE_IN, make_filters
from indexmill.jobs.bench.filters.searches import LABEL, Searches
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.bench.programs.workspace import Workspace
from indexmill.reader.index import Index

SETS = ("sift1m", SENTENCES, "text40k")
#: Name of the index of sentences whose nodes hold the codes of their neighbours.
ON_PAGE = "on-page"
#: Filters of which indexes of the allowed vectors alone are built, one a label; `drawn` would be as `ids`.
ALONE = tuple((kind, one_in) for kind in ("ids", "near", "far") for one_in in ONE_IN)
#: How it is searched without a filter.
SETTING = ours.Setting(entry="centroids")
#: Filters of labels within which an index has edges.
WITHIN = tuple((kind, one_in) for kind in ("drawn", "near", "far") for one_in in (100, 10))
#: Builds an index, by its name, of the vectors of a file.
Build = Callable[[str, Path], object]
#: L of searches without a filter, before they are divided by the share that is allowed.
LONGER_SIZES = (10, 14, 20, 28)
#: Doublings of the shortest list with a filter: the shortest without one may find nearly everything.
DOUBLINGS = 6


@dataclass(frozen=True)
class Place:
    """A set of vectors and its index: as DiskANN's for bytes, by default for embeddings."""

    name: str
    space: Workspace

    def index(self) -> Path:
        """Return the index; it is built unless it is there."""
        if self.name == "sift1m":
            return self.space.index(ours.ensure(self.space, "star"))
        formats.ensure(Case(self.name, self.space, "cosine"))
        return self.space.index("default")


def place(run: Run, name: str) -> Place:
    """Return where a set's index lies."""
    out = run.out / name
    out.mkdir(parents=True, exist_ok=True)
    return Place(name, Workspace(run.sets[name], out))


def measure(run: Run, name: str) -> dict[str, Any]:
    """Compare filtered searches of a set with those along edges alone, by kind of filter and by share."""
    where = place(run, name)
    data, index = where.space.data, Index(where.index(), ids="memory")
    base, queries = read_bin(data.base), np.asarray(read_bin(data.query))
    found = []
    for kind in KINDS:
        for one_in in ONE_IN:
            print(f"  {name}: {kind}, one in {one_in}", file=sys.stderr, flush=True)
            searches = Searches(index, data, make_filters(kind, one_in, base, queries))
            row = _compare(searches.filtered, searches.longer)
            found.append({"kind": kind, "one_in": one_in, "allowed": searches.filters.allowed, **row})
    return {"rows": found, "by": {f"{row['kind']}{row['one_in']}": row["ratio"] for row in found}}


def _compare(filtered: Search, longer: Search) -> dict[str, Any]:
    sizes = sizes_at(coarse_sweep(filtered, sizes=LONG_SIZES))
    sizes = sorted({*sizes, *(sizes[0] << i for i in range(1, DOUBLINGS + 1))})
    mine = trial(filtered, sizes, "report")
    theirs = trial(longer, LONGER_SIZES, "report")
    at = formats.common_recall([mine])
    beside = formats.common_recall([mine, theirs])
    curves = [curve([rows], "pages_read") for rows in (mine, theirs)]
    return {
        "recall": at,
        "pages_read": figure_at(curves[0], at),
        **{name: value_at(mine, name, at) for name in ("scanned", "code_distances", "hops", "cpu_us")},
        "ratio_recall": beside,
        "longer": figure_at(curves[1], beside),
        "ratio": ratio_at(curves[0], curves[1], beside),
        "rows": summaries(mine),
        "longer_rows": summaries(theirs),
    }


def alone(run: Run) -> dict[str, Any]:
    """Search indexes of the allowed vectors alone: what edges within a label, laid out for it, could reach at best."""
    where = place(run, "sift1m")

    def build(name: str, base: Path) -> None:
        work = where.space.out / f"work-{name}"
        ours.build(where.space, base, where.space.index(name), ours.Shape("star"), work)

    return _alone(where, where.index(), build)


def alone_on_page(run: Run) -> dict[str, Any]:
    """Search such indexes of sentences, with the codes of neighbours in their nodes."""
    where = place(run, SENTENCES)
    case = Case(where.name, where.space, "cosine")
    formats.ensure(case, ON_PAGE, codes_on_page=True)

    def build(name: str, base: Path) -> None:
        formats.build(case, name, base=base, codes_on_page=True)

    return _alone(where, where.space.index(ON_PAGE), build, f"{ON_PAGE}-")


def _alone(where: Place, whole: Path, build: Build, prefix: str = "") -> dict[str, Any]:
    data = where.space.data
    base, queries = read_bin(data.base), np.asarray(read_bin(data.query))
    found = []
    for kind, one_in in ALONE:
        print(f"  {prefix}alone: {kind}, one in {one_in}", file=sys.stderr, flush=True)
        filters = make_filters(kind, one_in, base, queries)
        of_label = {}
        for label in np.unique(filters.asked).tolist():
            name = f"{prefix}{'ids' if kind == 'ids' else 'cell'}-{one_in}-{label}"
            index = _of_label(where.space, name, base[filters.labels == label], build)
            of_label[label] = Index(index, ids="memory")
        searches = Searches(Index(whole, ids="memory"), data, filters)
        of = partial(searches.alone, of_label)
        swept = _swept(of)
        reads = curve([swept], "pages_read")
        at = formats.common_recall([swept])
        row = {"recall": at, "pages_read": figure_at(reads, at), "rows": summaries(swept)}
        found.append({"kind": kind, "one_in": one_in, **row})
    return {"indexes": found}


def _of_label(space: Workspace, name: str, vectors: Any, build: Build) -> Path:
    """Return an index of `vectors`; it is built unless it is there."""
    base, index = space.out / f"{name}{space.data.base.suffix}", space.index(name)
    if not (index / "manifest.json").exists():
        write_bin(base, vectors)
        build(name, base)
        base.unlink()
    return index


def on_page(run: Run) -> dict[str, Any]:
    """Search an index of sentences with the codes of neighbours in its nodes, by kind of filter and by share."""
    where = place(run, SENTENCES)
    data = where.space.data
    formats.ensure(Case(where.name, where.space, "cosine"), ON_PAGE, codes_on_page=True)
    index = Index(where.space.index(ON_PAGE), ids="memory")
    base, queries = read_bin(data.base), np.asarray(read_bin(data.query))
    found = []
    for kind in KINDS:
        for one_in in ONE_IN:
            print(f"  on-page: {kind}, one in {one_in}", file=sys.stderr, flush=True)
            searches = Searches(index, data, make_filters(kind, one_in, base, queries))
            rows = _swept(searches.filtered)
            at = formats.common_recall([rows])
            found.append(
                {
                    "kind": kind,
                    "one_in": one_in,
                    "allowed": searches.filters.allowed,
                    "recall": at,
                    "pages_read": figure_at(curve([rows], "pages_read"), at),
                    "scanned": value_at(rows, "scanned", at),
                    "highest_recall": max(row["recall"] for row in rows),
                    "rows": summaries(rows),
                }
            )
    return {"rows": found}


def labels(run: Run) -> dict[str, Any]:
    """Compare searches for a label, with edges within it, and searches for all vectors, with those of `on_page`."""
    where = place(run, SENTENCES)
    data, case = where.space.data, Case(where.name, where.space, "cosine")
    formats.ensure(case, ON_PAGE, codes_on_page=True)
    today = Index(where.space.index(ON_PAGE), ids="memory")
    base, queries = read_bin(data.base), np.asarray(read_bin(data.query))
    found, columns = [], {}
    plain = formats.page_reads(where.space, ON_PAGE, SETTING)
    for kind, one_in in WITHIN:
        print(f"  labels: {kind}, one in {one_in}", file=sys.stderr, flush=True)
        filters = make_filters(kind, one_in, base, queries)
        name = f"{ON_PAGE}-labels-{'drawn' if kind == 'drawn' else 'cell'}-{one_in}"
        index = Index(_with_labels(case, name, base, filters.labels), ids="memory")
        if name not in columns:
            apart = formats.page_reads(where.space, name, SETTING)
            at = min(plain.highest_recall, apart.highest_recall, RECALL)
            columns[name] = {
                "labels": ours.manifest(index.path)["graph"]["labels"],
                "recall": at,
                "pages_read": figure_at(apart.curve, at),
                "ratio": ratio_at(apart.curve, plain.curve, at),
            }
        mine = _swept(Searches(index, data, filters, by_label=True).filtered)
        theirs = _swept(Searches(today, data, filters).filtered)
        at = formats.common_recall([mine, theirs])
        curves = [curve([rows], "pages_read") for rows in (mine, theirs)]
        found.append(
            {
                "kind": kind,
                "one_in": one_in,
                "allowed": filters.allowed,
                "recall": at,
                "pages_read": figure_at(curves[0], at),
                "today": figure_at(curves[1], at),
                "ratio": ratio_at(curves[0], curves[1], at),
                "rows": summaries(mine),
                "today_rows": summaries(theirs),
            }
        )
    by = {f"{row['kind']}{row['one_in']}": row["ratio"] for row in found}
    return {"rows": found, "by": by, "indexes": columns}


def _swept(search: Search) -> list[Any]:
    """Search with the list sizes that matter for a search, and report them."""
    return trial(search, sizes_at(coarse_sweep(search, sizes=LONG_SIZES)), "report")


def _with_labels(case: Case, name: str, base: Any, column: Any) -> Path:
    """Return an index with edges within the labels of a column; it is built unless it is there."""
    index = case.space.index(name)
    if not (index / "manifest.json").exists():
        table = case.space.out / f"{name}.parquet"
        vectors = pa.FixedSizeListArray.from_arrays(np.ascontiguousarray(base).ravel(), base.shape[1])
        pq.write_table(pa.table({"vector": vectors, LABEL: column}), table)
        formats.build(
            case,
            name,
            base=table,
            codes_on_page=True,
            column="vector",
            metadata_columns=LABEL,
            label_column=LABEL,
        )
        table.unlink()
    return index
