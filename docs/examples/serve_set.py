"""Serve a set of indexes by Ray actors: one actor a part, on whichever node has room.

    python serve_set.py base.set query.npy                     parts are read from the set's directory
    python serve_set.py base.set query.npy s3://bucket/base    parts are fetched from s3://bucket/base/part-000 ...

This process needs only the manifest of the set. It routes queries, asks the actors of the parts that they need side by
side, and merges what they find. An actor that dies is started again, where there is room, and its queries are asked
again meanwhile: callers wait, and get the same answers.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import ray

import indexmill
from indexmill.formats.errors import InputError
from indexmill.formats.index.manifest import parse_manifest
from indexmill.formats.index.setmanifest import read_set_manifest
from indexmill.jobs.kinds.opening import at_hand
from indexmill.reader.set import IndexSet

#: Searches that an actor answers side by side.
SIDE_BY_SIDE = 4


@ray.remote(max_restarts=-1, max_task_retries=-1, max_concurrency=SIDE_BY_SIDE)
class Part:
    """An opened part.

    Parameters
    ----------
    place : str
        Path of the part, or a URL, from which it is fetched into the cache of the node.
    build_id : str
        Of the part, in the manifest of the set.
    """

    def __init__(self, place: str, build_id: str) -> None:
        folder = at_hand(place)
        found = parse_manifest(folder).build_id
        if found != build_id:
            raise InputError(
                f"{place}: expected build {build_id}, as in the set, got {found}; copy that part there"
            )
        self.index: Any = indexmill.open(folder)

    def facts(self) -> dict[str, Any]:
        """Return what a set asks of a part besides answers."""
        index = self.index
        asked = ("query_dtype", "id_type", *(["n_lists"] if index.kind == "ivf" else []))
        native = {name: getattr(index.native, name) for name in asked}
        named = {name: getattr(index, name) for name in ("kind", "dim", "metric", "n_deleted")}
        return {"length": len(index), "native": SimpleNamespace(**native), **named}

    def process(self) -> int:
        """Return the process that answers, which another one replaces if it dies."""
        return os.getpid()

    def ask(self, method: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Return what a method of the index returns."""
        return getattr(self.index, method)(*arguments, **keywords)


class RemotePart:
    """A part as `IndexSet` has it, whose answers come from an actor."""

    def __init__(self, actor: Any, length: int, **facts: Any) -> None:
        self.actor, self._length = actor, length
        vars(self).update(facts)

    def __len__(self) -> int:
        return self._length

    def __getattr__(self, name: str) -> Any:
        if name not in ("search", "metadata", "where", "vector_ids_of"):
            raise AttributeError(name)
        return lambda *arguments, **keywords: ray.get(self.actor.ask.remote(name, arguments, keywords))


def serve(path: str, below: str | None = None, cpus: float = 1) -> IndexSet:
    """Start an actor for each part of a set; return the set, which is searched as one that is opened here.

    Parameters
    ----------
    path : str
        The directory of the set, or one with its manifest alone.
    below : str, optional
        Directory or URL of the parts, which all nodes see; by default `path`.
    cpus : float
        Of each actor.
    """
    manifest = read_set_manifest(Path(path))
    actors = [
        Part.options(num_cpus=cpus).remote(f"{below or path}/{part.name}", part.build_id)
        for part in manifest.parts
    ]
    facts = ray.get([actor.facts.remote() for actor in actors])
    return IndexSet(
        path, manifest, [RemotePart(actor, **own) for actor, own in zip(actors, facts, strict=True)]
    )


def main(path: str, queries: str, below: str | None = None) -> None:
    """Print the ids of the ten nearest vectors of each query."""
    ray.init()
    served = serve(str(Path(path).absolute()), below)
    print(served.search(np.load(queries), 10, threads=len(served.parts)).ids)


if __name__ == "__main__":
    main(*sys.argv[1:])
