"""Graph indexes, as commands search, measure and show them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from indexmill.formats.errors import ConfigError, InputError
from indexmill.formats.extras import require
from indexmill.jobs.choices import one_of, size_of, split_choices, split_integers
from indexmill.jobs.console.tables import facts, stdout_console
from indexmill.jobs.kinds.graph_format import chosen_format, compared, format_in_words
from indexmill.jobs.kinds.kind import DEFAULT_K, OwnFlags, payload
from indexmill.jobs.options.declare import OUTPUT_PANEL
from indexmill.jobs.options.kept import Option
from indexmill.jobs.options.shared import (
    Allow,
    BeamWidth,
    Deterministic,
    EntryList,
    Policy,
    PolicyList,
    Where,
)
from indexmill.reader.choices import (
    DEFAULT_ENTRY,
    DEFAULT_POLICY,
    ENTRIES,
    POLICIES,
    stored_defaults,
)

if TYPE_CHECKING:
    from indexmill.jobs.score.asked import Scoring
    from indexmill.jobs.score.graph import Setting
    from indexmill.jobs.score.queries import QuerySet
    from indexmill.pipeline.cost.query import QueryCost
    from indexmill.pipeline.cost.recommend import Advice, Task
    from indexmill.pipeline.generations.run import RunOptions
    from indexmill.reader.index import Index, RangeResult, SearchResult

NAME = "graph"
TITLE = "a graph, which is read page by page"
OWN_PANEL = "Graph (kind graph)"
PANELS = {
    OWN_PANEL: ("query_sample", "query_column", "label_column"),
    "Codes": ("search_memory", "pq_bytes", "pq_rotation", "codes_on_page"),
    "Layout": ("order", "node_dtype", "keep_vectors"),
}
PLACES = ("ids",)
BY_RANGES = True
_NUMBER = int | float
SHOWN = {
    "parameters": {"max_degree": int, "node_dtype": str, "pq_bytes": int},
    "graph": {
        "mean_degree": _NUMBER,
        "least_degree": int,
        "greatest_degree": int,
        "shards": list[int] | None,
        "mean_fanout": _NUMBER | None,
        "edges_added": int | None,
    },
    "drift": {"added_share": _NUMBER, "rebuild": bool, "advice": str},
    "certificate": {
        **dict.fromkeys(("k", "search_list_size"), int),
        **dict.fromkeys(
            ("recall", "recall_low", "recall_high", "pages_read_mean", "pages_read_p99"), _NUMBER
        ),
    },
}
PLANNED = {"build_list_size": "L", "policy": "policy", "beam_width": "beam_width"}
#: List sizes that are measured without --sweep and -L.
DEFAULT_SIZES = (20, 50, 100)
#: Reads of ids that a query has in flight, or as many as of pages if those are more; as the native reader has it.
_IDS_AT_ONCE = 32
#: Word of --cache-from for the first half of --queries.
HALF = "half"


@dataclass(frozen=True, kw_only=True)
class SearchFlags(OwnFlags):
    """Options of `search` for graphs."""

    PANEL: ClassVar = OWN_PANEL
    radius: Annotated[
        float | None,
        Option(
            help="Instead of -k: find all vectors with a score at least as good; the largest squared distance (l2), or "
            "the least cosine or inner product."
        ),
    ] = None
    allow: Allow = None
    where: Where = None
    L: Annotated[
        int | None,
        Option("-L", "--search-list-size", min=1, help="Candidates kept. (default the larger of 64 and 2k)"),
    ] = None
    policy: Policy = None
    entry: Annotated[
        str | None,
        Option(
            metavar="NAME", help=f"Where a search starts: {', '.join(ENTRIES)}. (default {DEFAULT_ENTRY})"
        ),
    ] = None
    beam_width: BeamWidth = None
    deterministic: Deterministic = True

    def options(self, index: Index) -> dict[str, Any]:
        """Return the reader's keywords that were given, checked, and the vectors that are allowed."""
        given = super().options(index)
        for name, choices in (("policy", POLICIES), ("entry", ENTRIES)):
            if name in given:
                one_of(given[name], choices, f"--{name}")
        if self.allow is not None or self.where is not None:
            from indexmill.jobs.search.allowed import as_filter

            given["allow"] = as_filter(self.allow, given.pop("where", None), index)
        return given


@dataclass(frozen=True, kw_only=True)
class SweepFlags:
    """Files that `score` writes about a graph, and the device that it compares with."""

    PANEL: ClassVar = OUTPUT_PANEL
    sweep: Annotated[
        bool, Option("--sweep", help="Measure a range of list sizes; write a table and plots to --out.")
    ] = False
    out: Annotated[
        str | None,
        Option(
            metavar="PREFIX",
            help="Folder (DIR/) or prefix of what --sweep writes: PREFIX.csv, .png and .svg; PREFIX.parquet chooses a "
            "Parquet table.",
        ),
    ] = None
    device: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Compare reads a second with this device profile. Default: the one that `indexmill device` kept.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ScoreFlags:
    """Options of `score` for graphs."""

    PANEL: ClassVar = OWN_PANEL
    sizes: Annotated[
        str | None,
        Option(
            "-L",
            "--search-list-size",
            metavar="L,L",
            help=f"Search list sizes to measure. (default {','.join(map(str, DEFAULT_SIZES))}; with --sweep ten, "
            "from k to 24k)",
        ),
    ] = None
    policy: PolicyList = DEFAULT_POLICY
    entry: EntryList = DEFAULT_ENTRY
    beam_width: BeamWidth = None
    allow: Allow = None
    where: Where = None
    cache: Annotated[
        str | None,
        Option(metavar="SIZE", help="Keep hot pages in this much memory, such as 64MiB. (default none)"),
    ] = None
    cache_from: Annotated[
        str | None,
        Option(
            metavar=f"FILE|{HALF}",
            help=f"Keep the pages that a search for the queries in FILE reads most often; {HALF}: for the first half "
            "of --queries, and measure the second. Default: those around the entry vertices.",
        ),
    ] = None
    written: SweepFlags


def open_index(path: Path, engine: str, **places: Any) -> Index:
    """Open an index, its ids in memory or on storage."""
    from indexmill.reader.index import Index

    return Index(path, engine, **places)


def search(index: Index, vectors: Any, k: int | None, options: dict[str, Any]) -> SearchResult | RangeResult:
    """Search `k` neighbours, or all within a radius.

    Raises
    ------
    ConfigError
        If both are given.
    """
    radius = options.pop("radius", None)
    if radius is None:
        return index.search(vectors, DEFAULT_K if k is None else k, **options)
    if k is not None:
        raise ConfigError("-k: --radius returns all vectors within, however many; leave one of them out")
    return index.range_search(vectors, radius, **options)


def score(path: Path, common: Scoring, flags: ScoreFlags) -> None:
    """Measure recall and cost for each list size, policy and entry, and print them; write what a sweep writes.

    Raises
    ------
    ConfigError, OutputExistsError
        Naming the flag.
    InputError, FormatError
        If the queries, their truth or the index cannot be used.
    """
    from indexmill.jobs.devices.profiles import device_profile
    from indexmill.jobs.score.graph import Setting, with_device
    from indexmill.jobs.score.sweep import output_paths
    from indexmill.jobs.search.allowed import allowed_vectors
    from indexmill.jobs.search.engines import check_engine

    asked, run, written = common.asked, common.runs, flags.written
    policies = split_choices(flags.policy, POLICIES, "--policy")
    entries = split_choices(flags.entry, ENTRIES, "--entry")
    if written.sweep != (written.out is not None):
        raise ConfigError(
            "--out: missing; name a directory or prefix for the sweep's table and plots"
            if written.sweep
            else "--out: only a sweep writes files; pass --sweep too"
        )
    sizes = _list_sizes(flags.sizes, asked.k, written.sweep)
    cache_bytes = _cache_bytes(flags)
    paths = None if written.out is None else output_paths(written.out, common.force)
    if paths is not None:
        require("matplotlib", "--sweep")
    index = open_index(path, check_engine(run.engine), **run.places())
    profile, hint = device_profile(path, written.device, run.engine)
    allowed = allowed_vectors(flags.allow, flags.where, index)
    queries = asked.load(index, run.threads, None if allowed is None else allowed.mask)
    chosen = None if allowed is None else index.filter(allowed)
    settings = [
        Setting(asked.k, *how, run.threads, flags.beam_width, run.inflight, run.deterministic, chosen)
        for how in product(policies, entries)
    ]
    if cache_bytes:
        queries = _fill_cache(index, cache_bytes, flags.cache_from, queries, settings[0], asked.column)
    rows = [
        {**with_device(row, profile), "engine": index.native.engine}
        for row in _measure(index, queries, settings, sizes, run.repeat, written.sweep)
    ]
    if paths is not None:
        _write_sweep(rows, path.resolve().name, paths)
    if common.json_:
        print(json.dumps(rows, indent=2))
    else:
        lines = [] if hint is None else [hint]
        lines += [] if paths is None else [f"wrote {one}" for one in paths.values()]
        _show(rows, lines)


def _list_sizes(sizes: str | None, k: int, sweep: bool) -> list[int]:
    """Sizes in the order given, in which one may repeat to warm up; those of a sweep ascend and differ."""
    from indexmill.jobs.score.sweep import default_sizes

    if sizes is None:
        return (
            default_sizes(k) if sweep else [size for size in DEFAULT_SIZES if size >= k] or [k, 2 * k, 4 * k]
        )
    asked = split_integers(sizes, "-L")
    return sorted(set(asked)) if sweep else asked


def _cache_bytes(flags: ScoreFlags) -> int:
    if flags.cache is not None:
        return size_of(flags.cache, "--cache")
    if flags.cache_from is not None:
        raise ConfigError("--cache-from: says what to keep, but not how much; pass --cache SIZE too")
    return 0


def _fill_cache(
    index: Index, n_bytes: int, source: str | None, queries: QuerySet, setting: Setting, column: str | None
) -> QuerySet:
    """Fill the index's cache; return the queries that it was not trained on."""
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


def _measure(
    index: Index, queries: QuerySet, settings: list[Setting], sizes: list[int], repeat: int, sweep: bool
) -> list[dict[str, Any]]:
    from indexmill.jobs.score import graph
    from indexmill.jobs.score.sweep import run_sweep

    if not sweep:
        return [graph.score(index, queries, size, setting, repeat) for setting in settings for size in sizes]
    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.pipeline.mill.progress import stage_progress

    steps = len(settings) * len(sizes)
    with stderr_progress() as progress, stage_progress(progress, "sweep", steps, "rows"):
        return run_sweep(index, queries, settings, sizes, repeat, tick=lambda: progress.advance(1))


def _write_sweep(rows: list[dict[str, Any]], title: str, paths: dict[str, Path]) -> None:
    """Write the table and the plots of a sweep to the files that `output_paths` names."""
    from indexmill.jobs.score.plot_sweep import save_sweep
    from indexmill.jobs.score.sweep import write_table

    write_table(rows, paths["table"])
    save_sweep(rows, title, paths["png"])
    save_sweep(rows, title, paths["svg"])


def _show(rows: list[dict[str, Any]], lines: list[str]) -> None:
    """Print the table of the rows, and `lines` below it."""
    from indexmill.jobs.score.table import score_table

    console = stdout_console()
    console.print(score_table(rows))
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def query_cost(path: Path, queries: Any, k: int, options: dict[str, Any], at_url: bool = False) -> QueryCost:
    """Measure the cost of queries, through a map of the file, which the page cache then holds."""
    from indexmill.pipeline.cost.query import measured

    if "policy" in options:
        one_of(options["policy"], POLICIES, "--policy")
    index = open_index(path, "mmap")
    how = {**(stored_defaults(options.get("policy")) if at_url else {}), **options}
    at_once = max(_IDS_AT_ONCE, how["beam_width"]) if at_url else None
    return measured(index, queries, k, how, ("pages_read",), lambda mean: mean("hops"), at_once)


def advice(task: Task) -> Advice:
    """Say what a graph would cost for a task, and why it suits."""
    from indexmill.pipeline.kinds.graph import advice as of_kind

    return of_kind.advice(task)


def explain(path: Path, options: RunOptions) -> tuple[dict[str, Any], list[str]]:
    """Say what binds the index; with one node a page, measure smaller nodes on a sample of it."""
    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.pipeline.relayout.explained.explanation import run_explain

    with stderr_progress() as progress:
        found = run_explain(path, options, progress)
    return found.as_dict(), found.lines


def rebuild(
    path: Path, options: RunOptions, search_memory: str | None
) -> tuple[dict[str, Any] | None, list[str]]:
    """Say what format a build would choose, and what searches of it read, and of the one that the index has."""
    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.pipeline.relayout.explained.rebuild import run_rebuild

    with stderr_progress() as progress:
        found = run_rebuild(path, options, search_memory, progress)
    if found is None:
        return None, ["A build of so few vectors measures no formats: any is searched fast."]
    facts = found.as_dict()
    return facts, [compared(facts)]


def summary(manifest: dict[str, Any]) -> dict[str, str]:
    """Say what an index is, in a few lines by name."""
    graph, layout, drift = manifest["graph"], manifest["layout"], manifest.get("drift")
    lines = {
        "degree": f"mean {graph['mean_degree']:.1f}, {graph['least_degree']} to {graph['greatest_degree']}",
        "shards": _shards(graph),
        "layout": facts({key: value for key, value in layout.items() if not isinstance(value, dict)}),
        "certificate": _certificate(manifest["certificate"]),
    }
    on_page = manifest["parameters"].get("codes_on_page", False)
    if "format" in graph:
        lines["format"] = chosen_format(graph["format"], on_page)
    elif "format_unmeasured" in graph:
        lines["format"] = f"{format_in_words(manifest['parameters'], on_page)}; {graph['format_unmeasured']}"
    if "query_sample" in graph:
        lines["query sample"] = _query_sample(graph["query_sample"])
    if "labels" in graph:
        lines["labels"] = _labels(graph["labels"])
    elif "labels_lost" in graph:
        lines["labels"] = (
            f"searches for a value of {graph['labels_lost']!r} are as for any other filter: what was done since the "
            "build added no edges within labels; build again for them"
        )
    if drift:
        added = f"{drift['added_share']:.1%} of the vectors added since a build"
        lines["generation"] = f"{manifest['generation']}, {added}; {drift['advice']}"
    return lines


def _shards(graph: dict[str, Any]) -> str:
    """Number and size of the parts of the graph; an index that was extended, or is older, does not say."""
    if None in (graph.get("shards"), graph.get("mean_fanout"), graph.get("edges_added")):
        return "unknown"
    n = len(graph["shards"])
    cut = "1" if n == 1 else f"{n} of {min(graph['shards']):,} to {max(graph['shards']):,} vectors"
    return f"{cut}, mean fanout {graph['mean_fanout']:.2f}, {graph['edges_added']:,} edges added to connect"


def _query_sample(sample: dict[str, Any]) -> str:
    """What a sample of queries shaped."""
    return (
        f"{sample['queries']:,} different queries, {sample['edges']:,} edges between the {sample['linked']} vectors "
        f"nearest to each; {sample['vectors']:,} vectors are near to one"
    )


def _labels(labels: dict[str, Any]) -> str:
    """What a column of labels shaped."""
    if not labels["labels"]:
        return (
            f"no value of {labels['column']!r} has {labels['least']:,} to {labels['most']:,} vectors, so none has "
            "edges of its own"
        )
    return (
        f"{labels['edges']:,} edges within {labels['labels']:,} values of {labels['column']!r}, of "
        f"{labels['vectors']:,} vectors; searches for one of them stay within it"
    )


def _certificate(certificate: dict[str, Any] | None) -> str:
    if certificate is None:
        return "none: its layout was not measured, or too few vectors"
    c = certificate
    return (
        f"recall@{c['k']} {c['recall']:.4f} [{c['recall_low']:.4f}, {c['recall_high']:.4f}]"
        f" at L={c['search_list_size']}, {c['pages_read_mean']:.1f} page reads a query"
        f" (P99 {c['pages_read_p99']:.0f})"
    )


def plan_lines(plan: dict[str, Any]) -> dict[str, str]:
    """Say which builder makes the graph of a planned build, and how the graph is cut."""
    builder, parts, what = plan["builder"], plan["shards"], "shards"
    format_ = format_in_words(plan["format"], plan["codes_on_page"])
    lines = {"builder": f"{builder['name']}: {builder['why']}", "format": format_}
    if "why" in plan["format"]:
        lines["format"] += f": {plan['format']['why']}"
    if plan.get("regions"):
        parts, what = plan["regions"], "regions, the largest"
    if parts["n"] == 1:
        return {**lines, "graph": "in one piece"}
    return {
        **lines,
        "graph": f"{parts['n']} {what} of about {parts['vectors']:,} vectors, mean fanout {parts['mean_fanout']:.2f}",
    }


def held(headers: dict[str, Any]) -> dict[str, int]:
    """Bytes that an open index holds.

    Codebook and rotation, entries, navigation graph and, unless nodes hold codes, codes and a checksum a page.
    """
    codes = headers["codes.imx"]["fields"]
    codebook = 4 * 256 * codes["dim"] + 8 * (codes["n_chunks"] + 1)  # centres fill up to 256
    on_page = "code_bytes" in headers["graph.imx"]["fields"]
    held_codes, held_checksums = ((), ()) if on_page else (("codes",), ("crc",))
    return {
        "codes": payload(headers, "codes.imx", *held_codes, "rotation") + codebook,
        "entries": payload(headers, "entries.imx", "centroids", "vertices"),
        "navigation": payload(headers, "navigation.imx", "slots", "offsets", "neighbours"),
        "graph": payload(headers, "graph.imx", *held_checksums, "scale"),
        "vectors": payload(headers, "vectors.imx", "crc"),
    }


def header_lines(headers: dict[str, Any]) -> dict[str, str]:
    """Say how large the navigation graph is, and whether there are exact vectors beside the nodes."""
    sample = headers.get("navigation.imx", {"fields": {"n_sample": 0}})["fields"]["n_sample"]
    lines = {"navigation": f"{sample:,} vertices" if sample else "none"}
    if "code_bytes" in headers["graph.imx"]["fields"]:
        lines["codes"] = "of its neighbours in each node, none in memory"
    if "vectors.imx" in headers:
        from indexmill.formats.pagefile.field_codes import DTYPE_CODES, name_of

        kept = name_of(DTYPE_CODES, headers["vectors.imx"]["fields"]["dtype"])
        lines["exact vectors"] = f"{kept}, beside the nodes"
    return lines
