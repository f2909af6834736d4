"""The parameter `compute` of a build: where it can be set, what it decides, and what happens without a GPU.

A GPU is stood in for by the strict arrays of `tests.support.gpu`: the whole build runs on these.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.files.verify import verify_index
from tests.support.cli import SMALL, run, run_json
from tests.support.gpu import gpu_problem, strict_gpu
from tests.support.indexes.builds import assert_sound, build, clustered, data_files, l2, recall
from tests.support.indexes.ivf import build_lists, make_vectors

import indexmill
from indexmill.builders import gpu as gpu_module
from indexmill.builders.quantize.pq import train_pq
from indexmill.formats.errors import BudgetError, ConfigError
from indexmill.formats.index.manifest import read_manifest
from indexmill.pipeline.kinds.common import encode
from indexmill.pipeline.kinds.ivf import tasks as ivf_tasks

NO_GPU = gpu_problem()
SETTINGS: dict[str, Any] = {"builder": "partition", "entries": 40, "sample_vectors": 2000}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    strict = strict_gpu()[0]
    monkeypatch.setattr(gpu_module, "cuda_gpu", lambda: strict)


@pytest.fixture(
    params=["strict", pytest.param("cuda", marks=pytest.mark.skipif(NO_GPU is not None, reason=str(NO_GPU)))]
)
def any_gpu(request: pytest.FixtureRequest) -> None:
    """Strict arrays, and a GPU where there is one."""
    if request.param == "strict":
        request.getfixturevalue("gpu")


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise ConfigError("compute: cuda needs CuPy; pip install 'indexmill[cuda12]'")

    monkeypatch.setattr(gpu_module, "cuda_gpu", refuse)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_a_build_on_a_gpu_or_strict_arrays_has_the_recall_of_one_on_the_processor(
    tmp_path: Path, any_gpu: None, dtype: str
) -> None:
    vectors, queries = np.split(clustered(3200, 12, dtype), [3000])
    here = build(tmp_path / "here", vectors, **SETTINGS)
    there = build(tmp_path / "there", vectors, **SETTINGS, compute="cuda")
    assert_sound(there)
    recalls = [recall(index, vectors, queries, l2) for index in (here, there)]
    assert recalls[0] > 0.95
    assert abs(recalls[0] - recalls[1]) <= (
        0.002 if dtype == "uint8" else 0.006
    )  # here codes propose neighbours


def test_the_manifest_says_where_a_build_computed_and_with_what(tmp_path: Path, gpu: None) -> None:
    vectors = clustered(600, 8, "float32")
    here = read_manifest(build(tmp_path / "here", vectors))
    there = read_manifest(build(tmp_path / "there", vectors, device="cuda"))  # the short name
    assert here.parameters["compute"] == "cpu"
    assert "cupy" not in here.software
    assert there.parameters["compute"] == "cuda"
    assert there.software["cupy"] == "0.0 (strict)"
    assert json.loads((tmp_path / "there" / "run.json").read_text())["host"]["gpu"] == "strict arrays"
    assert "gpu" not in json.loads((tmp_path / "here" / "run.json").read_text())["host"]


def test_auto_is_settled_by_what_there_is(tmp_path: Path, gpu: None) -> None:
    vectors = clustered(400, 8, "float32")
    auto, said = (build(tmp_path / name, vectors, compute=name) for name in ("auto", "cuda"))
    assert data_files(auto) == data_files(said)


def test_auto_without_a_gpu_gives_the_bytes_of_the_default(tmp_path: Path, no_gpu: None) -> None:
    vectors = clustered(400, 8, "float32")
    assert data_files(build(tmp_path / "auto", vectors, compute="auto")) == data_files(
        build(tmp_path / "default", vectors)
    )


def test_a_gpu_does_not_change_the_default(
    tmp_path: Path, gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = clustered(400, 8, "float32")
    with_one = data_files(build(tmp_path / "with", vectors, **SETTINGS))
    monkeypatch.setattr(gpu_module, "cuda_gpu", lambda: pytest.fail("the GPU was looked for"))
    assert data_files(build(tmp_path / "without", vectors, **SETTINGS)) == with_one


def test_stages_of_the_processor_are_not_taken_for_those_of_a_gpu(tmp_path: Path, gpu: None) -> None:
    vectors, work = clustered(400, 8, "float32"), str(tmp_path / "work")
    for name in ("cpu", "cuda"):
        build(tmp_path / name, vectors, **SETTINGS, compute=name, work=work)
    stages = [path.name.partition("-")[0] for path in Path(work).iterdir()]
    assert {name: stages.count(name) for name in ("ingest", "sample", "build", "encode", "entries")} == {
        "ingest": 1, "sample": 1, "build": 2, "encode": 2, "entries": 2,
    }  # fmt: skip


def test_stages_of_one_gpu_are_not_taken_for_those_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors, work = clustered(400, 8, "float32"), tmp_path / "work"
    for name in ("one", "other", "one"):
        gpu = strict_gpu(name=name)[0]
        monkeypatch.setattr(gpu_module, "cuda_gpu", lambda gpu=gpu: gpu)
        build(tmp_path / "ix", vectors, compute="cuda", work=str(work), force=True)
    assert len(list(work.glob("encode-*"))) == 2


def test_rotated_codes_are_shared_for_they_are_made_on_the_processor(tmp_path: Path, gpu: None) -> None:
    vectors, work = clustered(400, 8, "float32"), tmp_path / "work"
    for name in ("cpu", "cuda"):
        build(tmp_path / name, vectors, compute=name, work=str(work), pq_rotation="opq")
    assert len(list(work.glob("encode-*"))) == 1


def test_a_graph_of_vamana_is_shared(tmp_path: Path, gpu: None) -> None:
    vectors, work = clustered(400, 8, "float32"), str(tmp_path / "work")
    for name in ("cpu", "cuda"):
        build(tmp_path / name, vectors, builder="vamana", compute=name, work=work)
    assert [path.name.partition("-")[0] for path in Path(work).iterdir()].count("build") == 1


@pytest.mark.parametrize(
    "shared",
    [
        {"copies": 1},
        {"copies": 3, "codec": "pq", "pq_bytes": 4},
        {"codec": "pq", "pq_bytes": 4, "pq_rotation": "opq"},
    ],
)
def test_inverted_lists_of_a_gpu_or_strict_arrays_hold_the_true_neighbours(
    tmp_path: Path, any_gpu: None, shared: dict[str, Any]
) -> None:
    vectors = make_vectors("uint8")
    certificates = []
    for name in ("cpu", "cuda"):
        index = build_lists(tmp_path / name, vectors, compute=name, **shared)
        assert verify_index(index) == []
        certificates.append(read_manifest(index, ("ivf",)).certificate)
    recalls = np.array([each["recall"] for each in certificates])  # type: ignore[index]
    assert recalls[0].max() > 0.9
    assert (recalls[1] > recalls[0] - 0.03).all()  # other centroids, worse only by chance


def test_rows_go_to_a_gpu_in_large_blocks_to_be_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = np.random.default_rng(1).normal(size=(20_000, 6)).astype(np.float32)
    centroids, cells = np.zeros((1, 6), np.float32), np.zeros(len(vectors), np.uint32)
    book = train_pq(vectors[:2000], 3, seed=1)
    blocks = list[int]()

    def encoded(rows: np.ndarray, *rest: Any) -> np.ndarray:
        blocks.append(len(rows))
        return encode.encoded(rows, *rest)

    monkeypatch.setattr(ivf_tasks, "encoded", encoded)
    here, there = (
        ivf_tasks.encoded_rows(vectors, centroids, cells, ivf_tasks.Fitted(codebook=book), gpu)
        for gpu in (None, strict_gpu()[0])
    )
    assert blocks == [8192, 8192, 3616, 20_000]
    assert (here == there).mean() > 0.999


def test_cells_of_given_centroids_are_those_of_the_processor(tmp_path: Path, gpu: None) -> None:
    vectors = make_vectors("float32")
    np.save(tmp_path / "centroids.npy", vectors[::100].astype(np.float32))
    files = [
        data_files(
            build_lists(tmp_path / name, vectors, centroids=str(tmp_path / "centroids.npy"), compute=name)
        )
        for name in ("cpu", "cuda")
    ]
    same = {name for name in files[0] if files[0][name] == files[1][name]}
    assert set(files[0]) - same == {"manifest.json"}


def test_too_little_memory_of_a_gpu_ends_a_build_with_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = strict_gpu(limit=1 << 12)[0]
    monkeypatch.setattr(gpu_module, "cuda_gpu", lambda: small)
    with pytest.raises(
        BudgetError, match=r"compute: strict arrays has too little free memory for .* compute cpu"
    ):
        build(tmp_path / "ix", clustered(600, 8, "float32"), compute="cuda")
    assert not (tmp_path / "ix").exists()


@pytest.mark.skipif(NO_GPU is None, reason="there is a GPU")
def test_cuda_without_a_gpu_is_refused_in_one_line_before_anything_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", clustered(100, 4, "float32"))
    options = ["--input", tmp_path / "v.npy", "--out", tmp_path / "ix", *SMALL, "--compute", "cuda"]
    result = run("build", *options)
    assert result.exit_code == 2
    assert "compute: cuda" in result.stderr
    assert "indexmill[cuda12]" in result.stderr
    assert "Traceback" not in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["v.npy"]


def test_a_plan_says_that_it_does_not_predict_a_gpu(tmp_path: Path, no_gpu: None) -> None:
    np.save(tmp_path / "v.npy", clustered(500, 6, "float32"))
    job = tmp_path / "job.toml"
    job.write_text(
        'input = "v.npy"\nout = "ix"\n[parameters]\nR = 8\npq_bytes = 3\nentries = 16\ndevice = "cuda"\n'
    )
    assert "what a GPU saves" in run_json("plan", job)["note"]
    assert "is not predicted" in run("plan", job).stdout


def test_where_cuda_does_not_go_is_said(tmp_path: Path) -> None:
    vectors, out = clustered(100, 4, "float32"), tmp_path / "ix"
    with pytest.raises(ConfigError, match="compute: belongs to kind graph or ivf, and the kind is lsh"):
        indexmill.build(vectors, out, kind="lsh", compute="cuda")
    with pytest.raises(ConfigError, match="compute: cuda goes with the local executor"):
        indexmill.build(vectors, out, device="cuda", executor="ray")
    with pytest.raises(ConfigError, match=r"compute \(device\): .*'cpu', 'cuda' or 'auto'.*'gpu'"):
        indexmill.build(vectors, out, compute="gpu")
