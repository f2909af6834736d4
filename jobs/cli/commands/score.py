"""`indexmill score`: recall and cost of an index over a query set."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from indexmill.jobs.cli.options import (
    Allow,
    BeamWidth,
    Column,
    Deterministic,
    Engine,
    EntryList,
    Force,
    IndexDir,
    InFlight,
    Json,
    K,
    PolicyList,
    Queries,
    Threads,
    examples,
    split_choices,
    split_sizes,
)
from indexmill.reader.choices import DEFAULT_ENTRY, DEFAULT_POLICY

if TYPE_CHECKING:
    from indexmill.formats.device import DeviceProfile
    from indexmill.jobs.score.graph import QuerySet, Setting
    from indexmill.reader.index import Index

NAME = "score"
EXAMPLES = examples(
    "indexmill score index --queries query.u8bin --truth truth.gt -L 20,50,100 --policy beam,page",
    "indexmill score index --queries query.parquet --base base.parquet --first 500 --json",
    "indexmill score index --queries query.u8bin --truth truth.gt --sweep --policy beam,page --out curves/",
    "indexmill score index --queries query.u8bin --truth truth.gt --cache 64MiB --cache-from half",
    "indexmill score lists --queries query.u8bin --truth truth.gt --nprobe 8,16,32 --prune 0.3",
    "indexmill score tables --queries query.u8bin --truth truth.gt -S 500,1000,2000 -k 1",
)
#: List sizes that are measured without --sweep and -L.
DEFAULT_SIZES = (20, 50, 100)
#: Word of --cache-from for the first half of --queries.
HALF = "half"


def command(
    index: IndexDir,
    queries: Queries = None,
    truth: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="True neighbours of the queries (big-ann ground truth)."),
    ] = None,
    base: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="Instead of --truth: the index's input, to compute the truth from."
        ),
    ] = None,
    column: Column = None,
    k: K = 10,
    sizes: Annotated[
        str | None,
        typer.Option(
            "-L",
            "--search-list-size",
            metavar="L,L",
            help="Search list sizes to measure. (default 20,50,100; with --sweep ten, from k to 24k)",
        ),
    ] = None,
    nprobe: Annotated[
        str | None,
        typer.Option(metavar="P,P", help="ivf: lists probed, each measured. (default 1,4,16,64)"),
    ] = None,
    prune: Annotated[
        float | None, typer.Option(min=0, help="ivf: leave out lists whose centroid is far, as search does.")
    ] = None,
    rerank: Annotated[
        int | None, typer.Option(min=0, help="ivf: candidates measured by exact vectors, as search does.")
    ] = None,
    candidates: Annotated[
        str | None,
        typer.Option(
            "-S",
            "--candidates",
            metavar="S,S",
            help="lsh: distances a radius may compute, each measured. (default a quarter to twice the index's own)",
        ),
    ] = None,
    probes: Annotated[
        int | None, typer.Option(min=0, help="lsh: further buckets of each table, as search does.")
    ] = None,
    policy: PolicyList = DEFAULT_POLICY,
    entry: EntryList = DEFAULT_ENTRY,
    beam_width: BeamWidth = None,
    threads: Threads = 1,
    inflight: InFlight = None,
    deterministic: Deterministic = True,
    allow: Allow = None,
    cache: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Keep hot pages in so much memory, such as 64MiB. (default none)"),
    ] = None,
    cache_from: Annotated[
        str | None,
        typer.Option(
            metavar=f"FILE|{HALF}",
            help=f"Keep the pages that a search for the queries in FILE reads most often; {HALF}: for the first half"
            " of --queries, and measure the second. Default: those around the entry vertices.",
        ),
    ] = None,
    engine: Engine = "auto",
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each measurement; their medians count.")] = 1,
    device: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Compare reads a second with this device profile. Default: the one that `indexmill device` kept.",
        ),
    ] = None,
    first: Annotated[int | None, typer.Option(min=1, help="Use only so many queries.")] = None,
    skip: Annotated[
        int, typer.Option(min=0, help="Leave out so many queries first: tune on some, report on the others.")
    ] = 0,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Measure a range of list sizes; write a table and plots to --out.")
    ] = False,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="DIR/|PREFIX",
            help="Where --sweep writes PREFIX.csv, .png and .svg; PREFIX.parquet chooses a Parquet table.",
        ),
    ] = None,
    force: Force = False,
    json_: Json = False,
) -> None:
    """Measure recall (95% interval), throughput, latency, reads a query and how far they fill the device."""
    from indexmill.formats.errors import ConfigError
    from indexmill.jobs.score.graph import Setting, with_device
    from indexmill.jobs.score.sweep import output_paths
    from indexmill.jobs.score.truth import load_queries
    from indexmill.jobs.search.allowed import read_allowed
    from indexmill.jobs.search.engines import check_engine
    from indexmill.jobs.search.opening import kind_of, open_index
    from indexmill.reader.choices import ENTRIES, POLICIES

    of_lists: dict[str, object] = {"--nprobe": nprobe, "--prune": prune, "--rerank": rerank}
    of_tables: dict[str, object] = {"-S": candidates, "--probes": probes}
    of_graphs: dict[str, object] = {
        "-L": sizes,
        "--allow": allow,
        "--cache": cache,
        "--cache-from": cache_from,
        "--beam-width": beam_width,
        "--policy": None if policy == DEFAULT_POLICY else policy,
        "--entry": None if entry == DEFAULT_ENTRY else entry,
        "--device": device,
        "--sweep": sweep or None,
        "--out": out,
    }
    source = (queries, truth, base or [], column, skip, first)
    kind = kind_of(index)
    if kind == "ivf":
        from indexmill.jobs.score.ivf import run_score as score_lists

        foreign = of_graphs | of_tables
        score_lists(index, engine, source, k, of_lists, foreign, threads, inflight, repeat, json_)
        return
    if kind == "lsh":
        from indexmill.jobs.score.lsh import run_score as score_tables

        foreign = of_graphs | of_lists
        score_tables(index, engine, source, k, of_tables, foreign, threads, inflight, repeat, json_)
        return
    for flag, value in (of_lists | of_tables).items():
        if value is not None:
            raise ConfigError(f"{flag}: not for graphs, as this index is one; leave it out")
    policies = split_choices(policy, POLICIES, "--policy")
    entries = split_choices(entry, ENTRIES, "--entry")
    if sweep != (out is not None):
        raise ConfigError(
            "--out: missing; name a directory or prefix for the sweep's table and plots"
            if sweep
            else "--out: only a sweep writes files; pass --sweep too"
        )
    list_sizes = _list_sizes(sizes, k, sweep)
    cache_bytes = _cache_bytes(cache, cache_from)
    paths = None if out is None else output_paths(out, force)
    opened = open_index(index, check_engine(engine))
    profile, hint = device_profile(index, device, engine)
    allowed = None if allow is None else read_allowed(allow, opened)
    query_set = load_queries(opened, queries, truth, base or [], k, column, threads, allowed)
    query_set = query_set.part(skip, first)
    chosen = None if allowed is None else opened.filter(allowed)
    settings = [
        Setting(k, one, start, threads, beam_width, inflight, deterministic, chosen)
        for one, start in product(policies, entries)
    ]
    if cache_bytes:
        query_set = _fill_cache(opened, cache_bytes, cache_from, query_set, settings[0], column)
    rows = [
        {**with_device(row, profile), "engine": opened.native.engine}
        for row in _measure(opened, query_set, settings, list_sizes, repeat, sweep)
    ]
    if paths is not None:
        from indexmill.jobs.score.plot_sweep import save_sweep
        from indexmill.jobs.score.sweep import write_table

        write_table(rows, paths["table"])
        save_sweep(rows, index.resolve().name, paths["png"])
        save_sweep(rows, index.resolve().name, paths["svg"])
    if json_:
        print(json.dumps(rows, indent=2))
        return
    from indexmill.jobs.console.tables import stdout_console
    from indexmill.jobs.score.table import score_table

    console = stdout_console()
    console.print(score_table(rows))
    lines = [] if hint is None else [hint]
    lines += [] if paths is None else [f"wrote {path}" for path in paths.values()]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def device_profile(index: Path, given: Path | None, engine: str) -> tuple[DeviceProfile | None, str | None]:
    """Find the profile of the device that an index is read from, or say how to get one.

    A profile that is named counts first, then that of a simulated engine, then the one kept for the device under
    the index; a kept one that cannot be used is no more than a hint.

    Raises
    ------
    InputError, FormatError, ConfigError
        If a named profile cannot be read.
    """
    from indexmill.formats.device import read_profile
    from indexmill.formats.errors import IndexmillError
    from indexmill.jobs.devices.profiles import find_profile
    from indexmill.jobs.search.engines import simulated_profile
    from indexmill.pipeline.devices import profile_path

    if given is not None:
        return read_profile(profile_path(given)), None
    simulated = simulated_profile(engine)
    if simulated is not None:  # what was measured for it is of another device
        return read_profile(simulated).model_copy(update={"measured": None}), None
    try:
        found = find_profile(index)
    except IndexmillError as error:
        return None, f"device: {error}"
    hint = f"device: not measured yet; run: indexmill device {index}" if found is None else None
    return found, hint


def _cache_bytes(cache: str | None, cache_from: str | None) -> int:
    from indexmill.formats.errors import ConfigError
    from indexmill.pipeline.spec import parse_size

    if cache is None:
        if cache_from is not None:
            raise ConfigError("--cache-from: says what to keep, but not how much; pass --cache SIZE too")
        return 0
    try:
        return int(parse_size(cache))
    except ValueError as error:
        raise ConfigError(f"--cache: {error}") from None


def _fill_cache(
    index: Index, n_bytes: int, source: str | None, queries: QuerySet, setting: Setting, column: str | None
) -> QuerySet:
    """Fill the index's cache; return the queries that it was not trained on."""
    from indexmill.formats.errors import ConfigError, InputError
    from indexmill.formats.sources.source import read_queries

    training = None
    if source == HALF:
        half = len(queries) // 2
        if not half:
            raise InputError(f"--cache-from {HALF}: one query has no half; pass more, or a file of others")
        training, queries = queries.part(first=half).vectors, queries.part(skip=half)
    elif source is not None:
        training = read_queries(source, column=column)
    how = {
        name: value for name, value in setting.options().items() if name in ("policy", "entry", "beam_width")
    }
    kept = index.cache(n_bytes, training, **how)
    if not kept.n_pages:
        raise ConfigError(f"--cache: {n_bytes} bytes hold no page; pass more, such as 1MiB")
    return queries


def _list_sizes(sizes: str | None, k: int, sweep: bool) -> list[int]:
    """Sizes in the order given, which a size may repeat in to warm up; those of a sweep ascend and differ."""
    from indexmill.jobs.score.sweep import default_sizes

    if sizes is None:
        return (
            default_sizes(k) if sweep else [size for size in DEFAULT_SIZES if size >= k] or [k, 2 * k, 4 * k]
        )
    asked = split_sizes(sizes, "-L")
    return sorted(set(asked)) if sweep else asked


def _measure(
    index: Index, queries: QuerySet, settings: list[Setting], sizes: list[int], repeat: int, sweep: bool
) -> list[dict[str, Any]]:
    if not sweep:
        from indexmill.jobs.score.graph import score

        return [score(index, queries, size, setting, repeat) for setting in settings for size in sizes]
    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.jobs.score import sweep as sweeping
    from indexmill.pipeline.mill.progress import stage_progress

    steps = len(settings) * len(sizes)
    with stderr_progress() as progress, stage_progress(progress, "sweep", steps, "rows"):
        return sweeping.sweep(index, queries, settings, sizes, repeat, tick=lambda: progress.advance(1))
