"""Index a Lance dataset where it lies, search it with Lance, and tell what its index holds.

Arguments: index, dataset, .npy file of queries, .npz file to write, JSON: nprobe, run (keywords of `indexmill.export`),
die (a worker dies once), die_removing (the command dies when it has deleted one of the merged segments), append (so
many rows are appended while it is indexed, and it is indexed again), own (in place of ours, the arguments of Lance's
own `create_index`). A segment has the rows of one fragment.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import lance
import lance_dying
import numpy as np
from lance_contents import contents

import indexmill
from indexmill.formats.errors import InputError
from indexmill.pipeline.export.lance import run, tasks


def changed_meanwhile(index: str, place: str, rows: int) -> str:
    """Append rows while the first fragment is indexed; return what is said."""

    def appending(*arguments: Any) -> None:
        tasks.segment_task(*arguments)
        table = lance.dataset(place)
        if table.version == 1:
            lance.write_dataset(table.take(list(range(rows))), place, mode="append")

    run.segment_task = appending
    try:
        indexmill.export(index, "lance", dataset=place, workers=1)
    except InputError as error:
        return str(error)
    finally:
        run.segment_task = tasks.segment_task
    return "nothing"


def main() -> None:
    index, place, asked, answer, options = sys.argv[1:]
    how = json.loads(options)
    tasks.GROUP_BYTES = 1
    if "append" in how:
        print(changed_meanwhile(index, place, how["append"]))
    if "die" in how:
        run.segment_task = lance_dying.segment_task
    if "die_removing" in how:
        shutil.rmtree = lance_dying.rmtree
    report: dict[str, Any] = {}
    if "own" in how:
        lance.dataset(place).create_index("vector", name="vector_idx", **how["own"])
    else:
        report = indexmill.export(index, "lance", dataset=place, column="vector", **how["run"])
    table = lance.dataset(place)
    probes = {"nprobes": how["nprobe"], "maximum_nprobes": how["nprobe"]}
    ids, distances = [], []
    for query in np.load(asked):
        nearest = {"column": "vector", "q": query, "k": 10, **probes}
        found = table.to_table(nearest=nearest, columns=["number", "_distance"])
        ids.append(found["number"].to_numpy())
        distances.append(found["_distance"].to_numpy())
    held = contents(Path(place), table)
    np.savez(answer, found=np.array(ids), distances=np.array(distances), report=json.dumps(report), **held)


main()
