"""All groups of cases: small indexes of every kind and path, built, laid out, exported and searched.

A group is a generator of names and of what was written under them: a directory, a file, or arrays of answers. Only the
public interface is used, `indexmill` and the command line, so that no move of a module changes a case.

Not here: exports to Lance and Lucene, which need pylance and a jar; Ray and GPUs, whose bytes are those of a local
build (their own tests say so); `tune`, whose report has seconds in it.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.support.digests.commands import commands
from tests.support.digests.exports import exports
from tests.support.digests.generations import generations
from tests.support.digests.graphs import graphs, memory, shards
from tests.support.digests.imports import imports
from tests.support.digests.inputs import inputs
from tests.support.digests.ivf import lists
from tests.support.digests.joins import joins
from tests.support.digests.layouts import layouts, orders
from tests.support.digests.lsh import hashes
from tests.support.digests.searches import searches
from tests.support.digests.site import Site
from tests.support.digests.written import Cases

#: All groups, by name, in the order in which they run.
GROUPS: dict[str, Callable[[Site], Cases]] = {
    "graph": graphs,
    "order": orders,
    "input": inputs,
    "shards": shards,
    "memory": memory,
    "lsh": hashes,
    "ivf": lists,
    "generation": generations,
    "layout": layouts,
    "import": imports,
    "export": exports,
    "join": joins,
    "search": searches,
    "command": commands,
}
