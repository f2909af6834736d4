"""The command line with a fourth kind of index, `flat`, which three tables name and no other file knows.

``python -m tests.support.new_kind`` runs `indexmill` with it: each line that it reads is a list of arguments in JSON,
and is answered by ``exit_code``, ``stdout`` and ``stderr``. The command ``write DIR`` writes a small index.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import typer
from pydantic import Field

from indexmill.formats import kinds as file_kinds
from indexmill.formats.index import ids
from indexmill.formats.kinds import KindFiles
from indexmill.formats.sources.source import VectorSource
from indexmill.jobs.kinds import ivf
from indexmill.jobs.kinds import registry as commands
from indexmill.jobs.kinds.kind import OwnFlags, payload
from indexmill.pipeline.cost.recommend import Advice, Cost, Task
from indexmill.pipeline.kinds import registry as builds
from indexmill.pipeline.kinds.common.ingest import InputSummary
from indexmill.pipeline.kinds.common.parameters import KindParameters, Metric
from indexmill.pipeline.kinds.common.shape import Shape, stored_vectors
from indexmill.pipeline.kinds.kind import Kind
from indexmill.pipeline.kinds.recipe import Recipe
from indexmill.pipeline.kinds.rehearsal import Rehearsal
from indexmill.pipeline.kinds.size import Job, Size
from indexmill.pipeline.mill.stages import Mill, Stage

PANEL = "Rows (kind flat)"


class FlatParameters(KindParameters):
    """What decides the bytes of a flat index."""

    kind: Literal["flat"] = "flat"
    metric: Metric = "l2"
    stride: Annotated[int, Field(ge=1)] = 4
    """Rows of a stride."""


class FlatSize(Size[Shape]):
    """Sizes that a plan can show; nothing is built."""

    def __init__(self, job: Job, source: VectorSource) -> None:
        super().__init__(job, source)
        self.shape = Shape(*stored_vectors(source, job.parameters.metric), self.side.ids)

    @classmethod
    def rehearsals(cls, job: Job, source: VectorSource) -> list[Rehearsal]:
        return []

    def stage_bytes(self) -> dict[str, int]:
        return {"ingest": self.shape.row_bytes}

    def stage_files(self) -> dict[str, int]:
        return {"ingest": self.shape.n * self.shape.row_bytes}

    def needed_scratch(self) -> tuple[int, dict[str, int]]:
        return sum(self.stage_files().values()), self.stage_files()

    def timed(self, place: Path) -> float:
        return 7.0

    def seconds_at(self, rates: float) -> dict[str, float]:
        return {"ingest": rates}

    def facts(self) -> dict[str, Any]:
        return {"flat": {"strides": -(-self.shape.n // self.job.parameters.stride)}}

    def recipe(self, mill: Mill, first: Stage, summary: InputSummary) -> Recipe:
        raise NotImplementedError

    def scratch_bound(self, need: int) -> int:
        return need


@dataclass(frozen=True, kw_only=True)
class FlatFlags(OwnFlags):
    """Options of `search` and of `score`."""

    PANEL: ClassVar = PANEL
    hurry: Annotated[bool | None, typer.Option("--hurry", help="Search fewer rows.")] = None


def advice(task: Task) -> Advice:
    """Say that rows suit few vectors."""
    size = task.n_vectors * task.vector_bytes
    return Advice(
        "rows", Cost(size, size, 0), 0 if task.n_vectors < 100 else None, "Rows suit (--kind flat)."
    )


def register() -> None:
    """Name the kind in the table of files, that of builds and that of commands."""
    file_kinds.KINDS["flat"] = KindFiles({"ids.imx": ids.KIND}, {}, "search", lambda name: None)
    builds.KINDS["flat"] = Kind(FlatParameters, lambda: FlatSize)
    answers = vars(ivf) | {
        "NAME": "flat",
        "PANELS": {PANEL: ()},
        "SHOWN": {"parameters": {"stride": int}},
        "advice": advice,
        "SearchFlags": FlatFlags,
        "ScoreFlags": FlatFlags,
        "summary": lambda manifest: {"rows": f"in strides of {manifest['parameters']['stride']}"},
        "plan_lines": lambda plan: {"strides": f"{plan['flat']['strides']:,}"},
        "held": lambda headers: {"ids": payload(headers, "ids.imx", "crc")},
    }
    kinds: Any = commands.KINDS
    kinds["flat"] = SimpleNamespace(**answers)


def write_index(folder: Path) -> None:
    """Write an index that has ids alone."""
    from indexmill.formats.index.manifest import Manifest, seal_files, write_manifest

    folder.mkdir()
    ids.write_ids(folder / "ids.imx", np.arange(10, dtype=np.uint32), None)
    build_id, files = seal_files(folder, ["ids.imx"])
    source = {"n_vectors": 10, "dim": 3, "dtype": "uint8", "fingerprint": "ab" * 32}
    manifest = Manifest(
        kind="flat", build_id=build_id, parameters={"stride": 4}, input=source, software={}, certificate=None,
        files=files,
    )  # fmt: skip
    write_manifest(folder, manifest)


def answer(arguments: list[str]) -> dict[str, Any]:
    """Run one command; return what it printed, and how it ended."""
    from tests.support.cli import run

    if arguments[0] == "write":
        write_index(Path(arguments[1]))
        return {}
    done = run(*arguments)
    return {"exit_code": done.exit_code, "stdout": done.stdout, "stderr": done.stderr}


if __name__ == "__main__":
    register()
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
