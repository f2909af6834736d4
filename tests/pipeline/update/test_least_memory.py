"""The least memory with which a plan accepts a job is the least with which the job runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.indexes import append as graphs
from tests.support.indexes import lists, lsh

import indexmill
from indexmill.formats.errors import BudgetError
from indexmill.jobs.updatefile import given_to
from indexmill.pipeline.update.plan import UpdatePlan, plan_update
from indexmill.pipeline.update.run import UpdateResult, run_update
from indexmill.pipeline.update.spec import UpdateSpec

ROWS = lsh.clusters(700, 8)


def spec_of(keys: dict[str, Any], memory: int) -> UpdateSpec:
    return UpdateSpec.model_validate({**keys, "workers": 1, "memory": memory})


def planned(keys: dict[str, Any], memory: int) -> UpdatePlan:
    spec = spec_of(keys, memory)
    return plan_update(spec, given_to(spec))


def done(keys: dict[str, Any], memory: int) -> UpdateResult:
    spec = spec_of(keys, memory)
    return run_update(spec, given_to(spec))


def least_planned(keys: dict[str, Any]) -> int:
    """Return the least memory with which every step is planned; a refusal names what one step needs."""
    memory = 1
    while True:
        try:
            planned(keys, memory)
        except BudgetError as refusal:
            memory = int(re.search(r"give at least ([\d,]+)", str(refusal))[1].replace(",", ""))
        else:
            return memory


def names(n: int, prefix: str = "s") -> list[str]:
    return [f"{prefix}{i}" for i in range(n)]


def delete_each(index: Path, n: int, step: int) -> None:
    indexmill.delete(index, np.arange(0, n, step), by="vector")


def merge_with_what_was_appended(folder: Path) -> dict[str, Any]:
    """So many vectors lie apart from those of the build that all are laid out anew."""
    graphs.build(folder / "ix", graphs.points(1000, 1))
    indexmill.append(folder / "ix", graphs.points(300, 2), workers=1)
    graphs.build(folder / "other", graphs.points(200, 3))
    return {"base": [str(folder / "ix"), str(folder / "other")]}


def merge_of_graphs_with_deletions(folder: Path) -> dict[str, Any]:
    """The ids of the second one are held while the first one is compacted."""
    for name, n in (("ix", 500), ("other", 300)):
        graphs.build(folder / name, graphs.points(n, n), ids=names(n, name))
        delete_each(folder / name, n, 4)
    return {"base": [str(folder / "ix"), str(folder / "other")]}


def few_merged_with_deletions(folder: Path) -> dict[str, Any]:
    """The largest keeps its slots, and is compacted by its own order."""
    for name, n in (("ix", 600), ("other", 60)):
        graphs.build(folder / name, graphs.points(n, n))
        delete_each(folder / name, n, 10)
    return {"base": [str(folder / "ix"), str(folder / "other")]}


def compacted_graph(folder: Path) -> dict[str, Any]:
    graphs.build(folder / "ix", graphs.points(500, 1))
    delete_each(folder / "ix", 500, 4)
    return {"base": str(folder / "ix"), "compact": True}


def compacted_lists(folder: Path) -> dict[str, Any]:
    lists.build(folder / "ix", ROWS)
    delete_each(folder / "ix", 700, 10)
    return {"base": str(folder / "ix"), "compact": True}


def compacted_tables(folder: Path) -> dict[str, Any]:
    lsh.fixed(folder / "ix", ROWS, names(700))
    delete_each(folder / "ix", 700, 10)
    return {"base": str(folder / "ix"), "compact": True}


def compacted_tables_that_are_hashed_again(folder: Path) -> dict[str, Any]:
    lsh.fixed(folder / "ix", ROWS[:300], hash_bits=0)
    delete_each(folder / "ix", 300, 3)
    return {"base": str(folder / "ix"), "compact": True}


def compacted_added_tables(folder: Path) -> dict[str, Any]:
    lsh.fixed(folder / "ix", ROWS[:650])
    indexmill.append(folder / "ix", ROWS[650:], workers=1)
    delete_each(folder / "ix", 700, 10)
    return {"base": str(folder / "ix"), "compact": True}


def merge_of_tables(folder: Path) -> dict[str, Any]:
    """Of other functions, with deletions."""
    lsh.fixed(folder / "ix", ROWS[:400])
    lsh.fixed(folder / "other", ROWS[400:], seed=2)
    delete_each(folder / "ix", 400, 3)
    return {"base": [str(folder / "ix"), str(folder / "other")]}


def merge_of_lists_that_trains(folder: Path, scale: int = 9) -> dict[str, Any]:
    """Codes of the second one would err; where it is like the first, only the trial takes memory."""
    how = {"codec": "pq", "pq_bytes": 4, "keep_vectors": True}
    np.save(folder / "centroids.npy", graphs.points(7, 5))
    for name, rows in (("ix", graphs.points(600, 1)), ("other", graphs.points(500, 2) * scale)):
        lists.build(folder / name, rows, centroids=str(folder / "centroids.npy"), **how)
    return {"base": [str(folder / "ix"), str(folder / "other")]}


def merge_of_lists_that_tries(folder: Path) -> dict[str, Any]:
    return merge_of_lists_that_trains(folder, scale=1)


CASES: list[Callable[[Path], dict[str, Any]]] = [
    merge_with_what_was_appended,
    merge_of_graphs_with_deletions,
    few_merged_with_deletions,
    compacted_graph,
    compacted_lists,
    compacted_tables,
    compacted_tables_that_are_hashed_again,
    compacted_added_tables,
    merge_of_tables,
    merge_of_lists_that_trains,
    merge_of_lists_that_tries,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_plan_accepts_the_memory_that_the_job_accepts(
    case: Callable[[Path], dict[str, Any]], tmp_path: Path
) -> None:
    keys = {**case(tmp_path), "out": str(tmp_path / "out")}
    least = least_planned(keys)
    with pytest.raises(BudgetError, match=f"give at least {least:,} bytes"):
        done(keys, least - 1)
    done(keys, least)


@pytest.mark.parametrize(("before", "added", "gone"), [(250, 20, 100), (400, 30, 200)])
def test_tables_that_the_job_itself_adds_to_are_compacted_in_that_memory(
    tmp_path: Path, before: int, added: int, gone: int
) -> None:
    """Of 270 vectors 170 are left: all are hashed again, though 250 left room for longer fingerprints, too."""
    lsh.fixed(tmp_path / "ix", ROWS[:before], hash_bits=0)
    np.save(tmp_path / "new.npy", ROWS[before : before + added])
    np.save(tmp_path / "gone.npy", np.arange(gone))
    files = {"add": str(tmp_path / "new.npy"), "delete": str(tmp_path / "gone.npy")}
    keys = {**files, "base": str(tmp_path / "ix"), "compact": True, "out": str(tmp_path / "out")}
    result = done(keys, least_planned(keys))
    assert [step["step"] for step in result.steps] == ["delete", "append", "compact"]
