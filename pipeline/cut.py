"""The memory of a build on a running cluster: of those that its job allows, the one by which it is done first.

With less memory for a task the builder `partition` cuts a graph into more regions, which nodes build side by side. The
index is the same, byte for byte.
"""

from __future__ import annotations

import hashlib
import json

from indexmill.formats.device import read_profile
from indexmill.formats.pagefile.atomic import write_json_atomic
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.build import open_store
from indexmill.pipeline.cluster import cluster_of, make_cluster_plan, why_one_machine
from indexmill.pipeline.devices import profile_path
from indexmill.pipeline.execution.executors import names_cluster, running_nodes
from indexmill.pipeline.kinds.registry import kind_of
from indexmill.pipeline.kinds.size import ClusterSize
from indexmill.pipeline.mill.progress import Progress, stage_progress
from indexmill.pipeline.mill.store import held
from indexmill.pipeline.plan import PLANNED_FROM
from indexmill.pipeline.spec import BuildSpec

#: What a build that resumes goes by, in its work directory.
NAME = "cut.json"


def cut_for_cluster(spec: BuildSpec, vectors: VectorSource, progress: Progress) -> BuildSpec:
    """Return a job with the memory by which the running cluster that it names builds its index first.

    All other jobs, and inputs too small to plan, are returned as they are. A build that resumes has the memory that its
    first run chose: stages of another cut would be made anew.

    Raises
    ------
    IndexmillError
        As `make_cluster_plan`, or if the work directory cannot be used.
    """
    if spec.executor != "ray" or not names_cluster(spec.ray_address) or not _may_be_cut(spec):
        return spec
    if vectors.n_vectors * vectors.dim < PLANNED_FROM:
        return spec
    job = [
        spec.parameters.model_dump(mode="json"),
        vectors.n_vectors,
        vectors.dim,
        str(vectors.dtype),
        spec.memory,
    ]
    key = hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()
    with held(open_store(spec), keep=True) as store:
        path = store.root / NAME
        chosen = json.loads(path.read_text()) if path.exists() else {}
        if chosen.get("job") != key:
            with stage_progress(progress, "cut", 1, "cluster"):
                chosen = {"job": key, "memory": _fastest(spec, vectors)}
            write_json_atomic(path, chosen)
    return spec.model_copy(update={"memory": chosen["memory"]})


def _may_be_cut(spec: BuildSpec) -> bool:
    size = kind_of(spec.parameters).size()
    return why_one_machine(spec) is None and issubclass(size, ClusterSize) and size.has_cuts


def _fastest(spec: BuildSpec, vectors: VectorSource) -> int:
    """Return the bytes of memory by which the build is done first."""
    nodes = running_nodes(spec.ray_address)
    if nodes.n == 1 or nodes.memory < spec.memory:
        return spec.memory
    storage = read_profile(profile_path("s3"))
    cluster = cluster_of(nodes.n, min(nodes.cores, spec.workers), spec.memory, storage)
    plan = make_cluster_plan(spec, cluster, source=vectors)
    return spec.memory if plan.memory_bytes == plan.cuts[0].memory_bytes else plan.memory_bytes
