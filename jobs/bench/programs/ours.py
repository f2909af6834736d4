"""Our side: builds through the ``indexmill`` command, as a user would run them, and searches through Python."""

from __future__ import annotations

import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common.curves import Half, Row, Search, Span
from indexmill.jobs.bench.common.parameters import (
    ALPHA,
    BUILD_LIST_SIZE,
    BUILD_MEMORY,
    MAX_DEGREE,
    PQ_BYTES,
    SEED,
    THREADS,
)
from indexmill.jobs.bench.common.process import Usage, module, run_indexmill
from indexmill.jobs.bench.common.record import read_json
from indexmill.jobs.bench.common.session import Asking, Session
from indexmill.jobs.bench.programs.workspace import Workspace
from indexmill.pipeline.kinds.common.parameters import DEFAULT_SAMPLE

#: It fails where the kernel has no io_uring, instead of measuring something else.
ENGINE = "io_uring"
#: The builder's own number of centroid entries.
ENTRIES = 1024
#: The policies and entries that can be compared; `auto` stands for `navigation` in indexes that have such a graph.
POLICIES = ("beam", "page", "completion", "pipeline")
SEARCH_ENTRIES = ("medoid", "centroids", "navigation")
#: Rows of the sample from which the centroid of a list is trained, about: faiss warns of fewer than 39.
_ROWS_A_LIST = 40
#: DiskANN's reads in flight a query, and ours where the two searches are the same.
DISKANN_WIDTH = 4


@dataclass(frozen=True)
class Setting:
    """Keyword arguments of `Index.search`; the defaults are the reader's, with as many threads as DiskANN."""

    policy: str = "pipeline"
    entry: str = "navigation"
    beam_width: int = 8
    threads: int = THREADS
    inflight: int = 8
    deterministic: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return it for `Index.search` and for the record."""
        return asdict(self)


def lockstep(policy: str, entry: str, **others: Any) -> Setting:
    """Return a setting of a policy that reads hop by hop, with DiskANN's width; `pipeline` keeps its own."""
    width = {} if policy == "pipeline" else {"beam_width": DISKANN_WIDTH}
    return Setting(policy, entry, **{**width, **others})


class Ours(Asking):
    """A process that searches our indexes (`ours_serve`).

    Parameters
    ----------
    space : Workspace
    native : Path, optional
        Compiled module of the reader to use in place of the installed one.
    """

    def __init__(self, space: Workspace, native: Path | None = None) -> None:
        self.space = space
        command = module(sys.executable, "programs.ours_serve", space.data.folder)
        self.session = Session(
            command if native is None else [*command, str(native)], space.out / "ours-search.log"
        )

    def question(
        self,
        index: str,
        setting: Setting,
        size: int,
        queries: Half | Span,
        engine: str = ENGINE,
        way: str = "batch",
        times: int = 1,
    ) -> dict[str, Any]:
        """Return what to ask the process for one search of some queries."""
        first, last = self.space.span(queries)
        path = self.space.require(self.space.index(index))
        return {
            "index": str(path), "engine": engine, "setting": setting.to_dict(), "size": size, "first": first,
            "last": last, "way": way, "times": times,
        }  # fmt: skip

    def ask(self, index: str, setting: Setting, size: int, queries: Half | Span, **others: Any) -> Row:
        """Search some queries with one list size; `others` as for `question`."""
        row: Row = self.session.ask(**self.question(index, setting, size, queries, **others))
        return row

    def search(self, index: str, setting: Setting, **others: Any) -> Search:
        """Return the search of an index with a setting; `others` as for `question`."""
        return lambda size, half: self.ask(index, setting, size, half, **others)


@dataclass(frozen=True)
class Shape:
    """Parameters in which the indexes of a workspace differ.

    Attributes
    ----------
    order : str
        A page order of `indexmill build --order`.
    entries, max_degree, pq_bytes : int
    sample_vectors : int, optional
        Vectors that centroids and codes are trained on, where it is not the default number.
    """

    order: str
    entries: int = ENTRIES
    max_degree: int = MAX_DEGREE
    pq_bytes: int = PQ_BYTES
    sample_vectors: int | None = None

    @property
    def name(self) -> str:
        """Name of the index: ``star``, ``star-64`` (64 entries), ``star-R48``, ``star-of-1000000`` (a sample)."""
        name = self.order if self.entries == ENTRIES else f"{self.order}-{self.entries}"
        name = name if self.max_degree == MAX_DEGREE else f"{name}-R{self.max_degree}"
        return name if self.sample_vectors is None else f"{name}-of-{self.sample_vectors}"


def build(space: Workspace, base: Path, out: Path, shape: Shape, work: Path, **options: object) -> Usage:
    """Build an index of `base`; stages that `work` holds are not repeated."""
    return run_indexmill(
        space.out / f"{out.name}-build.log", "build", input=base, out=out, kind="graph", builder="vamana",
        R=shape.max_degree, L=BUILD_LIST_SIZE, alpha=ALPHA, pq_bytes=shape.pq_bytes, order=shape.order,
        pq_rotation="none", node_dtype="same", metric="l2", entries=shape.entries, seed=SEED, memory=BUILD_MEMORY,
        workers=THREADS, executor="local", work=work, sample_vectors=shape.sample_vectors, **options,
    )  # fmt: skip


def build_lists(base: Path, index: Path, lists: int, **options: object) -> Usage:
    """Build an index of inverted lists of `base`."""
    log = index.with_suffix(".log")
    return run_indexmill(log, "build", kind="ivf", input=base, out=index, lists=lists, **options)


def sample_of(lists: int) -> int:
    """Return the rows of the sample for so many lists: those of a build by default, or enough for each list."""
    return max(DEFAULT_SAMPLE, _ROWS_A_LIST * lists)


def build_fresh(space: Workspace, base: Path, out: Path, order: str, work: Path) -> Usage:
    """Build with an empty `work`: every stage runs."""
    shutil.rmtree(work, ignore_errors=True)
    return build(space, base, out, Shape(order), work)


def ensure(space: Workspace, order: str, entries: int = ENTRIES) -> str:
    """Build the index of an order and a number of entries unless it is there; return its name."""
    return ensure_shape(space, Shape(order, entries))


def ensure_shape(space: Workspace, shape: Shape) -> str:
    """Build an index unless it is there; return its name."""
    path = space.index(shape.name)
    if not _is_built(path, space, shape):
        print(f"  building {path.name}", file=sys.stderr, flush=True)
        build(space, space.data.base, path, shape, space.out / "work")
    return shape.name


def _is_built(path: Path, space: Workspace, shape: Shape) -> bool:
    """Whether there is an index of these vectors and this shape."""
    if not (path / "manifest.json").exists():
        return False
    made = manifest(path)
    same = all(
        made["parameters"][name] == getattr(shape, name) for name in ("entries", "max_degree", "pq_bytes")
    )
    return same and bool(made["input"]["n_vectors"] == space.data.shape()[0])


def manifest(index: Path) -> dict[str, Any]:
    """Read an index's manifest."""
    return read_json(index / "manifest.json")


def run_facts(index: Path) -> dict[str, Any]:
    """Read the costs of building an index from its run.json."""
    return read_json(index / "run.json")


def stage_seconds(index: Path) -> dict[str, float]:
    """Read the seconds of each stage from an index's run.json."""
    found: dict[str, float] = run_facts(index)["seconds"]
    return found
