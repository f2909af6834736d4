"""The benchmark that fuzzes: slices of a target, findings, and what tests tell under Miri and AddressSanitizer."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.jobs.bench.common import record
from indexmill.jobs.bench.common.benchmark import Run
from indexmill.jobs.bench.fuzz import miri, sanitizer
from indexmill.jobs.bench.fuzz.__main__ import BENCHMARK, SECONDS, finished
from indexmill.jobs.bench.fuzz.crates import READER
from indexmill.jobs.bench.fuzz.fuzzer import TARGETS, Fuzzer, quiet_s

#: Behaves as libFuzzer with -jobs: its log lies in the working folder. While the file `broken` is beside the program,
#: an input fails; in the slice that the file `dies` names the program ends before it began.
FAKE = r"""#!/bin/sh
here=$(dirname "$0")
for word; do case $word in
  -artifact_prefix=*) findings=${word#*=};;
  -*) ;;
  *) corpora="$corpora $word";;
esac; done
set -- $corpora
ls "$1" >> "$here/seen"
n=$(grep -c slice "$here/slices" 2>/dev/null); echo slice >> "$here/slices"
if [ "${n:-0}" = "$(cat "$here/dies" 2>/dev/null)" ]; then echo cannot map shadow memory; exit 3; fi
i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done
printf '#2\tINITED cov: 10 ft: 20 corp: 1/1b\n#9\tDONE   cov: 12 ft: 25 corp: 2/5b\n' > fuzz-0.log
echo "stat::number_of_executed_units: 100" >> fuzz-0.log
echo input > "$1/0a"
if [ -e "$here/broken" ]; then echo bad > "${findings}crash-1"; echo > "${findings}slow-unit-1"; exit 1; fi
"""


@pytest.fixture
def fuzzer(tmp_path: Path) -> Fuzzer:
    program = tmp_path / "program"
    program.write_text(FAKE)
    program.chmod(0o755)
    return Fuzzer(program, "graph", tmp_path / "out")


def test_a_target_gets_the_processor_time_that_it_lacks_and_keeps_its_corpus(fuzzer: Fuzzer) -> None:
    first = fuzzer.measure(0.05)
    slices = len(first["runs"])
    assert (
        first["quiet_s"]
        == first["cpu_s"]
        == pytest.approx(sum(row["cpu_s"] for row in first["runs"]), abs=0.1)
    )
    assert (first["executions"], first["edges"], first["features"]) == (100 * slices, 12, 25)
    assert (first["corpus_files"], first["corpus_bytes"], first["errors"]) == (1, 6, 0)
    assert fuzzer.measure(0.05) == first, "there is nothing to do"
    assert len(fuzzer.measure(0.001, again=True)["runs"]) == slices + 1
    assert "0a" in (fuzzer.program.parent / "seen").read_text()


def test_a_finding_ends_its_part_and_is_tried_first_until_it_is_mended(fuzzer: Fuzzer) -> None:
    broken = fuzzer.program.with_name("broken")
    broken.touch()
    for times in (1, 2):
        found = fuzzer.measure(60)
        assert (found["errors"], found["found"]["crash"], found["quiet_s"]) == (1, times, 0)
        assert len(found["runs"]) == times
        assert (fuzzer.findings / "crash-1").read_text() == "bad\n"
        assert not finished(found, 0)
    broken.unlink()
    found = fuzzer.measure(0.05)
    assert (found["errors"], found["found"]) == (0, {"crash": 2, "timeout": 0, "oom": 0, "leak": 0})
    assert found["cpu_s"] >= found["quiet_s"]
    assert quiet_s(found["runs"]) >= 0.05
    assert finished(found, 0)
    assert (fuzzer.corpus / "crash-1").exists()


def test_a_run_that_ends_early_loses_no_slice_before(fuzzer: Fuzzer) -> None:
    dies = fuzzer.program.with_name("dies")
    dies.write_text("2")
    with pytest.raises(RuntimeError, match="cannot map shadow memory"):
        fuzzer.measure(60)
    kept = record.load(fuzzer.runs)["runs"]
    assert len(kept) == 2
    dies.unlink()
    assert fuzzer.measure(quiet_s(kept) + 0.001)["runs"][:2] == kept


def test_a_fuzzer_that_tells_no_figures_is_an_error(fuzzer: Fuzzer) -> None:
    fuzzer.program.write_text("#!/bin/sh\necho no such option > fuzz-0.log\n")
    with pytest.raises(RuntimeError, match="no such option"):
        fuzzer.measure(60)
    assert not fuzzer.runs.exists()


@given(st.lists(st.tuples(st.integers(0, 99), st.booleans())))
def test_time_counts_from_the_last_finding_on(slices: list[tuple[int, bool]]) -> None:
    rows = [{"cpu_s": seconds, "findings": ["crash-1"] * is_noisy} for seconds, is_noisy in slices]
    expected = 0
    for seconds, is_noisy in slices:
        expected = 0 if is_noisy else expected + seconds
    assert quiet_s(rows) == expected


def test_every_target_has_a_part_and_seeds() -> None:
    assert {*TARGETS} == {path.name for path in (READER / "fuzz" / "seeds").iterdir()}


def test_parts_that_are_not_finished_go_on_and_errors_fail_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []
    results: dict[str, dict[str, Any]] = {
        "short": fuzzed(quiet_s=5.0),
        "long": fuzzed(quiet_s=10.0),
        "found": fuzzed(quiet_s=0.0, errors=1),
        "miri": {"errors": 0, **TESTED},
    }

    def part(name: str) -> Any:
        def measure(run: Run) -> dict[str, Any]:
            ran.append(name)
            return results[name]

        return measure

    one = replace(BENCHMARK, parts={name: part(name) for name in results})
    run = Run("fuzz", {}, tmp_path, None, Namespace(seconds=10))
    assert one.run(run) == ["found"]
    ran.clear()
    results["found"] = fuzzed(quiet_s=10.0)
    results["short"] = fuzzed(quiet_s=10.0)
    assert one.run(run) == []
    assert ran == ["short", "found"]
    assert one.run(run) == []
    assert one.run(run, ["long"]) == []
    assert ran == ["short", "found", "long"]
    results["miri"] = {**TESTED, "errors": 1}
    with pytest.raises(SystemExit, match="miri: failed"):
        one.main(["--out", str(tmp_path), "--parts", "miri"])
    assert "| Miri |" in capsys.readouterr().out


TESTED = {
    "reader": "0123456789abcdef+changes", "toolchain": "rustc 1", "passed": 7, "failed": [], "cpu_s": 2.0,
    "ignored": {"takes long": ["a", "b"], "": ["c"]},
}  # fmt: skip


def fuzzed(quiet_s: float, errors: int = 0) -> dict[str, Any]:
    rows = [{"reader": commit} for commit in ("a" * 40, "b" * 40, "a" * 40)]
    return {
        "cpu_s": 2000.0, "quiet_s": quiet_s, "executions": 12_345, "edges": 9, "features": 10, "peak_bytes": 1 << 29,
        "corpus_files": 4, "corpus_bytes": 2_500_000, "errors": errors, "runs": rows,
        "found": {"crash": errors, "timeout": 0, "oom": 0, "leak": 0},
    }  # fmt: skip


def test_tables_show_the_parts_that_were_measured_and_targets_are_missed_by_short_runs() -> None:
    about = {"started": "2026-01-02T03:04:05", "commit": "abc", "load_before": 0.1}
    found = {
        "benchmark": "fuzz", "data": [], "machine": {"cpu": "a", "cores": 2, "memory_bytes": 1 << 30, "kernel": "b"},
        "versions": {"python": "3", "peer": []},
        "parts": {
            "graph": about | fuzzed(SECONDS), "ids": about | fuzzed(SECONDS - 1),
            "sanitize": about | TESTED | {"errors": 2, "failed": ["a::b", "c"]},
        },
    }  # fmt: skip
    lines = BENCHMARK.render(found, "r.json").splitlines()
    assert "| `graph` | 2,000 | 12,345 | 9 | 4 | 2.5 | 512 | 0, 0, 0, 0 | aaaaaaaa, bbbbbbbb |" in lines
    assert "| AddressSanitizer | rustc 1 | 7 | 2 | 3 | 2 | 01234567+changes |" in lines
    assert "| takes long | AddressSanitizer | 2 |" in lines
    assert "Failed under AddressSanitizer: `a::b`, `c`." in lines
    missed = [line for line in lines if line.endswith("| **no** |")]
    assert ["`ids`" in missed[0], "AddressSanitizer" in missed[1]] == [True] * len(missed)
    assert not any("Miri |" in line for line in lines)
    columns = {line.count("|") for line in lines if line.startswith(("| target", "| `graph`", "| `ids`"))}
    assert len(columns) == 1


#: Lines of libtest: two programs, the second of which a report ended.
SANITIZED = """
running 3 tests
test codes::tests::one ... ok
test checksum::tests::two - should panic ... ok
test engine::tests::three ... ignored, needs a ring
test files::tests::four ... FAILED

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s

test graph ... ==7==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x1
error: 2 targets failed:
    `-p indexmill-core --lib`
"""


def test_reports_and_failed_tests_are_errors_and_ignored_tests_are_told_with_their_reason(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    log.write_text(SANITIZED)
    found = sanitizer.outcome(log)
    assert (found["passed"], found["failed"], found["errors"]) == (2, ["files::tests::four"], 2)
    assert found["reports"] == ["heap-buffer-overflow on address 0x1"]
    assert found["ignored"] == {"needs a ring": ["engine::tests::three"]}
    log.write_text(
        "test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n" * 2
    )
    assert (sanitizer.outcome(log)["passed"], sanitizer.outcome(log)["errors"]) == (10, 0)
    log.write_text("error: 1 target failed:\n")
    assert sanitizer.outcome(log)["errors"] == 1


PASSED = "test a ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out\n"


@pytest.mark.parametrize(
    ("text", "took_too_long", "outcome", "why"),
    [
        (PASSED, True, "passed", ""),
        (
            PASSED + "error: memory leaked: alloc1, 8 bytes\n",
            False,
            "failed",
            "memory leaked: alloc1, 8 bytes",
        ),
        ("test a ... error: the main thread terminated\n", False, "failed", "the main thread terminated"),
        ("running 1 test\nkilled\n", False, "failed", "running 1 test\nkilled"),
        (
            "error: Undefined Behavior: out-of-bounds pointer use\n\nerror: test failed, to rerun pass `--lib`\n",
            False,
            "failed",
            "Undefined Behavior: out-of-bounds pointer use",
        ),
        (
            "error: unsupported operation: can't call foreign function `openat`\nerror: test failed, to rerun\n",
            False,
            "excluded",
            "can't call foreign function `openat`",
        ),
        (
            "test a ... ignored, slow there\n\ntest result: ok. 0 passed; 0 failed; 1 ignored; 0 measured\n",
            False,
            "excluded",
            "slow there",
        ),
        ("running 1 test\nerror: test failed, to rerun (signal: 15)\n", True, "excluded", miri.TOO_LONG),
        ("running 1 test\nerror: test failed, to rerun (signal: 9)\n", False, "failed", "signal: 9"),
    ],
)
def test_a_test_under_miri_passes_fails_or_is_excluded_with_a_reason(
    text: str, took_too_long: bool, outcome: str, why: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.write_text(text)
    found = miri.verdict(log, took_too_long)
    assert found["outcome"] == outcome
    assert why in found["why"]
    assert bool(why) == bool(found["why"])


#: Behaves as cargo: lists three tests, and runs one.
CARGO = rf"""#!/bin/sh
case $1 in --list) printf 'a: test\nb::c: test\nd: test\n\n3 tests, 0 benchmarks\n'; exit;; esac
echo "$2" >> "$(dirname "$0")/ran"
case $2 in
  b::c) echo "error: unsupported operation: mmap"; exit 1;;
  d) while [ -e "$(dirname "$0")/slow" ]; do :; done;;
esac
printf '{PASSED.replace(chr(10), chr(92) + "n")}'
"""


def test_a_killed_run_of_miri_goes_on_and_another_reader_begins_anew(tmp_path: Path) -> None:
    cargo, ran, kept = tmp_path / "cargo", tmp_path / "ran", tmp_path / "out" / "miri.json"
    cargo.write_text(CARGO)
    cargo.chmod(0o755)
    interpreter = miri.Interpreter([cargo], tmp_path / "logs", limit_s=1)
    (tmp_path / "slow").touch()
    found = miri.all_tests(interpreter, kept, {"reader": "one"}, jobs=2)
    assert found["ignored"] == {"mmap": ["b::c"], miri.TOO_LONG: ["d"]}
    assert (found["passed"], found["errors"], found["failed"]) == (1, 0, {})
    assert [row["test"] for row in found["tests"]] == ["a", "b::c", "d"]
    assert not kept.exists()
    (tmp_path / "slow").unlink()
    row = {"test": "a", "outcome": "failed", "why": "kept", "cpu_s": 1.0}
    for reader, expected in (
        ("one", ["b::c", "d"]),
        ("two", ["a", "b::c", "d"]),
        ("one+changes", ["a", "b::c", "d"]),
    ):
        about = {"reader": reader if reader.endswith("changes") else "one"}
        record.save({"about": about, "tests": [row]}, kept)
        ran.unlink()
        found = miri.all_tests(interpreter, kept, {"reader": reader})
        assert ran.read_text().split() == expected
        assert (found["passed"], found["errors"]) == ((1, 1) if len(expected) == 2 else (2, 0))
