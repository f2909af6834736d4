"""Indexes of hash tables to measure: their shapes, places and costs, and the process that searches them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from indexmill.builders.lsh.solve import solve
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset
from indexmill.jobs.bench.common.parameters import BUILD_MEMORY, SEED, THREADS
from indexmill.jobs.bench.common.process import module, run_indexmill
from indexmill.jobs.bench.common.record import read_json
from indexmill.jobs.bench.common.session import Asking, Session
from indexmill.jobs.bench.lsh.sets import Sets
from indexmill.jobs.bench.lsh.tune import KS
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.bench.programs.workspace import Workspace
from indexmill.pipeline.kinds.lsh.parameters import LshParameters
from indexmill.pipeline.kinds.lsh.shape import asked_of

Half = Literal["tune", "report"]
#: The engine that reads from storage: it fails where there is none, instead of measuring something else.
STORAGE = "io_uring"
#: What tells the tables of an index from others, and how far apart radii may be that two machines compute.
_TABLES, _SAME_RADIUS = ("n_functions", "n_tables", "n_radii"), 1e-6


@dataclass(frozen=True)
class Shape:
    """Options of ``indexmill build --kind lsh`` beside `SEED` and S of the formula (`Space.ensure`), with a name."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


#: Default parameters with the radii of the formula; with multi-probe, T = 16, as few tables as then have the same
#: success; half the tables, which let more through; and as many of those as find nearly all.
BASE = Shape("base")
PROBED = Shape("probed", {"probes": 16})
LEAN = Shape("lean", {"gamma": 0.45})
SURE = Shape("sure", {"gamma": 0.45, "success": 0.98})
SHAPES = {shape.name: shape for shape in (BASE, PROBED, LEAN, SURE)}


@dataclass(frozen=True)
class Space:
    """The run, and sets of vectors: parts work on it."""

    run: Run
    sets: Sets

    @property
    def out(self) -> Path:
        """Folder of indexes and logs."""
        return self.run.out

    def data(self, name: str) -> Dataset:
        """Return a set."""
        return self.sets.given[name]

    def graph_space(self, name: str) -> Workspace:
        """Return where the graph index of a set lies: ``OUT/graph-SET/indexmill-star``."""
        folder = self.out / f"graph-{name}"
        folder.mkdir(exist_ok=True)
        return Workspace(self.data(name), folder)

    def ensure(self, name: str, data: Dataset, shape: Shape) -> Path:
        """Build an index of `data`, the set called `name`, unless it is there; return its directory.

        It is given S of the formula, as searches are given theirs: where S is given, the radii are those of the
        formula, and a build that is free to choose may take others.
        """
        path, n_vectors = self.out / f"{name}-{shape.name}.lsh", data.shape()[0]
        options = {"candidates": formula_candidates(n_vectors, shape.options)} | shape.options
        asked = {"options": options, "n_vectors": n_vectors}
        if path.exists() and _cost_file(path).exists() and build_cost(path)["asked"] == asked:
            return path
        print(f"  building {path.name}", file=sys.stderr, flush=True)
        usage = run_indexmill(
            path.with_suffix(".log"), "build", kind="lsh", input=data.base, out=path, memory=BUILD_MEMORY,
            workers=THREADS, **({"seed": SEED} | options),
        )  # fmt: skip
        cost = {"asked": asked, **usage.to_dict(), "stage_s": ours.stage_seconds(path)}
        _cost_file(path).write_text(json.dumps(cost))
        return path

    def tuned(self, name: str, where: str) -> Iterator[tuple[int, Shape, Path, int]]:
        """Yield each k at which tables of a set reach the ratio: k, and shape, directory and S of the `fastest`."""
        for k in KS:
            if (best := self.fastest(name, k, where)) is not None:
                shape, candidates = best
                yield k, shape, self.measured(name, shape), candidates

    def measured(self, name: str, shape: Shape) -> Path:
        """Return the index of a set that the part *tables-SET* measured, built again if it is gone.

        Raises
        ------
        RuntimeError
            If its tables are others than those of the record, whose S is theirs.
        """
        index = self.ensure(name, self.data(name), shape)
        now, then = index_facts(index), self.run.earlier(f"tables-{name}")["indexes"][shape.name]["index"]
        same = all(now[fact] == then[fact] for fact in _TABLES)
        if not (same and np.allclose(now["radii"], then["radii"], rtol=_SAME_RADIUS, atol=0)):
            told = "; ".join(
                f"{when} {', '.join(f'{fact} {facts[fact]}' for fact in (*_TABLES, 'radii'))}"
                for when, facts in (("the record has", then), ("a build makes", now))
            )
            raise RuntimeError(
                f"{index}: other tables than part tables-{name} measured ({told}); run it again first"
            )
        return index

    def fastest(self, name: str, k: int, where: str) -> tuple[Shape, int] | None:
        """Return the index of a set with the most queries a second ``"memory"`` or ``"storage"``, and its S.

        The part *tables-SET* tells it; None if none reaches the ratio.
        """
        found = {
            shape: one[f"k{k}"]
            for shape, one in self.run.earlier(f"tables-{name}")["indexes"].items()
            if one[f"k{k}"]["candidates"] is not None
        }
        if not found:
            return None
        best = max(found, key=lambda shape: float(found[shape][where]["qps"]))
        return SHAPES[best], found[best]["candidates"]


def formula_candidates(n_vectors: int, options: dict[str, Any]) -> int:
    """Return S that follows from parameters and the number of vectors, whatever their distances."""
    return solve(asked_of(LshParameters(**options)), n_vectors, 1.0, np.empty(0)).candidates


def build_cost(index: Path) -> dict[str, Any]:
    """Return what building an index cost: ``wall_s``, ``cpu_s``, ``peak_bytes``, ``stage_s``."""
    return read_json(_cost_file(index))


def _cost_file(index: Path) -> Path:
    return index.with_suffix(".build.json")


def index_facts(index: Path) -> dict[str, Any]:
    """Return what tables say of an index, from its manifest."""
    manifest = ours.manifest(index)
    sizes = {file["name"]: file["bytes"] for file in manifest["files"]}
    lsh, parameters = manifest["lsh"], manifest["parameters"]
    names = (
        "ratio", "width", "gamma", "n_functions", "n_tables", "n_radii", "candidates", "probes", "hash_bits",
        "block_bytes",
    )  # fmt: skip
    return {
        **{name: parameters[name] for name in names},
        "n_vectors": manifest["input"]["n_vectors"],
        "radii": lsh["radii"],
        "rho": lsh["rho"],
        "success": lsh["success"],
        "bitmap_bytes": lsh["bitmap_bytes"],
        "longest_chain": max(lsh["longest_chain"]),
        "index_bytes": sum(size for name, size in sizes.items() if name != "vectors.imx"),
        "vector_bytes": sizes["vectors.imx"],
        "build_id": manifest["build_id"],
    }


class Searcher(Asking):
    """A process that searches queries of one set with one method at a time; see `lsh.serve`.

    Parameters
    ----------
    data : Dataset
    log : Path
    under : sequence of str
        A command that runs the process, such as ``prlimit`` with its options.
    """

    def __init__(self, data: Dataset, log: Path, under: Sequence[str] = ()) -> None:
        self.halves = data.both_halves()
        self.session = Session([*under, *module(sys.executable, "lsh.serve", data.folder)], log)

    def ask(
        self, method: str, opened: dict[str, Any], search: dict[str, Any], k: int, half: Half, *,
        skip: int = 0, n_queries: int | None = None, times: int = 1, cold: bool = False, block: int = 0,
    ) -> dict[str, Any]:  # fmt: skip
        """Search a half of the queries, or `n_queries` of it after `skip`; return what `lsh.serve.ask` tells."""
        first, last = self.halves[half]
        first += skip
        last = min(last, first + n_queries) if n_queries else last
        row: dict[str, Any] = self.session.ask(
            method=method, open=opened, search=search, k=k, first=first, last=last, times=times, cold=cold, block=block,
        )  # fmt: skip
        return row
