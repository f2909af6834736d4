"""The choice among the formats of a graph index that its job leaves open (`candidates`).

It is made by the page reads of searches at equal recall, which depend on the vectors: a rotation halves the reads of
some embeddings and changes nothing for others. Stage *format* measures them on small indexes of the training sample.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.draws import FORMAT, generator
from indexmill.pipeline.kinds.common.cluster import sampled
from indexmill.pipeline.kinds.common.ingest import InputSummary, read_summary
from indexmill.pipeline.kinds.common.judge import TARGET_RECALL
from indexmill.pipeline.kinds.common.metric import as_stored, usable
from indexmill.pipeline.kinds.common.preview import first_rows, is_small
from indexmill.pipeline.kinds.common.seconds import TRIAL_PREFIX
from indexmill.pipeline.kinds.graph.candidates import LEAST_TRIAL, QUERIES, Format, trial_size
from indexmill.pipeline.kinds.graph.emit import FORMAT_FACTS
from indexmill.pipeline.kinds.graph.parameters import Parameters
from indexmill.pipeline.kinds.graph.trial import K, TrialIndexes
from indexmill.pipeline.kinds.recipe import Recipe
from indexmill.pipeline.mill.stages import Mill, Stage

VERSION = 4
#: Page reads with a rotation, as a share of those without, up to which it is worth its time in every search; those of a
#: build, as a share of those of an index, up to which it is worth making.
WORTHWHILE = 0.97
#: Recall that nodes must allow.
CEILING = 0.985


class Tried(NamedTuple):
    """A format and its searches.

    Attributes
    ----------
    format : Format
    pages_read, recall : float
        Page reads of a query at a recall that was wanted; where searches do not reach it, or where the shortest list is
        beyond it, at the recall that is nearest to it.
    highest_recall : float
        The recall of long searches; NaN of a format that was not considered further.
    """

    format: Format
    pages_read: float
    recall: float
    highest_recall: float = math.nan

    def facts(self) -> dict[str, Any]:
        """Return what a manifest says of it."""
        figures = {
            "pages_read": self.pages_read,
            "recall": self.recall,
            "highest_recall": self.highest_recall,
        }
        return self.format._asdict() | {
            name: round(one, 4) for name, one in figures.items() if not math.isnan(one)
        }


class Comparison(NamedTuple):
    """Formats that were tried, and the one to take.

    Attributes
    ----------
    best : Tried
    tried : list of Tried
        All of them.
    recall : float
        What they are compared at; see `common_recall`.
    """

    best: Tried
    tried: list[Tried]
    recall: float


class FormatRecipe(Recipe):
    """The stages that choose a format; see `Recipe`.

    Parameters
    ----------
    p : Parameters
    formats : sequence of Format
        See `candidates.open_formats`.
    """

    def __init__(
        self, mill: Mill, ingest: Stage, summary: InputSummary, p: Parameters, formats: Sequence[Format], memory: int,
    ) -> None:  # fmt: skip
        super().__init__(mill, ingest, summary, memory)
        self.sample = self._sample_stage(p.sample_vectors, p.seed)
        what = {
            "formats": formats, "R": p.max_degree, "L": p.build_list_size, "alpha": p.alpha, "saturate": p.saturate,
            "builder": p.builder, "passes": p.passes, "build_codes": p.build_codes, "order": p.order,
            "navigation": p.navigation, "metric": p.metric, "seed": p.seed, "n": summary.n_vectors,
            **({"keep_vectors": True} if p.keep_vectors else {}),
            **({"codes_on_page": True} if p.codes_on_page else {}),
        }  # fmt: skip
        self.format = self._call(
            "format", VERSION, what, [self.sample, self.ingest],
            lambda: (format_task, str(self.ingest.path), str(self.sample.path), p, list(formats)),
        )  # fmt: skip
        self.format.pinned = True  # later stages cannot be told without it, also in a build that goes on

    @property
    def made(self) -> tuple[Stage, Stage]:
        """The stages, for the recipe of the index."""
        return self.sample, self.format

    def make(self) -> None:
        """Make the stages."""
        self.ingest.pinned = self.sample.pinned = True  # those that read them next are not known yet
        try:
            self.mill.make(self.format)
        finally:
            self.ingest.pinned = self.sample.pinned = False

    def chosen(self) -> Format:
        """Return the format that was chosen."""
        return Format(**json.loads((self.mill.read(self.format) / FORMAT_FACTS).read_text())["chosen"])


def format_task(
    ingest: str, sample: str, p: Parameters, formats: list[Format], out: str, threads: int
) -> None:
    """Write ``format.json``: the chosen format, and all that were tried."""
    rows, summary = np.load(Path(sample) / "sample.npy", mmap_mode="r"), read_summary(Path(ingest))
    base, asked = drawn_places(len(rows), summary.n_vectors, p.seed)
    extent = np.array([summary.minimum, summary.maximum])
    drawn = FormatSample(rows[base], _as_queries(rows[asked], p.metric), extent)
    (Path(out) / FORMAT_FACTS).write_text(json.dumps(choice(drawn, p, formats, Path(out), threads)))


class FormatSample(NamedTuple):
    """Vectors of an input by which formats are judged.

    Attributes
    ----------
    rows : array, shape (m, stored dim)
        As *ingest* stores them.
    queries : array, shape (q, stored dim)
        Other rows; those of inner products have nothing in the added component.
    extent : float64 array, shape (2, stored dim)
        Least and greatest component of all vectors, which decide how exact scaled nodes are.
    """

    rows: NDArray[Any]
    queries: NDArray[Any]
    extent: NDArray[np.float64]


def drawn_places(n_sample: int, n: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the places in a sample of the vectors, and of the queries, by which formats of `n` vectors are judged."""
    size = trial_size(n, n_sample)
    drawn = generator(seed, FORMAT).choice(n_sample, size + QUERIES, replace=False)
    return np.sort(drawn[QUERIES:]), np.sort(drawn[:QUERIES])


def drawn_ids(n: int, p: Parameters) -> NDArray[np.int64]:
    """Return the ids of the vectors by which a build judges formats, those of `QUERIES` queries first."""
    ids = sampled(n, p.sample_vectors, p.seed)
    base, asked = drawn_places(len(ids), n, p.seed)
    drawn: NDArray[np.int64] = ids[np.concatenate([asked, base])]
    return drawn


def drawn_alone(rows: NDArray[Any], metric: str) -> FormatSample:
    """Return stored `rows`, `QUERIES` queries first, of an input whose other vectors are not looked at."""
    extent = np.array([rows.min(axis=0), rows.max(axis=0)], np.float64)
    return FormatSample(rows[QUERIES:], _as_queries(rows[:QUERIES], metric), extent)


def _as_queries(rows: NDArray[Any], metric: str) -> NDArray[Any]:
    """Return stored `rows` as queries."""
    queries = rows.copy()
    if metric == "ip":
        queries[:, -1] = 0
    return queries


def predicted_format(
    source: VectorSource, p: Parameters, formats: Sequence[Format], place: Path, threads: int
) -> Format:
    """Return the format that a build of `source` is expected to choose; `place` is for scratch files.

    Of an input of up to 1 GiB it is judged by the rows that the build will draw; of a larger one, in which those would
    take long to find, by the first rows.
    """
    drawn = None
    if len(formats) > 1:
        ids = drawn_ids(source.n_vectors, p)
        rows = source.read(ids) if is_small(source) else first_rows(source, len(ids))
        drawn = _sample_of(rows, p.metric)
    if drawn is None:
        return formats[-1]
    return Format(**choice(drawn, p, formats, place, threads)["chosen"])


def format_of_each_size(
    source: VectorSource, p: Parameters, formats: Sequence[Format], ceiling: float, place: Path, threads: int
) -> list[Format]:
    """Return of each size of codes among `formats` the one to take, by size, all with nodes of one type.

    They are judged by the vectors that a build draws. The largest codes of each rotation and type of nodes decide on
    the nodes, whose searches reach a recall of `ceiling` if any do: they say most of what the nodes allow. Then each
    size has a rotation if that is worth its time.
    """
    drawn = None
    if has_choices(formats):
        drawn = _sample_of(source.read(drawn_ids(source.n_vectors, p)), p.metric)
    if drawn is None:
        return [group[0] for group in _by_size(_alike(formats))]
    with trial_indexes(drawn, place, threads) as tries:
        last = chosen(tries, p, _largest_of_each_kind(formats), ceiling).best
        alike = [one for one in formats if one.node_dtype == last.format.node_dtype]
        return [
            last.format
            if last.format in group
            else _rotated(*compared(tries, p, [measured(tries, p, one) for one in group])).format
            for group in _by_size(alike)
        ]


def has_choices(formats: Sequence[Format]) -> bool:
    """Whether `formats` differ in more than the size of codes."""
    return len(_by_size(_alike(formats))) < len(formats)


def _alike(formats: Sequence[Format]) -> list[Format]:
    """Return those of `formats` that have nodes of the first one's type."""
    return [one for one in formats if one.node_dtype == formats[0].node_dtype]


def _by_size(formats: Sequence[Format]) -> list[list[Format]]:
    """Return `formats` in groups of equal size of codes, by size."""
    sizes = sorted({one.pq_bytes for one in formats})
    return [[one for one in formats if one.pq_bytes == size] for size in sizes]


def _largest_of_each_kind(formats: Sequence[Format]) -> list[Format]:
    """Return for each type of nodes and rotation the format of the largest codes, in the order of `formats`."""
    largest: dict[tuple[str, str], Format] = {}
    for one in sorted(formats, key=lambda one: one.pq_bytes):
        largest[one.node_dtype, one.pq_rotation] = one
    return [one for one in formats if one in largest.values()]


def _sample_of(rows: NDArray[Any], metric: str) -> FormatSample | None:
    """Return `rows` of an input, those of `QUERIES` queries first, as formats are judged by; None if few are usable."""
    rows = usable(rows, metric)
    return drawn_alone(as_stored(rows, metric), metric) if len(rows) >= LEAST_TRIAL + QUERIES else None


def choice(
    drawn: FormatSample, p: Parameters, formats: Sequence[Format], place: Path, threads: int
) -> dict[str, Any]:
    """Choose among `formats`, those of the smallest nodes first; return the choice and what it was made from."""
    with trial_indexes(drawn, place, threads) as tries:
        found = chosen(tries, p, formats)
    return {
        "chosen": found.best.format._asdict(),
        **sample_facts(drawn, found.recall),
        "tried": [one.facts() for one in found.tried],
    }


def sample_facts(drawn: FormatSample, recall: float) -> dict[str, Any]:
    """Return what a manifest says of the searches by which formats are compared, at a recall."""
    return {"vectors": len(drawn.rows), "queries": len(drawn.queries), "k": K, "recall": round(recall, 4)}


@contextmanager
def trial_indexes(drawn: FormatSample, place: Path, threads: int) -> Iterator[TrialIndexes]:
    """Yield small indexes of vectors that were drawn; `place` is for scratch files."""
    scratch = tempfile.TemporaryDirectory(dir=place, prefix=TRIAL_PREFIX)
    with scratch as directory, threadpool_limits(1), TrialIndexes(*drawn, Path(directory), threads) as tries:
        yield tries


def chosen(
    tries: TrialIndexes, p: Parameters, formats: Sequence[Format], ceiling: float = CEILING
) -> Comparison:
    """Choose among `formats`, those of the smallest nodes first.

    First the rotation is chosen, with the smallest nodes. Larger nodes, fewer of which share a page, are tried only if
    searches of the smaller ones do not reach a recall of `ceiling`.
    """
    smallest = [one for one in formats if one.node_dtype == formats[0].node_dtype]
    tried, recall = compared(tries, p, [measured(tries, p, one) for one in smallest])
    first = _rotated(tried, recall)
    tried.remove(first)
    judged = [_judged(tries, p, first)]
    larger = [one for one in formats if one.pq_rotation == first.format.pq_rotation and one not in smallest]
    for one in larger:
        if judged[-1].highest_recall < ceiling:
            judged.append(_judged(tries, p, measured(tries, p, one, recall)))
    best = max(judged, key=lambda one: one.highest_recall)
    return Comparison(best, [*tried, *judged], recall)


def measured(tries: TrialIndexes, p: Parameters, one: Format, recall: float = TARGET_RECALL) -> Tried:
    """Return a format with the page reads of its searches at a recall, as near to it as they come."""
    cost = tries.cost(one.applied(p), recall)
    return Tried(one, cost.mean, cost.recall)


def compared(tries: TrialIndexes, p: Parameters, tried: Sequence[Tried]) -> tuple[list[Tried], float]:
    """Return formats with their page reads at one recall, as near to it as each comes, and that recall."""
    recall = common_recall(tried)
    return [at(tries, p, one, recall) for one in tried], recall


def common_recall(tried: Sequence[Tried]) -> float:
    """Return the recall at which formats are compared, which were tried at `TARGET_RECALL`.

    Where the shortest lists find more than that, page reads at it say nothing: formats are compared at what the best of
    these lists find, up to `CEILING`, beyond which nodes bound the recall. Where no lists reach the target, they are
    compared at what all reach.
    """
    highest = max(one.recall for one in tried)
    return min(one.recall for one in tried) if highest < TARGET_RECALL else min(highest, CEILING)


def at(tries: TrialIndexes, p: Parameters, one: Tried, recall: float) -> Tried:
    """Return what was tried with its page reads at another recall, as near to it as they come."""
    if one.recall == recall:
        return one
    return measured(tries, p, one.format, recall)._replace(highest_recall=one.highest_recall)


def _judged(tries: TrialIndexes, p: Parameters, tried: Tried) -> Tried:
    return tried._replace(highest_recall=tries.highest_recall(tried.format.applied(p)))


def _rotated(tried: Sequence[Tried], recall: float) -> Tried:
    """Return the format with the fewest reads at `recall`, one without a rotation unless another is worth its time."""
    able = [one for one in tried if one.recall >= recall]
    best = min(able, key=lambda one: one.pages_read)
    plain = [one for one in able if one.format.pq_rotation == "none"]
    return plain[0] if plain and best.pages_read > WORTHWHILE * plain[0].pages_read else best
