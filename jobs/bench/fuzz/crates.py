"""The crates of the reader: where they are, what they were compiled from, and what their tests print."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from indexmill.jobs.bench.common.process import output_of
from indexmill.jobs.devices.machine import REPOSITORY

READER = REPOSITORY / "reader"
MANIFEST = READER / "Cargo.toml"
#: Lets a stable compiler have what is nightly's, such as sanitizers.
BOOTSTRAP = "RUSTC_BOOTSTRAP=1"
#: Ends the commit of a reader whose files differ from it.
CHANGES = "+changes"

_RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;", re.MULTILINE)
_TEST = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)(?:, (.*))?$", re.MULTILINE)


def reader_commit() -> str:
    """Return the last commit that changed the reader, with `CHANGES` if its files differ from it."""
    git = ["git", "-C", REPOSITORY]
    last = output_of([*git, "log", "-1", "--format=%H", "--", READER]).strip()
    return last + (CHANGES if output_of([*git, "status", "--porcelain", "--", READER]) else "")


def compiler(*toolchain: str) -> str:
    """Return the version of the compiler, by default of the one that ``rustc`` is."""
    return output_of(["rustc", *toolchain, "--version"]).strip()


def host() -> str:
    """Return the target triple of this machine."""
    (found,) = re.findall(r"^host: (\S+)$", output_of(["rustc", "-vV"]), re.MULTILINE)
    return str(found)


@dataclass(frozen=True)
class Tested:
    """What programs of tests printed.

    Attributes
    ----------
    passed, failed, ignored : int
    failures : list of str
        Names of failed tests.
    reasons : dict of str to list of str
        Why tests are ignored, and their names.
    """

    passed: int
    failed: int
    ignored: int
    failures: list[str]
    reasons: dict[str, list[str]]


def tested(log: Path) -> Tested:
    """Return what the programs of tests printed into `log`."""
    text = log.read_text(errors="replace")
    counts = [list(map(int, row)) for row in _RESULT.findall(text)]
    passed, failed, ignored = (sum(row[i] for row in counts) for i in range(3))
    failures, reasons = [], dict[str, list[str]]()
    for name, outcome, reason in _TEST.findall(text):
        if outcome == "FAILED":
            failures.append(name)
        elif outcome == "ignored":
            reasons.setdefault(reason, []).append(name)
    return Tested(passed, failed, ignored, failures, reasons)
