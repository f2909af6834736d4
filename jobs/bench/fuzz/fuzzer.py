"""One target of the reader's fuzzer: run in slices, from the corpus that it keeps.

Below OUT a target has ``corpus/TARGET``, ``findings/TARGET``, ``logs/TARGET`` and ``runs/TARGET.json``, its slices.
"""

from __future__ import annotations

import math
import re
import shutil
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common import record
from indexmill.jobs.bench.common.process import output_of, run_measured
from indexmill.jobs.bench.fuzz.crates import BOOTSTRAP, READER, host, reader_commit

TARGETS = tuple(sorted(path.stem for path in (READER / "fuzz" / "fuzz_targets").glob("*.rs")))
#: Findings by the first word of their files' names.
KINDS = ("crash", "timeout", "oom", "leak")
#: Wall seconds of a slice at most: what a killed run loses of its record. Its corpus stays.
SLICE_S = 300
#: Seconds of the shortest slice: reading the corpus must not be all of it.
_SHORTEST_S = 5
#: An input that takes longer than 20 s is a finding, and none is told as slow before that.
_OPTIONS = (
    "-timeout=20", "-report_slow_units=20", "-max_len=65536", "-use_value_profile=1", "-print_final_stats=1"
)  # fmt: skip
_EXECUTIONS = re.compile(r"^stat::number_of_executed_units:\s*(\d+)", re.MULTILINE)
#: Exit codes of a slice: without and with a finding.
_ENDS = (0, 1)

Row = dict[str, Any]


def built(target: str, folder: Path) -> Path:
    """Compile a target with AddressSanitizer into `folder`; return its program.

    Raises
    ------
    FileNotFoundError
        If cargo-fuzz is not installed.
    RuntimeError
        If the target cannot be compiled.
    """
    if shutil.which("cargo-fuzz") is None:
        raise FileNotFoundError("cargo-fuzz: not on the path; install it: cargo install cargo-fuzz --locked")
    # Link-time optimization makes the build slow and the fuzzer no better.
    settings = [BOOTSTRAP, "CARGO_PROFILE_RELEASE_LTO=off"]
    build = ["cargo", "fuzz", "build", "--features", "libfuzzer", "--target-dir", folder, target]
    output_of(["env", "-C", READER, *settings, *build])
    return folder / host() / "release" / target


@dataclass(frozen=True)
class Fuzzer:
    """A compiled target and its files.

    Attributes
    ----------
    program : Path
    target : str
    out : Path
        Folder of all targets.
    jobs : int
        Processes at once, which share the corpus.
    """

    program: Path
    target: str
    out: Path
    jobs: int = 1

    @property
    def corpus(self) -> Path:
        """Inputs that reached something new."""
        return self.out / "corpus" / self.target

    @property
    def findings(self) -> Path:
        """Inputs that crashed, took too long or too much memory; those of the last slice."""
        return self.out / "findings" / self.target

    @property
    def logs(self) -> Path:
        """What the processes of the last slice said."""
        return self.out / "logs" / self.target

    @property
    def runs(self) -> Path:
        """The slices so far."""
        return self.out / "runs" / f"{self.target}.json"

    def measure(self, seconds: float, again: bool = False) -> dict[str, Any]:
        """Fuzz until there were `seconds` of processor time without a finding, or there is one.

        Parameters
        ----------
        seconds : float
        again : bool
            Count from now on, in place of from the last finding.

        Returns
        -------
        dict
            The sum of all slices; see `summary`.

        Raises
        ------
        RuntimeError
            If the fuzzer does not run.
        """
        for folder in (self.corpus, self.findings, self.logs, self.runs.parent):
            folder.mkdir(parents=True, exist_ok=True)
        rows: list[Row] = record.load(self.runs).get("runs", [])
        first = len(rows) if again else 0
        while (lacking := seconds - quiet_s(rows[first:])) > 0:
            rows.append(self._slice(lacking))
            record.save({"runs": rows}, self.runs)
            if rows[-1]["findings"]:
                print(f"{self.target}: {', '.join(rows[-1]['findings'])} in {self.findings}", file=sys.stderr)
                break
        return self.summary(rows)

    def summary(self, rows: list[Row]) -> dict[str, Any]:
        """Return the sum of slices.

        Returns
        -------
        dict
            ``cpu_s``; ``quiet_s``, of it since the last finding; ``executions``; ``edges`` and ``features`` of the code
            that the last slice knew; ``corpus_files`` and ``corpus_bytes`` now; ``found``, findings by kind in all
            slices; ``errors``, findings of the last one; and the slices, ``runs``.
        """
        sizes = [path.stat().st_size for path in self.corpus.iterdir()]
        names = [name for row in rows for name in row["findings"]]
        last = rows[-1]
        return {
            "cpu_s": round(sum(row["cpu_s"] for row in rows), 1),
            "quiet_s": round(quiet_s(rows), 1),
            "executions": sum(row["executions"] for row in rows),
            "edges": last["edges"],
            "features": last["features"],
            "peak_bytes": max(row["peak_bytes"] for row in rows),
            "corpus_files": len(sizes),
            "corpus_bytes": sum(sizes),
            "found": {kind: sum(name.startswith(f"{kind}-") for name in names) for kind in KINDS},
            "errors": len(last["findings"]),
            "runs": rows,
        }

    def _slice(self, seconds: float) -> Row:
        """Run for `seconds`, within the bounds of a slice; inputs that were findings are tried first."""
        for path in self.findings.iterdir():
            path.replace(self.corpus / path.name)
        for path in self.logs.iterdir():
            path.unlink()
        wall = min(SLICE_S, max(_SHORTEST_S, math.ceil(seconds / self.jobs)))
        command = [
            "env", "-C", self.logs, "ASAN_OPTIONS=detect_odr_violation=0",
            self.program, f"-jobs={self.jobs}", f"-workers={self.jobs}", f"-max_total_time={wall}", *_OPTIONS,
            f"-artifact_prefix={self.findings}/", self.corpus, READER / "fuzz" / "seeds" / self.target,
        ]  # fmt: skip
        about = {"started": datetime.now(UTC).isoformat(timespec="seconds"), "reader": reader_commit()}
        log = self.out / "logs" / f"{self.target}.log"
        used = run_measured(command, log, ends=_ENDS)
        said = [path.read_text(errors="replace") for path in sorted(self.logs.glob("fuzz-*.log"))]
        executions = [_EXECUTIONS.findall(text) for text in said]
        if not said or not all(executions):
            tail = "\n".join("".join(said).splitlines()[-15:]) or log.read_text(errors="replace")
            raise RuntimeError(f"{self.target}: the fuzzer told no figures:\n{tail}")
        return {
            **about,
            "cpu_s": round(used.cpu_s, 3),
            "executions": sum(int(found[-1]) for found in executions),
            "edges": _most("cov", said),
            "features": _most("ft", said),
            "peak_bytes": used.peak_bytes,
            "findings": sorted(path.name for path in self.findings.iterdir() if path.name.startswith(KINDS)),
        }


def quiet_s(rows: list[Row]) -> float:
    """Return the processor seconds of the slices after the last one with a finding."""
    noisy = [i for i, row in enumerate(rows) if row["findings"]]
    return float(sum(row["cpu_s"] for row in rows[noisy[-1] + 1 if noisy else 0 :]))


def _most(name: str, said: list[str]) -> int:
    """Return the largest of the figures `name` of the fuzzer's lines of progress."""
    return max((int(found) for text in said for found in re.findall(rf"\b{name}: (\d+)", text)), default=0)
