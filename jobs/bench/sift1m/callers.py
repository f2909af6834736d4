"""Part *callers*: queries a second of 64 threads with one query each, against one call with 64 queries."""

from __future__ import annotations

from typing import Any

from indexmill.jobs.bench.common.intervals import over_rounds
from indexmill.jobs.bench.common.parameters import ORDER
from indexmill.jobs.bench.programs import native, ours
from indexmill.jobs.bench.programs.workspace import Workspace
from indexmill.jobs.bench.sift1m.qps import c_options

ROUNDS = 5


def measure(space: Workspace) -> dict[str, Any]:
    """Search from C, in turns, with the setting that the part *qps* chose; see `native.rates_of_callers`."""
    index, options = space.index(ours.ensure(space, ORDER)), [*c_options(space), f"rounds={ROUNDS}"]
    rounds = native.rates_of_callers(space, index, space.data.query, options)
    return {
        "command": ["callers", "INDEX", "QUERIES", *options],
        "rounds": rounds,
        "ratio": over_rounds([done["callers"] / done["batch"] for done in rounds]),
        **{name: over_rounds([done[name] for done in rounds]) for name in rounds[0]},
    }
