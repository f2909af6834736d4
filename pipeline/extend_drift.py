"""Drift: how far appends took an index from what a build of all its vectors would be, and when to rebuild."""

from __future__ import annotations

from typing import Any

import numpy as np

from indexmill.builders.pq import TRAINING_VECTORS
from indexmill.pipeline.extend_index import OpenedIndex
from indexmill.pipeline.extend_parts import code_error
from indexmill.pipeline.extend_scratch import GrowingGraph

#: Share of added vectors from which a rebuild is advised.
REBUILD_SHARE = 0.5
#: Error of the added vectors' codes over that of the built ones' from which a rebuild is advised.
REBUILD_CODE_ERROR = 1.5


def drift_of(index: OpenedIndex, graph: GrowingGraph) -> dict[str, Any]:
    """Return the drift of `index` with the new vectors of `graph` (docs/formats/manifest.md).

    Slots never move, so the vectors of the last full build are the slots below ``built_vectors``, whatever was
    appended since.
    """
    before = index.manifest.drift or {}
    recorded = before.get("built_vectors")
    built = recorded if isinstance(recorded, int) and 1 <= recorded <= index.n else index.n
    n, codebook = len(graph.vectors), index.codes.codebook
    old = code_error(graph.vectors[:built], index.space, codebook)
    new = code_error(graph.vectors[built:], index.space, codebook)
    share = round((n - built) / n, 6)
    trained = min(built, index.parameters.sample_vectors, TRAINING_VECTORS)
    fit = optimism(trained / len(codebook.pivots))
    ratio = round(new / old / fit, 6) if old > 0 and fit is not None else None
    clipped = sum(
        int(index.space.outside(graph.vectors[first : first + 65536]).any(axis=1).sum())
        for first in range(graph.present, n, 65536)
    )
    rebuild, advice = advise(share, ratio)
    return {
        "built_vectors": built,
        "added_vectors": n - built,
        "added_share": share,
        "code_error_built": _rounded(old),
        "code_error_added": _rounded(new),
        "code_error_ratio": ratio,
        "clipped_share": round(clipped / (n - graph.present), 6),
        "rebuild": rebuild,
        "advice": advice,
    }


def optimism(rows_per_centre: float) -> float | None:
    """Return by what factor codes err more on new rows than on those that trained them, though both are alike.

    The mean of m rows with variance v has variance v / m: its rows lie v (1 - 1/m) from it on average, others
    v (1 + 1/m). None where a centre has a single row, and an error of zero says nothing.
    """
    m = rows_per_centre
    return (m + 1) / (m - 1) if m > 1 else None


def advise(share: float, ratio: float | None) -> tuple[bool, str]:
    """Say whether to rebuild, and why; docs/guides/append.md has the measurements behind the thresholds."""
    reasons = []
    if share >= REBUILD_SHARE:
        reasons.append(f"{share:.0%} of the vectors were added since the last build")
    if ratio is not None and ratio >= REBUILD_CODE_ERROR:
        reasons.append(f"codes of added vectors err {ratio:.2f} times as much as those of built ones")
    if reasons:
        return True, "rebuild: " + "; ".join(reasons)
    return False, "keep: within what was measured to be as good as a build"


def _rounded(error: float) -> float:
    return float(np.format_float_positional(error, precision=6, fractional=False))
