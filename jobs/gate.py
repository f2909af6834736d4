"""A gate: no figure of an index may be worse than that of the first one by more than a tolerance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from indexmill.formats.errors import ConfigError, RegressionError
from indexmill.jobs.costs import cost_at_recall
from indexmill.jobs.tolerances import Ceiling, Least, RecallDrop, Tolerances

#: Keys of a sweep's rows behind the tables; of times the A/A run tells the noise.
_COSTS = {
    "page_reads": "pages_read",
    "latency_mean": "latency_us_mean",
    "latency_p99": "latency_us_p99",
    "qps": "qps",
}


@dataclass(frozen=True)
class Verdict:
    """One figure of one index against its tolerance.

    Attributes
    ----------
    where : str
        ``"recall 0.95"`` or ``"L 60"``.
    base, value : float or None
        Of the first index and of this one; None where this one does not reach the recall.
    change, limit : float
        A ratio and the ratio allowed; of recall a difference and the one allowed.
    noise : float
        Floor of the A/A run: a ratio within 1 / (1 + noise) .. 1 + noise is no regression.
    """

    index: str
    policy: str
    figure: str
    where: str
    base: float
    value: float | None
    change: float | None
    limit: float
    noise: float
    passed: bool

    @property
    def within_noise(self) -> bool:
        """Whether it passed only because the A/A run differs as much."""
        return self.passed and self.change is not None and _worse(self.figure, self.change, self.limit)

    def sentence(self) -> str:
        """Say what was found and what was allowed."""
        what = f"{self.index}, {self.policy}: {self.figure} at {self.where}"
        if self.value is None or self.change is None:
            return f"{what}: never reaches that recall with the list sizes measured"
        if self.figure == "recall":
            return f"{what}: {self.value:.4f} against {self.base:.4f}, {self.change:+.4f}; allowed {self.limit:+.4f}"
        bound = "at least" if self.figure == "qps" else "at most"
        noise = f" (A/A noise {self.noise:.1%})" if self.noise else ""
        return (
            f"{what}: {self.value:,.1f} against {self.base:,.1f}, {self.change:.3f}x; allowed {bound}"
            f" {self.limit:g}x{noise}"
        )


def judge(
    tolerances: Tolerances, rows: Sequence[dict[str, Any]], noise: Mapping[str, float]
) -> list[Verdict]:
    """Hold every index of a comparison against the first one.

    Parameters
    ----------
    rows : rows of the sweep, by ascending list size
    noise : of `noise_floor`

    Raises
    ------
    ConfigError
        If the comparison did not measure what a tolerance asks for.
    """
    own = [row for row in rows if not row["again"]]
    names = list(dict.fromkeys(row["index"] for row in own))
    policies = list(dict.fromkeys(row["policy"] for row in own))
    if tolerances.policy is not None:
        if tolerances.policy not in policies:
            raise ConfigError(
                f"--gate: policy {tolerances.policy!r} was not measured; add it to --policy {','.join(policies)}"
            )
        policies = [tolerances.policy]
    verdicts = []
    for policy in policies:
        curves = {
            name: [row for row in own if (row["index"], row["policy"]) == (name, policy)] for name in names
        }
        for name in names[1:]:
            verdicts += _judge_costs(tolerances, curves[names[0]], curves[name], noise)
            verdicts += _judge_recall(tolerances.recall, curves[names[0]], curves[name])
    return verdicts


def check_gate(verdicts: Sequence[Verdict]) -> None:
    """Raise if anything failed.

    Raises
    ------
    RegressionError
        One line for each regression.
    """
    failed = [one.sentence() for one in verdicts if not one.passed]
    if failed:
        raise RegressionError(
            "\n".join([f"{len(failed)} of {len(verdicts)} tolerances are exceeded:", *failed])
        )


def verdict_rows(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Verdicts as report.json has them."""
    return [{**asdict(one), "within_noise": one.within_noise, "sentence": one.sentence()} for one in verdicts]


def _judge_costs(
    tolerances: Tolerances,
    base: Sequence[dict[str, Any]],
    curve: Sequence[dict[str, Any]],
    noise: Mapping[str, float],
) -> list[Verdict]:
    verdicts = []
    for figure, cost in _COSTS.items():
        tolerance: Ceiling | Least | None = getattr(tolerances, figure)
        if tolerance is None:
            continue
        ours = cost_at_recall(curve, cost, tolerance.at_recall)
        theirs = cost_at_recall(base, cost, tolerance.at_recall)
        if theirs.value is None or theirs.bound or ours.bound:
            low, high = (f(row["recall"] for row in base) for f in (min, max))
            raise ConfigError(
                f"--gate: {figure}: recall {tolerance.at_recall:g} is outside the curves of {base[0]['index']} and"
                f" {curve[0]['index']} with {base[0]['policy']} search (the first spans {low:.4f} to {high:.4f});"
                " choose another at_recall, or other list sizes with -L"
            )
        limit = tolerance.min_ratio if isinstance(tolerance, Least) else tolerance.max_ratio
        change = None if ours.value is None else ours.value / theirs.value
        floor = noise[cost]
        passed = change is not None and not (_worse(figure, change, limit) and _beyond(figure, change, floor))
        verdicts.append(
            Verdict(
                curve[0]["index"],
                curve[0]["policy"],
                figure,
                f"recall {tolerance.at_recall:g}",
                theirs.value,
                ours.value,
                change,
                limit,
                floor,
                passed,
            )
        )
    return verdicts


def _judge_recall(
    tolerance: RecallDrop | None, base: Sequence[dict[str, Any]], curve: Sequence[dict[str, Any]]
) -> list[Verdict]:
    """Judge the largest drop over the list sizes that both have, or the drop at the one asked for."""
    if tolerance is None:
        return []
    ours = {row["L"]: row["recall"] for row in curve}
    theirs = {row["L"]: row["recall"] for row in base}
    sizes = [size for size in theirs if size in ours]
    if tolerance.list_size is not None:
        if tolerance.list_size not in sizes:
            raise ConfigError(
                f"--gate: recall: list size {tolerance.list_size} was not measured; add it with"
                f" -L {','.join(str(size) for size in sorted({*sizes, tolerance.list_size}))}"
            )
        sizes = [tolerance.list_size]
    size = min(sizes, key=lambda one: ours[one] - theirs[one])
    change = ours[size] - theirs[size]
    return [
        Verdict(
            curve[0]["index"],
            curve[0]["policy"],
            "recall",
            f"L {size}",
            theirs[size],
            ours[size],
            change,
            -tolerance.max_drop,
            0.0,
            change >= -tolerance.max_drop,
        )
    ]


def _worse(figure: str, change: float, limit: float) -> bool:
    return change < limit if figure in ("qps", "recall") else change > limit


def _beyond(figure: str, change: float, noise: float) -> bool:
    """Whether a ratio is farther on the bad side than chance takes it."""
    return change < 1 / (1 + noise) if figure == "qps" else change > 1 + noise
