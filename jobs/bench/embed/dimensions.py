"""Parts *dimensions* and *frontier*: the default format of 384 to 3,072 components, at 64 bytes a vector and others."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common.dataset import touch
from indexmill.jobs.bench.embed import formats
from indexmill.jobs.bench.embed.formats import tried
from indexmill.jobs.bench.embed.sets import BY_COMPONENTS, SENTENCES, Case, Embeddings, likeness
from indexmill.jobs.bench.embed.wide import wide_degree

#: Bytes of a code of the part *frontier*, by the components of a vector. The part *dimensions* has the default's 64.
BYTES = {384: (16, 256), 768: (16, 32, 128, 256), 1536: (16, 256), 3072: (16, 256)}
#: Components of vectors whose part *frontier* has a format with more neighbours, too; 768 have the part *wide*.
WIDE = (384, 1536, 3072)


def measure(space: Embeddings, dim: int) -> dict[str, Any]:
    """Build and search the default index of vectors of `dim` components; the build starts with an empty work folder."""
    case = space.case(BY_COMPONENTS[dim])
    formats.warm_up(space.case(SENTENCES))
    work = _work(case)
    shutil.rmtree(work, ignore_errors=True)
    touch(case.space.data.base)
    made = tried(case, {}, work)
    return {**_about(case), **likeness(case.space.data, space.run.sets[SENTENCES]), **made.record()}


def frontier(space: Embeddings, dim: int) -> dict[str, Any]:
    """Build and search the default format within other limits, and with more neighbours than a build takes.

    Stages that the part *dimensions* left in its work folder are not repeated, so these builds have no time. The folder
    is removed in the end.
    """
    case = space.case(BY_COMPONENTS[dim])
    rows = []
    for n_bytes in BYTES[dim]:
        print(f"  {case.name}: {n_bytes} bytes a vector", file=sys.stderr, flush=True)
        rows.append(tried(case, {"search_memory": f"{n_bytes}/vector"}, _work(case)).record())
    found = {**_about(case), "rows": rows}
    if dim in WIDE:
        found["wide"] = tried(case, {"R": wide_degree(dim, rows[0]["format"])}, _work(case)).record()
    shutil.rmtree(_work(case))
    return found


def _about(case: Case) -> dict[str, Any]:
    n_vectors, dim = case.space.data.shape()
    return {"set": case.name, "n_vectors": n_vectors, "dim": dim, "queries": case.space.halves}


def _work(case: Case) -> Path:
    return case.space.out / "work-dimensions"


def by_bytes(parts: dict[str, Any], dim: int) -> list[dict[str, Any]]:
    """Return what both parts measured of vectors of `dim` components, by bytes of a code."""
    rows = [parts[f"dimensions-{dim}"]] if f"dimensions-{dim}" in parts else []
    rows += parts.get(f"frontier-{dim}", {"rows": []})["rows"]
    return sorted(rows, key=lambda row: row["format"]["pq_bytes"])
