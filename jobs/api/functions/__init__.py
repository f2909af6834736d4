"""The Python interface, which `indexmill` exports: a file for each subject.

These files may import what `jobs.api` may and, among themselves, only `searching`, which opens what they have made.
"""

from indexmill.jobs.api.functions.building import build, tune
from indexmill.jobs.api.functions.changing import append, compact, delete, lay_out, merge
from indexmill.jobs.api.functions.exchanging import export, import_index
from indexmill.jobs.api.functions.generations import gc, rollback, upgrade
from indexmill.jobs.api.functions.searching import join, open, truth

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
