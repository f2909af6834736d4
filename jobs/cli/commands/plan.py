"""`indexmill plan`: memory, space and time of a job before it is run, or the speed of an index on a device."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from indexmill.jobs.kinds.job import JobFile, JobOptions
from indexmill.jobs.options.declare import OUTPUT_PANEL, flag_of, flags_given, parameters_of
from indexmill.jobs.options.shared import BeamWidth, InFlight, Json, K, Policy, Queries, Threads, examples
from indexmill.reader.choices import DEFAULT_INFLIGHT

if TYPE_CHECKING:
    from rich.console import Console

    from indexmill.formats.device import DeviceProfile
    from indexmill.jobs.kinds.kind import Kind
    from indexmill.pipeline.plan import Plan, StagePlan
    from indexmill.pipeline.spec import BuildSpec

NAME = "plan"
EXAMPLES = examples(
    "indexmill plan job.toml",
    "indexmill plan nightly.toml  # base, add, delete: an update",
    "indexmill plan --input base.u8bin --out base.index --memory 768MiB --json",
    "indexmill plan job.toml --nodes 64 --node-memory 64GiB --node-cores 16 --vectors 1e9",
    "indexmill plan job.toml --executor ray --ray-address head:6379",
    "indexmill plan index --queries query.u8bin -L 50",
    "indexmill plan tables --queries query.u8bin --device cssd --device mine.json --threads 2",
    "indexmill plan tables --queries query.u8bin --target 2000",
)
#: Profile of the storage of a cluster.
DEFAULT_STORAGE = "s3"
#: Queries of the sample at most; fewer would stay in the caches of the processor from pass to pass.
MOST_QUERIES = 1000


@dataclass(frozen=True, kw_only=True)
class OfACluster:
    """Options of the plan of a cluster of equal nodes."""

    PANEL: ClassVar = "A cluster, with --nodes or --executor ray"
    nodes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10_000,
            help="Plan a build on so many Ray nodes that share nothing but object storage: hours, node-hours, and "
            "what binds each stage.",
        ),
    ] = None
    node_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Memory that Ray offers on a node. (default with --nodes: --memory)"
        ),
    ] = None
    node_cores: Annotated[
        int | None,
        typer.Option(min=1, max=1024, help="Cores of a node. (default with --nodes: --workers)"),
    ] = None
    vectors: Annotated[
        float | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Vectors that the input, a sample, stands for, such as 1e9. (default those it has)",
        ),
    ] = None
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="PROFILE",
            help="Device profile whose latency and MB a second each node reaches on storage: a shipped one, or a "
            f"file. (default {DEFAULT_STORAGE})",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class OfAnIndex:
    """Options of the plan of a finished index."""

    PANEL: ClassVar = "Searches, where JOB is an index"
    device: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROFILE",
            help="Predict the queries a second on this device: a shipped profile (hdd, cssd, cssd4, essd, s3, "
            "xlfdd, xlfdd12) or a file of `indexmill device`. May repeat. (default all, and the device of the index if "
            "it was measured)",
        ),
    ] = None
    target: Annotated[
        float | None,
        typer.Option(
            min=1e-3,
            metavar="QPS",
            help="Say what a device needs for this many queries a second: reads, and processor time of one.",
        ),
    ] = None
    queries: Queries = None
    k: K = 10
    nprobe: Annotated[
        int | None, typer.Option(min=1, help="Lists that a query probes, of an index of kind ivf.")
    ] = None
    policy: Policy = None
    beam_width: BeamWidth = None
    threads: Threads = 1
    inflight: InFlight = None


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `plan`."""

    PANEL: ClassVar = OUTPUT_PANEL
    job: JobFile = None
    given: JobOptions
    cluster: OfACluster
    search: OfAnIndex
    json_: Json = False


def command(options: Options) -> None:
    """Predict memory, scratch space and time of a build or update by trials of some seconds; build nothing.

    For an update (a job file with `base`) also predict what a rebuild would take.

    With --nodes: predict the build on a cluster, by the rates of tasks on this machine. With --executor ray and
    --ray-address (or RAY_ADDRESS): take nodes, cores and memory from the cluster that runs there.

    If JOB is the directory of an index: predict its queries a second on devices, and what limits them, by searches
    for a sample of --queries in memory; -L, -S and --probes are then those of the search.
    """
    from indexmill.jobs.jobfile import is_update

    if options.job is not None and options.job.is_dir():
        _refuse_cluster(options, "the plan of a build")
        _plan_queries(options.job, options)
    elif options.job is not None and is_update(options.job):
        _refuse_cluster(options, "the plan of a build")
        _plan_update(options.job, options)
    else:
        _refuse_searches(options)
        spec = options.given.spec(options.job)
        if options.cluster.nodes is not None or _is_for_a_running_cluster(spec):
            _plan_cluster(options, spec)
        else:
            _refuse_cluster(
                options,
                "the plan of a cluster; give --nodes, or --executor ray with the --ray-address of a running one",
            )
            _plan_build(options, spec)


def _plan_update(job: Path, options: Options) -> None:
    from indexmill.jobs.updatefile import given_to, update_spec
    from indexmill.pipeline.update.plan import plan_update

    _refuse_searches(options)
    spec = update_spec(job, options.given.given)
    plan = plan_update(spec, given_to(spec))
    if options.json_:
        print(json.dumps(plan.to_dict(), indent=2))
        return
    from indexmill.jobs.console.tables import human_bytes, stdout_console

    rows = {
        "peak memory": f"{human_bytes(plan.peak_memory_bytes)} of {human_bytes(spec.memory)}",
        "peak scratch": human_bytes(plan.peak_scratch_bytes),
        "time": f"{plan.seconds:,.0f} s",
        "result": f"{plan.vectors:,} vectors, of which {plan.deleted:,} are deleted",
        "advice": plan.rebuild.advice,
        **({} if plan.note is None else {"note": plan.note}),
    }
    _print(stdout_console(), rows, plan.stages)


def _refuse_searches(options: Options) -> None:
    """Refuse options of searches in the plan of a job.

    Raises
    ------
    ConfigError
    """
    from indexmill.formats.errors import ConfigError

    for flag in flags_given(options.search):
        raise ConfigError(
            f"{flag}: for the plan of an index; name the directory of one that was built, or leave {flag} out"
        )


def _refuse_cluster(options: Options, what: str) -> None:
    """Refuse options of a cluster in any other plan.

    Raises
    ------
    ConfigError
    """
    from indexmill.formats.errors import ConfigError

    for flag in flags_given(options.cluster):
        raise ConfigError(f"{flag}: for {what}, or leave {flag} out")


def _is_for_a_running_cluster(spec: BuildSpec) -> bool:
    """Whether a job names a running cluster, and clusters are planned for such jobs; else one machine is planned."""
    if spec.executor != "ray":
        return False
    from indexmill.pipeline.cluster import why_one_machine
    from indexmill.pipeline.execution.executors import names_cluster

    return names_cluster(spec.ray_address) and why_one_machine(spec) is None


def _plan_cluster(options: Options, spec: BuildSpec) -> None:
    from indexmill.formats.errors import ConfigError
    from indexmill.jobs.choices import size_of
    from indexmill.jobs.console.cluster import cluster_lines, cluster_table
    from indexmill.jobs.console.tables import stdout_console
    from indexmill.jobs.devices.query_plans import profile
    from indexmill.jobs.kinds.registry import KINDS
    from indexmill.pipeline.build import open_input
    from indexmill.pipeline.cluster import cluster_of, make_cluster_plan, refuse_set, running_cluster

    asked = options.cluster
    if asked.vectors is not None and not asked.vectors.is_integer():
        raise ConfigError(f"--vectors: expected a whole number such as 1e9, got {asked.vectors:g}")
    memory = None if asked.node_memory is None else size_of(asked.node_memory, "--node-memory")
    refuse_set(spec)
    source = open_input(spec)  # what is refused is refused before Ray starts
    storage = profile(asked.storage or DEFAULT_STORAGE, "--storage")
    if asked.nodes is None:
        cluster, note = running_cluster(spec, storage)
    else:
        cluster, note = cluster_of(asked.nodes, spec.workers, spec.memory, storage), None
    cluster = cluster._replace(cores=asked.node_cores or cluster.cores, memory=memory or cluster.memory)
    vectors = None if asked.vectors is None else int(asked.vectors)
    plan = make_cluster_plan(spec, cluster, vectors, source, note)
    if options.json_:
        print(json.dumps(plan.to_dict(), indent=2))
        return
    console = stdout_console()
    for name, value in (cluster_lines(plan) | KINDS[spec.parameters.kind].plan_lines(plan.to_dict())).items():
        console.print(f"{name:<13}{value}", soft_wrap=True)
    console.print(cluster_table(plan))


def _plan_build(options: Options, spec: BuildSpec) -> None:
    from indexmill.pipeline.plan import make_plan

    plan = make_plan(spec)
    if options.json_:
        print(json.dumps(plan.to_dict(), indent=2))
    else:
        from indexmill.jobs.console.tables import stdout_console

        _show(stdout_console(), spec, plan)


def _plan_queries(path: Path, options: Options) -> None:
    from indexmill.formats.errors import ConfigError
    from indexmill.formats.sources.source import read_queries
    from indexmill.jobs.console.tables import stdout_console
    from indexmill.jobs.devices import query_plans
    from indexmill.jobs.kinds.opening import load_manifest
    from indexmill.jobs.kinds.registry import KINDS
    from indexmill.pipeline.cost.plan import is_object_storage, plan_queries

    asked, json_ = options.search, options.json_
    kind = KINDS[load_manifest(path)["kind"]]
    how = searched_with(kind, options)
    found, hints = query_plans.profiles(asked.device or [], path)
    named, left_out = _planned(found, kind, are_named=bool(asked.device))
    if asked.queries is None:
        raise ConfigError("--queries: missing; name a file of query vectors: a sample of them is searched")
    queries = read_queries(asked.queries, column=options.given.given["column"])[:MOST_QUERIES]
    are_far = [is_object_storage(one) for _, one in named]
    stored = kind.query_cost(path, queries, asked.k, how, at_url=True) if any(are_far) else None
    cost = stored if stored and all(are_far) else kind.query_cost(path, queries, asked.k, how)
    inflight = DEFAULT_INFLIGHT if asked.inflight is None else asked.inflight
    plan = plan_queries(cost, named, asked.threads, inflight, asked.target, stored)
    if json_:
        print(json.dumps(plan.to_dict(), indent=2))
        return
    console = stdout_console()
    for line in query_plans.facts(plan):
        console.print(line, soft_wrap=True)
    console.print(query_plans.device_table(plan))
    for line in [*(query_plans.far_facts(plan) if asked.device else []), *left_out, *hints]:
        console.print(line, markup=False, soft_wrap=True)


def _planned(
    profiles: list[tuple[str, DeviceProfile]], kind: Kind, are_named: bool
) -> tuple[list[tuple[str, DeviceProfile]], list[str]]:
    """Return the devices on which an index of `kind` is searched, and a line about those that are left out.

    Raises
    ------
    ConfigError
        If they were named.
    """
    from indexmill.formats.errors import ConfigError
    from indexmill.pipeline.cost.plan import is_object_storage

    far = [name for name, one in profiles if is_object_storage(one)]
    if kind.BY_RANGES or not far:
        return profiles, []
    why = f"{', '.join(far)} is object storage, where searches by ranges do not take an index {kind.TITLE}"
    if are_named:
        raise ConfigError(
            f"--device: {why}; it is fetched whole, and searched on a disk: name the device of that disk"
        )
    return [(name, one) for name, one in profiles if name not in far], [f"left out: {why}"]


def searched_with(kind: Kind, options: Options) -> dict[str, Any]:
    """Return the reader's keywords for searches of an index of `kind`.

    Raises
    ------
    ConfigError
        If an option was given that such a search does not have.
    """
    from indexmill.formats.errors import ConfigError
    from indexmill.jobs.kinds.registry import KINDS

    values = {**options.given.given, **vars(options.search)}
    for one in parameters_of(Options):
        name = one.name
        owner = next((other.NAME for other in KINDS.values() if name in other.PLANNED), None)
        of_any = owner is None and (name == "column" or hasattr(options.search, name))
        if of_any or name in kind.PLANNED or values.get(name, one.default) == one.default:
            continue
        flag = flag_of(name, one.annotation.__metadata__[0])
        if owner is None:
            raise ConfigError(f"{flag}: for the plan of a build; leave it out of the plan of an index")
        raise ConfigError(
            f"{flag}: for an index of kind {owner}, and this one is of kind {kind.NAME}; leave it out"
        )
    return {word: values[name] for name, word in kind.PLANNED.items() if values.get(name) is not None}


def _show(console: Console, spec: BuildSpec, plan: Plan) -> None:
    from indexmill.jobs.console.tables import human_bytes
    from indexmill.jobs.kinds.registry import KINDS

    rows = {
        "peak memory": f"{human_bytes(plan.peak_memory_bytes)} of {human_bytes(spec.memory)}",
        "peak scratch": human_bytes(plan.peak_scratch_bytes)
        + ("" if spec.scratch is None else f" of {human_bytes(spec.scratch)}"),
        "time": f"{plan.seconds:,.0f} s",
        **_set_rows(plan),
        **KINDS[spec.parameters.kind].plan_lines(plan.to_dict()),
        **({} if plan.note is None else {"note": plan.note}),
    }
    _print(console, rows, plan.stages)


def _set_rows(plan: Plan) -> dict[str, str]:
    """Say what the other figures are of, where the plan is of a set."""
    from indexmill.jobs.console.tables import human_bytes

    if "parts" not in plan.facts:
        return {}
    parts = plan.facts["parts"]
    each = f"about {parts['vectors']:,} vectors and {human_bytes(parts['index_bytes'])}"
    return {"parts": f"{parts['n']:,} of {each}, one after the other; seconds of stages are those of all"}


def _print(console: Console, rows: Mapping[str, str], stages: Mapping[str, StagePlan]) -> None:
    from indexmill.jobs.console.tables import add_row, human_bytes, plain_table

    for name, value in rows.items():
        console.print(f"{name:<13}{value}", soft_wrap=True)
    table = plain_table("", ["stage", "seconds", "memory", "scratch"])
    for name, stage in stages.items():
        cells = [f"{stage.seconds:,.1f}", human_bytes(stage.memory_bytes), human_bytes(stage.scratch_bytes)]
        add_row(table, [name, *cells])
    console.print(table)
