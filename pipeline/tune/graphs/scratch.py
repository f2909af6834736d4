"""The most disk space that samples and trials of graphs take."""

from __future__ import annotations

from collections.abc import Sequence

from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.kinds.common.shape import stored_vectors
from indexmill.pipeline.kinds.graph.parameters import graph_parameters
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.kinds.graph.size import stage_files
from indexmill.pipeline.kinds.scratch import SideColumns
from indexmill.pipeline.spec import BuildSpec
from indexmill.pipeline.tune.graphs.space import CodeFormat, Space
from indexmill.pipeline.tune.sample import samples_bytes

#: Stages of which a sample has one for each graph, and those that a trial takes with it when it ends.
_OF_A_GRAPH, _OF_A_TRIAL = ("build", "order", "entries"), ("pack", "emit")
#: Headers and footers of the files of a sample, certificates, locks.
_BESIDE = 1 << 20


def scratch_bytes(
    spec: BuildSpec, source: VectorSource, space: Space, sizes: Sequence[int], queries: int, kept: int
) -> int:
    """Return the most bytes that lie in the directory of `tune`.

    Parameters
    ----------
    sizes : sequence of int
        Vectors of the samples, ascending: all lie in one file as they are drawn, and each in one of its own.
    queries : int
        Vectors that are drawn beside them.
    kept : int
        Graphs that are built of the largest sample at most.
    """
    builds = (_of_builds(spec, source, space, sizes, level, kept) for level in range(len(sizes)))
    return samples_bytes(source, spec.parameters.metric, sizes, queries) + sum(builds)


def _of_builds(
    spec: BuildSpec, source: VectorSource, space: Space, sizes: Sequence[int], level: int, kept: int
) -> int:
    """Return the disk space of the builds of a sample, of which one is at the end."""
    n, degrees = sizes[level], _degrees(space, level, len(sizes) - 1, kept)
    widest = _files(spec, source, n, max(degrees), space.largest_code())
    shared = sum(size for name, size in widest.items() if name not in (*_OF_A_GRAPH, *_OF_A_TRIAL, "encode"))
    graphs = {degree: _files(spec, source, n, degree, space.codes[0]) for degree in set(degrees)}
    built = sum(graphs[degree][name] for degree in degrees for name in _OF_A_GRAPH)
    codes = sum(_files(spec, source, n, max(degrees), code)["encode"] for code in space.codes)
    trial = widest["pack"] + 2 * widest["emit"]  # published as a copy
    return shared + built + codes + trial + _BESIDE


def _degrees(space: Space, level: int, last: int, kept: int) -> list[int]:
    """Return the degree of each graph that is built of a sample, at most; see `tune`."""
    narrowed = sorted((graph.max_degree for graph in space.graphs()), reverse=True)[:kept]
    longer = narrowed if len(space.with_longer_list(space.graphs()[0])) > 1 else []
    if level == 0:
        return [*(graph.max_degree for graph in space.graphs()), *longer]
    return [*space.degrees, *narrowed, *longer] if level == min(1, last) else narrowed


def _files(spec: BuildSpec, source: VectorSource, n: int, degree: int, code: CodeFormat) -> dict[str, int]:
    """Return the bytes that each stage of one build of a sample leaves."""
    p = graph_parameters(spec.parameters).model_copy(
        update={"max_degree": degree, **code._asdict(), "shard_vectors": None}
    )
    shape = GraphShape(*stored_vectors(source, p.metric, n), 0.0, p)
    sharded = {"assign", "unite", "link", *(() if shape.is_converted else ("comparable",))}
    files = stage_files(shape, SideColumns(), spec.memory)
    return {name: size for name, size in files.items() if name not in sharded}
