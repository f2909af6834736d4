"""Parts *log*: the default order weighed by logs of which a share repeats, beside the same order without a log.

A log has as many queries as those that judge it afterwards; the command splits the log once more, to tune and to
judge. A share of both repeats one of a few popular queries, drawn by Zipf's law. Half of the repetitions are exact, and
the others have noise added. All other queries are distinct, and none of those that judge is in the log.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.dataset import Dataset, K, read_bin, read_truth, write_bin, write_truth
from indexmill.jobs.bench.common.parameters import ORDER, SEED
from indexmill.jobs.bench.layouts import written
from indexmill.jobs.bench.layouts.cases import Case, facts
from indexmill.jobs.bench.programs import ours

#: Shares of the queries that repeat a popular one.
SHARES = (0.0, 0.05, 0.2, 0.5)
#: One of this number of queries is popular.
_POPULAR = 20
#: Distance of a near copy over that of the tenth neighbour.
_NEAR = 1 / 7


def measure(case: Case) -> dict[str, Any]:
    """Weigh the default order by a log of each share; page reads of both by queries of the same share."""
    return {
        "order": ORDER,
        "index": facts(case),
        "shares": {str(share): _weighed(case, share) for share in SHARES},
    }


def noise_of(data: Dataset) -> float:
    """Return the standard deviation of each component of the noise that makes a near copy of a query."""
    tenth = read_truth(data.truth)[1][:, K - 1]
    return _NEAR * float(np.sqrt(np.median(tenth) / data.shape()[1]))


def _weighed(case: Case, share: float) -> dict[str, Any]:
    name = case.laid_out(f"log-{share}")
    folder = case.folder / name
    folder.mkdir(exist_ok=True)
    data, base = Dataset(folder), case.space.data.base
    link, queries = folder / base.name, folder / case.space.data.query.name
    if not link.exists():
        link.symlink_to(base.resolve())
    repeated = repeating(read_bin(case.space.data.query), share, noise_of(case.space.data))
    write_bin(queries, repeated)
    write_truth(data)
    log = folder / f"log{queries.suffix}"
    write_bin(log, repeated[: len(repeated) // 2])
    repeats = replace(case, space=replace(case.space, data=data))
    cost = written.lay_out(repeats, name, {"order": ORDER, "query_log": log})
    return {
        "queries": len(repeated) // 2,
        "query_log": ours.manifest(case.space.index(name))["layout"]["query_log"],
        **cost,
        **written.judged(repeats, name, ORDER),
    }


def repeating(queries: Any, share: float, noise: float) -> Any:
    """Return a log and as many queries that judge it, in this order, of which `share` repeat a popular query.

    Parameters
    ----------
    queries : uint8 or float32 array, shape (q, dim)
    noise : float
        Standard deviation, see `noise_of`.

    Returns
    -------
    array of the same type, shape (2 m, dim)
        With m as large as `queries` allow for a share of 0.
    """
    rng = np.random.default_rng(SEED)
    shuffled = rng.permutation(len(queries))
    popular, others = np.split(shuffled, [len(queries) // _POPULAR])
    half = len(others) // 2
    is_repeat = np.zeros((2, half), np.bool_)
    for part in is_repeat:
        part[rng.choice(half, round(share * half), replace=False)] = True
    rows = np.empty(2 * half, np.int64)
    chosen = is_repeat.ravel()
    weights = 1 / np.arange(1, len(popular) + 1)
    rows[chosen] = rng.choice(popular, chosen.sum(), p=weights / weights.sum())
    rows[~chosen] = others[: (~chosen).sum()]
    noisy = chosen & (rng.random(2 * half) < 0.5)
    found = np.asarray(queries)[rows].astype(np.float64)
    found[noisy] += rng.normal(0, noise, (int(noisy.sum()), found.shape[1]))
    if queries.dtype == np.uint8:
        found = np.clip(np.rint(found), 0, 255)
    return found.astype(queries.dtype)
