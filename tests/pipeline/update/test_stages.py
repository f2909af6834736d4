"""Runs on finished indexes say beforehand which stages they will have, for `indexmill status`; so do plans."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.indexes.deleted import KINDS, NAMES, VECTORS, Built, build_all

import indexmill
from indexmill.jobs.api.append import open_files
from indexmill.jobs.updatefile import given_to
from indexmill.pipeline.append.run import run_append
from indexmill.pipeline.compact.run import run_compact
from indexmill.pipeline.generations.run import RunOptions
from indexmill.pipeline.merge.run import run_merge
from indexmill.pipeline.mill.peak import PeakMemory
from indexmill.pipeline.mill.progress import Silent
from indexmill.pipeline.mill.status import StatusFile
from indexmill.pipeline.mill.store import StageStore
from indexmill.pipeline.relayout.run import LayoutRequest, run_layout
from indexmill.pipeline.update.plan import plan_update
from indexmill.pipeline.update.run import run_update
from indexmill.pipeline.update.spec import UpdateSpec


class Heard(Silent):
    """What a run says of its stages: `foreseen` when its first one begins, and each as it begins."""

    def __init__(self) -> None:
        self.expected: list[str] = []
        self.foreseen: list[list[str]] = []
        self.begun: list[str] = []

    def expect(self, stages: Sequence[str]) -> None:
        self.expected = list(stages)

    def start(self, stage: str, total: int, unit: str) -> None:
        self.foreseen.append(self.expected)
        self.begun.append(stage)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build_all(tmp_path_factory.mktemp("stages"))


def more(folder: Path, n: int = 4) -> Callable[[Sequence[str]], Any]:
    """Vectors to add, with ids."""
    rows = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS[:n].ravel()), VECTORS.shape[1])
    pq.write_table(pa.table({"id": [f"new-{i}" for i in range(n)], "vector": rows}), folder / "add.parquet")
    return lambda names: open_files([str(folder / "add.parquet")], None, "id", names)


CHANGES = [
    *((change, kind) for kind in KINDS for change in ("append", "compact", "merge")),
    ("layout", "graph"),
]


@pytest.mark.parametrize(("change", "kind"), CHANGES)
def test_all_stages_are_foreseen(change: str, kind: str, built: Built, tmp_path: Path) -> None:
    index, heard, options = built.copy(kind, tmp_path / "ix"), Heard(), RunOptions(workers=1)
    if change == "append":
        run_append(index, more(tmp_path), options, heard)
    elif change == "compact":
        indexmill.delete(index, NAMES[:3])
        run_compact(index, options, heard)
    elif change == "merge":
        other = tmp_path / "other"
        indexmill.build(VECTORS, other, ids=[f"o-{name}" for name in NAMES], workers=1, **KINDS[kind])
        for one, names in ((index, NAMES), (other, [f"o-{name}" for name in NAMES])):
            indexmill.delete(one, names[:3])
        run_merge([index, other], RunOptions(workers=1, force=True), heard)
    else:
        run_layout(index, LayoutRequest("random", certify=True), options, heard)
    assert heard.begun == heard.foreseen[0]
    assert heard.begun[-1] == "publish"


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_foresees_the_stages_of_later_steps(kind: str, built: Built, tmp_path: Path) -> None:
    index = built.copy(kind, tmp_path / "ix")
    more(tmp_path)
    (tmp_path / "gone.txt").write_text("\n".join(NAMES[:5]))
    keys = {"add": str(tmp_path / "add.parquet"), "id_column": "id", "delete": str(tmp_path / "gone.txt")}
    spec = UpdateSpec.model_validate({"base": str(index), "workers": 1, "compact": True, **keys})
    heard = Heard()
    run_update(spec, given_to(spec), heard)
    assert heard.begun == heard.foreseen[0]
    assert {stage.partition(" ")[0] for stage in heard.begun} == {"append", "compact", "publish"}


#: What a job does to an index beside another one; hash tables that grow by more than a tenth are written anew.
STEPS: dict[str, dict[str, Any]] = {
    "append": {"add": 4},
    "append many": {"add": 40},
    "merge": {"merge": 30},
    "merge of more than there are": {"merge": 150},
    "merge without deleted vectors": {"merge": 30, "delete": True},
    "compact": {"delete": True, "compact": True},
    "append and compact": {"add": 4, "delete": True, "compact": True},
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_has_the_stages_of_the_job(kind: str, step: str, built: Built, tmp_path: Path) -> None:
    index, what = built.copy(kind, tmp_path / "ix"), STEPS[step]
    keys: dict[str, Any] = {"base": str(index), "out": str(tmp_path / "out"), "workers": 1}
    if "add" in what:
        more(tmp_path, what["add"])
        keys |= {"add": str(tmp_path / "add.parquet"), "id_column": "id"}
    if "merge" in what:
        rows = np.random.default_rng(5).integers(0, 60, (what["merge"], VECTORS.shape[1]), np.uint8)
        ids = [f"other-{i}" for i in range(len(rows))]
        indexmill.build(rows, tmp_path / "other", ids=ids, workers=1, **KINDS[kind])
        keys["base"] = [str(index), str(tmp_path / "other")]
    if "delete" in what:
        indexmill.delete(index, NAMES[:5])
    if "compact" in what:
        keys["compact"] = True
    spec = UpdateSpec.model_validate(keys)
    plan, heard = plan_update(spec, given_to(spec)), Heard()
    run_update(spec, given_to(spec), heard)
    assert list(plan.stages) == [stage for stage in heard.begun if not stage.endswith("publish")]


def test_a_stage_that_comes_twice_waits_once_more(tmp_path: Path) -> None:
    store = StageStore(tmp_path / "work")
    status = StatusFile(Silent(), store, PeakMemory(), 1 << 30)
    status.expect(["unpack", "order", "unpack", "order"])
    status.start("unpack", 1, "tasks")
    status.finish()
    status.write()
    stages = json.loads((store.root / "status.json").read_text())["stages"]
    assert [stage["name"] for stage in stages] == ["unpack", "order", "unpack", "order"]
    assert [stage["state"] for stage in stages] == ["done", "waiting", "waiting", "waiting"]
    store.close()
