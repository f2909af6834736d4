"""Indexes of hash tables to measure: their shapes, where they lie, what they cost, and who searches them."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from indexmill.jobs.bench.common.dataset import Dataset
from indexmill.jobs.bench.common.process import module, run_measured
from indexmill.jobs.bench.common.record import load
from indexmill.jobs.bench.common.session import Session
from indexmill.jobs.bench.lsh.sets import Sets
from indexmill.jobs.bench.programs.workspace import BUILD_MEMORY, SEED, THREADS, Workspace, indexmill_command

Half = Literal["tune", "report"]
#: The engine that reads from storage: it fails where there is none, instead of measuring something else.
STORAGE = "io_uring"


@dataclass(frozen=True)
class Shape:
    """Parameters of an index beside the defaults, options of ``indexmill build --kind lsh``, under a name."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


#: As a user gets it; with multi-probe, T = 16, as few tables as then have the same success; half the tables, which let
#: more through; and as many of those as find nearly all.
BASE = Shape("base")
PROBED = Shape("probed", {"probes": 16})
LEAN = Shape("lean", {"gamma": 0.45})
SURE = Shape("sure", {"gamma": 0.45, "success": 0.98})
SHAPES = {shape.name: shape for shape in (BASE, PROBED, LEAN, SURE)}


@dataclass(frozen=True)
class Space:
    """Where the benchmark keeps what it makes.

    Attributes
    ----------
    sets : Sets
    out : Path
    rows : int or None
        Vectors of each set when it is only tried.
    """

    sets: Sets
    out: Path
    rows: int | None

    @property
    def results(self) -> Path:
        """The record that parts are added to."""
        return self.out / "lsh.json"

    def data(self, name: str) -> Dataset:
        """Return a set."""
        return self.sets.given[name]

    def graph_space(self, name: str) -> Workspace:
        """Return where the graph index of a set lies: ``OUT/graph-SET/indexmill-star``."""
        folder = self.out / f"graph-{name}"
        folder.mkdir(exist_ok=True)
        return Workspace(self.data(name), folder)

    def earlier(self, part: str) -> dict[str, Any]:
        """Return what an earlier part measured.

        Raises
        ------
        FileNotFoundError
            If it has not run.
        """
        found: dict[str, Any] | None = load(self.results).get("parts", {}).get(part)
        if found is None:
            raise FileNotFoundError(
                f"{self.results}: nothing of the part {part!r}; run it first (--parts {part})"
            )
        return found

    def ensure(self, name: str, data: Dataset, shape: Shape) -> Path:
        """Build an index of `data`, the set called `name`, unless it is there; return its directory."""
        path = self.out / f"{name}-{shape.name}.lsh"
        asked = {"options": shape.options, "n_vectors": data.shape()[0]}
        if _cost_file(path).exists() and build_cost(path)["asked"] == asked:
            return path
        print(f"  building {path.name}", file=sys.stderr, flush=True)
        options = [part for key, value in shape.options.items() for part in (f"--{key}", value)]
        usage = run_measured(
            [
                indexmill_command(), "build", "--kind", "lsh", "--input", data.base, "--out", path, *options,
                "--seed", SEED, "--memory", BUILD_MEMORY, "--workers", THREADS, "--force", "--json",
            ],
            path.with_suffix(".log"),
        )  # fmt: skip
        cost = {
            "asked": asked,
            **usage.to_dict(),
            "stage_s": json.loads((path / "run.json").read_text())["seconds"],
        }
        _cost_file(path).write_text(json.dumps(cost))
        return path


def build_cost(index: Path) -> dict[str, Any]:
    """Return what building an index cost: ``wall_s``, ``cpu_s``, ``peak_bytes``, ``stage_s``."""
    found: dict[str, Any] = json.loads(_cost_file(index).read_text())
    return found


def _cost_file(index: Path) -> Path:
    return index.with_suffix(".build.json")


def index_facts(index: Path) -> dict[str, Any]:
    """Return what tables say of an index, from its manifest."""
    manifest = json.loads((index / "manifest.json").read_text())
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


class Searcher:
    """A process that searches queries of one set with one method at a time; see `lsh_serve`.

    Parameters
    ----------
    data : Dataset
    log : Path
    wrap : callable, optional
        Makes the command that runs a command in a control group.
    """

    def __init__(self, data: Dataset, log: Path, wrap: Any = None) -> None:
        half, n_queries = data.halves()
        self.halves = {"tune": (0, half), "report": (half, n_queries)}
        command = module(sys.executable, "lsh.serve", data.folder)
        self.session = Session(wrap(command) if wrap else command, log)

    def __enter__(self) -> Searcher:
        return self

    def __exit__(self, *error: object) -> None:
        self.session.close()

    def ask(
        self, method: str, opened: dict[str, Any], search: dict[str, Any], k: int, half: Half, *,
        skip: int = 0, n_queries: int | None = None, times: int = 1, cold: bool = False, block: int = 0,
    ) -> dict[str, Any]:  # fmt: skip
        """Search a half of the queries, or `n_queries` of it after `skip`; return what `lsh_serve.ask` tells."""
        first, last = self.halves[half]
        first += skip
        last = min(last, first + n_queries) if n_queries else last
        row: dict[str, Any] = self.session.ask(
            method=method, open=opened, search=search, k=k, first=first, last=last, times=times, cold=cold, block=block,
        )  # fmt: skip
        return row
