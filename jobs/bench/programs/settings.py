"""How our reader searches: one value for each argument that a benchmark varies."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from indexmill.jobs.bench.programs.workspace import THREADS

#: The policies and entries that can be compared; `auto` stands for `navigation` in indexes that have such a graph.
POLICIES = ("beam", "page", "completion", "pipeline")
ENTRIES = ("medoid", "centroids", "navigation")
#: DiskANN's reads in flight a query, and ours where the two searches are the same.
DISKANN_WIDTH = 4


@dataclass(frozen=True)
class Setting:
    """Keyword arguments of `Index.search`; the defaults are the reader's, with as many threads as DiskANN."""

    policy: str = "pipeline"
    entry: str = "navigation"
    beam_width: int = 8
    threads: int = THREADS
    inflight: int = 8
    deterministic: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return it for `Index.search` and for the record."""
        return asdict(self)


def lockstep(policy: str, entry: str, **others: Any) -> Setting:
    """Return a setting of a policy that reads hop by hop, with DiskANN's width; `pipeline` keeps its own."""
    if policy == "pipeline":
        return Setting(policy, entry, **others)
    return Setting(policy, entry, DISKANN_WIDTH, **others)
