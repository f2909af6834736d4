"""The prediction of a build region by region: whether it fits, memory of its stages, bytes of their files."""

from __future__ import annotations

import math
from dataclasses import replace

from indexmill.builders.partition.build import first_degree, neighbours_a_leaf
from indexmill.builders.partition.links import link_bytes
from indexmill.builders.partition.records import ENDS, MET
from indexmill.builders.vamana.connect import connect_bytes
from indexmill.pipeline.kinds.common.memory import FIXED_BYTES, Narrow, narrow_tasks
from indexmill.pipeline.kinds.graph.regions.memory import (
    ALL_STRAY,
    FEW_STRAY,
    PAIR_BYTES,
    Expected,
    assign_row_bytes,
    choose_bytes,
    expected_leaves_bytes,
    expected_regions,
    part_vertices,
    unite_bytes,
)
from indexmill.pipeline.kinds.graph.shape import GraphShape, allowance_step, leaf_work_bytes

#: Different vertices that a vertex meets in a region, over all that its leaves find there, while these are few; and the
#: most, as a multiple of R. Measured with R of 32 and 64 in 3 to 9 regions.
_DISTINCT, _MOST_MET = 0.84, 2
#: Edges of a vertex before those of the other direction are added, over the most; and ends of edges over them, as an
#: edge that vertices of one part chose in both directions is there once.
_CHOSEN, _BOTH_WAYS = 0.95, 1.64


def in_regions(shape: GraphShape, memory: int, processes: int, workers: int) -> GraphShape | None:
    """Return `shape` with the memory of a task of a region; None where no regions fit.

    Parameters
    ----------
    processes : int
        Bytes that worker processes take without vectors.
    """
    step = max(allowance_step(memory), 1)
    held = (memory - FIXED_BYTES - processes - workers * leaf_work_bytes(shape)) // step * step
    fitted = replace(shape, region_bytes=held)
    return None if held <= 0 or expected_cut(fitted, memory) is None else fitted


def expected_cut(shape: GraphShape, memory: int) -> Expected | None:
    """Return the expected cut of a graph, by a sample if there is one; None where its regions do not fit."""
    allowance = shape.allowance(memory)
    foretold = None if shape.cells is None else shape.cells.expected(allowance)
    return foretold or expected_regions(shape.n, allowance, shape.dim)


def region_stage_bytes(
    shape: GraphShape, memory: int, workers: int, *, expected: bool = False
) -> dict[str, int]:
    """Return the peak memory of the stages that replace *build*; see `memory.stage_bytes`.

    Regions are as large as expected in either case, by a sample if there is one: once they are known, they are cut such
    that they fit.
    """
    n, allowance, cut = shape.n, shape.allowance(memory), expected_cut(shape, memory)
    assert cut is not None
    threads = workers * leaf_work_bytes(shape)
    part = min(part_vertices(n, cut.members, allowance), -(-n // cut.regions))
    lists, stray = 4 * shape.parameters.max_degree, FEW_STRAY if expected else ALL_STRAY
    return {
        "regions": 12 * n + 4 * (cut.leaders + 1) ** 2,
        "leaves": expected_leaves_bytes(cut, allowance) + threads,
        "choose": choose_bytes(n, cut.members, part, allowance, stray) + threads,
        "unite": unite_bytes(n, cut.members, part, allowance, stray) + threads,
        "link": min(allowance.buffer_bytes, n * (lists + 56)) + max(connect_bytes(n), link_bytes(n)),
    }


def region_narrow_stages(shape: GraphShape, memory: int) -> dict[str, Narrow]:
    """Return the stages among them whose tasks run side by side; see `memory.narrow_stages`."""
    row, cut = assign_row_bytes(shape.taken_bytes, shape.fanouts), expected_cut(shape, memory)
    assert cut is not None
    rows, tasks = narrow_tasks(shape.n, row, memory)
    leaders = 5 * 4 * cut.leaders * shape.dim  # as they are, and as products take them
    return {"carve": Narrow(tasks, rows * row + leaders), "assign": Narrow(tasks, rows * row + (4 << 20))}


def expected_parts(shape: GraphShape, memory: int) -> dict[str, int]:
    """Return how many tasks the stages have that work region by region, or on the parts of regions."""
    cut = expected_cut(shape, memory)
    assert cut is not None
    home = -(-shape.n // cut.regions)
    parts = cut.regions * -(-home // part_vertices(shape.n, cut.members, shape.allowance(memory)))
    return {"leaves": cut.regions, "choose": parts, "unite": parts}


def region_files(shape: GraphShape, memory: int) -> dict[str, int]:
    """Return the bytes that each of these stages leaves; see `size.stage_files`."""
    cut = expected_cut(shape, memory)
    assert cut is not None
    return _files(shape, cut)


def _files(shape: GraphShape, cut: Expected) -> dict[str, int]:
    n, degree = shape.n, shape.parameters.max_degree
    saturate, copies = shape.parameters.saturate, math.prod(shape.fanouts)
    found, chosen = neighbours_a_leaf(degree, copies, saturate), _CHOSEN * first_degree(degree, saturate)
    labels = 2 * cut.fanout * n
    most = _MOST_MET * degree
    met = most * (1 - math.exp(-_DISTINCT * copies * found / cut.times / most))
    records = cut.times * (met / MET + 0.5)
    edges = _BOTH_WAYS * chosen / ENDS + 0.5 + cut.times - 1  # a vertex has few in other parts than its own
    return {
        "carve": labels,
        "regions": labels + 12 * n,
        "assign": int(n * cut.times * (shape.taken_bytes + 4)),
        "leaves": int(n * records * (4 * MET + PAIR_BYTES)),
        "choose": int(n * edges * (4 * ENDS + PAIR_BYTES)),
        "unite": n * (4 * degree + PAIR_BYTES),
        "link": n * 4 * (degree + 1),
    }
