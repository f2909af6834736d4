"""One build of a hierarchical graph: where its objects are, what they hold, and how the graph is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from indexmill.builders.partition.build import FANOUTS, Fanouts
from indexmill.pipeline.spec import BuildSpec, Parameters

#: Component types, by which the vectors of the file are stored.
Component = Literal["float32", "float16", "int8"]
#: What object storage holds for each: a client sends halves as whole floats.
_SENT: dict[Component, str] = {"float32": "<f4", "float16": "<f4", "int8": "<i1"}
#: Ids of documents, as object storage holds them.
ID_DTYPE = np.dtype("<i4")
#: Fewest and most neighbours on an upper level; level 0 has twice as many.
LEAST_M, MOST_M = 2, 256
#: Vectors that are drawn to plan shards, where memory is so short that there are any.
_SAMPLE = 4_096
#: Entries of the list of efConstruction for each leader of a vector on the first level, and the fewest leaders.
_LISTED, _LEAST_FANOUT = 14, 3


@dataclass(frozen=True)
class HnswJob:
    """A build.

    Attributes
    ----------
    storage : str
        URL of the container, which may hold options and credentials.
    vectors, ids, out : str
        Objects in the container: raw vectors row after row, int32 ids, and the file to write.
    n, dim : int
    component : Component
    metric : {"l2", "ip"}
    m : int
        Neighbours on an upper level, `LEAST_M` to `MOST_M`; level 0 has twice as many.
    add_list, search_list : int
        efConstruction, which decides `fanouts`, and efSearch; the file tells both to faiss.
    has_vectors : bool
        Whether the file has the vectors, too.
    """

    storage: str
    vectors: str
    ids: str
    out: str
    n: int
    dim: int
    component: Component
    metric: Literal["l2", "ip"]
    m: int
    add_list: int
    search_list: int
    has_vectors: bool

    @property
    def sent_dtype(self) -> np.dtype[np.generic]:
        """Type of the components on object storage."""
        return np.dtype(_SENT[self.component])

    @property
    def built_dtype(self) -> np.dtype[np.generic]:
        """Type of the components that the graph is built on; inner product has no kernels for integers."""
        return np.dtype("float16" if self.component == "int8" and self.metric == "ip" else self.component)

    @property
    def degree(self) -> int:
        """Most neighbours on level 0 as it is built: seven eighths of its places, rounded up."""
        return -(-7 * self.m // 4)

    @property
    def fanouts(self) -> Fanouts:
        """Leaders that a vector goes to while level 0 and the levels above it are built.

        On the first level one for each 14 entries of the list of efConstruction, 3 to 10. Of 100,000 embeddings of 768
        floats, recall@10 at equal efSearch was above that of faiss's own graph with 40 and 100 entries, and at most
        0.003 below it with 200.
        """
        first = min(max(self.add_list // _LISTED, _LEAST_FANOUT), FANOUTS[0])
        return first, FANOUTS[1]

    @property
    def vectors_bytes(self) -> int:
        """Bytes of the vectors on object storage."""
        return self.n * self.dim * self.sent_dtype.itemsize

    @property
    def ids_bytes(self) -> int:
        """Bytes of the ids on object storage."""
        return self.n * ID_DTYPE.itemsize

    def spec(self, memory: int, workers: int) -> BuildSpec:
        """Return the build of level 0, of which only the stages up to the graph are made."""
        parameters = Parameters.model_validate(
            {
                "max_degree": self.degree, "metric": self.metric, "order": "identity", "navigation": 0, "entries": 1,
                "pq_bytes": 1, "pq_rotation": "none", "node_dtype": "same", "sample_vectors": _SAMPLE,
                "saturate": False,
            }
        )  # fmt: skip
        return BuildSpec(
            input=[self.vectors], out=self.out, parameters=parameters, memory=memory, workers=workers
        )
