"""Unit tests of the reader's core under Miri, an interpreter that finds undefined behaviour.

Each test has a process of its own, since Miri ends at the first thing that it cannot do, such as a call of the kernel.
A test that ends so is not counted, and the record has Miri's reason. Results are kept in OUT/runs/miri.json until all
tests were tried: the next run does not repeat them if this one is killed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common import record
from indexmill.jobs.bench.common.process import output_of, run_measured
from indexmill.jobs.bench.fuzz.crates import CHANGES, MANIFEST, compiler, reader_commit, tested

TOOLCHAIN = "+nightly"
#: Instructions that the interpreted processor has, beside the scalar kernels.
INSTRUCTIONS = "+avx2,+fma,+f16c"
#: Processor seconds of a test at most; one that waits may take ten times as long.
LIMIT_S = 600
TOO_LONG = f"takes more than {LIMIT_S} s of processor time"
IGNORED = "ignored in its source"
#: On a line of its own, or after the name of the test, which libtest prints first where there is one processor.
_ERROR = re.compile(r"^(?:test \S+ \.\.\. )?error: (.*)$", re.MULTILINE)
_UNSUPPORTED = "unsupported operation: "
#: What cargo says of every test that fails.
_FAILED = "test failed"
#: All exit codes and signals: what a test said tells more.
_ENDS = range(-64, 256)

Row = dict[str, Any]


@dataclass(frozen=True)
class Interpreter:
    """Runs single tests.

    Attributes
    ----------
    command : sequence
        To which the name of a test is added.
    logs : Path
        Folder.
    limit_s : int
        Of processor time.
    """

    command: Sequence[object]
    logs: Path
    limit_s: int = LIMIT_S

    def names(self) -> list[str]:
        """Return all tests."""
        said = output_of([*self.command, "--list", "--format=terse"])
        return re.findall(r"^(\S+): test$", said, re.MULTILINE)

    def row(self, name: str) -> Row:
        """Run a test."""
        log = self.logs / f"{name.replace('::', '.')}.log"
        longest = 10 * self.limit_s
        limits = ["timeout", "--kill-after=10", longest, "prlimit", f"--cpu={self.limit_s}"]
        used = run_measured([*limits, *self.command, "--exact", name], log, ends=_ENDS)
        took_too_long = used.cpu_s >= self.limit_s or used.wall_s >= longest
        return {"test": name, **verdict(log, took_too_long), "cpu_s": round(used.cpu_s, 1)}


def verdict(log: Path, took_too_long: bool = False) -> Row:
    """Return the outcome of a test, ``passed``, ``failed`` or ``excluded``, and why."""
    text, found = log.read_text(errors="replace"), tested(log)
    errors = [error for error in _ERROR.findall(text) if not error.startswith(_FAILED)]
    if errors and errors[0].startswith(_UNSUPPORTED):
        return {"outcome": "excluded", "why": errors[0].removeprefix(_UNSUPPORTED)}
    if errors:
        return {"outcome": "failed", "why": errors[0]}
    if (found.passed, found.failed) == (1, 0):
        return {"outcome": "passed", "why": ""}
    if found.ignored:
        return {"outcome": "excluded", "why": next(iter(found.reasons), "") or IGNORED}
    if took_too_long:
        return {"outcome": "excluded", "why": TOO_LONG}
    return {"outcome": "failed", "why": "\n".join(text.splitlines()[-15:])}


def measure(out: Path, jobs: int = 1) -> dict[str, Any]:
    """Try all tests.

    Raises
    ------
    RuntimeError
        If Miri is not installed, or the tests cannot be compiled.
    """
    command = [
        "env", "MIRIFLAGS=-Zmiri-disable-isolation", f"RUSTFLAGS=-Ctarget-feature={INSTRUCTIONS}",
        "cargo", TOOLCHAIN, "miri", "test", "--locked", "--manifest-path", MANIFEST,
        "--target-dir", out / "target" / "miri", "-p", "indexmill-core", "--lib", "--",
    ]  # fmt: skip
    about = {
        "reader": reader_commit(),
        "toolchain": compiler(TOOLCHAIN),
        "miri": output_of(["cargo", TOOLCHAIN, "miri", "--version"]).strip(),
        "instructions": INSTRUCTIONS,
    }
    interpreter = Interpreter(command, out / "logs" / "miri")
    return {**about, **all_tests(interpreter, out / "runs" / "miri.json", about, jobs)}


def all_tests(interpreter: Interpreter, kept: Path, about: dict[str, Any], jobs: int = 1) -> dict[str, Any]:
    """Run the tests that `kept` lacks, as many at once as `jobs`; return the figures of all.

    What was kept of something else than `about`, or of a changed reader, is not used. Nothing is kept in the end.
    """
    for folder in (interpreter.logs, kept.parent):
        folder.mkdir(parents=True, exist_ok=True)
    earlier = record.load(kept)
    is_same = earlier.get("about") == about and not about["reader"].endswith(CHANGES)
    known: dict[str, Row] = {row["test"]: row for row in earlier["tests"]} if is_same else {}
    names = interpreter.names()
    with ThreadPoolExecutor(jobs) as pool:
        for row in pool.map(interpreter.row, [name for name in names if name not in known]):
            known[row["test"]] = row
            record.save({"about": about, "tests": list(known.values())}, kept)
    kept.unlink(missing_ok=True)
    rows = [known[name] for name in names]
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row["outcome"] == "excluded":
            reasons.setdefault(row["why"], []).append(row["test"])
    return {
        "passed": sum(row["outcome"] == "passed" for row in rows),
        "failed": {row["test"]: row["why"] for row in rows if row["outcome"] == "failed"},
        "ignored": reasons,
        "cpu_s": round(sum(row["cpu_s"] for row in rows), 1),
        "errors": sum(row["outcome"] == "failed" for row in rows),
        "tests": [{key: row[key] for key in ("test", "outcome", "cpu_s")} for row in rows],
    }
