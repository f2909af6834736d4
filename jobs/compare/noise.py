"""The noise floor: what ratios the first index has to itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

#: Figures for which the noise is measured.
NOISY = ("pages_read", "latency_us_mean", "latency_us_p99", "qps")
#: Floor beyond which times are called noisy.
LOUD = 0.2
#: A/A pairs without which a gate does not judge times: the 95th percentile of fewer is little but the largest of them.
LEAST_PAIRS = 10
#: Share of A/A ratios that lie within the floor.
_WITHIN = 0.95


def noise_floor(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Give, for each figure, how far from 1 a ratio lies by chance alone.

    The first index and its A/A run were measured alike, in turns, at the same policies and list sizes; each pair
    gives a ratio that would be 1 without noise. Noise of a machine does not know the list size, so all pairs tell
    of one floor: the 95th percentile of their distances from 1, up and down alike.

    Parameters
    ----------
    rows : rows of a sweep with an A/A run

    Returns
    -------
    dict of float
        0.04: ratios from 1 / 1.04 to 1.04 may be noise.
    """
    ratios = aa_ratios(rows)
    return {
        figure: float(np.expm1(np.quantile([abs(np.log(one[figure])) for one in ratios], _WITHIN)))
        for figure in NOISY
    }


def noise_sentence(floor: dict[str, float]) -> str:
    """Say how far times of the first index are from themselves."""
    return (
        f"A/A noise floor: mean latency ± {floor['latency_us_mean']:.1%}, P99 ± {floor['latency_us_p99']:.1%},"
        f" qps ± {floor['qps']:.1%}"
    )


def noise_warning(floor: dict[str, float]) -> str | None:
    """Say that times are not to be trusted, where the first index differs much from itself."""
    worst = max(floor["latency_us_mean"], floor["qps"])
    if worst < LOUD:
        return None
    return (
        f"The machine was not quiet: the first index differs from itself by up to {worst:.0%}. Judge by page reads,"
        " which repeat exactly; for times measure again when nothing else runs."
    )


def aa_ratios(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ratios of the A/A run to the first index, one dict for each policy and list size that both have."""
    first = {(row["policy"], row["L"]): row for row in rows if row["index"] == rows[0]["index"]}
    pairs = [(first.get((row["policy"], row["L"])), row) for row in rows if row["again"]]
    return [
        {
            "policy": again["policy"],
            "L": again["L"],
            "recall": again["recall"],
            **{figure: _ratio(again[figure], base[figure]) for figure in NOISY},
        }
        for base, again in pairs
        if base is not None
    ]


def _ratio(value: float, base: float) -> float:
    return 1.0 if value == base else value / base
