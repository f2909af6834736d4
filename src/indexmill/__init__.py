"""Build, lay out and ship page-aligned vector indexes offline.

``build(vectors, out)`` builds an index, ``append(index, vectors)`` adds to one, ``merge(first, second)`` joins several,
``delete(index, ids)`` deletes from one, ``compact(index)`` removes what was deleted for good, ``rollback(index)``
brings back what was deleted, ``gc(index)`` removes earlier generations, ``upgrade(index)`` rewrites one of an older
format, ``lay_out(index)`` lays one out for fewer page reads,
``import_index(path, out)`` takes one over from another program, ``export(index, to, out)`` hands one to another,
``join(queries, index, out)`` answers many queries at once, ``truth(base, queries)`` exactly, ``tune(vectors)`` finds
parameters for a recall, and ``open(path)`` opens an index for search. ``NeighborsTransformer`` is an estimator of
scikit-learn. They load what they need when they are called, so importing this package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Index",
    "append",
    "build",
    "compact",
    "delete",
    "export",
    "gc",
    "import_index",
    "join",
    "lay_out",
    "merge",
    "open",
    "rollback",
    "truth",
    "tune",
    "upgrade",
]

if TYPE_CHECKING:
    from indexmill.jobs.api.functions import (
        append,
        build,
        compact,
        delete,
        export,
        gc,
        import_index,
        join,
        lay_out,
        merge,
        open,
        rollback,
        truth,
        tune,
        upgrade,
    )
    from indexmill.jobs.api.neighbors import NeighborsTransformer as NeighborsTransformer
    from indexmill.reader.index import Index


def __getattr__(name: str) -> Any:
    if name in __all__ and name != "Index":
        from indexmill.jobs.api import functions

        return getattr(functions, name)
    if name == "Index":
        from indexmill.reader.index import Index

        return Index
    if name == "NeighborsTransformer":  # not in __all__: it needs scikit-learn, which `import *` must not
        from indexmill.formats.extras import require

        require("sklearn", name)
        from indexmill.jobs.api.neighbors import NeighborsTransformer

        return NeighborsTransformer
    raise AttributeError(f"module 'indexmill' has no attribute {name!r}")
