"""Parts *fit* and *command*: time and memory of every order and its proxies, and those of the whole command."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.curves import ratio
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.jobs.bench.common.process import module, run_indexmill, told
from indexmill.jobs.bench.layouts.cases import Case, facts, laid_out_facts, nodes_per_page
from indexmill.jobs.bench.programs import ours

#: Runs of an order that takes less than `_SHORT_SECONDS`; others are run once.
REPEATS = 3
_SHORT_SECONDS = 15
#: The order whose cost is held against Gorder's.
STAR, GORDER = "star", "gorder"


def measure(case: Case) -> dict[str, Any]:
    """Fit every order in processes of their own, and Gorder once more with its graph in memory."""
    from indexmill.layout.portfolio import ORDERS

    with unpacked(case) as folder:
        rows = {name: _repeated(case, name, folder) for name in ORDERS}
        held = fit_once(case, GORDER, folder, held=True)
    star, gorder = rows[STAR], rows[GORDER]
    return {
        "index": facts(case),
        "threads": THREADS,
        "orders": rows,
        "gorder_held": held,
        "gorder_to_star_s": ratio(gorder["seconds"], star["seconds"]),
        "star_to_gorder_bytes": ratio(star["bytes"], gorder["bytes"]),
        "star_to_gorder_held_bytes": ratio(star["bytes"], held["bytes"]),
    }


@contextmanager
def unpacked(case: Case) -> Iterator[Path]:
    """Copy the graph and the vectors of the index into mapped files, as `indexmill layout` does."""
    from indexmill.pipeline.generations.opened import OpenedIndex
    from indexmill.pipeline.relayout.unpacked import unpack

    folder = case.folder / "unpacked"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        with OpenedIndex(case.index) as opened:
            found = unpack(opened, folder, True, lambda n: None)
            if not np.array_equal(found.vector_ids, np.arange(opened.n)):
                raise ValueError(f"{case.index}: slots are not the vector ids, so its order is not identity")
        del found
        yield folder
    finally:
        shutil.rmtree(folder)


def fit_once(case: Case, name: str, folder: Path, held: bool = False) -> dict[str, Any]:
    """Fit an order in a process of its own (`order`) and keep it, unless it `held` the graph."""
    out = case.folder / ("held.npy" if held else f"{name}.npy")
    numbers = (nodes_per_page(case), SEED, THREADS)
    how = "held" if held else "mapped"
    found = told(module(sys.executable, "layouts.order", folder, name, out, *numbers, how))
    if held:
        out.unlink()
    else:
        _belongs_to(out).write_text(json.dumps(ours.manifest(case.index)["build_id"]))
    return found


def _repeated(case: Case, name: str, folder: Path) -> dict[str, Any]:
    """Medians over some runs; one of an order that takes long."""
    print(f"  {case.name}: {name}", file=sys.stderr, flush=True)
    runs = [fit_once(case, name, folder)]
    if runs[0]["seconds"] < _SHORT_SECONDS:
        runs += [fit_once(case, name, folder) for _ in range(REPEATS - 1)]
    return _medians(runs, ("seconds", "bytes", "process_bytes"))


def _medians(runs: list[dict[str, Any]], names: tuple[str, ...]) -> dict[str, Any]:
    """Return the first of some runs with the medians of all in the figures of `names`, and these of each run."""
    return {
        **runs[0],
        **{name: median(run[name] for run in runs) for name in names},
        "runs": [{name: run[name] for name in names} for run in runs],
    }


def orders(case: Case, names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return orders, by default all of the portfolio, uint32 (n,); those that were not fitted to this index are now."""
    from indexmill.layout.portfolio import ORDERS

    build_id = ours.manifest(case.index)["build_id"]
    paths = {name: case.folder / f"{name}.npy" for name in (ORDERS if names is None else names)}
    missing = [name for name, path in paths.items() if not _is_of(path, build_id)]
    if missing:
        with unpacked(case) as folder:
            for name in missing:
                print(f"  {case.name}: fitting {name}", file=sys.stderr, flush=True)
                fit_once(case, name, folder)
    return {name: np.load(path) for name, path in paths.items()}


def _is_of(path: Path, build_id: str) -> bool:
    owner = _belongs_to(path)
    return path.exists() and owner.exists() and json.loads(owner.read_text()) == build_id


def _belongs_to(path: Path) -> Path:
    """Return the file that names the index an order was fitted to."""
    return path.with_suffix(".json")


#: The command's default.
_MEMORY_BYTES = 1 << 30


def command(case: Case, order: str) -> dict[str, Any]:
    """Run the command, for its time; then in processes that ran it before (`growth`), for its memory."""
    out = case.space.index(case.laid_out(order))
    log = case.folder / f"layout-{order}.log"
    usage = run_indexmill(log, "layout", case.index, order=order, out=out, workers=THREADS)
    index_bytes = sum(file["bytes"] for file in ours.manifest(case.index)["files"])
    growth = module(sys.executable, "layouts.growth", case.index, out, order, _MEMORY_BYTES, THREADS)
    memory = _medians([told(growth) for _ in range(REPEATS)], ("growth_bytes", "process_bytes"))
    return {
        "order": order,
        "wall_s": round(usage.wall_s, 3),
        **laid_out_facts(out),
        **memory,
        "index_bytes": index_bytes,
        "to_index": memory["growth_bytes"] / index_bytes,
    }
