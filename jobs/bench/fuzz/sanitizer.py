"""Tests of the reader, and the replay of seeds by its parsers, under AddressSanitizer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common.process import output_of, run_measured
from indexmill.jobs.bench.fuzz.crates import BOOTSTRAP, MANIFEST, compiler, host, reader_commit, tested

PACKAGES = ("indexmill-core", "indexmill-capi", "indexmill-fuzz")
#: Tests of allocations that fail ask for more than there is, and one leaves behind on purpose what a fork does.
OPTIONS = "allocator_may_return_null=1:detect_leaks=0"
_REPORT = re.compile(r"ERROR: \w+Sanitizer: (.*)")
_FAILED = re.compile(r"^error: (\d+) targets? failed", re.MULTILINE)
#: Exit codes of cargo: all tests passed, and some failed.
_ENDS = (0, 101)


def measure(out: Path) -> dict[str, Any]:
    """Compile the tests, then run them.

    Raises
    ------
    RuntimeError
        If they cannot be compiled.
    """
    packages = [word for name in PACKAGES for word in ("-p", name)]
    command = [
        "env", BOOTSTRAP, "RUSTFLAGS=-Zsanitizer=address", f"ASAN_OPTIONS={OPTIONS}",
        "cargo", "test", "--locked", "--no-fail-fast", "--manifest-path", MANIFEST, "--target-dir", out / "target",
        "--target", host(), "--lib", "--tests", *packages,
    ]  # fmt: skip
    output_of([*command, "--no-run"])
    log = out / "logs" / "sanitize.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    about = {"reader": reader_commit(), "toolchain": compiler(), "packages": list(PACKAGES)}
    used = run_measured(command, log, ends=_ENDS)
    return {**about, "wall_s": round(used.wall_s, 1), "cpu_s": round(used.cpu_s, 1), **outcome(log)}


def outcome(log: Path) -> dict[str, Any]:
    """Return what the tests said: how many passed, what failed, what was ignored and why, and what was reported."""
    text, found = log.read_text(errors="replace"), tested(log)
    reports = _REPORT.findall(text)
    broken = sum(map(int, _FAILED.findall(text)))  # a program that a report ended names no failed test
    return {
        "passed": found.passed,
        "failed": found.failures,
        "ignored": found.reasons,
        "reports": reports,
        "errors": max(broken, found.failed + len(reports)),
    }
