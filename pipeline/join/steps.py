"""The steps of one join: its memory, its number of lists, and its batches as tasks or on workers."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from indexmill.formats.errors import CorruptFile
from indexmill.formats.ivf.index import IvfFiles
from indexmill.pipeline.execution.local import Executor
from indexmill.pipeline.join.gather import join_pieces
from indexmill.pipeline.join.memory import Need, check_need, join_need, learn_bytes
from indexmill.pipeline.join.options import JoinOptions, JoinReport
from indexmill.pipeline.join.partials import Partials
from indexmill.pipeline.join.paths.run import Paths, run_paths
from indexmill.pipeline.join.probes import SAMPLE, learn_nprobe
from indexmill.pipeline.join.queries import Queries
from indexmill.pipeline.join.spans import Span
from indexmill.pipeline.join.tasks import BatchSearch, Searched, Work, search_batches
from indexmill.pipeline.join.workers import SplitRun, run_split
from indexmill.pipeline.mill.progress import Progress

#: Tasks of a join on a cluster, about, and batches of one at most: each is loaded while the one before it is searched,
#: and a node that is lost loses no more.
_TASKS, _MOST_BATCHES = 32, 8


@dataclass
class JoinRun:
    """One join under way."""

    files: IvfFiles
    queries: Queries
    options: JoinOptions
    partials: Partials
    executor: Executor
    progress: Progress
    paths: Paths | None = None

    def need(self, nprobe: int) -> Need:
        """Return the memory of the search on one machine."""
        o = self.options
        threads = max([o.workers, *(worker.threads for worker in o.platform)])
        searchers = 1 if o.has_paths else max(1, len(o.platform))
        need = join_need(
            self.files, self.queries.given.dtype, len(self.queries), o.k, nprobe, threads, searchers
        )
        if not o.has_paths or o.executor == "ray":
            return need
        processes = len(o.platform)  # beside this one
        return replace(need, fixed=(1 + processes) * need.fixed, query=processes * need.query)

    def look(self) -> None:
        """Look at the paths of workers.

        Raises
        ------
        IndexmillError
            If one cannot be used.
        """
        if self.options.has_paths:
            self.paths = Paths.look(self.options.platform, self.files.manifest, self.executor)

    def check_memory(self) -> None:
        """Refuse what does not fit, as far as it can be told before `nprobe` is learnt.

        Raises
        ------
        BudgetError
        """
        o = self.options
        check_need(self.files, self.need(o.nprobe or 1), o.memory)
        if o.recall is not None:
            check_learning(self.files, self.queries, o.k, o.workers, o.memory)

    def set_nprobe(self, report: JoinReport) -> None:
        """Take the number of lists to probe, or learn it; then the memory of the search is known.

        Raises
        ------
        BudgetError
            If that does not fit.
        """
        o = self.options
        if o.nprobe is not None:
            report.nprobe = o.nprobe
            return
        assert o.recall is not None
        if not self.partials.facts:
            learnt = learn_nprobe(self.files, self.queries, o.k, o.recall, o.workers, self.progress)
            self.partials.remember(asdict(learnt))
        for name, value in self.partials.facts.items():
            setattr(report, name, value)
        check_need(self.files, self.need(report.nprobe), o.memory)

    def search(self, report: JoinReport) -> None:
        """Search all batches that no earlier run has searched.

        Raises
        ------
        CorruptFile
            If a batch cannot be read, once all others are searched.
        """
        o, need = self.options, self.need(report.nprobe)
        batches, lists = len(self.files.batches), self.files.centroids.n_lists
        join_pieces(self.partials, lists)  # of a join that was killed
        spans = self.partials.left(batches, lists)
        left = sorted({span.batch for span in spans})
        report.reused = batches - len(left)
        if not left:
            return
        work = Work(
            str(self.files.path), self.files.manifest, str(self.partials.folder), len(self.queries), o.k,
            report.nprobe, need.block(o.memory),
        )  # fmt: skip
        BatchSearch(work, self.queries.given, o.workers).choose()
        self.progress.start("join", len(left), "batches")
        if o.platform:
            split = self._run_platform(work, spans, need.bytes(o.memory))
            done, report.workers = split.searched, split.runs
            report.copied_bytes = None if self.paths is None else split.copied_bytes
            join_pieces(self.partials, lists)
        else:
            done = self._run_tasks(work, left, need.bytes(o.memory))
        self.progress.finish()
        report.load_bytes, report.load_seconds = done.load_bytes, done.load_seconds
        report.search_seconds = done.search_seconds
        if done.unread:
            raise self._unread_error(done.unread)

    def _run_platform(self, work: Work, spans: list[Span], memory: int) -> SplitRun:
        """Divide batches among the workers of a platform, each on its own path where they have some."""
        o, queries, advance = self.options, self.queries.given, self.progress.advance
        if self.paths is None:
            return run_split(work, queries, o.platform, spans, advance)
        return run_paths(work, queries, self.paths, spans, advance, None if o.executor == "local" else memory)

    def _run_tasks(self, work: Work, left: list[int], memory: int) -> Searched:
        """Run batches in one task here, so that none waits for its load; in many on a cluster."""
        done = Searched()
        if self.options.executor == "local":
            done.add(
                self.executor.call(
                    search_batches, work, self.queries.given, left, advance=self.progress.advance
                )
            )
            return done
        size = min(max(1, len(left) // _TASKS), _MOST_BATCHES)
        queries = self.executor.share(self.queries.given)
        tasks = [(work, queries, left[at : at + size]) for at in range(0, len(left), size)]
        for searched in self.executor.map(search_batches, tasks, wide=True, memory=memory):
            done.add(searched)
            self.progress.advance(len(searched.batches) + len(searched.unread))
        return done

    def _unread_error(self, unread: dict[int, str]) -> CorruptFile:
        names = "\n".join(f"  {unread[number]}" for number in sorted(unread))
        copies = " (those on paths of workers were removed, and are copied anew)" if self.paths else ""
        return CorruptFile(
            f"{self.files.path}: {len(unread)} of {len(self.files.batches)} batches cannot be read:\n{names}\n"
            f"what was found in the others is kept in {self.partials.folder}; restore these files{copies} and run again"
        )


def check_learning(files: IvfFiles, queries: Queries, k: int, threads: int, memory: int) -> None:
    """Refuse to learn the number of lists where that does not fit.

    Raises
    ------
    BudgetError
    """
    sample, n_lists = min(SAMPLE, len(queries)), files.centroids.n_lists
    need = join_need(files, queries.given.dtype, sample, k, n_lists, threads)
    held = queries.given.nbytes + learn_bytes(files, sample, k)
    check_need(files, replace(need, fixed=need.fixed + held), memory, "learning from")
