"""The example that serves a set by Ray actors: the answers of the set, also while a part is lost and replaced."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import indexmill

if TYPE_CHECKING:
    from tests.support.processes.ray_cluster import Three

EXAMPLE = Path(__file__).parents[3] / "docs/examples/serve_set.py"
RNG = np.random.default_rng(3)
VECTORS = RNG.standard_normal((400, 8)).astype(np.float32)
QUERIES = RNG.standard_normal((20, 8)).astype(np.float32)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("serve_set", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "serve_set", module)
    spec.loader.exec_module(module)
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(
        module
    )  # workers of the test's cluster do not have the file on their path
    return module


def test_a_set_is_served_by_actors_of_which_one_is_lost(three: Three, tmp_path: Path, example: Any) -> None:
    import ray

    opened = indexmill.build(VECTORS, tmp_path / "set", parts=3, kind="ivf", lists=4)
    expected = opened.search(QUERIES, 5, margin=float("inf"))
    three.executor.share(0)
    served = example.serve(str(tmp_path / "set"), cpus=0.1)
    try:
        found = served.search(QUERIES, 5, margin=float("inf"), threads=3)
        assert np.array_equal(found.ids, expected.ids)
        assert np.array_equal(found.scores, expected.scores)
        assert np.array_equal(served.vector_ids_of([3, 7]), opened.vector_ids_of([3, 7]))
        answers: list[Any] = []
        is_back = threading.Event()

        def ask() -> None:
            while not is_back.is_set() or len(answers) < 5:
                answers.append(served.search(QUERIES, 5, margin=float("inf"), threads=3).ids)

        before = ray.get(served.parts[1].actor.process.remote())
        os.kill(before, signal.SIGKILL)
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(ask)  # its first queries are asked while the part is away
            try:
                after = ray.get(served.parts[1].actor.process.remote())
            finally:
                is_back.set()
            asking.result()
        assert after != before
        assert len(answers) >= 5
        assert all(np.array_equal(one, expected.ids) for one in answers)
    finally:
        for part in served.parts:
            ray.kill(part.actor)


def test_a_part_of_another_build_is_refused_by_name(three: Three, tmp_path: Path, example: Any) -> None:
    import ray

    for name, seed in (("set", 1), ("other", 2)):
        indexmill.build(VECTORS, tmp_path / name, parts=2, kind="ivf", lists=4, seed=seed)
    three.executor.share(0)
    with pytest.raises(ray.exceptions.RayError, match=r"part-00[01]: expected build"):
        example.serve(str(tmp_path / "set"), str(tmp_path / "other"), cpus=0.1)


def test_a_part_that_is_missing_is_refused_by_name(three: Three, tmp_path: Path, example: Any) -> None:
    import ray

    indexmill.build(VECTORS, tmp_path / "set", parts=2, kind="ivf", lists=4)
    shutil.rmtree(tmp_path / "set" / "part-001")
    three.executor.share(0)
    with pytest.raises(
        ray.exceptions.RayError, match=r"part-001/manifest.json: expected a manifest, got no such file"
    ):
        example.serve(str(tmp_path / "set"), cpus=0.1)
