"""Our side: builds through the ``indexmill`` command, as a user would run them, and searches through Python."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from curves import Half, Row, Search
from process import Usage, run_measured
from session import Session
from settings import Setting
from workspace import (
    ALPHA,
    BUILD_LIST_SIZE,
    BUILD_MEMORY,
    MAX_DEGREE,
    PQ_BYTES,
    SEED,
    THREADS,
    Workspace,
    indexmill_command,
)

_HERE = Path(__file__).parent
#: It fails where the kernel has no io_uring, instead of measuring something else.
ENGINE = "io_uring"
#: The builder's own number of centroid entries.
ENTRIES = 1024


class Ours:
    """A process that searches our indexes.

    Parameters
    ----------
    space : Workspace
    native : Path, optional
        Compiled module of the reader to use in place of the installed one.
    """

    def __init__(self, space: Workspace, native: Path | None = None) -> None:
        self.space = space
        command = [sys.executable, _HERE / "ours_serve.py", space.data.folder]
        self.session = Session(
            command if native is None else [*command, native], space.out / "ours-search.log"
        )

    def __enter__(self) -> Ours:
        return self

    def __exit__(self, *error: object) -> None:
        self.session.close()

    def question(
        self,
        index: str,
        setting: Setting,
        size: int,
        half: Half,
        engine: str = ENGINE,
        way: str = "batch",
        times: int = 1,
    ) -> dict[str, Any]:
        """Return what to ask the process for one search of one half of the queries."""
        first, last = self.space.halves[half]
        return {
            "index": str(self.space.require(self.space.index(index))),
            "engine": engine,
            "setting": setting.to_dict(),
            "size": size,
            "first": first,
            "last": last,
            "way": way,
            "times": times,
        }

    def ask(self, index: str, setting: Setting, size: int, half: Half, **others: Any) -> Row:
        """Search one half of the queries with one list size."""
        row: Row = self.session.ask(**self.question(index, setting, size, half, **others))
        return row

    def search(self, index: str, setting: Setting, **others: Any) -> Search:
        """Return the search of an index with a setting; `others` as for `question`."""
        return lambda size, half: self.ask(index, setting, size, half, **others)


def build(space: Workspace, base: Path, out: Path, order: str, work: Path, entries: int = ENTRIES) -> Usage:
    """Build an index of `base`, page order `order`; stages that `work` holds are not repeated."""
    return run_measured(
        [
            indexmill_command(), "build", "--input", base, "--out", out, "--kind", "graph",
            "--builder", "vamana", "-R", MAX_DEGREE, "-L", BUILD_LIST_SIZE, "--alpha", ALPHA,
            "--pq-bytes", PQ_BYTES, "--order", order, "--node-dtype", "same", "--metric", "l2",
            "--entries", entries, "--seed", SEED, "--memory", BUILD_MEMORY,
            "--workers", THREADS, "--executor", "local", "--work", work, "--force", "--json",
        ],
        space.out / f"{out.name}-build.log",
    )  # fmt: skip


def build_fresh(space: Workspace, base: Path, out: Path, order: str, work: Path) -> Usage:
    """Build with an empty `work`: every stage runs."""
    shutil.rmtree(work, ignore_errors=True)
    return build(space, base, out, order, work)


def ensure(space: Workspace, order: str, entries: int = ENTRIES) -> str:
    """Build the index of an order and a number of entries unless it is there; return its name."""
    name = order if entries == ENTRIES else f"{order}-{entries}"
    path = space.index(name)
    if not _is_built(path, space, entries):
        print(f"  building {path.name}", file=sys.stderr, flush=True)
        build(space, space.data.base, path, order, space.out / "work", entries)
    return name


def _is_built(path: Path, space: Workspace, entries: int) -> bool:
    """Whether there is an index of these vectors with a navigation graph: earlier versions made none."""
    if not (path / "manifest.json").exists():
        return False
    made = manifest(path)
    has_navigation = any(file["name"] == "navigation.imx" for file in made["files"])
    return (
        made["input"]["n_vectors"] == space.data.shape()[0]
        and made["parameters"]["entries"] == entries
        and has_navigation
    )


def manifest(index: Path) -> dict[str, Any]:
    """Read an index's manifest."""
    found: dict[str, Any] = json.loads((index / "manifest.json").read_text())
    return found


def stage_seconds(index: Path) -> dict[str, float]:
    """Read the seconds of each stage from an index's run.json."""
    found: dict[str, float] = json.loads((index / "run.json").read_text())["seconds"]
    return found
