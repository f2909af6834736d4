"""`indexmill device` with a device made of numbers: measurements, the profile that is kept, and cleaning up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.cli import run, run_json

from indexmill.formats.device import read_profile
from indexmill.formats.errors import BudgetError, InputError
from indexmill.jobs.devices import measure as device
from indexmill.jobs.devices.measure import DEPTHS, measure_device, open_target
from indexmill.jobs.devices.profiles import device_of, find_profile, kept_profile_path
from indexmill.pipeline.mill.progress import Silent

MOUNTS = r"""
27 1 254:0 / / rw - ext4 /dev/vda rw
30 27 0:24 / /tmp rw,relatime shared:7 - tmpfs tmpfs rw
31 27 8:1 / /mnt/a\040disk rw - xfs /dev/sdb1 rw
32 27 8:2 / /mnt/a\040disk/inner rw - nfs4 server:/export rw
a line that is no mount
33 27 8:3 / /mnt/a\040disk/inner rw - ext4 /dev/sdc1 rw
"""


class FakeDevice:
    """Answers like the reader's measure_device: 1,000 reads a second for each in flight, 1 to 1,000 us."""

    def __init__(self, direct: bool = True, sector: bool = True, direct_sector: bool = True) -> None:
        self.direct, self.sector, self.direct_sector = direct, sector, direct_sector
        self.calls: list[tuple[Any, ...]] = []
        self.sizes: list[int] = []

    def __call__(
        self, path: str, block_bytes: int, depth: int, threads: int, seconds: float, seed: int
    ) -> dict[str, Any]:
        self.calls.append((path, block_bytes, depth, threads, seconds, seed))
        self.sizes.append(Path(path).stat().st_size)
        if block_bytes == 512 and not self.sector:
            raise InputError(f"{path}: the device refuses reads of 512 bytes")
        return {
            "reads": 1000 * depth,
            "elapsed_s": 1.0,
            "direct": self.direct and (block_bytes == 4096 or self.direct_sector),
            "engine": "fake",
            "latencies_us": np.arange(1, 1001, dtype=np.float32)[::-1],
        }


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def big(tmp_path: Path) -> Path:
    (tmp_path / "big").write_bytes(b"x" * 8192)
    return tmp_path / "big"


def measure(path: Path, fake: FakeDevice, size: int = 65536) -> device.Outcome:
    with open_target(path, size, 1, Silent()) as target:
        return measure_device(target, fake, Silent(), seconds=0.5, seed=7)


def test_both_sizes_are_read_at_every_depth_with_different_seeds(big: Path) -> None:
    fake = FakeDevice()
    outcome = measure(big, fake)
    assert [(call[1], call[2]) for call in fake.calls] == [(b, d) for b in (4096, 512) for d in DEPTHS]
    assert len({call[5] for call in fake.calls}) == len(fake.calls)
    assert {call[4] for call in fake.calls} == {0.5}
    for _, _, depth, threads, _, _ in fake.calls:
        assert 1 <= threads <= depth
        assert threads == 1 or depth >= 8
    assert outcome.refused is None
    profile = outcome.profile
    assert profile.measured is not None
    assert [one.iops for one in profile.measured.reads] == [1000.0 * d for d in (*DEPTHS, *DEPTHS)]
    assert profile.measured.reads[0].mb_per_s == pytest.approx(4.096)


def test_the_model_is_the_latency_of_single_page_reads(big: Path) -> None:
    profile = measure(big, FakeDevice()).profile
    model = dict(map(tuple, profile.model.latency_us))  # type: ignore[arg-type]
    assert model[0.0] == 1
    assert model[0.5] == pytest.approx(500.5)
    assert model[0.99] == pytest.approx(np.quantile(np.arange(1, 1001), 0.99), abs=0.01)
    assert model[1.0] == 1000
    assert {0.99, 0.999} <= model.keys()
    assert profile.model.iops == 128_000
    assert profile.model.mb_per_s is None


def test_a_device_beyond_the_bounds_of_a_model_gets_the_bounds(big: Path) -> None:
    fake = FakeDevice()

    def slow(*request: Any) -> dict[str, Any]:
        found = fake(*request)
        return found | {
            "latencies_us": found["latencies_us"] * 5000,
            "elapsed_s": found["reads"] / 8,
        }

    with open_target(big, 65536, 1, Silent()) as target:
        profile = measure_device(target, slow, Silent(), seconds=0.5, seed=7).profile
    assert profile.measured is not None
    assert profile.measured.reads[0].latency_us.max == 5e6
    assert profile.model.latency_us[-1] == [1.0, 1e6]
    assert {one.iops for one in profile.measured.reads} == {8}
    assert profile.model.iops == 10


def test_a_device_without_512_byte_reads_is_measured_all_the_same(big: Path) -> None:
    for fake in (FakeDevice(sector=False), FakeDevice(direct_sector=False)):
        outcome = measure(big, fake)
        assert outcome.profile.measured is not None
        assert {one.bytes for one in outcome.profile.measured.reads} == {4096}
        assert len(fake.calls) == len(DEPTHS) + 1
        assert any("no 512-byte reads" in note for note in outcome.notes)


def test_a_failure_of_page_reads_is_an_error(big: Path) -> None:
    def refuse(*_: object) -> dict[str, Any]:
        raise InputError("page 3: EIO")

    with (
        open_target(big, 0, 1, Silent()) as target,
        pytest.raises(InputError, match="EIO"),
    ):
        measure_device(target, refuse, Silent())


def test_reads_from_memory_and_small_files_are_noted(big: Path) -> None:
    notes = " ".join(measure(big, FakeDevice(direct=False)).notes)
    assert "page cache" in notes
    assert "8.0 KiB" in notes
    assert "page cache" not in " ".join(measure(big, FakeDevice()).notes)


def test_holes_are_noted(tmp_path: Path) -> None:
    with open(tmp_path / "holes", "wb") as file:
        file.truncate(1 << 20)
    assert any("holes" in note for note in measure(tmp_path / "holes", FakeDevice()).notes)


def test_an_index_is_measured_by_its_graph(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match=r"graph\.imx: no such file"):
        measure(tmp_path, FakeDevice())
    (tmp_path / "graph.imx").write_bytes(b"x" * 8192)
    fake = FakeDevice()
    measure(tmp_path, fake)
    assert {call[0] for call in fake.calls} == {str(tmp_path / "graph.imx")}


def test_a_directory_gets_a_temporary_file_that_is_removed(tmp_path: Path) -> None:
    fake = FakeDevice()
    outcome = measure(tmp_path, fake, size=5 << 20)
    assert set(fake.sizes) == {5 << 20}
    assert list(tmp_path.iterdir()) == []
    assert outcome.profile.measured is not None
    assert outcome.profile.measured.path == str(tmp_path)


def test_an_interrupted_measurement_leaves_no_file(tmp_path: Path) -> None:
    seen = []

    def interrupt(path: str, *_: object) -> dict[str, Any]:
        seen.append(Path(path).exists())
        raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        open_target(tmp_path, 65536, 1, Silent()) as target,
    ):
        measure_device(target, interrupt, Silent())
    assert seen == [True]
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_does_not_fit_is_refused_before_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(BudgetError, match="does not fit"):
        measure(tmp_path, FakeDevice(), size=1 << 60)
    assert list(tmp_path.iterdir()) == []


def test_a_path_lies_on_the_innermost_mount(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS)
    assert device_of("/etc", table) == "/dev/vda"
    assert device_of("/tmp", table) == "tmpfs at /tmp"
    assert device_of("/mnt/a disk/file", table) == "/dev/sdb1"
    assert device_of("/mnt/a disk/inner/file", table) == "/dev/sdc1"  # mounted over the server
    assert device_of(tmp_path, tmp_path / "none").startswith("device ")


def test_profiles_of_two_devices_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = kept_profile_path(tmp_path)
    assert here.is_relative_to(tmp_path / "cache")
    assert find_profile(tmp_path) is None
    monkeypatch.setattr("indexmill.jobs.devices.profiles.device_of", lambda _: "/dev/other")
    assert kept_profile_path(tmp_path) != here


def test_the_command_keeps_a_profile_that_is_found_again(big: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "native_measurer", FakeDevice)
    said = run_json("device", big, "--seconds", 0.1)
    assert said["out"] == str(kept_profile_path(big))
    found = find_profile(big.parent)
    assert found is not None
    assert found.measured is not None
    assert found.model_dump()["measured"] == said["measured"]
    assert found.measured.seconds == 0.1
    run_json("device", big)  # again: a kept profile is replaced


def test_the_table_shows_every_depth_and_says_what_was_refused(
    big: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "native_measurer", lambda: FakeDevice(sector=False))
    out = tmp_path / "device.json"
    said = run("device", big, "--out", out)
    assert said.exit_code == 0, said.stderr
    lines = [line.split() for line in said.stdout.splitlines()]
    assert [line[:4] for line in lines if line[:1] == ["4,096"]] == [
        ["4,096", str(d), f"{1000 * d:,}", f"{4.096 * d:.1f}"] for d in DEPTHS
    ]
    assert ["512", "all", "refused"] in [line[:3] for line in lines]
    assert "measure" in said.stderr
    assert read_profile(out).model.iops == 128_000
    assert json.loads(out.read_text())["kind"] == "indexmill-device"
    assert run("device", big, "--out", out).exit_code == 5
    assert run("device", big, "--out", out, "--force").exit_code == 0


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["none"], 3, "no such file or directory"),
        (["tiny"], 3, "holds 3 bytes"),
        (["big", "--size", "much"], 2, "--size"),
        (["folder", "--size", "1KiB"], 2, "at least 4096"),
        (["folder", "--size", "900TiB"], 4, "smaller --size"),
        (["big", "--out", "none/device.json"], 2, "does not exist"),
    ],
)
def test_a_measurement_that_cannot_be_is_refused(
    big: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], code: int, said: str
) -> None:
    monkeypatch.chdir(big.parent)
    monkeypatch.setattr(device, "native_measurer", FakeDevice)
    Path("folder").mkdir()
    Path("tiny").write_bytes(b"abc")
    result = run("device", *options)
    assert result.exit_code == code
    assert said in result.stderr
    assert list(Path("folder").iterdir()) == []


def test_device_measures_a_real_file(tmp_path: Path) -> None:
    out = tmp_path / "device.json"
    said = run_json("device", tmp_path, "--size", "2MiB", "--seconds", 0.02, "--out", out)
    assert [path.name for path in tmp_path.iterdir()] == ["device.json"]
    profile = read_profile(out)
    assert profile.measured is not None
    pages = [one for one in profile.measured.reads if one.bytes == 4096]
    assert [one.depth for one in pages] == list(DEPTHS)
    for one in profile.measured.reads:
        assert one.quantiles_us == sorted(one.quantiles_us)
        assert one.quantiles_us[0] > 0
        assert one.latency_us.p50 <= one.latency_us.p99 <= one.latency_us.max == one.quantiles_us[-1]
        # Little's law: what is in flight is never more than the depth.
        assert one.iops * one.latency_us.mean / 1e6 <= 1.1 * one.depth
    assert said["model"]["iops"] == max(one.iops for one in pages)
