"""The format of a graph index: bytes and rotation of its codes, the type of its nodes, and their neighbours.

What a job states stands. What it leaves open is chosen by the page reads of searches at equal recall, which depend on
the vectors: a rotation halves the reads of some embeddings and changes nothing for others. Stage *format* measures them
on small indexes of the training sample. Neighbours are not measured: a page that is read has them for nothing, so there
are as many as fit beside the nodes that share the page.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from indexmill.formats.errors import BudgetError, ConfigError
from indexmill.formats.graph.codes import MAX_BYTES
from indexmill.formats.graph.nodes import NodeFormat
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.bisection import greatest
from indexmill.pipeline.draws import FORMAT, generator
from indexmill.pipeline.kinds.common.cluster import sampled
from indexmill.pipeline.kinds.common.ingest import InputSummary, read_summary
from indexmill.pipeline.kinds.common.judge import TARGET_RECALL
from indexmill.pipeline.kinds.common.metric import as_stored
from indexmill.pipeline.kinds.common.parameters import DEFAULT_PQ_BYTES
from indexmill.pipeline.kinds.common.seconds import TRIAL_PREFIX
from indexmill.pipeline.kinds.common.sizes import SearchLimit, parse_search_memory
from indexmill.pipeline.kinds.graph.emit import FORMAT_FACTS
from indexmill.pipeline.kinds.graph.parameters import CODED_NODES, Parameters
from indexmill.pipeline.kinds.graph.shape import GraphShape
from indexmill.pipeline.kinds.graph.trial import K, TrialIndexes
from indexmill.pipeline.kinds.recipe import Recipe
from indexmill.pipeline.mill.stages import Mill, Stage

VERSION = 3
#: Bytes of a code where nothing is stated: of many float components, and of others.
_LONG, _LONG_PQ_BYTES = 256, 64
#: Queries; vectors of a small index: a share of all, between two numbers.
_QUERIES, _SHARE, _LEAST, _MOST = 256, 20, 2_000, 4_000
#: Vectors of an input at least: fewer are searched fast in any format.
LEAST_VECTORS = 10_000
#: Bytes of an input whose rows a plan reads wherever they are.
_WHOLE_BYTES = 1 << 30
#: Page reads with a rotation, as a share of those without, up to which it is worth its time in every search.
_WORTHWHILE = 0.97
#: Neighbours up to which a page is filled: on 768 components more than 64 fit, and take time to build and to search.
_MOST_DEGREE = 64
#: The same of nodes of embeddings with codes: fewer would leave a search more to read than codes in memory do, by half.
_LEAST_WITH_CODES, _MOST_WITH_CODES = 64, 128
#: Recall that nodes must allow.
_CEILING = 0.985


class Format(NamedTuple):
    """Bytes and rotation of codes, the type of nodes, and R."""

    pq_bytes: int
    pq_rotation: str
    node_dtype: str
    max_degree: int

    def applied(self, p: Parameters) -> Parameters:
        """Return `p` with this format."""
        return p.model_copy(update=self._asdict())


class Tried(NamedTuple):
    """A format and its searches.

    Attributes
    ----------
    format : Format
    pages_read, recall : float
        Page reads of a query at `TARGET_RECALL`; where searches do not reach it, or where the shortest list is beyond
        it, at the recall that is nearest to it.
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


def open_formats(shape: GraphShape) -> list[Format]:
    """Return the formats that a job of this shape leaves open, those of the smallest nodes first.

    Parameters
    ----------
    shape : GraphShape
        With the parameters as they were stated.

    Raises
    ------
    ConfigError
        If a stated code is larger than `search_memory` allows.
    BudgetError
        If `search_memory` holds no code, naming the least that does.
    """
    p = shape.parameters
    given = p.model_fields_set
    rotations = (p.pq_rotation,) if "pq_rotation" in given else ("none", "opq")
    nodes = (p.node_dtype,) if "node_dtype" in given else _node_types(shape)
    if shape.n < LEAST_VECTORS or shape.drawn < _LEAST + _QUERIES:
        rotations, nodes = (p.pq_rotation,), nodes[:1] if p.keep_vectors else (p.node_dtype,)
    limit = _limit(shape)
    sizes = {rotation: _pq_bytes(shape, rotation, limit) for rotation in rotations}
    if not any(sizes.values()):
        least = _with(shape, 1, rotations[0]).held_bytes
        raise BudgetError(
            f"search_memory: {p.search_memory} holds no codes of {shape.n:,} vectors; give at least {least:,} bytes, "
            "or fewer --entries or a smaller --navigation"
        )
    if "pq_bytes" in given:
        stated = min(p.pq_bytes, shape.dim)
        if p.search_memory is not None and stated > max(sizes.values()):
            raise ConfigError(
                f"pq_bytes: {p.pq_bytes} bytes, but search_memory {p.search_memory} allows {max(sizes.values())}; "
                "leave one of them out"
            )
        fitting = [one for one in rotations if p.search_memory is None or stated <= sizes[one]]
        sizes = dict.fromkeys(fitting, p.pq_bytes)
    return [
        Format(sizes[one], one, node, _degree(shape, node, sizes[one]))
        for node in nodes
        for one in sizes
        if sizes[one]
    ]


def largest(formats: Sequence[Format]) -> Format:
    """Return a format that takes as much space, and memory of searches, as any of `formats`."""
    rotation = "opq" if any(one.pq_rotation == "opq" for one in formats) else "none"
    most = max(one.max_degree for one in formats)
    return Format(max(one.pq_bytes for one in formats), rotation, formats[-1].node_dtype, most)


def trial_shape(shape: GraphShape) -> GraphShape:
    """Return the shape of a small index by which the formats of `shape` are judged."""
    p = shape.parameters.model_copy(update={"shard_vectors": None})
    return GraphShape(_trial_size(shape.n, shape.drawn), shape.dim, shape.dtype, 0.0, p)


def _trial_size(n: int, n_sample: int) -> int:
    return min(max(_LEAST, min(n // _SHARE, _MOST)), n_sample - _QUERIES)


def _node_types(shape: GraphShape) -> tuple[str, ...]:
    if shape.parameters.keep_vectors:
        return CODED_NODES[:1]  # exact vectors make good what they lose
    return {4: ("sq8", "sq16", "same"), 2: ("sq8", "same")}.get(shape.dtype.itemsize, ("same",))


def _degree(shape: GraphShape, node_dtype: str, pq_bytes: int) -> int:
    """Return R: the stated one, or as many neighbours as leave as many nodes on a page as the default.

    Of embeddings with codes in nodes, as many as fill the pages that 64 neighbours take: two, with 64 bytes a code.
    """
    p = shape.parameters
    if "max_degree" in p.model_fields_set or shape.n < LEAST_VECTORS:
        return p.max_degree
    dtype = str(shape.dtype) if node_dtype == "same" else node_dtype
    code_bytes = min(pq_bytes, shape.dim) * p.codes_on_page
    least, most = p.max_degree, _MOST_DEGREE
    if p.codes_on_page and _is_embedding(shape):
        least, most = _LEAST_WITH_CODES, _MOST_WITH_CODES
    usual = NodeFormat(shape.dim, dtype, least, code_bytes)

    def fits(degree: int) -> bool:
        filled = NodeFormat(shape.dim, dtype, degree, code_bytes)
        return (filled.nodes_per_page, filled.pages_per_node) == (usual.nodes_per_page, usual.pages_per_node)

    return greatest(fits, least, most + 1)


def _is_embedding(shape: GraphShape) -> bool:
    return shape.dtype.kind == "f" and shape.dim >= _LONG


def _usual_bytes(shape: GraphShape) -> int:
    return _LONG_PQ_BYTES if _is_embedding(shape) else DEFAULT_PQ_BYTES


def _limit(shape: GraphShape) -> SearchLimit:
    text = shape.parameters.search_memory
    if text is not None:
        return parse_search_memory(text)
    return SearchLimit(_usual_bytes(shape), True)


def _pq_bytes(shape: GraphShape, rotation: str, limit: SearchLimit) -> int:
    """Return the bytes of the largest code within `limit`; 0 if there is none."""
    p, most = shape.parameters, min(shape.dim, MAX_BYTES)
    if limit.per_vector:
        return min(limit.bytes, most)
    if p.codes_on_page:  # memory holds no codes, so any fit where their centres do
        size = min(p.pq_bytes if "pq_bytes" in p.model_fields_set else _usual_bytes(shape), most)
        return size if _with(shape, size, rotation).held_bytes <= limit.bytes else 0
    left = limit.bytes - (_with(shape, 1, rotation).held_bytes - shape.n)
    return max(0, min(left // shape.n, most))


def _with(shape: GraphShape, pq_bytes: int, rotation: str) -> GraphShape:
    p = shape.parameters.model_copy(update={"pq_bytes": pq_bytes, "pq_rotation": rotation})
    return GraphShape(shape.n, shape.dim, shape.dtype, shape.id_bytes, p)


class FormatRecipe(Recipe):
    """The stages that choose a format; see `Recipe`.

    Parameters
    ----------
    p : Parameters
    formats : sequence of Format
        See `open_formats`.
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
    with tempfile.TemporaryDirectory(dir=out) as scratch:
        facts = choice(rows[base], rows[asked], extent, p, formats, Path(scratch), threads)
    (Path(out) / FORMAT_FACTS).write_text(json.dumps(facts))


def drawn_places(n_sample: int, n: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the places in a sample of the vectors, and of the queries, by which formats of `n` vectors are judged."""
    size = _trial_size(n, n_sample)
    drawn = generator(seed, FORMAT).choice(n_sample, size + _QUERIES, replace=False)
    return np.sort(drawn[_QUERIES:]), np.sort(drawn[:_QUERIES])


def settled(
    source: VectorSource, p: Parameters, formats: Sequence[Format], place: Path, threads: int
) -> Format:
    """Return the format that a build of `source` is expected to choose; `place` is for scratch files.

    A small input is judged by the rows that the build will draw, a large one, whose rows would take long to find, by
    its first rows.
    """
    if len(formats) == 1:
        return formats[0]
    n = source.n_vectors
    ids = sampled(n, p.sample_vectors, p.seed)
    base, asked = drawn_places(len(ids), n, p.seed)
    places = np.concatenate([asked, base])
    if n * source.dim * source.dtype.itemsize <= _WHOLE_BYTES:
        rows = source.read(ids[places])
    else:
        rows = next(iter(source.batches(len(places)))).vectors[: len(places)]
    rows = rows[np.isfinite(rows).all(axis=1)]  # ingest refuses the others
    if p.metric == "cosine":
        rows = rows[(rows != 0).any(axis=1)]
    if len(rows) < _LEAST + _QUERIES:
        return formats[-1]
    rows = as_stored(rows, p.metric)
    extent = np.array([rows.min(axis=0), rows.max(axis=0)], np.float64)
    with tempfile.TemporaryDirectory(dir=place, prefix=TRIAL_PREFIX) as scratch, threadpool_limits(1):
        found = choice(rows[_QUERIES:], rows[:_QUERIES], extent, p, formats, Path(scratch), threads)
    return Format(**found["chosen"])


def choice(
    rows: NDArray[Any], queries: NDArray[Any], extent: NDArray[np.float64], p: Parameters, formats: Sequence[Format],
    directory: Path, threads: int,
) -> dict[str, Any]:  # fmt: skip
    """Choose among `formats`, those of the smallest nodes first; return the choice and what it was made from.

    First the rotation is chosen, with the smallest nodes. Larger nodes, fewer of which share a page, are tried only if
    searches of the smaller ones do not reach a high recall.

    Parameters
    ----------
    rows : array, shape (m, stored dim)
    queries : array, shape (q, stored dim)
        Other rows.
    extent : float64 array, shape (2, stored dim)
        Least and greatest component of all vectors, which decide how exact scaled nodes are.
    directory : Path
        For scratch files.
    """
    if p.metric == "ip":
        queries[:, -1] = 0  # a query has nothing in the added component
    smallest = [one for one in formats if one.node_dtype == formats[0].node_dtype]
    with TrialIndexes(rows, queries, extent, directory, threads) as trials:
        tried = [_tried(trials, p, one) for one in smallest]
        first = _rotated(tried)
        tried.remove(first)
        judged = [_judged(trials, p, first)]
        larger = [
            one for one in formats if one.pq_rotation == first.format.pq_rotation and one not in smallest
        ]
        for one in larger:
            if judged[-1].highest_recall < _CEILING:
                judged.append(_judged(trials, p, _tried(trials, p, one)))
    best = max(judged, key=lambda one: one.highest_recall)
    return {
        "chosen": best.format._asdict(),
        "vectors": len(rows),
        "queries": len(queries),
        "k": K,
        "recall": TARGET_RECALL,
        "tried": [one.facts() for one in (*tried, *judged)],
    }


def _tried(trials: TrialIndexes, p: Parameters, one: Format) -> Tried:
    cost = trials.cost(one.applied(p))
    return Tried(one, cost.mean, cost.recall)


def _judged(trials: TrialIndexes, p: Parameters, tried: Tried) -> Tried:
    return tried._replace(highest_recall=trials.highest_recall(tried.format.applied(p)))


def _rotated(tried: Sequence[Tried]) -> Tried:
    """Return the format with the fewest reads, one without a rotation unless another is worth its time."""
    best = min(tried, key=lambda one: one.pages_read)
    plain = [one for one in tried if one.format.pq_rotation == "none"]
    return plain[0] if plain and best.pages_read > _WORTHWHILE * plain[0].pages_read else best
