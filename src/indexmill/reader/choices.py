"""How a search can be made, in words: what the reader, the command line and its help pages share.

Nothing is imported here, so listing the words costs nothing.
"""

from __future__ import annotations

from typing import Literal, get_args

Policy = Literal["pipeline", "page", "completion", "beam"]
Entry = Literal["auto", "navigation", "centroids", "medoid", "previous"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
ENTRIES: tuple[Entry, ...] = get_args(Entry)
#: Engines that take no file.
ENGINES = ("auto", "io_uring", "sqpoll", "pread", "mmap")
#: Besides them, of an index of kind "lsh" or "ivf".
MEMORY = "memory"
#: Where a part of an index of kind "lsh" is while it is open.
Place = Literal["memory", "storage"]
PLACES: tuple[Place, ...] = get_args(Place)
DEFAULT_VECTORS: Place = "memory"
DEFAULT_TABLES: Place = "storage"
#: What stands before the name of a device profile.
SIMULATED = "simulated:"

#: Candidates kept while searching; enough for recall@10 of about 0.95 on SIFT-like data.
DEFAULT_SEARCH_LIST_SIZE = 64
DEFAULT_POLICY: Policy = "pipeline"
#: Navigation where the index has such a graph, else centroids.
DEFAULT_ENTRY: Entry = "auto"
#: Reads a query has in flight at most; the pipeline policy starts with two and widens by itself.
DEFAULT_BEAM_WIDTH = 8
#: Lists probed of an index of kind "ivf".
DEFAULT_NPROBE = 16
#: Candidates measured exactly for each neighbour wanted, where lists hold codes.
DEFAULT_RERANK = 10
#: Queries that a thread interleaves.
DEFAULT_INFLIGHT = 8
