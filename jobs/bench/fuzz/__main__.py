"""Fuzz the parsers of the reader, and run its tests under Miri and AddressSanitizer.

    python -m indexmill.jobs.bench.fuzz --out DIR [--seconds N] [--jobs N] [--parts graph,ids] [--keep]

A part for each target of ``reader/fuzz``, `miri` and `sanitize`. Fuzzing takes hours, and may take days: without
``--parts`` each target that had less than N seconds of processor time since its last finding gets what it lacks, from
the corpus in OUT; with ``--parts`` those that are named get N more. A finding ends its part, and the command fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from indexmill.jobs.bench.common import record
from indexmill.jobs.bench.common.benchmark import Benchmark, Run, Target
from indexmill.jobs.bench.fuzz import miri, sanitizer
from indexmill.jobs.bench.fuzz.fuzzer import TARGETS, Fuzzer, built

#: Processor seconds of each target.
SECONDS = 1_800


class Fuzzing(Benchmark[Run]):
    """Its parts go on where earlier runs ended."""

    def run(self, run: Run, chosen: Sequence[str] | None = None) -> list[str]:
        """Measure the `chosen` parts, by default unfinished ones; return those that failed or found errors."""
        if chosen is None:
            parts = record.load(run.results).get("parts", {})
            chosen = [name for name in self.parts if not finished(parts.get(name), run.options.seconds)]
        failed = super().run(run, chosen)
        parts = record.load(run.results)["parts"]
        return [name for name in chosen if name in failed or parts[name]["errors"]]


def finished(part: dict[str, Any] | None, seconds: float) -> bool:
    """Whether a part found no error, and a target was fuzzed for so long since its last finding."""
    return part is not None and not part["errors"] and float(part.get("quiet_s", math.inf)) >= seconds


def fuzzed(target: str) -> Callable[[Run], dict[str, Any]]:
    """Return the part that fuzzes a target."""

    def measure(run: Run) -> dict[str, Any]:
        program = built(target, run.out / "target")
        fuzzer = Fuzzer(program, target, run.out, run.options.jobs)
        return fuzzer.measure(run.options.seconds, again=run.options.parts is not None)

    return measure


BENCHMARK = Fuzzing(
    "fuzz",
    {
        **{target: fuzzed(target) for target in TARGETS},
        "miri": lambda run: miri.measure(run.out, run.options.jobs),
        "sanitize": lambda run: sanitizer.measure(run.out),
    },
    sets=(),
    targets=(
        *(
            Target(f"processor time of `{target}` since its last finding", f"{target}.quiet_s", ">=", SECONDS, "s")
            for target in TARGETS
        ),
        Target("unit tests that fail under Miri", "miri.errors", "<=", 0),
        Target("tests that fail under AddressSanitizer, and its reports", "sanitize.errors", "<=", 0),
    ),
    options={
        "--seconds": {
            "type": int, "metavar": "N", "default": SECONDS,
            "help": f"processor time of each target (default: {SECONDS})",
        },
        "--jobs": {"type": int, "metavar": "N", "default": 1, "help": "processes at once on a target (default: 1)"},
    },
)  # fmt: skip

if __name__ == "__main__":
    BENCHMARK.main()
