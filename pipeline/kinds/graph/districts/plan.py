"""The prediction of star packing in districts: memory and files of its stages."""

from __future__ import annotations

from indexmill.layout.districts.borders import sampled_rows
from indexmill.layout.districts.order import TOGETHER, InDistricts, groups_of
from indexmill.layout.portfolio import in_districts
from indexmill.pipeline.kinds.common.memory import Narrow, narrow_tasks, sort_buffer_bytes
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.mill.external_sort import STEP_BYTES

#: Bytes a vertex, beside lists: while districts are found and records sorted; while vertices are packed.
_SETTLED_BYTES, _PACKED_BYTES = 48, 48
#: Bytes of a record's key and value in a chunk file, in runs of equal keys.
_PAIR_BYTES = 4
#: Bytes of vectors, as kernels compute with them, that *settle* converts and divides at a time, at least one vector.
CONVERTED_BYTES = 8 << 20
#: Largest district over the mean one: the sample that halves them differs from all vectors.
_UNEVEN = 1.05
#: Share of the vertices that full stars of districts leave over, usually at most; measured: see the guide of layouts.
_LEFT_OVER = 0.5


def n_districts(shape: GraphShape) -> int:
    """Return the number of districts that the order of a graph is made in; 1 where it is made as a whole."""
    kind = _kind(shape)
    return 1 if kind is None else kind.districts(shape.n)


def settle_row_bytes(shape: GraphShape) -> int:
    """Return the memory of a vertex while it is settled: its list, once more in bits of padding, and its record."""
    return 5 * shape.parameters.max_degree + _SETTLED_BYTES


def district_narrow_stages(shape: GraphShape, memory: int) -> dict[str, Narrow]:
    """Return the stages *settle*, *districts* and *rests*; see `graph.memory.narrow_stages`."""
    kind = _kind(shape)
    if kind is None:
        return {}
    row, districts, degree = settle_row_bytes(shape), kind.districts(shape.n), shape.parameters.max_degree
    rows, tasks = narrow_tasks(shape.n, row, memory)
    bits = 12 * shape.n // 64
    # Lists, a copy of them, and those of the other direction; of what is left over they are mapped, except one file's.
    vertex, buffers = 12 * degree + _PACKED_BYTES, sort_buffer_bytes(memory) // 2
    usual = int(min(_UNEVEN * shape.n / districts, kind.most))
    group = min(TOGETHER * kind.vertices, shape.n) * _PACKED_BYTES + kind.most * 4 * degree + bits
    return {
        "settle": Narrow(
            tasks, rows * row + 2 * min(CONVERTED_BYTES, rows * shape.comparable_bytes) + (4 << 20)
        ),
        "districts": Narrow(
            districts,
            kind.most * vertex + bits + buffers,
            usual * vertex
            + bits
            + min(buffers, 2 * STEP_BYTES),  # a step of the sort waits while a part is packed
        ),
        "rests": Narrow(len(groups_of(districts)), group),
    }


def borders_bytes(shape: GraphShape) -> int:
    """Return the memory of stage *borders*: the sample, as it is stored and comparable, and its keys."""
    sample = len(sampled_rows(shape.n, n_districts(shape)))
    return sample * (shape.row_bytes + shape.comparable_bytes + 24)


def district_files(shape: GraphShape, left: float | None = None) -> dict[str, int]:
    """Return the bytes that each of these stages leaves; see `size.stage_files`.

    Parameters
    ----------
    left : float, optional
        Share of the vertices that the districts leave over; by default `left_over`.
    """
    districts, n, lists = n_districts(shape), shape.n, 4 * shape.parameters.max_degree
    if districts == 1:
        return {}
    left = left_over(shape) if left is None else left
    return {
        "borders": (districts - 1) * 4 * (shape.dim + 1),
        "settle": n * (lists + _PAIR_BYTES),
        "districts": int(n * (4 + left * lists)),
        "rests": int(4 * n * left),
    }


def district_scratch(shape: GraphShape, left: float | None = None) -> dict[str, int]:
    """Return the bytes of files that these stages have only while they run: lists of *rests* in both directions.

    See `district_files` for `left`.
    """
    if n_districts(shape) == 1:
        return {}
    left = left_over(shape) if left is None else left
    return {"rests": int(8 * shape.parameters.max_degree * shape.n * left)}


def district_bound(shape: GraphShape) -> int:
    """Return the most bytes that files of these stages take at the same time, whatever the districts leave over.

    A stage's files go once the one that reads them is finished; those of *districts* stay for *order*.
    """
    if n_districts(shape) == 1:
        return 0
    left = most_left_over(shape)
    files = district_files(shape, left)
    packed = files["districts"]
    return max(
        files["borders"] + files["settle"],
        files["settle"] + packed,
        packed + files["rests"] + district_scratch(shape, left)["rests"],
    )


def left_over(shape: GraphShape) -> float:
    """Return about which share of the vertices the districts leave over (`layout.districts.order`)."""
    return _LEFT_OVER * most_left_over(shape)


def most_left_over(shape: GraphShape) -> float:
    """Return the greatest share of the vertices that districts can leave over; less than a page of each counts as 0."""
    page = shape.node.nodes_per_page
    return 0.0 if page <= 1 or 2 * (page - 1) > shape.parameters.max_degree else 1.0


def _kind(shape: GraphShape) -> InDistricts | None:
    return in_districts(shape.parameters.order, shape.n)
