"""Open and search indexes in a store in this process: 30 ms to the first byte of an answer, and 1 GB/s.

    python -m indexmill.jobs.bench.stored --sift1m DIR --out DIR [--millions 10] [--keep]

Indexes are built unless they are in OUT. Nothing of them is on this machine when they are opened, and nothing that a
search reads is kept for the next one. Half of the queries choose how much is searched, on this machine, which finds the
same; of the other half the first ones are timed, one at a time.
"""

from __future__ import annotations

from functools import partial

from indexmill.jobs.bench.common.benchmark import Benchmark, Run, Target
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.stored.searches import KINDS, MILLIONS, RECALL, measure
from indexmill.jobs.bench.stored.throttled import BYTES_PER_S, FIRST_BYTE_S

#: Most milliseconds of a search and most rounds, by kind of index.
LIMITS = {"graph": (400, 6), "lists": (150, 2), "lists_of_codes": (150, 2)}
NAMES = {
    "graph": "a graph with codes on its pages",
    "lists": "inverted lists",
    "lists_of_codes": "inverted lists of codes",
}


def _targets(kind: str) -> list[Target]:
    name, (most_ms, most_rounds) = NAMES[kind], LIMITS[kind]
    return [
        Target(f"cold opening, {name}", f"generated.{kind}.open_ms", "<=", 150, "ms"),
        Target(f"rounds of an opening, {name}", f"generated.{kind}.open_rounds", "<=", 2),
        Target(
            f"cold search, p50 at recall {RECALL}, {name}", f"generated.{kind}.p50_ms", "<=", most_ms, "ms"
        ),
        Target(
            f"rounds of a search at recall {RECALL}, {name}", f"generated.{kind}.rounds", "<=", most_rounds
        ),
    ]


BENCHMARK = Benchmark[Run](
    "stored",
    {name: partial(measure, name=name) for name in ("sift1m", "generated")},
    tuple(target for kind in KINDS for target in _targets(kind)),
    parameters={"threads": THREADS, "first_byte_s": FIRST_BYTE_S, "bytes_per_s": BYTES_PER_S},
    options={
        "--millions": {
            "type": int,
            "metavar": "N",
            "help": f"millions of generated vectors (default {MILLIONS}; of a trial 1, of its rows)",
        }
    },
)

if __name__ == "__main__":
    BENCHMARK.main()
