"""Part *loaded*: this machine's disk, idle and while another program reads from it at a bounded rate."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.aio_ann import searches
from indexmill.jobs.bench.aio_ann.searches import (
    BEAM,
    CACHES,
    COMPLETION,
    RECALLS,
    ROUNDS,
    SERIES,
    WHOLE,
    WHOLE_BY_BEAM,
)
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.curves import Search, in_turns, tuned_sizes
from indexmill.jobs.bench.common.intervals import medians_at, ratios_at, short
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.common.process import module
from indexmill.jobs.bench.programs import diskann, ours
from indexmill.jobs.bench.programs.workspace import Workspace, workspace
from indexmill.jobs.bench.sift1m import completion

DISKANN = "DiskANN"
#: Ours; the last one as the paper has it: a kernel thread looks for submissions.
OURS = {name: SERIES[name] for name in (BEAM, COMPLETION, *CACHES, WHOLE_BY_BEAM, "pipeline")}
OURS |= {
    "pipeline, cache of 10%": replace(SERIES["pipeline"], cache=0.10),
    f"{WHOLE}, SQPOLL": replace(SERIES[WHOLE], engine="sqpoll"),
}
#: Megabytes a second that the other program reads.
LOADS = {"idle": 0, "loaded": 128}


def measure(run: Run) -> dict[str, Any]:
    """Search for users near each other, DiskANN and ours in turns, without a load and with one."""
    space = workspace(run)
    searches.ensure(space)
    diskann.ensure(space)
    read_from = space.index(ours.ensure(space, "star")) / "graph.imx"
    data = searches.users(space)
    sizes = searches.sizes(space, data, OURS)
    found = {}
    asking = Workspace(data, space.out)
    with diskann.DiskAnn(asking, THREADS, space.diskann_index) as peer:
        sizes |= tuned_sizes({DISKANN: peer.search()}, searches.POINTS)
        series: dict[str, Search] = {
            DISKANN: peer.search(),
            **searches.opened(space, data, ours.ENGINE, OURS),
        }
        for name, rate in LOADS.items():
            with load_on(read_from, rate) as load:
                reads = completion.read_times(space)
                rounds = in_turns(series, sizes, run.options.rounds or ROUNDS)
            found[name] = {
                "load": load,
                "reads": reads,
                "qps": {one: medians_at(rounds, one, "qps", RECALLS) for one in series},
                "pages_read": {one: medians_at(rounds, one, "pages_read", RECALLS) for one in series},
                **{
                    key: {one: ratios_at(rounds, one, other, "qps", RECALLS) for one in series}
                    for key, other in (("to_diskann", DISKANN), ("to_beam", BEAM))
                },
                "rounds": short(rounds),
            }
    return {**searches.told(data, OURS), "loads": found}


@contextmanager
def load_on(path: Path, mb_per_s: float) -> Iterator[dict[str, Any]]:
    """Let another program read a file for the length of a block; what it read stands in the dict at the end.

    Parameters
    ----------
    mb_per_s : float
        Most that it reads, 0 for nothing.
    """
    told: dict[str, Any] = {"asked_mb_per_s": mb_per_s}
    if not mb_per_s:
        yield told
        return
    command = module(sys.executable, "aio_ann.load", path, mb_per_s)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()  # it reads now
            yield told
        finally:
            out, _ = child.communicate()  # ends its standard input, and with it the load
    told |= json.loads(out)
