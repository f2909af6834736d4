"""`indexmill score`: recall and cost of an index over a query set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from indexmill.jobs.kinds.registry import ScoreFlagsOfKinds
from indexmill.jobs.options.declare import OUTPUT_PANEL
from indexmill.jobs.options.shared import Force, IndexDir, Json, examples
from indexmill.jobs.score.asked import Asked, Runs, Scoring

NAME = "score"
EXAMPLES = examples(
    "indexmill score index --queries query.u8bin --truth truth.gt -L 20,50,100 --policy beam,page",
    "indexmill score index --queries query.parquet --base base.parquet --first 500 --json",
    "indexmill score index --queries query.u8bin --truth truth.gt --sweep --policy beam,page --out curves/",
    "indexmill score index --queries query.u8bin --truth truth.gt --cache 64MiB --cache-from half",
    "indexmill score lists --queries query.u8bin --truth truth.gt --nprobe 8,16,32 --prune 0.3",
    "indexmill score tables --queries query.u8bin --truth truth.gt -S 500,1000,2000 -k 1",
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `score`."""

    PANEL: ClassVar = OUTPUT_PANEL
    index: IndexDir
    asked: Asked
    runs: Runs
    flags: ScoreFlagsOfKinds
    force: Force = False
    json_: Json = False


def command(options: Options) -> None:
    """Measure recall (95% interval), throughput, latency, reads a query and share of the device's reads a second."""
    from indexmill.jobs.kinds.opening import kind_of

    kind = kind_of(options.index)
    flags = options.flags.of(kind.NAME)
    kind.score(options.index, Scoring(options.asked, options.runs, options.force, options.json_), flags)
