"""The prediction of a build on a cluster: hours, node-hours, what binds each stage, and the cut to build with.

The stages, their tasks and the rates of these are those of the plan of one machine (`pipeline.plan`); the schedule is
played through by `pipeline.execution.schedule`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.device import DeviceProfile
from indexmill.formats.errors import BudgetError, ConfigError
from indexmill.formats.location import is_url
from indexmill.formats.sources.source import DEFAULT_BATCH_ROWS, VectorBatch, VectorSource
from indexmill.pipeline.build import open_input, work_directory
from indexmill.pipeline.cost.device import latency_seconds
from indexmill.pipeline.execution.executors import running_nodes
from indexmill.pipeline.execution.schedule import Cluster, Link, Step, play, published_by_command
from indexmill.pipeline.kinds.common.seconds import starting_seconds
from indexmill.pipeline.kinds.registry import kind_of
from indexmill.pipeline.kinds.size import ClusterSize
from indexmill.pipeline.mill.disk_space import existing_parent
from indexmill.pipeline.plan import NO_GPU, as_json
from indexmill.pipeline.spec import BuildSpec

#: The link of a storage profile that states no limit of bytes a second.
_UNLIMITED = 1e12
#: A smaller budget is chosen if the build takes at most this share of the time.
_WORTH = 0.95
#: Budgets are multiples of it: `--memory` then says them in few digits.
_MIB = 1 << 20


@dataclass(frozen=True)
class Cut:
    """A budget of tasks on each node, the pieces that nodes can build side by side, and the seconds of the build."""

    memory_bytes: int
    pieces: int
    seconds: float


@dataclass(frozen=True)
class ClusterPlan:
    """The prediction for one build on a cluster.

    Attributes
    ----------
    nodes, node_cores, node_memory_bytes : int
    vectors : int
    memory_bytes : int
        The budget for `--memory` of the build, whose time is within 5% of the fastest.
    seconds, node_seconds : float
        From start to end; and all nodes' together, which are held that long.
    binds : str
        What binds for the longest time; see `Step`.
    mirror_bytes : int
        Disk that a node needs for its mirror.
    read_bytes, written_bytes : int
        That all nodes fetch from storage, and write to it.
    stages : dict of str to Step
    build_with : str or None
        The options with which a build uses the nodes as planned; None: the job says the same.
    cuts : list of Cut
        The budgets that were compared, all of which give the same index.
    facts : dict
        What the kind says of the index: see the `facts` of its `Size`.
    note : str, optional
        What the figures leave out.
    """

    nodes: int
    node_cores: int
    node_memory_bytes: int
    vectors: int
    memory_bytes: int
    seconds: float
    node_seconds: float
    binds: str
    mirror_bytes: int
    read_bytes: int
    written_bytes: int
    stages: dict[str, Step]
    build_with: str | None
    cuts: list[Cut]
    facts: dict[str, Any]
    note: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON has it: facts stand at the end, before the note."""
        return as_json(self)


class StandIn:
    """`VectorSource` of `n` vectors, of which the first are those of `source`, and all others are like them.

    Attributes
    ----------
    n_vectors : int
    """

    def __init__(self, source: VectorSource, n: int) -> None:
        self._source = source
        self.n_vectors, self.dim, self.dtype = n, source.dim, source.dtype
        self.id_type, self.paths, self.metadata_schema = source.id_type, source.paths, source.metadata_schema

    def batches(self, batch_rows: int = DEFAULT_BATCH_ROWS) -> Iterator[VectorBatch]:
        """Yield the vectors that are known."""
        return self._source.batches(batch_rows)

    def read(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return known vectors in place of others."""
        return self._source.read(rows % self._source.n_vectors)


def cluster_of(nodes: int, cores: int, memory: int, storage: DeviceProfile) -> Cluster:
    """Return a cluster whose nodes each reach a storage of that profile: its mean latency and its MB a second."""
    model = storage.model
    rate = _UNLIMITED if model.mb_per_s is None else model.mb_per_s * 1e6
    return Cluster(nodes, cores, memory, Link(rate, latency_seconds(storage)))


def running_cluster(spec: BuildSpec, storage: DeviceProfile) -> tuple[Cluster, str | None]:
    """Return the Ray cluster that runs at the address of a job, and a note of nodes that are left out.

    Where the job states `workers` or `memory`, the build uses no more of a node.

    Raises
    ------
    ConfigError
        If there is no such cluster.
    """
    nodes = running_nodes(spec.ray_address)
    cores, memory = nodes.cores, nodes.memory
    if "workers" in spec.model_fields_set:
        cores = min(cores, spec.workers)
    if "memory" in spec.model_fields_set:
        memory = min(memory, spec.memory)
    note = None
    if nodes.others:
        note = f"{nodes.others:,} {'node' if nodes.others == 1 else 'nodes'} with other numbers of cores left out"
    return cluster_of(nodes.n, cores, memory, storage), note


def refuse_set(spec: BuildSpec) -> None:
    """Refuse a set, which is built in a local directory: nodes that share nothing but object storage have none.

    Raises
    ------
    ConfigError
    """
    if spec.parts is not None:
        raise ConfigError(
            "parts: a set is built on one machine, part after part; plan it without a cluster, or leave parts out and "
            "plan a cluster with the vectors of one part"
        )


def why_one_machine(spec: BuildSpec) -> str | None:
    """Return why a job is planned on one machine alone; None: on clusters, too."""
    if spec.scratch is not None:
        return "scratch: the plan of a cluster does not hold it against the work folder; leave scratch out"
    kind = kind_of(spec.parameters)
    if not issubclass(kind.size(), ClusterSize):
        return f"nodes: clusters are not planned for kind {kind.name}; plan one machine: leave nodes out"
    return None


def make_cluster_plan(
    spec: BuildSpec, cluster: Cluster, vectors: int | None = None, source: VectorSource | None = None,
    note: str | None = None,
) -> ClusterPlan:  # fmt: skip
    """Predict a build on `cluster`; nothing is written but files of trials, where the work directory would be.

    Parameters
    ----------
    spec : BuildSpec
        Whose memory, workers and executor the cluster states.
    vectors : int, optional
        That the input stands for; by default those it has.
    note : str, optional
        What `cluster` leaves out.

    Raises
    ------
    BudgetError
        If a node cannot hold a task, naming the least memory that can.
    ConfigError
        If clusters are not planned for the kind of index, the job states `scratch`, or the input has more than
        `vectors`.
    IndexmillError
        As the build would, of parameters and input.
    """
    refuse_set(spec)
    if (why := why_one_machine(spec)) is not None:
        raise ConfigError(why)
    size_class = kind_of(spec.parameters).size()
    assert issubclass(size_class, ClusterSize)
    known = source or open_input(spec)
    if vectors is not None and vectors < known.n_vectors:
        raise ConfigError(
            f"vectors: {vectors:,}, but the input has {known.n_vectors:,}; give at least as many, or a smaller sample"
        )
    whole = known if vectors is None else StandIn(known, vectors)
    planned = spec.computing_on("cpu")
    asked = planned.model_copy(
        update={"memory": _whole(cluster.memory), "workers": cluster.cores, "executor": "ray"}
    )
    try:
        size = size_class(asked, whole)
    except BudgetError as error:
        told = str(error).replace("--workers", "--node-cores")
        raise BudgetError(f"node_memory: a node cannot hold a task of this build: {told}") from None
    place = existing_parent(work_directory(asked))
    size.settle(place)
    rates = size.node_rates(place)
    sizes = [size, *_smaller(size, asked)]
    plans = [_planned(one, rates, cluster, is_url(spec.out)) for one in sizes]
    cuts = [Cut(plan.memory_bytes, one.pieces, plan.seconds) for one, plan in zip(sizes, plans, strict=True)]
    best = plans[0]
    for plan in plans[1:]:
        if plan.seconds < _WORTH * best.seconds:
            best = plan
    build_with = None
    if (spec.workers, spec.memory) != (cluster.cores, best.memory_bytes):
        build_with = f"--workers {cluster.cores} --memory {best.memory_bytes // _MIB}MiB"
    notes = [note, None if planned is spec else NO_GPU]
    return replace(best, build_with=build_with, cuts=cuts, note="; ".join(filter(None, notes)) or None)


def _smaller(size: ClusterSize[Any], spec: BuildSpec) -> Iterator[ClusterSize[Any]]:
    """Yield the sizes of the same index by 3/4, 1/2, 3/8, 1/4 ... of the memory, in more pieces each."""
    pieces, memory, next_memory = size.pieces, spec.memory * 3 // 4, spec.memory // 2
    while (less := size.refitted(spec.model_copy(update={"memory": _whole(memory)}))) is not None:
        if less.pieces > pieces:
            pieces = less.pieces
            yield less
        memory, next_memory = next_memory, memory // 2


def _whole(memory: int) -> int:
    """Return a budget in whole MiB, not above `memory`."""
    return memory // _MIB * _MIB


def _planned(size: ClusterSize[Any], rates: Any, cluster: Cluster, at_url: bool) -> ClusterPlan:
    files = size.stage_files() | {"emit": size.index_bytes}
    steps, mirror = play(size.works(rates), size.inputs(), files, cluster)
    steps["publish"] = published_by_command(size.index_bytes, cluster.link, at_url)
    seconds = starting_seconds(size.start_seconds) + sum(step.seconds for step in steps.values())
    bound: dict[str, float] = defaultdict(float)
    for step in steps.values():
        bound[step.binds] += step.seconds
    return ClusterPlan(
        nodes=cluster.nodes,
        node_cores=cluster.cores,
        node_memory_bytes=cluster.memory,
        vectors=size.shape.n,
        memory_bytes=size.job.memory,
        seconds=round(seconds, 1),
        node_seconds=round(cluster.nodes * seconds, 1),
        binds=max(bound, key=lambda what: bound[what]),
        mirror_bytes=mirror,
        read_bytes=sum(step.read_bytes for step in steps.values()),
        written_bytes=sum(step.written_bytes for step in steps.values()),
        stages={name: replace(step, seconds=round(step.seconds, 2)) for name, step in steps.items()},
        build_with=None,
        cuts=[],
        facts=size.facts(),
    )
