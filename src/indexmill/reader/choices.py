"""Names and defaults of search options, shared by the reader, the command line and its help.

Importing this module loads nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from indexmill.reader import _native

Policy = Literal["pipeline", "page", "completion", "beam", "rounds"]
Entry = Literal["auto", "navigation", "centroids", "medoid", "previous"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
ENTRIES: tuple[Entry, ...] = get_args(Entry)
#: Engines without a file.
ENGINES = ("auto", "io_uring", "sqpoll", "pread", "mmap")
#: Further engine of indexes of kind "lsh" or "ivf".
MEMORY = "memory"
#: Place of a part of an open index.
Place = Literal["memory", "storage"]
PLACES: tuple[Place, ...] = get_args(Place)
DEFAULT_VECTORS: Place = "memory"
DEFAULT_TABLES: Place = "storage"
DEFAULT_IDS: Place = "storage"
#: Engine of indexes at URLs: requests for ranges of their files.
RANGES = "ranges"
#: Prefix of the path of a device profile.
SIMULATED = "simulated:"


class GraphChoices(TypedDict, total=False):
    """Options of a search of a graph; see `Index.search`."""

    L: int | None
    beam_width: int | None
    policy: Policy | None
    entry: Entry
    threads: int
    inflight: int
    deterministic: bool
    allow: ArrayLike | str | _native.Filter | None


class IvfChoices(TypedDict, total=False):
    """Options of a search of inverted lists; see `IvfIndex.search`."""

    nprobe: int | None
    prune: float | None
    rerank: int | None
    threads: int
    inflight: int


class LshChoices(TypedDict, total=False):
    """Options of a search of hash tables; see `LshIndex.search`."""

    candidates: int | None
    probes: int | None
    threads: int
    inflight: int


#: Candidates of a search: enough for recall@10 of approximately 0.95 on SIFT-like data.
DEFAULT_SEARCH_LIST_SIZE = 64
DEFAULT_POLICY: Policy = "pipeline"
#: Navigation if the index has such a graph, else centroids.
DEFAULT_ENTRY: Entry = "auto"
#: Most reads in flight of a query; the pipeline policy starts with two and adds more.
DEFAULT_BEAM_WIDTH = 8
#: The same of a graph at a URL, where rounds of requests take the time, and wide ones as little as narrow ones.
STORED_POLICY: Policy = "rounds"
STORED_BEAM_WIDTH = 32
#: Lists probed of an index of kind "ivf".
DEFAULT_NPROBE = 16
#: Candidates measured exactly for each requested neighbour, if lists have codes.
DEFAULT_RERANK = 10
#: Queries that a thread interleaves.
DEFAULT_INFLIGHT = 8
#: Margin of a set whose build chose none, as those of earlier versions.
UNMEASURED_MARGIN = 0.3


def stored_defaults(policy: Policy | None = None) -> dict[str, Any]:
    """Return policy and beam width of a search of a graph at a URL that names no beam width, and maybe no policy."""
    policy = policy or STORED_POLICY
    return {
        "policy": policy,
        "beam_width": STORED_BEAM_WIDTH if policy == STORED_POLICY else DEFAULT_BEAM_WIDTH,
    }
