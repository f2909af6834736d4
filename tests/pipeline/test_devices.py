"""The shipped device profiles hold the figures of the paper's tables and are found by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from indexmill.formats.device import read_profile
from indexmill.jobs.devices.profiles import device_profile
from indexmill.jobs.search.engines import check_engine
from indexmill.pipeline.devices import profile_names, profile_path

#: Table 2 (kIOPS at depth 1 and 128), Table 3 (microseconds of processor a request), Table 5 (devices).
PAPER = {
    "hdd": (0.21, 0.54, 1.0, 1),
    "cssd": (7.2, 273, 1.0, 1),
    "cssd4": (7.2, 273, 1.0, 4),
    "essd": (27.6, 1400, 1.0, 1),
    "xlfdd": (132.3, 3860, 0.05, 1),
    "xlfdd12": (132.3, 3860, 0.05, 12),
}


def test_each_device_of_the_paper_has_a_profile() -> None:
    assert profile_names() == sorted([*PAPER, "s3"])


@pytest.mark.parametrize("name", PAPER)
def test_a_shipped_profile_has_the_figures_of_the_tables(name: str) -> None:
    alone, deep, request_us, count = PAPER[name]
    model = read_profile(profile_path(name)).model
    assert [us for _, us in model.latency_us] == pytest.approx([1000 / alone] * 2, abs=0.05)
    assert (model.iops, model.mb_per_s, model.request_us) == (deep * 1000 * count, None, request_us)


def test_a_name_stands_for_its_path_wherever_a_profile_is_named() -> None:
    path = profile_path("xlfdd")
    assert path.is_file()
    assert profile_path("./xlfdd") == Path("./xlfdd")
    assert check_engine("simulated:xlfdd") == f"simulated:{path}"
    for given, engine in ((Path("xlfdd"), "auto"), (None, "simulated:xlfdd")):
        profile, hint = device_profile(Path("nowhere"), given, engine)
        assert profile is not None
        assert profile.name.startswith("XLFDD")
        assert hint is None
