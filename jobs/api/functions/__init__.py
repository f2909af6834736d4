"""The Python interface, which `indexmill` exports: a file for each subject.

Imports what `jobs.api` may import. Of these files each imports `searching` alone, whose `open` opens what it has made.
"""

from indexmill.jobs.api.functions.changing import (
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

__all__ = [
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
