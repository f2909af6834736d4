"""`layout`: an order for a finished index, whose files are rewritten and published as its next generation."""

from __future__ import annotations

import os
import shutil
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.formats.errors import ConfigError
from indexmill.layout.portfolio import ORDERS, USES_POINTS, in_districts
from indexmill.pipeline.execution.allocator import give_back, hold_little
from indexmill.pipeline.generations.opened import OpenedIndex, refuse_deletions
from indexmill.pipeline.generations.run import GenerationRun, RunOptions
from indexmill.pipeline.mill.disk_space import check_free
from indexmill.pipeline.mill.progress import Progress
from indexmill.pipeline.relayout.auto import CURRENT, EFFORTS, SAMPLE, Trial, candidates, choose, sample_size
from indexmill.pipeline.relayout.edges import Judging, pruned_bytes
from indexmill.pipeline.relayout.explained.explanation import check_layout_matters
from indexmill.pipeline.relayout.fitting import FROM_FILE, Fitted, fit, parameters_of, read_order
from indexmill.pipeline.relayout.memory import (
    check_certificate,
    check_judging,
    check_memory,
    laid_out_bytes,
    threads_within,
)
from indexmill.pipeline.relayout.query_log import QueryLog, log_bytes, weighed
from indexmill.pipeline.relayout.record import inherited_log
from indexmill.pipeline.relayout.tuning import GivenQueries, check_queries
from indexmill.pipeline.relayout.unpacked import UnpackedIndex, drop_graph, map_array, unpack, unpacked_bytes
from indexmill.pipeline.relayout.written import Writing

AUTO = "auto"
DEFAULT_EFFORT = "normal"


@dataclass(frozen=True)
class LayoutRequest:
    """Settings of a layout; all of them may reach the bytes.

    Attributes
    ----------
    order : str
        A key of `layout.portfolio.ORDERS`, or ``"auto"`` for the best of them.
    order_file : path, optional
        In place of `order`: a .npy file with the vector id in each slot.
    effort : {"low", "normal", "high"}, optional
        What may be tried (`pipeline.relayout.auto.EFFORTS`); an order asked for by name has no limit without it.
    queries : GivenQueries, optional
        Tuning queries of ``"auto"`` and of pruned edges; default: vectors of the index, or for ``"auto"`` the queries
        of `query_log` that do not judge.
    query_log : QueryLog, optional
        Searches that weigh the order.
    prune_edges : bool
        Whether neighbour lists are chosen anew for the pages of the order (`layout.block_prune`; experimental).
    certify : bool
        Measure the certificate again, as a build does; without it the index has none.

    Raises
    ------
    ConfigError
        If parts do not go together.
    """

    order: str = AUTO
    order_file: str | os.PathLike[str] | None = None
    effort: str | None = None
    queries: GivenQueries | None = None
    query_log: QueryLog | None = None
    prune_edges: bool = False
    certify: bool = False

    def __post_init__(self) -> None:
        if self.order not in (AUTO, *ORDERS):
            raise ConfigError(f"order: expected one of {', '.join((AUTO, *ORDERS))}, got {self.order!r}")
        if self.effort is not None and self.effort not in EFFORTS:
            raise ConfigError(f"effort: expected one of {', '.join(EFFORTS)}, got {self.effort!r}")
        if self.effort is not None and self.order_file is not None and not self.is_measured:
            raise ConfigError("effort: an order from a file takes no work to find; leave --effort out")
        if self.queries is not None and not self.prune_edges and self.name != AUTO:
            raise ConfigError(
                "queries: only the order 'auto' and --prune-edges look at queries; leave them out"
            )
        if self.query_log is not None and self.prune_edges:
            raise ConfigError(
                "query_log: not together with --prune-edges, which chooses lists for pages that are there to stay; "
                "leave one of them out"
            )

    @property
    def name(self) -> str:
        """Name of the order in the manifest."""
        return self.order if self.order_file is None else FROM_FILE

    @property
    def is_measured(self) -> bool:
        """Whether searches of the index as laid out judge what is asked for."""
        return self.prune_edges or self.query_log is not None

    @property
    def tuning(self) -> GivenQueries | None:
        """Queries that ``"auto"`` is tuned with."""
        if self.queries is None and self.query_log is not None:
            return GivenQueries(self.query_log.tuning)
        return self.queries

    @property
    def most_judging(self) -> int:
        """Queries that judge, at most, what is asked for."""
        return EFFORTS[self.effort or DEFAULT_EFFORT].queries

    @property
    def stages(self) -> list[str]:
        """Names of the stages, in order; one that turns out to be needless is left out."""
        return [
            "unpack",
            *(["sample", "try"] if self.name == AUTO else []),
            "order",
            *([] if self.query_log is None else ["record", "bundle", "emit", "judge"]),
            *(["prune", "measure", "emit", "judge"] if self.prune_edges else ["measure", "emit"]),
            *(["certify"] if self.certify else []),
        ]

    def work_limit(self, n: int) -> int | None:
        """Return the units of work that may be spent on `n` vectors; None without a limit."""
        return None if self.effort is None else EFFORTS[self.effort].work * n


@dataclass(frozen=True)
class LayoutResult:
    """Outcome of a layout.

    Attributes
    ----------
    order : str
        The order asked for or chosen.
    manifest : dict or None
        As published; None if the index is laid out so already and nothing was written.
    choice : dict or None
        Of ``"auto"``: what was tried (docs/formats/manifest.md).
    query_log : dict or None
        What a log of queries changed (docs/formats/manifest.md).
    """

    order: str
    manifest: dict[str, Any] | None
    choice: dict[str, Any] | None
    query_log: dict[str, Any] | None


def run_layout(
    index: str | os.PathLike[str], request: LayoutRequest, options: RunOptions, progress: Progress | None = None,
    copy_unchanged: bool = True,
) -> LayoutResult:  # fmt: skip
    """Lay an index out again and publish the next generation.

    Vectors, codes, neighbour lists, ids and metadata stay what they are, so the files are those that a build of that
    order would have written, and so is the certificate if it is asked for. With `LayoutRequest.query_log` the order
    changes, and with `LayoutRequest.prune_edges` neighbour lists do, if that saves page reads. Memory beside the page
    cache is that of the order, for star packing 24 bytes a vertex and 40 of each that a thread packs; a certificate
    holds the codes, unless nodes do (`pipeline.kinds.graph.memory.certify_bytes`).

    Parameters
    ----------
    copy_unchanged : bool
        Whether another output gets a copy of an index that is laid out so already; in place nothing is written then.

    Raises
    ------
    NothingToGain
        If the order is to be chosen and no order can help, with proposals that can; if pruned edges do not help.
    IndexmillError
        Of the kind that tells what to change; the index is then as it was.
    """
    hold_little()
    run = GenerationRun(index, options, progress)
    with run.working() as scratch, OpenedIndex(index) as opened:
        run.check_origins()
        refuse_deletions(index, opened.manifest, "layout")
        log = request.query_log
        geometric = request.name in (AUTO, *USES_POINTS) or in_districts(request.name, opened.n) is not None
        with_points = geometric or request.is_measured or request.certify
        _check(run, opened, request, options, scratch, with_points)
        run.expect(request.stages)
        unpacked = _unpack(run, opened, scratch, with_points)
        fitted = _Ordering(run, opened, unpacked, request, scratch).fitted()
        fitted = replace(fitted, order=map_array(scratch / "order.npy", fitted.order))
        writing = Writing(run, opened, unpacked.vector_ids, scratch)
        if log is not None:
            fitted = weighed(writing, unpacked, fitted, log, request.most_judging)
        is_certified = not request.certify or opened.manifest.certificate is not None
        as_asked = is_certified and not request.prune_edges
        is_written = copy_unchanged and not run.in_place
        if not is_written and as_asked and np.array_equal(fitted.order, writing.vector_ids):
            run.leave()
            return LayoutResult(fitted.name, None, fitted.choice, fitted.query_log)
        points, work = unpacked.points if request.certify else None, fitted.work
        if request.prune_edges:
            judging = Judging(request.queries, request.most_judging, request.work_limit(opened.n))
            manifest, pruning = writing.write_pruned(unpacked, fitted, judging)
            work += pruning
        else:
            layout = writing.measured(unpacked.graph, fitted)
            del unpacked  # the last that maps its files, except the points
            drop_graph(scratch)
            manifest = writing.write(fitted, layout)
        if points is not None:
            manifest = writing.certified(manifest, points)
        published = run.publish(writing.directory, manifest, opened.manifest.build_id, {"work": work})
        return LayoutResult(fitted.name, published, fitted.choice, fitted.query_log)


def _check(
    run: GenerationRun, opened: OpenedIndex, request: LayoutRequest, options: RunOptions, scratch: Path,
    with_points: bool,
) -> None:  # fmt: skip
    """Refuse what does not suit the index, helps nothing, or does not fit memory or the disk."""
    log = request.query_log
    if request.prune_edges and opened.graph.node_format.code_bytes:
        raise ConfigError(
            f"prune_edges: not for {opened.path}, whose nodes hold the codes of their neighbours; leave "
            "--prune-edges out"
        )
    if request.queries is not None:
        check_queries(opened, request.queries.vectors)
    if log is not None:
        check_queries(opened, log.vectors, log.name)
        log.judged(request.most_judging)
    run.check_room(scratch, opened.manifest, opened.n)
    if request.is_measured or request.name == AUTO:
        check_layout_matters(opened, run, lambda: nullcontext(scratch))
    check_memory(opened, "star" if request.name == AUTO else request.name, options.memory)
    if request.certify:
        check_certificate(opened, options.memory)
    if request.prune_edges:
        check_judging(opened, options.memory, "--prune-edges")
    if log is not None:
        recorded = log_bytes(len(log.vectors), opened.graph.node_format.nodes_per_page)
        check_judging(opened, options.memory, "--query-log", recorded)
    check_free(scratch, _scratch_bytes(opened, with_points, request), "layout")


def _scratch_bytes(opened: OpenedIndex, with_points: bool, request: LayoutRequest) -> int:
    """Room for the unpacked graph and for laying it out; where that is measured, for another index beside it."""
    orders = ORDERS if request.name == AUTO else [request.name]
    pruned = request.prune_edges * pruned_bytes(opened)
    return (
        unpacked_bytes(opened, with_points) + laid_out_bytes(opened, orders, 1 + request.is_measured) + pruned
    )


def _unpack(run: GenerationRun, opened: OpenedIndex, scratch: Path, with_points: bool) -> UnpackedIndex:
    with run.stage("unpack", opened.n, "vectors") as advance:
        unpacked = unpack(opened, scratch, with_points, advance)
    give_back()
    return unpacked


@dataclass(frozen=True)
class _Ordering:
    """The search for the order of one layout."""

    run: GenerationRun
    opened: OpenedIndex
    unpacked: UnpackedIndex
    request: LayoutRequest
    scratch: Path

    def fitted(self) -> Fitted:
        """Return the order that is asked for, or the best one."""
        request, n = self.request, self.opened.n
        if request.name == AUTO:
            return self._chosen()
        with self.run.task("order"):
            if request.order_file is not None:
                return read_order(Path(request.order_file), n)
            return self._fit(request.order, request.work_limit(n))

    def _fit(self, name: str, limit: int | None) -> Fitted:
        opened, options = self.opened, self.run.options
        threads = threads_within(opened, name, options.memory, options.workers)
        per_page = max(opened.graph.node_format.nodes_per_page, 1)
        return fit(name, self.unpacked, per_page, opened.parameters.seed, threads, limit, self.scratch)

    def _chosen(self) -> Fitted:
        """Try the portfolio on a sample, and fit the winner to the whole."""
        run, opened, unpacked, request = self.run, self.opened, self.unpacked, self.request
        effort, memory = request.effort or DEFAULT_EFFORT, run.options.memory
        size = sample_size(opened, EFFORTS[effort], memory)
        names = candidates(opened, size, memory)
        with run.task("sample"):
            trial = Trial(opened, unpacked, size, run, self.scratch)
        with run.stage("try", len(names), "orders") as advance:
            choice = choose(trial, names, effort, request.tuning, memory, advance)
        del trial
        give_back()
        shutil.rmtree(self.scratch / SAMPLE, ignore_errors=True)
        if choice.name == CURRENT:
            name = str(opened.manifest.layout.get("order"))
            log = inherited_log(opened.manifest.layout)
            return Fitted(name, unpacked.vector_ids, {}, choice=choice.record, query_log=log)
        limit = EFFORTS[effort].work * opened.n
        if choice.order is not None:
            parameters = parameters_of(choice.name)
            return Fitted(choice.name, choice.order, parameters, choice.work, limit, choice.record)
        with run.task("order"):
            return replace(self._fit(choice.name, limit), choice=choice.record)
