"""The memory of a build on a running cluster: of those that its job allows, the one by which it is done first.

With less memory for a task the builder `partition` cuts a graph into more regions, which nodes build side by side. The
index is the same, byte for byte.
"""

from __future__ import annotations

import json

from indexmill.formats.device import read_profile
from indexmill.formats.errors import BudgetError, ConfigError
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.cluster import cluster_of, make_cluster_plan, why_one_machine
from indexmill.pipeline.devices import profile_path
from indexmill.pipeline.execution.allocator import give_back
from indexmill.pipeline.execution.executors import names_cluster, running_nodes
from indexmill.pipeline.kinds.registry import kind_of
from indexmill.pipeline.kinds.size import ClusterSize
from indexmill.pipeline.mill.progress import Progress, stage_progress
from indexmill.pipeline.mill.store import StageStore
from indexmill.pipeline.plan import PLANNED_FROM
from indexmill.pipeline.spec import BuildSpec

#: What a build that resumes goes by, in its work directory.
NAME = "cut.json"


def cut_for_cluster(
    spec: BuildSpec, vectors: VectorSource, store: StageStore, progress: Progress
) -> BuildSpec:
    """Return a job with the memory and workers by which the running cluster that it names builds its index first.

    All other jobs, and inputs too small to plan, are returned as they are; so are those that cannot be planned, with
    which the build itself finds what is wrong. A build that resumes has the memory that its first run chose: stages of
    another cut would be made anew.

    Parameters
    ----------
    store : StageStore
        Of the build.
    """
    if spec.executor != "ray" or not names_cluster(spec.ray_address) or not _may_be_cut(spec):
        return spec
    if vectors.n_vectors * vectors.dim < PLANNED_FROM:
        return spec
    shape = [vectors.n_vectors, vectors.dim, str(vectors.dtype)]
    job = json.dumps(
        [spec.parameters.model_dump(mode="json"), shape, spec.memory, spec.workers], sort_keys=True
    )
    chosen = store.note(NAME)
    if chosen is None or chosen["job"] != job:
        with stage_progress(progress, "cut", 1, "cluster"):
            how = _fastest(spec, vectors)
        give_back()  # what the trials took
        if how is None:
            return spec
        chosen = {"job": job, "how": how}
        store.write_note(NAME, chosen)
    return spec.model_copy(update=chosen["how"]) if chosen["how"] else spec


def _may_be_cut(spec: BuildSpec) -> bool:
    size = kind_of(spec.parameters).size()
    return why_one_machine(spec) is None and issubclass(size, ClusterSize) and size.has_cuts


def _fastest(spec: BuildSpec, vectors: VectorSource) -> dict[str, int] | None:
    """Return what of a job the fastest build changes; None if the nodes that are there do not tell."""
    storage = read_profile(profile_path("s3"))
    try:
        nodes = running_nodes(spec.ray_address)
        if nodes.n == 1 or nodes.memory < spec.memory:
            return None
        workers = min(nodes.cores, spec.workers)  # more would take memory, and have no core
        plan = make_cluster_plan(spec, cluster_of(nodes.n, workers, spec.memory, storage), source=vectors)
    except (BudgetError, ConfigError):  # such as: no node with a core has joined yet
        return None
    is_whole = plan.memory_bytes == plan.cuts[0].memory_bytes
    return {} if is_whole else {"memory": plan.memory_bytes, "workers": workers}
