"""Device profiles come back as written, and a wrong one is named by file and key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from indexmill.formats.device import (
    DeviceProfile,
    Latency,
    Measured,
    Model,
    Reads,
    read_profile,
    write_profile,
)
from indexmill.formats.errors import ConfigError, ForeignFile, InputError, TooNew

BY_HAND: dict[str, Any] = {
    "kind": "indexmill-device",
    "version": 1,
    "name": 'a "disk" [\n 1 ] of mine',
    "model": {"latency_us": [[0.0, 61.0], [0.5, 75], [1, 900.0]], "iops": 97000.0, "mb_per_s": None},
}


def reads(depth: int, iops: float, size: int = 4096) -> Reads:
    times = Latency(mean=2.0, p50=2.0, p90=3.0, p99=4.0, p999=5.0, max=6.0)
    return Reads(
        bytes=size, depth=depth, threads=1, iops=iops, mb_per_s=iops / 1e6, latency_us=times,
        quantiles_us=[float(i) for i in range(101)],
    )  # fmt: skip


def measured(*rows: Reads) -> DeviceProfile:
    where = Measured(
        date="2026-11-21T08:00:00+00:00", host="here", path="/data", device="/dev/sda", direct=True,
        engine="io_uring", seconds=1.0, reads=list(rows),
    )  # fmt: skip
    return DeviceProfile(
        name="x", model=Model(latency_us=[[0.0, 1.0], [1.0, 2.0]], iops=90.0), measured=where
    )


def write(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_a_profile_comes_back_as_it_was_written(tmp_path: Path) -> None:
    profile = measured(reads(1, 10.0), reads(2, 20.0))
    write_profile(tmp_path / "device.json", profile)
    assert read_profile(tmp_path / "device.json") == profile


def test_a_profile_by_hand_needs_only_four_keys_and_lists_stay_on_one_line(tmp_path: Path) -> None:
    profile = read_profile(write(tmp_path / "hand.json", BY_HAND))
    assert profile.measured is None
    write_profile(tmp_path / "again.json", profile)
    text = (tmp_path / "again.json").read_text(encoding="utf-8")
    assert json.loads(text) == BY_HAND
    assert "[0.5, 75.0]" in text


def test_the_processor_time_of_a_request_is_kept_and_bounded(tmp_path: Path) -> None:
    model = BY_HAND["model"] | {"request_us": 0.05}
    write_profile(
        tmp_path / "p.json", read_profile(write(tmp_path / "hand.json", BY_HAND | {"model": model}))
    )
    assert read_profile(tmp_path / "p.json").model.request_us == 0.05
    for wrong in (-0.1, 1000.1, "1"):
        with pytest.raises(ConfigError, match=r"key 'model\.request_us'"):
            read_profile(write(tmp_path / "hand.json", BY_HAND | {"model": model | {"request_us": wrong}}))


def test_absent_limits_are_none(tmp_path: Path) -> None:
    model = {"latency_us": [[0, 1], [1, 2]]}
    profile = read_profile(write(tmp_path / "hand.json", BY_HAND | {"model": model}))
    assert profile.model.iops is None
    assert profile.model.mb_per_s is None
    assert profile.iops_at(8) is None


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"name": 3}, "name"),
        ({"version": "1"}, "version"),
        ({"version": 0}, "version"),
        ({"model": None}, "model"),
        ({"model": {}}, "model.latency_us"),
        ({"model": {"latency_us": [[0, 1]]}}, "model.latency_us"),
        ({"model": {"latency_us": [[0.1, 1], [1, 2]]}}, "model.latency_us"),
        ({"model": {"latency_us": [[0, 1], [0.9, 2]]}}, "model.latency_us"),
        ({"model": {"latency_us": [[0, 3], [1, 2]]}}, "model.latency_us"),
        ({"model": {"latency_us": [[0, 1], [0, 2], [1, 2]]}}, "model.latency_us"),
        ({"model": {"latency_us": [[0, 1], [1, 2, 3]]}}, "model.latency_us[1]"),
        ({"model": {"latency_us": [[0, -1], [1, 2]]}}, "model.latency_us[0][1]"),
        ({"model": {"latency_us": [[0, 1], [1, float("inf")]]}}, "model.latency_us[1][1]"),
        ({"model": {"latency_us": [[0, 1], [1, 1000001]]}}, "model.latency_us"),
        ({"model": {"latency_us": [[0, 1], [1, 2]], "iops": 9.9}}, "model.iops"),
        ({"model": {"latency_us": [[0, 1], [1, 2]], "iops": 2e9}}, "model.iops"),
        ({"model": {"latency_us": [[0, 1], [1, 2]], "mb_per_s": 0.09}}, "model.mb_per_s"),
        ({"model": {"latency_us": [[0, 1], [1, 2]], "mb_per_s": "fast"}}, "model.mb_per_s"),
        ({"measured": {}}, "measured.date"),
    ],
)
def test_a_wrong_value_is_named_by_file_and_key(tmp_path: Path, change: dict[str, Any], key: str) -> None:
    path = write(tmp_path / "bad.json", BY_HAND | change)
    with pytest.raises(ConfigError) as caught:
        read_profile(path)
    assert str(caught.value).startswith(f"{path}: key '{key}':")


def test_other_files_are_refused_by_kind(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_profile(tmp_path / "none.json")
    with pytest.raises(ForeignFile, match="'kind'"):
        read_profile(write(tmp_path / "other.json", [1]))
    with pytest.raises(ForeignFile, match="'kind'"):
        read_profile(write(tmp_path / "other.json", {"kind": "graph"}))
    (tmp_path / "text.json").write_bytes(b"\xff\x00")
    with pytest.raises(ForeignFile, match="no JSON"):
        read_profile(tmp_path / "text.json")
    with pytest.raises(TooNew, match="install a newer"):
        read_profile(write(tmp_path / "new.json", BY_HAND | {"version": 2}))


def test_reads_a_second_are_those_of_the_nearest_depth_of_that_size() -> None:
    profile = measured(reads(1, 10.0), reads(8, 80.0), reads(128, 1280.0), reads(32, 5.0, size=512))
    assert [profile.iops_at(depth) for depth in (1, 3, 8, 32, 128, 500)] == [10, 80, 80, 1280, 1280, 1280]
    assert profile.iops_at(1, 512) == 5
    assert measured(reads(1, 3.0, size=512)).iops_at(1) == 90  # the model's, where no measurement fits


@pytest.mark.parametrize(
    ("iops", "mb_per_s", "limit"),
    [(97000.0, 100.0, 100e6 / 4096), (9000.0, 100.0, 9000.0), (None, 100.0, 100e6 / 4096)],
)
def test_a_limit_in_bytes_limits_reads(iops: float | None, mb_per_s: float, limit: float) -> None:
    model = Model(latency_us=[[0.0, 61.0], [1.0, 900.0]], iops=iops, mb_per_s=mb_per_s)
    assert DeviceProfile(name="capped", model=model).iops_at(32) == pytest.approx(limit)
