"""PQ codes of merged lists: by the codebook of the largest, or by one of all vectors where those would err too much."""

from __future__ import annotations

import signal
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.indexes.append import points, run_record
from tests.support.indexes.builds import assert_sound, data_files
from tests.support.indexes.lists import build, rows_of
from tests.support.processes.forks import run_forked
from tests.support.processes.memory import least_budget, needs_sizes, peak_of_command
from tests.support.progress import Stages

import indexmill
from indexmill.builders.quantize.pq import encode_pq
from indexmill.formats.errors import BudgetError
from indexmill.formats.index.manifest import read_manifest
from indexmill.formats.ivf.centroids import Centroids, read_centroids
from indexmill.jobs.updatefile import given_to
from indexmill.pipeline.append.lists.opened import OpenedLists
from indexmill.pipeline.merge.assigned import ListsForm
from indexmill.pipeline.merge.codebook import anew_of, choice_bytes, train
from indexmill.pipeline.update.plan import plan_update
from indexmill.pipeline.update.run import run_update
from indexmill.pipeline.update.spec import UpdateSpec

#: Vectors of the largest, and others unlike them: as many for each centre, and much farther from it.
NEAR, FAR = points(900, 1), [points(700, seed) * 4 for seed in (2, 3)]
ALL = np.concatenate([NEAR, *FAR])
PQ: dict[str, Any] = {"codec": "pq", "pq_bytes": 4, "keep_vectors": True}

MERGE = """
import sys
import indexmill
indexmill.merge(*sys.argv[2:], out=sys.argv[1], force=True, workers=1)
"""


def shared(index: Path) -> Centroids:
    return read_centroids(index / "centroids.imx")


def error(index: Path, vectors: np.ndarray) -> float:
    """Mean squared error of the codes of an index."""
    read = shared(index)
    assert read.codebook is not None
    errors = [
        ((vectors[vector] - read.centroids[cell] - read.codebook.decoded(codes_of(row))[0]) ** 2).sum()
        for (cell, vector), row in rows_of(index).items()
    ]
    return float(np.mean(errors))


def codes_of(row: bytes) -> np.ndarray:
    return np.frombuffer(row, np.uint8)[None]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("parts")
    return [build(folder / str(i), rows, **PQ) for i, rows in enumerate([NEAR, *FAR])]


@pytest.fixture(scope="module")
def merged(parts: list[Path]) -> Path:
    indexmill.merge(*parts, out=parts[0].parent / "all", workers=1)
    return parts[0].parent / "all"


def test_a_codebook_of_all_vectors_is_trained_where_those_of_others_err(
    parts: list[Path], merged: Path, tmp_path: Path
) -> None:
    assert_sound(merged)
    assert list(run_record(merged)["seconds"])[:2] == ["train", "assign"]
    of_base, of_all = shared(parts[0]), shared(merged)
    assert of_base.codebook is not None
    assert of_all.codebook is not None
    np.testing.assert_array_equal(of_base.centroids, of_all.centroids)
    assert len(of_all.codebook.offsets) == len(of_base.codebook.offsets)
    np.save(tmp_path / "own.npy", of_base.centroids)
    rebuilt = build(tmp_path / "rebuilt", ALL, **PQ, centroids=str(tmp_path / "own.npy"))
    assert (
        rows_of(merged).keys() == rows_of(rebuilt).keys()
    )  # each vector is in the list of its nearest centroid
    assert error(merged, ALL) < 1.1 * error(rebuilt, ALL)
    manifest, base = (read_manifest(path, ("ivf",)) for path in (merged, parts[0]))
    assert (manifest.parameters, manifest.certificate) == (base.parameters, base.certificate)
    drift = manifest.ivf["drift"]
    assert (drift["built_vectors"], drift["added_vectors"], drift["rebuild"]) == (900, 1400, True)
    assert "from their centroids" in drift["advice"]


def test_all_codes_are_those_of_the_new_codebook(merged: Path) -> None:
    read = shared(merged)
    assert read.codebook is not None
    keys, rows = zip(*rows_of(merged).items(), strict=True)
    cells, vectors = np.array(keys).T
    expected = encode_pq(ALL[vectors] - read.centroids[cells], read.codebook)
    np.testing.assert_array_equal(np.concatenate([codes_of(row) for row in rows]), expected)


def test_a_merge_of_what_was_merged_keeps_its_codebook(merged: Path, tmp_path: Path) -> None:
    more = build(tmp_path / "more", np.concatenate([points(300, 4), points(300, 5) * 4]), **PQ)
    indexmill.merge(merged, more, out=tmp_path / "all")
    assert "train" not in run_record(tmp_path / "all")["seconds"]


@pytest.mark.parametrize("kept", ["alike", "few", "codes alone"])
def test_the_codebook_is_kept(parts: list[Path], tmp_path: Path, kept: str) -> None:
    """Where codes do not err more, where few vectors are new, and where no vectors are there to be coded anew."""
    larger, others = parts[0], [build(tmp_path / "other", points(700, 8), **PQ)]
    if kept == "few":
        others = [build(tmp_path / "few", FAR[0][:250], **PQ)]
    elif kept == "codes alone":
        larger = build(tmp_path / "codes", NEAR, codec="pq", pq_bytes=4)
        others = [tmp_path / "grown"]
        indexmill.append(larger, FAR[0], out=others[0])
        indexmill.delete(others[0], np.arange(len(NEAR)), by="vector")
        indexmill.compact(others[0])
    before = rows_of(larger)
    indexmill.merge(larger, *others, out=tmp_path / "all", force=True)
    assert "train" not in run_record(tmp_path / "all")["seconds"]
    after = rows_of(tmp_path / "all")
    assert {key: after[key] for key in before} == before
    assert read_manifest(tmp_path / "all", ("ivf",)).ivf["drift"]["rebuild"] == (kept != "alike")


@pytest.mark.parametrize("how", [{"copies": 2}, {"metric": "ip"}, {"metric": "cosine"}], ids=str)
def test_other_forms_are_coded_anew_too(tmp_path: Path, how: dict[str, Any]) -> None:
    """Lists of flat vectors among them, and deleted vectors are not."""
    three = [build(tmp_path / "0", NEAR, **PQ, **how)]
    three += [build(tmp_path / str(i), FAR[i - 1], **how) for i in (1, 2)]
    indexmill.delete(three[0], np.arange(0, 900, 3), by="vector")
    indexmill.delete(three[1], np.arange(0, 700, 5), by="vector")
    before = {key for key in rows_of(three[0]) if key[1] % 3}
    opened: Any = indexmill.merge(*three, out=tmp_path / "all")
    assert_sound(tmp_path / "all")
    assert len(opened) == 600 + 560 + 700
    if "train" in run_record(tmp_path / "all")["seconds"] and how.get("metric") != "ip":
        places = {int(old): new for new, old in enumerate(np.delete(np.arange(900), np.arange(0, 900, 3)))}
        assert {(cell, places[vector]) for cell, vector in before} <= rows_of(tmp_path / "all").keys()
    if how == {"copies": 2}:
        assert "train" in run_record(tmp_path / "all")["seconds"]


def test_a_rotation_stays_where_a_codebook_is_trained_anew(tmp_path: Path) -> None:
    how = {**PQ, "pq_bytes": 3, "pq_rotation": "opq"}
    three = [build(tmp_path / str(i), rows, **how) for i, rows in enumerate([NEAR, *FAR])]
    opened: Any = indexmill.merge(*three, out=tmp_path / "all", workers=1)
    assert_sound(tmp_path / "all")
    assert "train" in run_record(tmp_path / "all")["seconds"]
    of_base, of_all = shared(three[0]), shared(tmp_path / "all")
    assert of_base.codebook is not None
    assert of_all.codebook is not None
    np.testing.assert_array_equal(of_base.centroids, of_all.centroids)
    np.testing.assert_array_equal(of_base.rotation, of_all.rotation)
    assert (of_base.codebook.pivots != of_all.codebook.pivots).mean() > 0.9
    keys, rows = zip(*rows_of(tmp_path / "all").items(), strict=True)
    cells, vectors = np.array(keys).T
    residuals = of_all.compared(ALL[vectors]) - of_all.centroids[cells]
    expected = encode_pq(residuals, of_all.codebook.of_rotated())
    np.testing.assert_array_equal(np.concatenate([codes_of(row) for row in rows]), expected)
    found = opened.search(ALL[::50], 1, nprobe=7, rerank=300).vector_ids[:, 0]
    assert (found == np.arange(0, len(ALL), 50)).mean() > 0.9


def test_deleted_vectors_of_flat_lists_train_no_codebook(tmp_path: Path) -> None:
    """It is that of the same indexes compacted: of several batches, with vectors in two lists."""
    base = build(tmp_path / "base", points(1600, 1), **PQ, copies=2)
    more = build(tmp_path / "more", np.concatenate([FAR[0] * 50, FAR[0] * 3]), copies=2)
    indexmill.delete(more, np.arange(700), by="vector")
    others = [more, build(tmp_path / "other", FAR[1] * 3, copies=2)]
    indexmill.merge(base, *others, out=tmp_path / "all", workers=1)
    indexmill.compact(more, workers=1)
    indexmill.merge(base, *others, out=tmp_path / "compacted", workers=1)
    books = [shared(tmp_path / name).codebook for name in ("all", "compacted")]
    assert "train" in run_record(tmp_path / "all")["seconds"]
    assert books[0] is not None
    assert books[1] is not None
    np.testing.assert_array_equal(books[0].pivots, books[1].pivots)


@pytest.mark.parametrize("how", ["deleted", "many lists"])
def test_the_choice_of_a_codebook_takes_what_it_says(tmp_path: Path, how: str) -> None:
    """Whatever was deleted of flat lists, and however many lists and batches there are."""
    dim, rng = 128, np.random.default_rng(1)
    near, far = (rng.normal(size=(n, 4)).repeat(dim // 4, 1).astype(np.float32) for n in (9_000, 20_000))
    lists = {"lists": 300, "batch_vectors": 1_000} if how == "many lists" else {}
    parts = [build(tmp_path / "0", near, **PQ), build(tmp_path / "1", far * 99, **lists)]
    if how == "deleted":
        indexmill.delete(parts[1], np.arange(12_000), by="vector")
    with OpenedLists(parts[0]) as base, OpenedLists(parts[1]) as other:
        form, most = ListsForm.common([base, other], 0), 8_193
        told = choice_bytes(form, [base, other], False, 1)
        assert told < most * (8 * dim + 12 * dim // 4 + 24) + (20 << 20)
        tracemalloc.start()
        try:
            assert anew_of(form, [base, other]).trains
            assert tracemalloc.get_traced_memory()[1] <= told
            tracemalloc.reset_peak()
            train(form, [base, other], tmp_path, 1)
            assert tracemalloc.get_traced_memory()[1] <= choice_bytes(form, [base, other], True, 1)
        finally:
            tracemalloc.stop()


def test_too_little_memory_is_told_before_the_trial(
    parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexmill.pipeline.merge.lists.anew_of", None)
    with pytest.raises(BudgetError, match="with --memory, or more if a codebook is trained"):
        indexmill.merge(*parts, out=tmp_path / "all", memory=1 << 20)
    assert not any(tmp_path.iterdir())


def test_a_plan_foretells_the_training(parts: list[Path], tmp_path: Path) -> None:
    for name, others in (("all", parts[1:]), ("alike", [build(tmp_path / "other", points(700, 8), **PQ)])):
        spec = UpdateSpec.model_validate(
            {"base": [str(parts[0]), *map(str, others)], "out": str(tmp_path / name), "workers": 1}
        )
        plan, made = plan_update(spec, given_to(spec)), Stages()
        run_update(spec, given_to(spec), made)
        assert list(plan.stages) == list(
            dict.fromkeys(stage for stage in made.made if "publish" not in stage)
        )
        assert ("merge train" in plan.stages) == (name == "all")


def test_workers_do_not_change_the_bytes(parts: list[Path], merged: Path, tmp_path: Path) -> None:
    indexmill.merge(*parts, out=tmp_path / "all", workers=3)
    assert data_files(tmp_path / "all") == data_files(merged)


@pytest.mark.kill
def test_killed_in_every_stage_and_resumed(parts: list[Path], merged: Path, tmp_path: Path) -> None:
    """Each index is assigned in a stage of its own."""
    for place in ("train-done", "assign-begun", "assign-done", "assign-done", "assign-done", "lists-done"):
        killed = run_forked(MERGE, tmp_path / "all", *parts, failpoint=place)
        assert killed.returncode == -signal.SIGKILL, (place, killed.stderr)
    assert run_forked(MERGE, tmp_path / "all", *parts).returncode == 0
    assert data_files(tmp_path / "all") == data_files(merged)
    assert run_record(tmp_path / "all")["seconds"].get("assign", 0) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["all"]


@pytest.mark.memory
@needs_sizes
def test_training_stays_within_the_smallest_budget_it_accepts(tmp_path: Path) -> None:
    rng, frugal = np.random.default_rng(1), {**PQ, "pq_bytes": 64, "batch_vectors": 8_000}
    parts = [
        build(tmp_path / str(i), (rng.normal(size=(8_000, 256)) * scale).astype(np.float32), **frugal)
        for i, scale in enumerate((1, 9, 9))
    ]

    def merge(**options: Any) -> None:
        indexmill.merge(*parts, out=tmp_path / "none", **options)

    budget = least_budget(merge)
    assert 0 < peak_of_command(budget, "merge", *parts, "--out", tmp_path / "all") <= budget
    assert "train" in run_record(tmp_path / "all")["seconds"]
