"""Parts *drives* and *drives-near*: both policies on one drive and on two (eCP study, Tables 2 and 3).

Part *drives* has the tree of part *tree*; part *drives-near* has that of *tree-near*, and the paper's drives alone.
The disk is that of the first ``--scratch``. The other drives are loop devices over memory, which the kernel holds to
the rates that the paper measured (Table 1). They have no time to seek, and reads do not slow down writes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from indexmill.formats.sources.source import open_source
from indexmill.jobs.bench.assign.large import PAPER_BUFFER, PLAIN, ROUNDS, Tree, generated, leaders_of, leaves
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.common.dataset import Dataset, facts
from indexmill.jobs.bench.common.loop import Drive, Rates, drive, held
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.jobs.console.progress import stderr_progress
from indexmill.jobs.devices import machine
from indexmill.jobs.grouping import run as grouping
from indexmill.jobs.grouping.setting import POLICIES, Setting, make_leaders, median_run
from indexmill.pipeline.grouping.policies import cluster_bytes

DISK = "disk"
#: Bytes of a block of the file systems, of which an append file wastes some.
_BLOCK = 4096


class Setup(NamedTuple):
    """Drives of a setup: of input and merged file, and of parts."""

    home: str
    parts: str


#: Loop devices by the paper's letters, with the rates of Table 1: of Fujitsu, and of two of Intel.
RATES = {"F": Rates(68, 53), "I": Rates(220, 66), "second I": Rates(220, 66)}
#: Setups of the paper, beside the disk alone and with a loop device.
SETUPS = {
    "disk": Setup(DISK, DISK),
    "disk-I-disk": Setup(DISK, "I"),
    "I": Setup("I", "I"),
    "I-I-I": Setup("I", "second I"),
    "F-I-F": Setup("F", "I"),
}
#: Those without this machine's disk.
PAPER_SETUPS = {name: setup for name, setup in SETUPS.items() if DISK not in setup}


def measure(run: Run, shape: Tree = PLAIN, setups: Mapping[str, Setup] = SETUPS) -> dict[str, Any]:
    """Assign the vectors of part *tree* by both policies in each setup, in turns."""
    data, disk = generated(run), run.options.scratch[0]
    rounds = run.options.rounds or ROUNDS
    setting = Setting(
        leaders_of(data), (PAPER_BUFFER,), (disk,), THREADS, rounds, index="tree", **shape._asdict()
    )
    leaders = make_leaders(open_source(data.base), setting)
    runs: list[dict[str, Any]] = []
    with _loop_drives(data, setting.leaders, setups) as folders, stderr_progress() as progress:
        folders[DISK] = disk
        for turn, (name, setup), policy in product(range(rounds), setups.items(), POLICIES):
            on_loop = folders[setup.home] / data.base.name
            source = open_source(data.base if setup.home == DISK else on_loop)
            one = grouping.Run(policy, PAPER_BUFFER, folders[setup.parts], folders[setup.home], THREADS)
            runs.append({"round": turn, "setup": name, **one.measure(source, leaders.index, progress)})
    if len({one["sha256"] for one in runs}) > 1:
        raise RuntimeError("policies or setups wrote different files")
    return {
        "data": facts(f"generated, seed {SEED}", data),
        "leaders": leaders.facts,
        "leaves": leaves(data, leaders),
        "disk": machine.filesystem_of(disk),
        "rates": {name: {"read": rates.read, "write": rates.write} for name, rates in RATES.items()},
        "runs": runs,
        "medians": {name: {policy: _median(runs, name, policy) for policy in POLICIES} for name in setups},
    }


def _median(runs: list[dict[str, Any]], setup: str, policy: str) -> Any:
    return median_run([one for one in runs if (one["setup"], one["policy"]) == (setup, policy)])


@contextmanager
def _loop_drives(data: Dataset, leaders: int, setups: Mapping[str, Setup]) -> Iterator[dict[str, Path]]:
    """Make the loop devices, each with the input if it is a home, and hold them to their rates; yield their folders."""
    n_vectors, dim = data.shape()
    merged = cluster_bytes(n_vectors, dim * data.dtype().itemsize)
    with ExitStack() as undo:
        made: dict[str, Drive] = {}
        for name in RATES:
            is_home, has_parts = ({setup[place] for setup in setups.values()} for place in (0, 1))
            needed = (merged + leaders * _BLOCK) * (name in has_parts)
            needed += (merged + data.base.stat().st_size) * (name in is_home)
            made[name] = undo.enter_context(drive(needed))
            if name in is_home:
                shutil.copy(data.base, made[name].folder)
        for name, rates in RATES.items():
            undo.enter_context(held(made[name], rates))
        yield {name: one.folder for name, one in made.items()}
