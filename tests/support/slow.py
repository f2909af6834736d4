"""Writes tests/slow.txt from the durations of a run of all tests.

    python -m pytest -n 2 --dist loadgroup --durations=0 -vv | python -m tests.support.slow

Run it on a quiet machine.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

SLOW = Path(__file__).parents[1] / "slow.txt"
#: Seconds from which a test is slow.
LONGEST = 0.5


def slow_functions(lines: list[str]) -> list[str]:
    """Return the test functions of which a case took `LONGEST` or more, without setting up what it shares."""
    seconds: dict[str, float] = defaultdict(float)
    for line in lines:
        found = re.match(r"(\d+\.\d+)s call +tests/([^\s\[@]+)", line)
        if found:
            seconds[found[2]] = max(seconds[found[2]], float(found[1]))
    return sorted(function for function, longest in seconds.items() if longest >= LONGEST)


if __name__ == "__main__":
    functions = slow_functions(sys.stdin.read().splitlines())
    SLOW.write_text("".join(f"{function}\n" for function in functions))
