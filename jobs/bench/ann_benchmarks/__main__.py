"""Have ann-benchmarks run `docs/examples/ann_benchmarks`, and say what it found.

    python -m indexmill.jobs.bench.ann_benchmarks --checkout DIR --wheel FILE --out DIR [--keep]

DIR is a checkout of ann-benchmarks, which is copied; its requirements and the wheel of indexmill go into an
environment of their own. Both are made anew for another wheel or commit. The parts are sets of vectors that
ann-benchmarks makes itself. Recall and queries a second are what its `plot.py` prints.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common import record
from indexmill.jobs.bench.common.benchmark import Benchmark, Run
from indexmill.jobs.bench.common.dataset import K
from indexmill.jobs.bench.common.environment import make_environment
from indexmill.jobs.bench.common.process import output_of
from indexmill.jobs.devices.machine import REPOSITORY, commit

ALGORITHM = "indexmill"
EXAMPLE = REPOSITORY / "docs" / "examples" / "ann_benchmarks"
DATASETS = ("random-xs-20-euclidean", "random-xs-20-angular")
#: How queries are asked, and the flags for that.
MODES: dict[str, list[str]] = {"one by one": [], "all at once": ["--batch"]}
#: Times that a setting is run, of which the fastest counts; and that ann-benchmarks is started, as it may end too soon.
RUNS, TRIES = 3, 5
#: Characters of a commit; fewer or more tell no state of files.
_COMMIT = 40
_ROW = re.compile(r"^ *\d+: +(?P<name>.+?) +(?P<recall>\d+\.\d+) +(?P<qps>\d+\.\d+)$", re.MULTILINE)


def measure(run: Run, dataset: str) -> dict[str, Any]:
    """Make a set, run our algorithm on it, and return the rows of each mode, sorted by recall."""
    origin = origin_of(run)
    place, python = copied(run, origin)
    if not (place / "data" / f"{dataset}.hdf5").exists():
        output_of([python, "create_dataset.py", "--dataset", dataset], place)
    found = {}
    for mode, flags in MODES.items():
        _run(place, python, dataset, flags)
        found[mode] = rows(output_of([python, "plot.py", "--dataset", dataset, "--recompute", *flags], place))
    return {"dataset": dataset, **origin, "modes": found}


def _run(place: Path, python: Path, dataset: str, flags: list[str]) -> None:
    """Have ann-benchmarks run our algorithm anew, in some tries.

    Its worker ends at once if it looks into the queue of work before the first piece has arrived there.

    Raises
    ------
    RuntimeError
        If there are no results; ann-benchmarks exits with 0 also where an algorithm failed.
    """
    results = place / "results" / dataset / str(K) / (f"{ALGORITHM}-batch" if flags else ALGORITHM)
    shutil.rmtree(results, ignore_errors=True)
    asked = ["--local", "--algorithm", ALGORITHM, "--dataset", dataset, "--count", K, "--runs", RUNS, *flags]
    for _ in range(TRIES):
        said = output_of([python, "run.py", *asked], place)
        if results.exists():
            return
    raise RuntimeError(f"{results}: no results; ann-benchmarks said\n{said[-3000:]}")


def rows(said: str) -> list[dict[str, Any]]:
    """Return what `plot.py` printed of our algorithm, sorted by recall."""
    found = [match.groupdict() for match in _ROW.finditer(said) if match["name"].startswith(ALGORITHM)]
    parsed = [
        {"name": one["name"], "recall": float(one["recall"]), "qps": float(one["qps"])} for one in found
    ]
    return sorted(parsed, key=lambda row: (row["recall"], -row["qps"]))


def origin_of(run: Run) -> dict[str, str]:
    """Return the SHA-256 of the wheel and the commit of the checkout.

    Raises
    ------
    ValueError
        If no checkout or no wheel is given.
    """
    checkout, wheel = run.options.checkout, run.options.wheel
    if checkout is None or wheel is None:
        raise ValueError("--checkout and --wheel: both are needed to measure")
    with open(wheel, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"wheel_sha256": digest, "checkout_commit": commit(checkout)}


def copied(run: Run, origin: dict[str, str]) -> tuple[Path, Path]:
    """Return a copy of the checkout with our algorithm in it, and the Python that runs it.

    Both are made anew unless they are of the same wheel and of the same commit without changes.
    """
    place, environment, made = (run.out / name for name in ("ann-benchmarks", "environment", "origin.json"))
    if record.load(made) != origin or len(origin["checkout_commit"]) != _COMMIT:
        made.unlink(missing_ok=True)
        for folder in (place, environment):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(run.options.checkout, place, ignore=shutil.ignore_patterns(".git"))
    ours = place / "ann_benchmarks" / "algorithms" / ALGORITHM
    shutil.copytree(EXAMPLE, ours, dirs_exist_ok=True)
    packages = ["-r", str(place / "requirements.txt"), str(run.options.wheel.resolve())]
    python = make_environment(environment, packages)
    record.save(origin, made)
    return place, python


BENCHMARK = Benchmark[Run](
    "ann_benchmarks",
    {dataset: partial(measure, dataset=dataset) for dataset in DATASETS},
    sets=(),
    parameters={"runs": RUNS},
    options={
        "--checkout": {"type": Path, "metavar": "DIR", "help": "of ann-benchmarks"},
        "--wheel": {"type": Path, "metavar": "FILE", "help": "of indexmill"},
    },
)

if __name__ == "__main__":
    BENCHMARK.main()
