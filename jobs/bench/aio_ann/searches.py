"""The searches that are compared, and the queries of users that they answer.

All have a core for each thread and one query a thread, as the paper's have. The parts of AIO-ANN are added one by one
to completion-driven search of the input's order from the medoid: a cache, k-means pages, starting at the previous
result. The cache holds the pages that searches for the first half of the queries read most often.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.curves import Half, Row, Search, tuned_sizes
from indexmill.jobs.bench.common.dataset import Dataset, read_bin, read_truth, write_bin, write_truth
from indexmill.jobs.bench.common.parameters import ORDER, THREADS
from indexmill.jobs.bench.counts.users import QUERIES_PER_USER, keep_hot, near_each_other
from indexmill.jobs.bench.programs import ours, ours_serve
from indexmill.jobs.bench.programs.ours import DISKANN_WIDTH, Setting
from indexmill.jobs.bench.programs.workspace import Workspace
from indexmill.reader.index import Index

#: Recalls on the tuning queries at which list sizes are measured, and those of the paper's text.
POINTS = (0.86, 0.91, 0.94, 0.965)
RECALLS = (0.90, 0.95)
ROUNDS = 3
KMEANS_PAGES = "kmeans-pages"
#: Engine by which list sizes are chosen: answers do not depend on it.
_TUNING_ENGINE = "mmap"


@dataclass(frozen=True)
class Series:
    """A search.

    Attributes
    ----------
    policy, entry, order : str
    cache : float
        Bytes of the cache over those of all nodes.
    engine : str, optional
        In place of the engine that the others have.
    """

    policy: str = "completion"
    entry: str = "medoid"
    order: str = "identity"
    cache: float = 0.0
    engine: str | None = None

    @property
    def setting(self) -> Setting:
        """Keyword arguments of a search; that of the default policy are the reader's."""
        width = {} if self.policy == "pipeline" else {"beam_width": DISKANN_WIDTH}
        # Which query of a thread was before another is told by the clock, and so is which read arrives first.
        fixed = self.policy != "pipeline" and self.entry != "previous"
        return Setting(self.policy, self.entry, threads=THREADS, inflight=1, deterministic=fixed, **width)


BEAM, COMPLETION, WHOLE = "beam", "completion", "all parts, cache of 10%"
#: All parts, with beam search in place of completion-driven search.
WHOLE_BY_BEAM = "beam, all other parts, cache of 10%"
#: All parts, with each cache.
CACHES = {
    "all parts, no cache": 0.0, "all parts, cache of 1%": 0.01, "all parts, cache of 5%": 0.05, WHOLE: 0.10
}  # fmt: skip
#: Those of the simulated devices, on which `pipeline` cannot be searched with a cache.
SERIES = {
    BEAM: Series("beam"),
    "beam, cache of 10%": Series("beam", cache=0.10),
    COMPLETION: Series(),
    **{f"completion, cache of {share:.0%}": Series(cache=share) for share in (0.01, 0.05, 0.10)},
    "completion, k-means pages": Series(order=KMEANS_PAGES),
    "completion, k-means pages, cache of 10%": Series(order=KMEANS_PAGES, cache=0.10),
    "completion, previous result": Series(entry="previous"),
    **{name: Series(entry="previous", order=KMEANS_PAGES, cache=share) for name, share in CACHES.items()},
    WHOLE_BY_BEAM: Series("beam", entry="previous", order=KMEANS_PAGES, cache=0.10),
    "pipeline": Series("pipeline", "navigation", ORDER),
}


def ensure(space: Workspace) -> None:
    """Build the indexes of all orders unless they are there."""
    for order in dict.fromkeys(one.order for one in SERIES.values()):
        ours.ensure(space, order)


def users(space: Workspace) -> Dataset:
    """Return the set with queries of users near each other, written below the workspace unless it is there."""
    data = Dataset(space.out / "users")
    if not data.truth.exists():
        data.folder.mkdir(parents=True, exist_ok=True)
        base = data.folder / space.data.base.name
        base.unlink(missing_ok=True)
        base.symlink_to(space.data.base.resolve())
        near = np.asarray(read_truth(space.data.truth)[0])
        asked = near_each_other(np.asarray(read_bin(space.data.query)), read_bin(base), near)
        if space.data.dtype().kind == "u":
            asked = np.rint(asked)
        write_bin(data.folder / space.data.query.name, asked)
        write_truth(data)
    return data


def opened(space: Workspace, data: Dataset, engine: str, series: Mapping[str, Series]) -> dict[str, Search]:
    """Open the indexes of a place, each with its cache; return the searches by their names.

    Parameters
    ----------
    data : Dataset
        Whose queries are asked.
    engine : str
        Of all searches that name none.
    """
    indexes: dict[tuple[str, str, float], Index] = {}
    tuning = read_bin(data.query)[: data.halves()[0]]
    found: dict[str, Search] = {}
    for name, one in series.items():
        place = one.order, one.engine or engine, one.cache
        if place not in indexes:
            indexes[place] = Index(space.index(one.order), place[1])
            if one.cache:
                keep_hot(indexes[place], tuning, one.cache)
        found[name] = partial(_ask, indexes[place], data, one.setting)
    return found


def _ask(index: Index, data: Dataset, setting: Setting, size: int, half: Half) -> Row:
    first, last = data.both_halves()[half]
    question = {
        "size": size, "setting": setting.to_dict(), "first": first, "last": last, "times": 1, "way": "batch"
    }  # fmt: skip
    return ours_serve.search(index, data, question)


def sizes(space: Workspace, data: Dataset, series: Mapping[str, Series]) -> dict[str, list[int]]:
    """Return the list sizes to report of each search, by answers of the tuning queries without a device."""
    alike = {name: Series(one.policy, one.entry, one.order) for name, one in series.items()}
    return tuned_sizes(opened(space, data, _TUNING_ENGINE, alike), POINTS)


def told(data: Dataset, series: Mapping[str, Series]) -> dict[str, Any]:
    """Return what the record says of the searches and of the queries of users."""
    return {"queries_per_user": QUERIES_PER_USER, **described(data, series)}


def described(data: Dataset, series: Mapping[str, Series]) -> dict[str, Any]:
    """Return what the record says of the searches, whatever the queries are."""
    return {
        "recalls": RECALLS,
        "queries": data.both_halves(),
        "series": {
            name: {"order": one.order, "cache": one.cache, "engine": one.engine, **one.setting.to_dict()}
            for name, one in series.items()
        },
    }
