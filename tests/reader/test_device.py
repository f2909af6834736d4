"""Measuring a device and engines by name, from Python."""

from __future__ import annotations

import json
import signal
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.oracles.files.small_index import write_small_index

from indexmill.formats.errors import ConfigError, ForeignFile, InputError
from indexmill.reader import _native
from indexmill.reader.index import Index

MODEL = {"latency_us": [[0.0, 10.0], [0.5, 60.0], [1.0, 300.0]], "iops": 1e6, "mb_per_s": None}
PROFILE = {"kind": "indexmill-device", "version": 1, "name": "quick", "model": MODEL}


def search(index: _native.Index, queries: np.ndarray) -> dict[str, np.ndarray]:
    options: _native.Options = {
        "k": 5, "search_list_size": 30, "beam_width": 4, "policy": "page", "entry": "centroids", "threads": 2,
        "inflight": 4, "deterministic": True, "allow": None,
    }  # fmt: skip
    return index.search(queries, options)


def test_a_measurement_gives_a_latency_for_every_read(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(np.random.default_rng(1).bytes(1 << 20))
    measured = _native.measure_device(path, 4096, 8, 2, 0.05, 3)
    assert set(measured) == {"reads", "elapsed_s", "direct", "engine", "latencies_us"}
    latencies_us = measured["latencies_us"]
    assert latencies_us.dtype == np.float32
    assert latencies_us.shape == (measured["reads"],)
    assert measured["elapsed_s"] >= 0.05
    assert measured["engine"] in ("io_uring", "pread")
    assert (latencies_us > 0).all()
    assert (latencies_us <= 1e6 * measured["elapsed_s"]).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((-4096, 1, 1, 1.0, 0), "block_bytes: expected a power of two"),
        ((4096, -1, 1, 1.0, 0), "depth: expected 1..4096"),
        ((4096, 1, 0, 1.0, 0), "threads: expected 1..256"),
        ((4096, 1, 1, float("nan"), 0), "seconds: expected more than 0"),
    ],
)
def test_a_load_out_of_range_is_refused(tmp_path: Path, arguments: tuple, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        _native.measure_device(tmp_path, *arguments)
    with pytest.raises(InputError, match="open"):
        _native.measure_device(tmp_path / "none", 4096, 1, 1, 1.0, 0)


def test_ctrl_c_ends_a_measurement(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(1 << 20))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    timer = threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        _native.measure_device(path, 4096, 4, 1, 60.0, 0)
    assert time.monotonic() - begin < 30


def test_every_engine_finds_the_same(tmp_path: Path) -> None:
    written = write_small_index(tmp_path / "index", n=500, dim=24)
    profile = tmp_path / "quick.json"
    profile.write_text(json.dumps(PROFILE))
    queries = np.roll(written.vectors[:20], 1, axis=1)
    want = search(_native.Index.open(tmp_path / "index", "pread"), queries)
    for engine in ("auto", "mmap", f"simulated:{profile}"):
        index = _native.Index.open(tmp_path / "index", engine)
        got = search(index, queries)
        for name in ("slots", "scores", "pages_read", "hops"):
            np.testing.assert_array_equal(got[name], want[name])
        assert engine == "auto" or index.engine == engine.split(":")[0]
    assert index.engine_note == 'read times are those of the simulated device "quick"'


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"kind": "x"}, ForeignFile, 'expected a device profile .* got kind "x"'),
        ({"model": {**MODEL, "iops": 0}}, ConfigError, r"model\.iops: expected a number .* got 0"),
        ({"model": {**MODEL, "latency_us": [[0, 2], [1, 1]]}}, ConfigError, r"model\.latency_us\[1\]"),
    ],
)
def test_a_malformed_profile_is_one_clear_error(
    tmp_path: Path, change: dict, error: type[Exception], words: str
) -> None:
    write_small_index(tmp_path / "index", n=50, dim=8)
    profile = tmp_path / "p.json"
    profile.write_text(json.dumps({**PROFILE, **change}))
    with pytest.raises(error, match=words) as raised:
        _native.Index.open(tmp_path / "index", f"simulated:{profile}")
    assert str(raised.value).startswith(f"{profile}: ")


def test_an_engine_that_falls_back_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused:
        engine, engine_note = "pread", "io_uring is not available: not permitted"

        @staticmethod
        def open(path: str, engine: str, stored: object) -> Refused:
            return Refused()

        @staticmethod
        def open_metadata() -> None:
            return None

    monkeypatch.setattr(_native, "Index", Refused)
    with pytest.warns(UserWarning, match="io_uring is not available") as caught:
        index = Index(tmp_path)
    assert len(caught) == 1
    assert (index.engine, index.engine_note) == (Refused.engine, Refused.engine_note)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Index(tmp_path, "pread")  # asked for: no news
