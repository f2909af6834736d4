"""Parts of single options of a build: the same vectors built with and without each, by what graph and searches cost.

Every variant is built in input order, for its graph, and searched in memory by one search; where page reads are told,
too, its graph is laid out by stars and searched from the disk. Ratios are to the first variant of a part.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common.curves import LONG_SIZES, ratio, tuned_trial
from indexmill.jobs.bench.common.dataset import Dataset, first_rows
from indexmill.jobs.bench.common.intervals import Curve, curve, curve_ratios, figures_at
from indexmill.jobs.bench.common.process import PeakScratch, indexmill, run_measured
from indexmill.jobs.bench.partition.builds import SHAPES, WARM_UP_ROWS, Builds, graph_seconds, job, quality
from indexmill.jobs.bench.programs import graph_quality, ours
from indexmill.jobs.bench.programs.workspace import Workspace

POLICIES = ("page", "pipeline")


@dataclass(frozen=True)
class Ablation:
    """One option.

    Attributes
    ----------
    data : str
        Name of the set.
    variants : dict
        Options of ``indexmill build`` by the name of the variant.
    rows : int or None
        Vectors from the beginning of the set; all of them where it is None.
    reads : bool
        Whether page reads are counted.
    common : dict
        Options of all variants.
    """

    data: str
    variants: dict[str, dict[str, Any]]
    rows: int | None = None
    reads: bool = False
    common: dict[str, Any] = field(default_factory=dict)


_PASSES = {"one pass": {}, "two passes": {"passes": 2}, "one pass, L = 150": {"L": 150}}
_CODES = {"by vectors": {}, "by codes": {"build_codes": "sq8"}}
_OPQ = {"as they are": {}, "rotated": {"pq_rotation": "opq"}}
ABLATIONS = {
    "passes-sift1m": Ablation("sift1m", _PASSES, 100_000),
    "passes-text40k": Ablation("text40k", _PASSES),
    "build-codes": Ablation("text40k", _CODES),
    "build-codes-embed768": Ablation("embed768", _CODES),
    "saturate": Ablation(
        "sift1m", {"free": {"saturate": False, "no_saturate": True}, "saturated": {}}, 200_000, reads=True
    ),
    "opq-32": Ablation("text40k", _OPQ, reads=True),
    "opq-16": Ablation("text40k", _OPQ, reads=True, common={"pq_bytes": 16}),
    "regions": Ablation(
        "sift1m",
        {
            "one piece": {"builder": "partition"},
            "regions, 340 MiB": {"builder": "partition", "memory": "340MiB"},
            "shards, 380 MiB": {"builder": "partition", "memory": "380MiB", "shard_vectors": 50_000},
        },
        200_000,
    ),
}


def measure(space: Builds, name: str) -> dict[str, Any]:
    """Build every variant once: distances and reads repeat, times are told as they are."""
    one = ABLATIONS[name]
    whole = space.sets[one.data]
    rows = one.rows or whole.shape()[0]
    data = first_rows(whole, rows, space.out / f"{one.data}-{rows}")
    few, log = space.first(data, WARM_UP_ROWS), space.out / "ablation.log"
    variants = {variant: {**one.common, **options} for variant, options in one.variants.items()}
    for options in variants.values():  # kernels are compiled
        run_measured(indexmill("build", **_asked(space, few, options)), log)
    few.unlink()
    made: dict[str, dict[str, Any]] = {}
    curves: dict[str, dict[str, Curve]] = {}
    for variant, options in variants.items():
        made[variant], curves[variant] = _variant(space, data, options, one.reads)
        mine, first, plain = made[variant], next(iter(made.values())), next(iter(curves.values()))
        mine["ratio"] = {
            what: ratio(mine[what], first[what]) for what in ("graph_s", "cpu_s", "scratch_bytes")
        }
        mine["ratio"] |= {at: ratio(value, first["distances"][at]) for at, value in mine["distances"].items()}
        mine["pages_ratio"] = {at: curve_ratios(found, plain[at]) for at, found in curves[variant].items()}
    return {"set": one.data, "n": data.shape()[0], "variants": made}


def _asked(space: Builds, base: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a build with an empty work folder."""
    work = space.out / "ablation-work"
    shutil.rmtree(work, ignore_errors=True)
    index = space.out / "indexmill-ablation"
    return {**job(base, index, "vamana", *SHAPES[0]), "work": work, **options}


def _variant(
    space: Builds, data: Dataset, options: dict[str, Any], reads: bool
) -> tuple[dict[str, Any], dict[str, Curve]]:
    """Return what a variant costs, and its page reads query by query for each policy."""
    place, log = Workspace(data, space.out), space.out / "ablation.log"
    asked = _asked(space, data.base, options)
    index, work = place.index("ablation"), asked["work"]
    with PeakScratch(work) as scratch:
        usage = run_measured(indexmill("build", **asked), log)
    seconds = ours.stage_seconds(index)
    made: dict[str, Any] = {
        **usage.to_dict(),
        "options": {name: str(value) for name, value in options.items()},
        "stage_s": seconds,
        "graph_s": graph_seconds(seconds),
        "scratch_bytes": scratch.bytes,
        "mean_degree": ours.manifest(index)["graph"]["mean_degree"],
        "distances": quality(data, graph_quality.read_ours(index))["distances"],
    }
    curves = {}
    if reads:
        asked |= {"order": "star", "out": place.index("ablation-star")}
        run_measured(indexmill("build", **asked), log)
        with ours.Ours(place) as searcher:
            for policy in POLICIES:
                search = searcher.search("ablation-star", ours.lockstep(policy, "navigation"))
                _, found = tuned_trial(search, LONG_SIZES)
                curves[policy] = curve([found], "pages_read")
        made["pages_read"] = {policy: figures_at(found) for policy, found in curves.items()}
        shutil.rmtree(place.index("ablation-star"))
    for path in (index, work):
        shutil.rmtree(path)
    return made, curves
