"""`explain`: whether a layout can reduce page reads, and if none can, what would, and by how much."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from indexmill.formats.errors import ConfigError, NothingToGain
from indexmill.formats.graph.nodes import NodeFormat
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.pipeline.execution.allocator import hold_little
from indexmill.pipeline.generations.opened import OpenedIndex
from indexmill.pipeline.generations.run import GenerationRun, RunOptions
from indexmill.pipeline.generations.scratch import EXPLAIN_KIND, emptied, scratch_directory
from indexmill.pipeline.kinds.graph.candidates import LEAST_VECTORS
from indexmill.pipeline.mill.disk_space import check_free, existing_parent
from indexmill.pipeline.mill.progress import Progress
from indexmill.pipeline.mill.publish import output_lock
from indexmill.pipeline.relayout.explained.proposals import Proposal, propose, size_of_sample

#: Orders that place nothing; and the share of a page's mates that are neighbours from which they count as a layout all
#: the same: input order has less of random data.
_NO_LAYOUT = frozenset({None, "identity", "random"})
_LAID_OUT_OVERLAP = 0.1


@dataclass(frozen=True)
class Explanation:
    """The limit of an index.

    Attributes
    ----------
    facts : dict
        Numbers: nodes and bytes a page, fill, overlap ratio.
    can_help : bool
        Whether an order of the nodes can change page reads at all.
    words : tuple of str
        The same in sentences.
    proposals : tuple of Proposal
        What would help where no layout can.
    """

    facts: dict[str, Any]
    can_help: bool
    words: tuple[str, ...]
    proposals: tuple[Proposal, ...] = ()

    @property
    def lines(self) -> list[str]:
        """Words and proposals, one a line."""
        return [*self.words, *(proposal.words for proposal in self.proposals)]

    def as_dict(self) -> dict[str, Any]:
        """Return all of it for JSON."""
        return {
            **self.facts,
            "layout_can_help": self.can_help,
            "words": list(self.words),
            "proposals": [vars(proposal) for proposal in self.proposals],
        }


def run_explain(
    index: str | os.PathLike[str], options: RunOptions, progress: Progress | None = None
) -> Explanation:
    """Explain the index at `index`; see `explain`."""
    hold_little()
    run = GenerationRun(index, options, progress)
    with threadpool_limits(1), OpenedIndex(index) as opened:
        return explain(opened, run, lambda: own_scratch(run))


@contextmanager
def own_scratch(run: GenerationRun) -> Iterator[Path]:
    """Make a scratch directory for the length of a block, one run at a time; what a killed run left goes first.

    Raises
    ------
    ConfigError
        If its place cannot be written.
    """
    scratch = scratch_directory(run.out, run.options.work, EXPLAIN_KIND)
    if not os.access(existing_parent(scratch), os.W_OK):
        raise ConfigError(
            f"work: {scratch.parent} cannot be written, and a sample is measured there; name another with --work"
        )
    with output_lock(scratch), emptied(scratch):
        yield scratch


def explain(
    opened: OpenedIndex, run: GenerationRun, scratch: Callable[[], AbstractContextManager[Path]]
) -> Explanation:
    """Return the limits of an index; where no layout can help, proposals are measured on a sample of it.

    Reads the manifest and the header; for a sample the codes, and as many nodes as it has. Memory: ids.imx while the
    index is opened, then the sample (`pipeline.relayout.explained.streamed`), which is cut to ``run.options.memory``.

    Parameters
    ----------
    scratch : callable
        Makes a directory for that; not called where nothing is measured.
    """
    node, n = opened.graph.node_format, opened.n
    layout = opened.manifest.layout
    facts = {
        "vectors": n,
        "node_dtype": node.dtype,
        "node_bytes": node.node_bytes,
        "vector_bytes": node.vector_bytes,
        "list_bytes": node.list_bytes,
        "nodes_per_page": node.nodes_per_page,
        "pages_per_node": node.pages_per_node,
        "page_fill": round(min(n, node.nodes_per_group) * node.node_bytes / node.group_bytes, 6),
        "order": layout.get("order"),
        "overlap_ratio": layout.get("overlap_ratio"),
    }
    words = [_page_words(node, n), *_format_words(opened)]
    if n <= node.nodes_per_group and node.nodes_per_page > 1:
        words.append("One page holds all of them: there is nothing to lay out.")
        return Explanation(facts, False, tuple(words))
    if node.nodes_per_page > 1:
        return Explanation(facts, True, (*words, *layout_words(opened, facts)))
    words.append(
        "A read brings one node, whatever its neighbours on the device are, so the order of the nodes changes no page "
        "read: a layout cannot help."
    )
    if n < 2:
        words.append("There is one vector: nothing to measure.")
        return Explanation(facts, False, tuple(words))
    size = size_of_sample(opened, run.options.memory)
    opened.release_ids()
    with scratch() as directory:
        check_free(directory, 2 * size * node.group_bytes, "sample")
        proposals = propose(opened, size, run, directory)
    return Explanation(facts, False, tuple(words), proposals)


def check_layout_matters(
    opened: OpenedIndex, run: GenerationRun, scratch: Callable[[], AbstractContextManager[Path]]
) -> None:
    """Refuse to choose among layouts of which none can help.

    Raises
    ------
    NothingToGain
        With what `explain` says.
    """
    if 1 < opened.graph.node_format.nodes_per_page < opened.n:
        return
    explanation = explain(opened, run, scratch)
    raise NothingToGain("\n  ".join([f"{opened.path}: nothing was published", *explanation.lines]))


def _page_words(node: NodeFormat, n: int) -> str:
    what = (
        f"a node of {node.node_bytes:,} bytes (vector {node.vector_bytes:,}, list of {node.max_degree} neighbours "
        f"{node.list_bytes:,})"
    )
    if node.nodes_per_page > 1:
        return f"{min(n, node.nodes_per_page)} nodes share a page of {PAGE_BYTES}: {what}."
    if node.nodes_per_page == 1:
        slack = PAGE_BYTES - node.head_bytes - node.node_bytes
        return f"One node fills a page of {PAGE_BYTES}: {what}; {slack:,} bytes are left over."
    return f"A node takes {node.pages_per_node} pages of {PAGE_BYTES}: {what}."


def _format_words(opened: OpenedIndex) -> list[str]:
    """Say how to compare a format that no measurement is known of."""
    if opened.n < LEAST_VECTORS or "format" in opened.manifest.graph:
        return []
    return [
        "Its format was stated, imported or extended, not measured by a build: indexmill explain "
        f"{opened.path} --rebuild says what another would read."
    ]


def layout_words(opened: OpenedIndex, facts: dict[str, Any]) -> list[str]:
    """Return sentences that say whether a layout can help, by the order of the index and the overlap of its pages."""
    overlap = facts["overlap_ratio"]
    if not isinstance(overlap, (int, float)):
        return ["A layout can help: indexmill layout finds the best one."]
    mates = opened.graph.node_format.nodes_per_page - 1
    shared = (
        f"Of a node's {mates} page mates {overlap * mates:.1f} are neighbours (overlap ratio {overlap:.3f})"
    )
    if facts["order"] not in _NO_LAYOUT:
        state = f"it is laid out by {facts['order']}"
    elif overlap < _LAID_OUT_OVERLAP:
        return [f"{shared}: a read brings strangers. A layout can help: run indexmill layout."]
    else:
        state = f"its {facts['order']} order is a layout already"
    return [f"{shared}: {state}. Another order may do better: indexmill layout --order auto measures them."]
