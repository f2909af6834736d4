"""A gate: no figure of an index may be worse than that of the first one by more than a tolerance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from indexmill.formats.errors import ConfigError, RegressionError
from indexmill.jobs.compare.costs import cost_at_recall
from indexmill.jobs.compare.noise import LEAST_PAIRS, LOUD
from indexmill.jobs.compare.tolerances import Ceiling, Least, RecallDrop, Tolerances

#: Keys of a sweep's rows behind the tables.
_COSTS = {
    "page_reads": "pages_read",
    "latency_mean": "latency_us_mean",
    "latency_p99": "latency_us_p99",
    "qps": "qps",
}
#: Figures with noise, which the A/A run measures; page reads and recall repeat exactly.
_TIMES = ("latency_mean", "latency_p99", "qps")


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
    bound : bool
        Whether this index is above the recall already at its smallest list size, so that a cost is at most, and
        ``qps`` at least, `value`.
    inconclusive : bool
        Whether the ratio is within a noise that is too loud to judge by; it has not passed then.
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
    bound: bool = False
    inconclusive: bool = False

    @property
    def outcome(self) -> str:
        """``"passed"``, ``"within noise"``, ``"inconclusive"`` or ``"failed"``."""
        if self.inconclusive:
            return "inconclusive"
        if not self.passed:
            return "failed"
        return "within noise" if self.within_noise else "passed"

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
        side = "at least" if self.figure == "qps" else "at most"
        only = f"{side} " if self.bound else ""
        noise = f" (A/A noise {self.noise:.1%})" if self.noise else ""
        return (
            f"{what}: {only}{self.value:,.1f} against {self.base:,.1f}, {only}{self.change:.3f}x; allowed {side}"
            f" {self.limit:g}x{noise}"
        )


def check_measured(tolerances: Tolerances, policies: Sequence[str], sizes: Sequence[int]) -> None:
    """Refuse, before anything is measured, tolerances that a sweep of these policies and list sizes cannot judge.

    Raises
    ------
    ConfigError
        If a policy or list size asked for is not among them, or a time is to be judged with too few A/A pairs.
    """
    if tolerances.policy is not None and tolerances.policy not in policies:
        raise ConfigError(
            f"--gate: policy {tolerances.policy!r} is not measured; add it to --policy {','.join(policies)}"
        )
    size = None if tolerances.recall is None else tolerances.recall.list_size
    if size is not None and size not in sizes:
        raise ConfigError(
            f"--gate: recall: list size {size} is not measured; add it with"
            f" -L {','.join(str(one) for one in sorted({*sizes, size}))}"
        )
    times = [figure for figure in _TIMES if getattr(tolerances, figure) is not None]
    pairs = len(policies) * len(sizes)
    if times and pairs < LEAST_PAIRS:
        raise ConfigError(
            f"--gate: {', '.join(times)}: the noise of times takes at least {LEAST_PAIRS} A/A pairs, one a policy and"
            f" list size; these are {pairs}: name more list sizes with -L, or judge page_reads and recall only"
        )


def judge(
    tolerances: Tolerances, rows: Sequence[dict[str, Any]], noise: Mapping[str, float]
) -> list[Verdict]:
    """Hold every index of a comparison against the first one.

    Parameters
    ----------
    tolerances : of which `check_measured` approved
    rows : rows of the sweep, by ascending list size
    noise : of `noise_floor`

    Raises
    ------
    ConfigError
        If the curves do not cross the recall that a tolerance names.
    """
    own = [row for row in rows if not row["again"]]
    names = list(dict.fromkeys(row["index"] for row in own))
    policies = list(dict.fromkeys(row["policy"] for row in own))
    if tolerances.policy is not None:
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
    """Raise if anything has not passed.

    Raises
    ------
    RegressionError
        One line for each regression, and for each figure that noise leaves open.
    """
    lines = []
    for outcome, said in (
        ("failed", "tolerances are exceeded:"),
        ("inconclusive", "figures are lost in the noise; measure again when nothing else runs:"),
    ):
        found = [one.sentence() for one in verdicts if one.outcome == outcome]
        if found:
            lines += [f"{len(found)} of {len(verdicts)} {said}", *found]
    if lines:
        raise RegressionError("\n".join(lines))


def verdict_rows(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Verdicts as report.json has them."""
    return [{**asdict(one), "outcome": one.outcome, "sentence": one.sentence()} for one in verdicts]


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
        limit = tolerance.min_ratio if isinstance(tolerance, Least) else tolerance.max_ratio
        floor, reference = noise[cost], None if theirs.bound else theirs.value
        change = None if reference is None else _ratio(ours.value, reference)
        passed = change is not None and not (_worse(figure, change, limit) and _beyond(figure, change, floor))
        if reference is None or (ours.bound and not passed):
            low, high = (f(row["recall"] for row in base) for f in (min, max))
            raise ConfigError(
                f"--gate: {figure}: recall {tolerance.at_recall:g} is outside the curves of {base[0]['index']} and"
                f" {curve[0]['index']} with {base[0]['policy']} search (the first spans {low:.4f} to {high:.4f});"
                " choose another at_recall, or other list sizes with -L"
            )
        open_ = passed and change is not None and _lost(figure, change, limit, floor)
        where = f"recall {tolerance.at_recall:g}"
        name, policy = _curve(curve)
        sure = passed and not open_
        verdict = Verdict(
            name, policy, figure, where, reference, ours.value, change, limit, floor, sure, ours.bound, open_
        )
        verdicts.append(verdict)
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
        sizes = [tolerance.list_size]
    size = min(sizes, key=lambda one: ours[one] - theirs[one])
    change = ours[size] - theirs[size]
    figures = theirs[size], ours[size], change, -tolerance.max_drop
    passed = change >= -tolerance.max_drop
    return [Verdict(*_curve(curve), "recall", f"L {size}", *figures, noise=0.0, passed=passed)]


def _curve(rows: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """Index and policy of a curve."""
    return rows[0]["index"], rows[0]["policy"]


def _ratio(value: float | None, base: float) -> float | None:
    if value is None:
        return None
    if base == 0:
        return 1.0 if value == 0 else math.inf
    return value / base


def _worse(figure: str, change: float, limit: float) -> bool:
    return change < limit if figure in ("qps", "recall") else change > limit


def _beyond(figure: str, change: float, noise: float) -> bool:
    """Whether a ratio is worse than chance explains."""
    return change < 1 / (1 + noise) if figure == "qps" else change > 1 + noise


def _lost(figure: str, change: float, limit: float, noise: float) -> bool:
    """Whether a ratio may be chance, on a machine too noisy to tell the tolerated ratio from none."""
    tolerated = 1 / limit if figure == "qps" else limit
    return noise >= LOUD and 1 + noise > tolerated and 1 / (1 + noise) <= change <= 1 + noise
