"""Memory of each stage of a graph build, for the build and for its plan alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from indexmill.builders.cluster.kmeans import kmeans_bytes
from indexmill.builders.lists.exact import exact_query_bytes
from indexmill.builders.quantize.asked import choosing_bytes, spread_bytes
from indexmill.builders.quantize.opq import BLOCK as OPQ_BLOCK
from indexmill.builders.quantize.pq import TRAINING_VECTORS
from indexmill.builders.vamana.bridges import bridge_bytes
from indexmill.builders.vamana.connect import connect_bytes
from indexmill.builders.vamana.entries import n_entries
from indexmill.builders.vamana.labels import label_bytes
from indexmill.builders.vamana.navigation import NAVIGATION_VAMANA, navigation_size
from indexmill.formats.errors import BudgetError
from indexmill.pipeline.kinds.common.certify import QUERIES, K
from indexmill.pipeline.kinds.common.memory import (
    FIXED_BYTES,
    THREAD_BYTES,
    Narrow,
    batch_bytes,
    check_stages,
    exact_bytes,
    ids_bytes,
    ingest_bytes,
    least_budget,
    narrow_tasks,
    task_bytes,
    workers_bytes,
)
from indexmill.pipeline.kinds.graph.districts.plan import borders_bytes, district_narrow_stages, n_districts
from indexmill.pipeline.kinds.graph.order import metrics_bytes, order_bytes
from indexmill.pipeline.kinds.graph.regions.plan import in_regions, region_narrow_stages, region_stage_bytes
from indexmill.pipeline.kinds.graph.shape import (
    LEAST_SHARD,
    QUERY_BLOCK,
    GraphShape,
    built_bytes,
    graph_bytes,
    leaf_work_bytes,
    shard_bytes,
    shard_size,
    unite_row_bytes,
)
from indexmill.pipeline.kinds.graph.shaped.labels import label_places, most_vectors

#: The flag that lowers the memory of some stages.
_ADVICE = {
    "--sample-vectors": ("sample", "cluster", "encode", "entries"),
    "--navigation": ("navigation",),
    "--pq-bytes": ("certify",),
    "--workers": ("assign", "unite", "pack", "carve", "settle"),
}
#: Exact vectors on their way to pages of their own: a piece of them, and its pages twice (`formats.index.vectors`).
KEPT_BYTES = 24 << 20
#: Bytes a vertex of an order that is joined of districts, and of its inverse while it is measured.
_JOINED_BYTES = 12
#: Bytes a vector of the numbers of labels while the column is read, and copies of its different values then.
_LABEL_BYTES, _LABEL_COPIES = 24, 3
#: Bytes a component while it becomes one of a code: two float32 beside the code.
_CODING_BYTES = 8
#: Products of queries and vectors that are compared by brute force.
_PRODUCT_BYTES = 32 << 20
#: Largest shard over the mean one: borders are not equally crowded.
_UNEVEN = 1.05


def stage_bytes(
    shape: GraphShape, memory: int, workers: int, processes: int = 0, *, expected: bool = False
) -> dict[str, int]:
    """Return the peak memory of every stage, without the memory that processes take before any vector.

    Parameters
    ----------
    shape : GraphShape
        With the resolved size of shards.
    memory : int
        The budget, which sizes tasks.
    processes : int
        Bytes that worker processes take without vectors: of the budget, but not of a stage.
    expected : bool
        Whether shards, regions and districts are as large as is expected, for a prediction; else they are as large as
        they may become, which is what must fit the budget.
    """
    p, n, sharded = shape.parameters, shape.n, shape.parameters.shard_vectors is not None
    shard = expected_shards(shape)[1] if expected else p.shard_vectors or n
    stages = {
        "ingest": ingest_bytes(n, shape.dim, p.metric, shape.id_bytes),
        "sample": 8 * n + shape.drawn * shape.row_bytes,
        "cluster": _cluster(shape),
        "build": workers * leaf_work_bytes(shape)
        + (shard_bytes(shard, shape, memory) if sharded else built_bytes(n, shape)),
        "encode": _encode(shape, workers),
        "entries": _entries(shape, workers),
        "navigation": _navigation(shape),
        "order": _order(shape, workers),
        "emit": _emit(shape, memory),
        "certify": certify_bytes(n, shape.dim, 0 if p.codes_on_page else p.pq_bytes, workers),
    }
    if shape.region_bytes is not None:
        del stages["build"]
        stages |= region_stage_bytes(shape, memory, workers, expected=expected)
    if n_districts(shape) > 1:
        stages["borders"] = borders_bytes(shape)
    if sharded:
        stages["link"] = _link(shape, memory)
    if shape.n_asked:
        stages |= _asked(shape, workers)
    if shape.label_column is not None:
        stages["labels"] = _labels(shape, workers)
    narrow, threads = narrow_stages(shape, memory).items(), (workers - 1) * THREAD_BYTES
    return stages | {
        name: stage.peak(memory, workers, processes, expected=expected) + threads for name, stage in narrow
    }


def narrow_stages(shape: GraphShape, memory: int) -> dict[str, Narrow]:
    """Return the stages of a build whose tasks run side by side."""
    stages = {"pack": _pack(shape, memory)} | district_narrow_stages(shape, memory)
    if shape.region_bytes is not None:
        stages |= region_narrow_stages(shape, memory)
    if shape.parameters.shard_vectors is not None:
        stages |= {"assign": _assign(shape, memory), "unite": _unite(shape, memory)}
    return stages


def certify_bytes(n: int, dim: int, pq_bytes: int, workers: int) -> int:
    """Return the memory of the certificate of `n` vectors: a brute-force search, and the codes of an open index."""
    return n * pq_bytes + exact_bytes(n, dim, QUERIES, K, workers)


def expected_shards(shape: GraphShape) -> tuple[int, int]:
    """Return about how many shards a build will have, and the vectors of the largest; (1, n) in one piece."""
    p, n = shape.parameters, shape.n
    limit = p.shard_vectors
    if limit is None:
        return 1, n
    members = int(n * (1 + p.overlap))
    cells = max(2, -(-members // limit))
    # As `builders.cluster.shards.plan_shards`: one cell more as long as the sample cannot rule out that a shard is
    # too large.
    while _UNEVEN * members / cells * (1 + _doubt(shape, cells)) > limit and cells < 2 * members // limit + 4:
        cells += 1
    return cells, min(limit, int(_UNEVEN * members / cells))


def check_memory(
    shape: GraphShape, memory: int, executor: str, workers: int, asked: GraphShape | None = None
) -> Mapping[str, int]:
    """Return `stage_bytes`; raise BudgetError unless every stage fits.

    Parameters
    ----------
    asked : GraphShape, optional
        What the job says, if `shape` has been fitted to `memory`: other shards may suit another budget.

    Raises
    ------
    BudgetError
        Naming the stage that needs most, what to lower, and the smallest budget that works.
    """
    processes = workers_bytes(executor, workers)
    stages = stage_bytes(shape, memory, workers, processes=processes)

    def advice(worst: str) -> str:
        flag = next((flag for flag, names in _ADVICE.items() if worst in names), None)
        hint = flag and f"lower {flag}, or "
        if worst == "build":
            fits = shard_size(shape, memory - processes - workers * leaf_work_bytes(shape))
            hint = f"set --shard-vectors to {fits:,} or less, or " if fits else "lower --workers, or "
        if worst == "labels":
            hint = "leave --label-column out, or "
        if worst in ("asked", "nearest"):
            hint = "give fewer queries with --query-sample, or "
        if worst == "order" and _ordering(_by_star(shape), memory, workers, processes) < stages[worst]:
            hint = "take --order star, or "
        return hint or ""

    def cut(budget: int) -> dict[str, int] | None:
        return _cut_stages(asked or shape, budget, executor, workers)

    return check_stages(stages, memory, executor, workers, f"{shape.n:,} vectors", advice, cut)


def fit_shards(shape: GraphShape, memory: int, executor: str, workers: int) -> GraphShape:
    """Return `shape` cut into shards that fit `memory`, unless its job states their size.

    The partition builder needs no shards: a graph that does not fit is built region by region, and is the same.

    Raises
    ------
    BudgetError
        If not even a small shard fits, naming the smallest budget that works.
    """
    fitted = fitted_shape(shape, memory, executor, workers)
    if fitted is None:
        cut = shape.parameters.builder == "partition"
        piece = "region of the graph" if cut else f"shard of {LEAST_SHARD:,} vectors"
        raise BudgetError(
            f"memory: {memory:,} bytes, less {FIXED_BYTES:,} of fixed cost, hold no {piece}; give at least "
            f"{least_memory(shape, executor, workers):,} bytes"
        )
    return fitted


def fitted_shape(shape: GraphShape, memory: int, executor: str, workers: int) -> GraphShape | None:
    """Return `shape` as `fit_shards` does, or None where nothing fits."""
    p, processes = shape.parameters, workers_bytes(executor, workers)
    if (
        p.builder == "partition"
        and p.shard_vectors is None
        and built_bytes(shape.n, shape) + workers * leaf_work_bytes(shape) > memory - FIXED_BYTES - processes
    ):
        return in_regions(shape, memory, processes, workers)
    limit = p.shard_vectors or shard_size(shape, memory)
    if not limit:
        return None
    sharded = limit if limit < shape.n else None
    return replace(shape, parameters=p.model_copy(update={"shard_vectors": sharded}))


def least_memory(shape: GraphShape, executor: str, workers: int) -> int:
    """Return the smallest budget that the build of `shape` fits, with smaller shards if that helps."""
    return least_budget(lambda budget: _cut_stages(shape, budget, executor, workers), executor, workers)


def fits(shape: GraphShape, memory: int, executor: str, workers: int) -> bool:
    """Return whether the build of `shape` fits a budget of `memory` bytes, in one piece or cut."""
    stages = _cut_stages(shape, memory, executor, workers)
    return (
        stages is not None and max(stages.values()) + FIXED_BYTES + workers_bytes(executor, workers) <= memory
    )


def _cut_stages(shape: GraphShape, memory: int, executor: str, workers: int) -> dict[str, int] | None:
    """Return the memory of each stage of `shape` fitted to `memory`; None if it cannot be, or in too many shards."""
    fitted = fitted_shape(shape, memory, executor, workers)
    if fitted is None:
        return None
    cut_by_memory = shape.parameters.shard_vectors is None and fitted.parameters.shard_vectors is not None
    if cut_by_memory and expected_shards(fitted)[0] > shape.drawn // 4:
        return None
    return stage_bytes(fitted, memory, workers, processes=workers_bytes(executor, workers))


def _doubt(shape: GraphShape, cells: int) -> float:
    """Four standard errors of a shard's share in the sample, over that share."""
    drawn = shape.drawn
    return 4 * (cells / drawn) ** 0.5 if drawn < shape.n else 0.0


def _cluster(shape: GraphShape) -> int:
    """Blocks of rows for the medoid; for shards also the sample as float32, and its distances twice.

    Sets of rows that are split side by side are copied, and compared component by component.
    """
    cells, _ = expected_shards(shape)
    balanced = shape.drawn * (9 * shape.dim + 8 * cells + 64) if cells > 1 else 0
    return max(3 * min(8 << 20, 4 * shape.n * shape.dim), balanced)


def _encode(shape: GraphShape, workers: int) -> int:
    """Training rows as float32, and for each thread the columns of one chunk and their codes.

    With a rotation also these rows rotated and their codes, and for each thread a block of them and a product.
    """
    rows, dim = min(shape.drawn, TRAINING_VECTORS), shape.dim
    chunks = min(shape.parameters.pq_bytes, dim)
    thread = rows * (4 * -(-dim // chunks) + 16)
    copied = 0 if shape.dtype.itemsize == 4 else rows * shape.row_bytes
    training = rows * 4 * dim + copied
    if shape.parameters.pq_rotation == "opq":
        training += rows * (4 * dim + chunks) + 40 * dim * dim
        thread += OPQ_BLOCK * (8 * dim + 4 * chunks) + 12 * dim * dim
    training += workers * thread
    if shape.n_asked:
        training = max(training, choosing_bytes(dim, chunks, workers))
    return training + (workers - 1) * THREAD_BYTES


def _asked(shape: GraphShape, workers: int) -> dict[str, int]:
    """The sample three times while repeated queries are dropped; the search for nearest vectors; lists of queries."""
    queries, k, row = shape.n_asked, shape.asked_nearest, max(shape.row_bytes, 4 * shape.dim)
    block = min(queries, QUERY_BLOCK) * exact_query_bytes(shape.dim, k, workers) + _PRODUCT_BYTES
    searching = exact_bytes(shape.n, shape.dim, 0, k, workers) + block
    threads = (workers - 1) * THREAD_BYTES
    return {
        "asked": queries * (3 * row + 16),
        "nearest": queries * (row + 16 * k) + max(searching, spread_bytes(shape.dim)),
        "bridge": bridge_bytes(shape.n, queries, k, shape.parameters.max_degree, workers)
        + connect_bytes(shape.n)
        + threads,
    }


def _labels(shape: GraphShape, workers: int) -> int:
    """The graph of the most frequent label that has one, and its rows; bridges, where a sample of queries has some."""
    n, degree = shape.n, shape.parameters.max_degree
    most = most_vectors(n)
    entering = label_bytes(n, most, shape.row_bytes, label_places(degree, most))
    if shape.n_asked:
        entering += bridge_bytes(n, shape.n_asked, shape.asked_nearest, degree, workers)
    reading = int((_LABEL_BYTES + _LABEL_COPIES * shape.label_row_bytes) * n)
    return reading + entering + (workers - 1) * THREAD_BYTES


def _entries(shape: GraphShape, workers: int) -> int:
    """Codes and candidates of k-means, or a thread's searches of the graph; the sample is mapped."""
    centroids = n_entries(shape.parameters.entries, shape.n)
    return kmeans_bytes(shape.drawn, shape.dim, centroids, workers) + (workers - 1) * THREAD_BYTES


def _navigation(shape: GraphShape) -> int:
    size = navigation_size(shape.parameters.navigation, shape.n)
    return graph_bytes(size, shape.row_bytes, NAVIGATION_VAMANA.max_degree)


def _order(shape: GraphShape, workers: int) -> int:
    """Maps of vertices, what the order holds unless it is joined of districts, and dense graphs of 256 pages at a time.

    Vectors and lists are mapped files, which the kernel may drop.
    """
    p, page = shape.parameters, max(1, shape.node.nodes_per_page)
    if n_districts(shape) > 1:
        return _JOINED_BYTES * shape.n + metrics_bytes(page)
    return order_bytes(p.order, shape.n, page, p.max_degree, workers, divided=False) + metrics_bytes(page)


def _ordering(shape: GraphShape, memory: int, workers: int, processes: int) -> int:
    """The order, or the largest of the stages that make it in districts."""
    narrow = district_narrow_stages(shape, memory).values()
    peaks = [stage.peak(memory, workers, processes) + (workers - 1) * THREAD_BYTES for stage in narrow]
    return max(_order(shape, workers), borders_bytes(shape) if narrow else 0, *peaks)


def _by_star(shape: GraphShape) -> GraphShape:
    return replace(shape, parameters=shape.parameters.model_copy(update={"order": "star"}))


def _pack(shape: GraphShape, memory: int) -> Narrow:
    """Vectors as they become codes of nodes; then these, lists with codes in them, records of both, and their sort."""
    record, node = shape.record_bytes, shape.node
    rows, tasks = narrow_tasks(shape.n, 3 * record, memory)
    codes = shape.dim * node.element_dtype.itemsize if node.quantized else 0
    list_bytes = (4 + node.code_bytes) * shape.parameters.max_degree
    coding = codes + _CODING_BYTES * shape.dim if codes else 0
    return Narrow(tasks, rows * max(coding, codes + list_bytes + record + 24))


def _emit(shape: GraphShape, memory: int) -> int:
    """The buffers of the sort, pieces of it twice more as they become pages, and the ids in both orders."""
    records = shape.n * shape.record_bytes
    buffers = min(task_bytes(memory) + (28 << 20), 66 << 20, 3 * records + (4 << 20))
    buffers += 0 if shape.kept is None else KEPT_BYTES
    return buffers + 4 * shape.n + ids_bytes(shape.n, shape.id_bytes)


def _assign(shape: GraphShape, memory: int) -> Narrow:
    rows, tasks = narrow_tasks(shape.n, shape.row_bytes + 48, memory)
    cells, _ = expected_shards(shape)
    block = min(rows, 8192) * (12 * shape.dim + 12 * cells)
    return Narrow(tasks, rows * 160 + block + (4 << 20))


def _unite(shape: GraphShape, memory: int) -> Narrow:
    row = unite_row_bytes(shape)
    rows, tasks = narrow_tasks(shape.n, row, memory)
    cells, _ = expected_shards(shape)
    lists = 4 * shape.parameters.max_degree
    buffers = (cells + 4) * batch_bytes(cells, lists, memory) * (lists + 56) // (lists + 8)
    return Narrow(tasks, rows * row + buffers)


def _link(shape: GraphShape, memory: int) -> int:
    rows, _ = narrow_tasks(shape.n, unite_row_bytes(shape), memory)
    return rows * 4 * (shape.parameters.max_degree + 1) + connect_bytes(shape.n)
