"""The options of a job, declared once for every command that takes one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from indexmill.jobs.cli.options import Force, split_names

if TYPE_CHECKING:
    from indexmill.pipeline.spec import BuildSpec

T = TypeVar("T")
#: Options that are keys at the top of a job file; the others are its parameters.
_TOP = (
    "input", "out", "column", "id_column", "metadata_columns", "centroids", "memory", "scratch", "workers", "executor",
    "ray_address", "work", "force",
)  # fmt: skip
#: Names in annotations that exist for type checkers only.
_TYPES = {"BuildSpec": Any}


def job_command(
    run: Callable[..., None],
    instead: Callable[[dict[str, Any]], bool] | None = None,
    resolve: Callable[..., BuildSpec] | None = None,
) -> Callable[..., None]:
    """Return the command with the options of a job and those of `run`, which gets the job as a `BuildSpec` first.

    Parameters
    ----------
    instead : callable, optional
        Gets all options by name before the job is resolved; where it returns True, it was no job and all is done.
    resolve : callable, optional
        Makes the job of its options; by default `resolve_job`, with all there are.
    """
    own = list(inspect.signature(run, eval_str=True, locals=_TYPES).parameters.values())[1:]
    resolved = resolve or resolve_job
    job = list(inspect.signature(resolved, eval_str=True, locals=_TYPES).parameters.values())

    def command(**values: Any) -> None:
        if instead is not None and instead(values):
            return
        mine = {parameter.name: values.pop(parameter.name) for parameter in own}
        run(resolved(**values), **mine)

    command.__doc__ = run.__doc__
    return _with_options(command, [*job, *own])


def job_options(make: Callable[..., BuildSpec], names: Iterable[str]) -> Callable[..., BuildSpec]:
    """Let `make`, which has options of its own and takes any others by name, take those of `resolve_job` in `names`."""
    job = inspect.signature(resolve_job, eval_str=True, locals=_TYPES).parameters
    own = inspect.signature(make, eval_str=True, locals=_TYPES).parameters.values()
    mine = [parameter for parameter in own if parameter.kind is not parameter.VAR_KEYWORD]
    return _with_options(make, [*mine, *(job[name] for name in names)])


def _with_options(function: Callable[..., T], options: Iterable[inspect.Parameter]) -> Callable[..., T]:
    """Show `options` in the signature of `function`, which takes anything by name."""
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in options]
    function.__annotations__ = {p.name: p.annotation for p in parameters}
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return function


def resolve_job(
    job: Annotated[
        Path | None, typer.Argument(metavar="JOB", help="Job file (TOML). Flags beat what it says.")
    ] = None,
    input: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="FILE",
            help="Vectors: Parquet, Arrow, npy, fvecs, bvecs, fbin, u8bin, i8bin, HDF5; a path, glob or URL."
            " May repeat.",
        ),
    ] = None,
    out: Annotated[str | None, typer.Option(metavar="DIR", help="The index to write.")] = None,
    column: Annotated[
        str | None, typer.Option(help="Vector column; default: the only one that fits.")
    ] = None,
    id_column: Annotated[str | None, typer.Option(help="Column of user ids.")] = None,
    metadata_columns: Annotated[
        str | None, typer.Option(metavar="A,B", help="Columns to keep beside the vectors.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="graph|lsh|ivf",
            help="Kind of index: a graph, hash tables, or inverted lists for joins. (default graph)",
        ),
    ] = None,
    builder: Annotated[
        str | None,
        typer.Option(
            metavar="vamana|partition",
            help="How the graph is built: by searches, or faster, by comparing all pairs of small sets. "
            "(default vamana)",
        ),
    ] = None,
    max_degree: Annotated[
        int | None, typer.Option("-R", "--max-degree", help="Neighbours a vertex keeps. (default 32)")
    ] = None,
    build_list_size: Annotated[
        int | None,
        typer.Option("-L", "--build-list-size", help="Candidates kept while building. (default 75)"),
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="Pruning slack. (default 1.2)")] = None,
    saturate: Annotated[
        bool | None,
        typer.Option(
            help="Fill places that the prune leaves free with the nearest of what it dropped, which saves page reads. "
            "(default yes)",
        ),
    ] = None,
    passes: Annotated[
        int | None,
        typer.Option(
            metavar="1|2",
            help="vamana: times every vertex is inserted; 2 as in the paper, first without slack. (default 1)",
        ),
    ] = None,
    build_codes: Annotated[
        str | None,
        typer.Option(
            metavar="none|sq8",
            help="vamana: what the searches of a build compare, vectors or codes of a byte a component, which is "
            "faster where they are floats. (default none)",
        ),
    ] = None,
    pq_bytes: Annotated[int | None, typer.Option(help="Bytes of a code in memory. (default 32)")] = None,
    pq_rotation: Annotated[
        str | None,
        typer.Option(
            metavar="none|opq",
            help="Codes of the vectors as they are, or rotated so that codes err less (OPQ). (default none)",
        ),
    ] = None,
    lists: Annotated[int | None, typer.Option(help="ivf: inverted lists. (default 4096)")] = None,
    codec: Annotated[
        str | None,
        typer.Option(
            metavar="flat|sq8|pq",
            help="ivf: vectors in lists as they are, a byte a component, or codes. (default flat)",
        ),
    ] = None,
    batch_vectors: Annotated[
        int | None,
        typer.Option(
            help="ivf: vectors of a batch; default: as a join has room for twice in half the memory."
        ),
    ] = None,
    copies: Annotated[
        int | None,
        typer.Option(help="ivf: lists that a vector may lie in, those near it on all sides. (default 1)"),
    ] = None,
    closure: Annotated[
        float | None,
        typer.Option(
            help="ivf: with --copies, how much farther their centroids may be than the nearest: 1 + CLOSURE times. "
            "(default 0.3)"
        ),
    ] = None,
    keep_vectors: Annotated[
        bool | None,
        typer.Option(
            "--keep-vectors", help="ivf: keep exact vectors beside codes, for searches to rerank by."
        ),
    ] = None,
    centroids: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="ivf: centroids to use, in any input format; default: trained."),
    ] = None,
    compute: Annotated[
        str | None,
        typer.Option(
            metavar="cpu|cuda|auto",
            help="graph, ivf: where leaves are compared, and centroids and codes made: on a GPU by CuPy, or with auto "
            "if there is one, and then with other bytes. (default cpu)",
        ),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            metavar="ORDER",
            help="Page layout: identity, random, breadth-first, star, bnp, bnf, kmeans-pages, gorder, gorder-windowed, "
            "margo, graph-bisection, restream or polish. (default star)",
        ),
    ] = None,
    node_dtype: Annotated[
        str | None,
        typer.Option(
            metavar="same|float16|sq16|sq8", help="Vector type on the page. (default same as the input)"
        ),
    ] = None,
    metric: Annotated[str | None, typer.Option(metavar="l2|ip|cosine", help="(default l2)")] = None,
    entries: Annotated[
        int | None, typer.Option(help="Entry vertices to choose a start from. (default 1024)")
    ] = None,
    navigation: Annotated[
        float | None,
        typer.Option(help="Share of the vectors in the navigation graph; 0 for none. (default 0.01)"),
    ] = None,
    sample_vectors: Annotated[
        int | None, typer.Option(help="Vectors that codes and centroids are trained on. (default 100000)")
    ] = None,
    shard_vectors: Annotated[
        int | None, typer.Option(help="Vectors of a shard; default: as many as the memory allows.")
    ] = None,
    overlap: Annotated[
        float | None, typer.Option(help="Share of the vectors that belong to a second shard. (default 0.25)")
    ] = None,
    ratio: Annotated[
        float | None,
        typer.Option("-c", "--ratio", help="lsh: approximation ratio, and step between radii. (default 2.0)"),
    ] = None,
    width: Annotated[
        float | None, typer.Option("-w", "--width", help="lsh: bucket width, in radii. (default 4.0)")
    ] = None,
    gamma: Annotated[
        float | None,
        typer.Option(
            help="lsh: scales the functions of a compound hash; less: fewer tables, more candidates. (default 0.55)"
        ),
    ] = None,
    success: Annotated[
        float | None,
        typer.Option(
            help="lsh: probability that a vector within the radius shares a bucket with the query; sets the tables."
            " (default 0.8)"
        ),
    ] = None,
    n_functions: Annotated[
        int | None,
        typer.Option("-m", "--n-functions", help="lsh: functions of a compound hash; default: solved."),
    ] = None,
    n_tables: Annotated[int | None, typer.Option(help="lsh: tables of each radius; default: solved.")] = None,
    n_radii: Annotated[
        int | None, typer.Option(help="lsh: radii; default: up to the extent of the vectors.")
    ] = None,
    first_radius: Annotated[
        float | None, typer.Option(help="lsh: the least radius; default: from sampled nearest distances.")
    ] = None,
    candidates: Annotated[
        int | None,
        typer.Option(
            "-S",
            "--candidates",
            help="lsh: distances a search computes in a radius at most; default: solved.",
        ),
    ] = None,
    probes: Annotated[
        int | None,
        typer.Option(
            help="lsh: further buckets of each table that a search looks at, for fewer tables. (default 0)"
        ),
    ] = None,
    hash_bits: Annotated[
        int | None, typer.Option(help="lsh: bits that choose a bucket; default: as many as fill blocks.")
    ] = None,
    block_bytes: Annotated[
        int | None, typer.Option(help="lsh: bytes of a bucket block, 128 to 4096. (default 512)")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Same input, parameters and seed: same bytes. (default 1)")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory budget, such as 500MB. (default 8GiB)")
    ] = None,
    scratch: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Bytes the work directory may take; default: what such a build may need."
        ),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Threads, on each machine. (default 2)")] = None,
    executor: Annotated[
        str | None, typer.Option(metavar="local|ray", help="Where tasks run. (default local)")
    ] = None,
    ray_address: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Ray cluster to join; default: RAY_ADDRESS, else one here."),
    ] = None,
    work: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Keep finished stages here, for builds that share them; default: dropped at the end.",
        ),
    ] = None,
    force: Force = False,
) -> BuildSpec:
    """Merge a job file and flags into one `BuildSpec`."""
    given = dict(locals())
    from indexmill.pipeline.execution.allocator import hold_little

    hold_little()  # before anything imports numpy or Arrow
    from indexmill.jobs.jobfile import resolve

    given["metadata_columns"] = split_names(metadata_columns)
    given["force"] = force or None
    del given["job"]
    flags = {key: value for key, value in given.items() if key in _TOP}
    return resolve(job, flags, {key: value for key, value in given.items() if key not in _TOP})
