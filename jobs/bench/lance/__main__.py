"""The index of a Lance dataset of eight fragments that `export --dataset` makes, beside that of Lance itself.

Both have as many lists and codes of as many bytes, and Lance searches both. k-means begins with vectors that are drawn,
by Lance in each index anew and by us from a seed, and recall depends on them: each side makes several indexes, and
means are compared. Lance runs in an environment below OUT, with this checkout in front of it.
"""

from __future__ import annotations

import json
import os
import shutil
import sysconfig
from functools import partial
from statistics import mean
from typing import Any

import numpy as np

from indexmill.jobs.bench.common.benchmark import PAGE, ROUNDS_OPTION, Benchmark, Page, Run, Target
from indexmill.jobs.bench.common.dataset import read_bin, read_truth, recall_by_distance
from indexmill.jobs.bench.common.environment import make_environment
from indexmill.jobs.bench.common.parameters import SEED, THREADS
from indexmill.jobs.bench.common.process import told
from indexmill.jobs.bench.programs import ours
from indexmill.jobs.devices.machine import REPOSITORY

PACKAGES = ("pylance==14.0.2",)
ROUNDS = 3
FRAGMENTS, LISTS = 8, 256
#: Bytes of PQ codes.
CODE_BYTES = 96
#: Vectors that our centroids and codebook are trained on: as many as there are.
SAMPLE = 200_000
#: Lists that are probed; all of them find what the codes alone let find.
PROBES = (1, 2, 4, 8, 16, 32, LISTS)
N_QUERIES = 500
#: Our options of a build, and Lance's own arguments, by codec; Lance has no codes of rotated vectors.
CODECS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "flat": ({"codec": "flat"}, {"index_type": "IVF_FLAT"}),
    "pq": (
        {"codec": "pq", "pq_bytes": CODE_BYTES, "pq_rotation": "none"},
        {"index_type": "IVF_PQ", "num_sub_vectors": CODE_BYTES},
    ),
}
#: Most that the mean recall may be below that of Lance's own indexes.
MOST_BELOW = 0.005


def compared(codec: str, run: Run) -> dict[str, Any]:
    """Index one dataset by both in turns, and search it; return recalls and seconds."""
    data = run.sets["embed768"]
    folder = run.out / f"lance-{codec}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    options, own = CODECS[codec]
    queries = np.array(read_bin(data.query)[-N_QUERIES:], np.float32)
    np.save(folder / "queries.npy", queries)
    setting = {
        "base": str(data.base), "dataset": str(folder / "data.lance"), "fragments": FRAGMENTS,
        "workers": THREADS, "queries": str(folder / "queries.npy"), "probes": PROBES,
        "answers": str(folder / "answers.npy"), "own": {**own, "num_partitions": LISTS, "metric": "L2"},
    }  # fmt: skip
    facts = _lance(run, "write", setting)
    seconds: dict[str, list[float]] = {"model": [], "ours": [], "theirs": []}
    recalls: dict[str, list[list[float]]] = {"ours": [], "theirs": []}
    base, truth = read_bin(data.base), read_truth(data.truth)[1][-N_QUERIES:]
    for seed in range(SEED, SEED + (run.options.rounds or ROUNDS)):
        model = folder / f"{seed}.ivf"
        built = ours.build_lists(data.base, model, LISTS, seed=seed, sample_vectors=SAMPLE, **options)
        seconds["model"].append(built.wall_s)
        for name, by_name in recalls.items():
            seconds[name].append(_lance(run, name, {**setting, "model": str(model)})["seconds"])
            answers = np.load(folder / "answers.npy")
            by_name.append([recall_by_distance(found, base, queries, truth) for found in answers])
    rows: list[dict[str, Any]] = [
        {"nprobe": probes} | {name: _spread([one[at] for one in of]) for name, of in recalls.items()}
        for at, probes in enumerate(PROBES)
    ]
    shutil.rmtree(folder)
    return {
        **facts, "lists": LISTS, "queries": len(queries), "seconds": seconds, "rows": rows,
        "least_difference": min(row["ours"]["value"] - row["theirs"]["value"] for row in rows),
    }  # fmt: skip


def _spread(recalls: list[float]) -> dict[str, float]:
    return {"value": mean(recalls), "low": min(recalls), "high": max(recalls)}


def _lance(run: Run, what: str, setting: dict[str, Any]) -> dict[str, Any]:
    """Run `child` where pylance is installed, and what is installed here stands in front of it."""
    python = make_environment(run.out / "lance-env", PACKAGES)
    installed = (sysconfig.get_path(name) for name in ("purelib", "platlib"))
    path = os.pathsep.join(dict.fromkeys([str(REPOSITORY / "src"), *installed]))
    child = ["-m", "indexmill.jobs.bench.lance.child", what, json.dumps(setting)]
    return told(["env", f"PYTHONPATH={path}", str(python), *child])


BENCHMARK = Benchmark[Run](
    "lance",
    {codec: partial(compared, codec) for codec in CODECS},
    tuple(
        Target(f"{codec}: recall@10 less that of Lance's own index, the least of all nprobe",
               f"{codec}.least_difference", ">=", -MOST_BELOW)
        for codec in CODECS
    ),
    sets=("embed768",),
    parameters={
        "threads": THREADS, "fragments": FRAGMENTS, "lists": LISTS, "code_bytes": CODE_BYTES, "sample": SAMPLE,
    },
    peers=PACKAGES,
    pages=(Page("tables", PAGE, "lance"), Page("guide", "docs/guides/export-lance.md", "lance")),
    options=ROUNDS_OPTION,
)  # fmt: skip

if __name__ == "__main__":
    BENCHMARK.main()
