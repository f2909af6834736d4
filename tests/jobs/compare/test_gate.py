"""Gates: tolerances, differences that break them, and differences that are only noise."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from tests.support.report import measurements

from indexmill.formats.errors import ConfigError, RegressionError
from indexmill.jobs.compare.gate import Verdict, check_gate, check_measured, judge
from indexmill.jobs.compare.measure import SWEEP_SIZES
from indexmill.jobs.compare.noise import NOISY
from indexmill.jobs.compare.tolerances import Tolerances, read_tolerances

QUIET = dict.fromkeys(NOISY, 0.0)


def judged(tolerances: dict[str, Any], factor: float, noise: dict[str, float] = QUIET) -> list[Verdict]:
    """Verdicts on an index that reads `factor` times the pages of the first."""
    rows = [m.row for m in measurements(factor=factor)]
    return judge(Tolerances.model_validate({"policy": "pipeline", **tolerances}), rows, noise)


def test_more_page_reads_than_tolerated_fail() -> None:
    table = {"page_reads": {"at_recall": 0.95, "max_ratio": 1.05}}
    (worse,) = judged(table, 1.1)
    assert not worse.passed
    assert worse.change == pytest.approx(1.1, abs=0.01)
    with pytest.raises(RegressionError, match=r"page_reads at recall 0\.95") as caught:
        check_gate([worse])
    assert caught.value.exit_code == 7
    (better,) = judged(table, 0.9)
    check_gate([better])


def test_a_slower_index_within_the_noise_passes_and_says_so() -> None:
    table = {"qps": {"min_ratio": 0.95}, "latency_mean": {"max_ratio": 1.05}}
    assert [one.passed for one in judged(table, 1.2)] == [False, False]
    noisy = judged(table, 1.15, dict.fromkeys(NOISY, 0.19))
    assert [one.outcome for one in noisy] == ["within noise", "within noise"]
    assert all(one.passed for one in noisy)
    assert "A/A noise 19.0%" in noisy[0].sentence()
    assert [one.outcome for one in judged(table, 1.0)] == ["passed", "passed"]


def test_times_that_a_loud_machine_hides_are_inconclusive_and_do_not_pass() -> None:
    table, loud = (
        {"qps": {"min_ratio": 0.95}, "latency_mean": {"max_ratio": 1.05}},
        dict.fromkeys(NOISY, 0.25),
    )
    for factor, outcome in ((1.2, "inconclusive"), (1.0, "inconclusive"), (1.5, "failed"), (0.6, "passed")):
        found = judged(table, factor, loud)
        assert [one.outcome for one in found] == [outcome, outcome]
        assert all(one.passed == (outcome == "passed") for one in found)
    with pytest.raises(RegressionError, match="2 of 2 figures are lost in the noise") as caught:
        check_gate(judged(table, 1.0, loud))
    assert caught.value.exit_code == 7
    wide = {
        "qps": {"min_ratio": 0.5},
        "latency_mean": {"max_ratio": 2},
    }  # the tolerance is larger than the noise
    assert [one.outcome for one in judged(wide, 1.2, loud)] == ["passed", "passed"]


def test_a_candidate_that_starts_above_the_recall_passes_by_its_bound() -> None:
    rows = [m.row for m in measurements(factor=1.0)]
    better = [r for r in rows if r["index"] != "after" or r["L"] >= 40]  # starts at a recall of 0.96
    for table, theirs in (
        ({"page_reads": {"max_ratio": 1.5}}, "at most"),
        ({"qps": {"min_ratio": 0.6}}, "at least"),
    ):
        tolerances = Tolerances.model_validate({"policy": "pipeline", **table})
        (verdict,) = judge(tolerances, better, QUIET)
        assert verdict.passed
        assert verdict.bound
        assert f": {theirs} " in verdict.sentence()
    tight = Tolerances.model_validate({"policy": "pipeline", "page_reads": {"max_ratio": 1.0}})
    with pytest.raises(ConfigError, match="outside the curves"):
        judge(tight, better, QUIET)


def test_more_page_reads_are_never_noise() -> None:
    noise = {**dict.fromkeys(NOISY, 0.25), "pages_read": 0.0}
    (one,) = judged({"page_reads": {"max_ratio": 1.02}}, 1.1, noise)
    assert not one.passed


def test_recall_is_held_at_equal_list_size() -> None:
    rows = [m.row for m in measurements()]
    lower = [
        r | {"recall": r["recall"] - (0.02 if r["index"] == "after" and r["L"] == 40 else 0)} for r in rows
    ]
    for table, passed in (
        ({"max_drop": 0.01}, False),
        ({"max_drop": 0.03}, True),
        ({"max_drop": 0.01, "list_size": 20}, True),
        ({"max_drop": 0.01, "list_size": 40}, False),
    ):
        tolerances = Tolerances.model_validate({"policy": "pipeline", "recall": table})
        (verdict,) = judge(tolerances, lower, QUIET)
        assert verdict.passed is passed
        assert verdict.outcome == ("passed" if passed else "failed")


def test_every_policy_and_every_other_index_is_judged() -> None:
    rows = [m.row for m in measurements(("a", "b", "c"))]
    tolerances = Tolerances.model_validate({"page_reads": {"max_ratio": 1.0}})
    found = {(one.index, one.policy) for one in judge(tolerances, rows, QUIET)}
    assert found == {(name, policy) for name in "bc" for policy in ("beam", "pipeline")}


def test_an_index_that_never_reaches_the_recall_fails() -> None:
    rows = [m.row for m in measurements()]
    lower = [r | {"recall": r["recall"] - (0.1 if r["index"] == "after" else 0)} for r in rows]
    (verdict,) = judge(
        Tolerances.model_validate({"policy": "pipeline", "qps": {"min_ratio": 0.1}}), lower, QUIET
    )
    assert not verdict.passed
    assert "never reaches" in verdict.sentence()


@pytest.mark.parametrize("recall", [0.5, 0.999])
def test_a_recall_outside_the_reference_curve_cannot_be_judged(recall: float) -> None:
    with pytest.raises(ConfigError, match=r"the first spans 0\.8000 to 0\.9900"):
        judged({"page_reads": {"max_ratio": 2, "at_recall": recall}}, 1.0)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            {"policy": "page", "recall": {"max_drop": 0.1}},
            "policy 'page' is not measured; add it to --policy beam",
        ),
        (
            {"recall": {"max_drop": 0.1, "list_size": 33}},
            "list size 33 is not measured; add it with -L 10,20,33,40",
        ),
        ({"qps": {"min_ratio": 0.9}}, "qps: the noise of times takes at least 10 A/A pairs, .* these are 6"),
    ],
)
def test_what_a_sweep_cannot_judge_is_refused_before_it(table: dict[str, Any], said: str) -> None:
    tolerances = Tolerances.model_validate(table)
    with pytest.raises(ConfigError, match=said):
        check_measured(tolerances, ("beam", "pipeline"), (10, 20, 40))
    check_measured(tolerances, ("beam", "page"), (10, 20, 33, 40, 80))


def test_the_example_of_the_guide_is_measured_by_the_default_sweep(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[3] / "docs/guides/compare.md").read_text(encoding="utf-8")
    lines = guide[guide.index('    policy = "pipeline"') :].splitlines()
    path = tmp_path / "gate.toml"
    path.write_text("\n".join(takewhile(lambda line: not line or line.startswith("    "), lines)))
    tolerances = read_tolerances(path)
    assert tolerances.model_fields_set == {"policy", "page_reads", "latency_mean", "qps", "recall"}
    check_measured(tolerances, ("beam", "pipeline"), SWEEP_SIZES)
    with pytest.raises(ConfigError, match="policy 'pipeline' is not measured"):
        check_measured(tolerances, ("beam",), SWEEP_SIZES)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "judges nothing"),
        ('policy = "beam"', "judges nothing"),
        ("[page_read]\nmax_ratio = 1", "page_read: unknown key; did you mean 'page_reads'"),
        ("[page_reads]\nmax_rato = 1", "page_reads.max_rato: unknown key; did you mean 'max_ratio'"),
        ("[page_reads]\nat_recall = 0.9", "page_reads.max_ratio: missing; .* max_ratio = 1.02"),
        ("[qps]\nmin_ratio = -1", "qps.min_ratio: .*greater than 0, got -1"),
        ("[qps]\nmin_ratio = nan", "qps.min_ratio: .*finite"),
        ('[qps]\nmin_ratio = "fast"', "qps.min_ratio: .*got 'fast'"),
        ("[qps]\nmin_ratio = 1\nat_recall = 95", "qps.at_recall: .*less than 1, got 95"),
        ('policy = "best"\n[qps]\nmin_ratio = 1', "expected one of .*pipeline.*got 'best'"),
        ("qps = 0.9", "qps: "),
        ("[qps", "not a TOML file"),
    ],
)
def test_a_wrong_tolerance_is_named_with_what_to_write(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "gate.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said) as caught:
        read_tolerances(path)
    assert str(path) in str(caught.value)


def test_missing_tolerances_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        read_tolerances(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="is a directory"):
        read_tolerances(tmp_path)
