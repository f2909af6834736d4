"""The benchmark's child processes, and the profile of their CPU time."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from indexmill.jobs.bench.common import process, tables
from indexmill.jobs.bench.common.serving import WARM_UPS, Calls, after_warm_ups
from indexmill.jobs.bench.common.session import Session
from indexmill.jobs.bench.sift1m import cpu_profile
from indexmill.jobs.bench.sift1m.cpu_profile import Frame

CHILD = """
from indexmill.jobs.bench.common.serving import serve

def answer(question):
    print("chatter")  # as libraries do
    return {"twice": 2 * question["number"]}

serve(answer)
"""


def child(tmp_path: Path) -> Session:
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    return Session([sys.executable, script], tmp_path / "log")


def test_a_child_answers_question_after_question_whatever_its_libraries_print(tmp_path: Path) -> None:
    with child(tmp_path) as session:
        assert [session.ask(number=n)["twice"] for n in (1, 2, 30)] == [2, 4, 60]
    assert session.child.returncode == 0
    assert "chatter" in session.log.read_text()


def test_a_child_that_dies_is_an_error_with_what_it_said(tmp_path: Path) -> None:
    with child(tmp_path) as session, pytest.raises(RuntimeError, match="KeyError: 'number'"):
        session.ask(other=1)


def test_calls_are_timed_without_garbage_collection_and_without_what_is_between_them() -> None:
    def call(seconds: float, *, collects: bool) -> bool:
        time.sleep(seconds)
        return gc.isenabled() is collects

    with Calls() as calls:
        assert calls.time(call, 0.01, collects=False)
        time.sleep(0.2)
        assert calls.time(call, 0.0, collects=False)
    assert gc.isenabled()
    columns = calls.columns()
    assert columns["call_us"][0] >= 10_000
    assert columns["call_us"][1] < 200_000
    assert "ready_us" not in columns or (len(columns["ready_us"]) == 2 and min(columns["ready_us"]) >= 0)


def test_queries_that_warm_up_come_before_those_that_are_timed() -> None:
    queries = np.arange(100)[:, None]
    warm_ups, asked = after_warm_ups(queries, 50, 60)
    assert warm_ups.ravel().tolist() == list(range(50 - WARM_UPS, 50))
    assert asked.ravel().tolist() == list(range(50, 60))
    assert after_warm_ups(queries, 0, 100)[0].ravel().tolist() == list(range(100 - WARM_UPS, 100))


def test_frames_are_told_from_the_innermost_inlined_function_outwards(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    assert compiler, "the tests need a C compiler"
    source, library = tmp_path / "work.c", tmp_path / "libwork.so"
    source.write_text(
        "volatile int sink;\n"
        "static inline __attribute__((always_inline)) void inner(int n) { sink = n * 3; }\n"
        "void outer(int n) { inner(n + 1); }\n"
    )
    subprocess.run([compiler, "-g", "-O1", "-shared", "-fPIC", source, "-o", library], check=True)
    loaded = ctypes.CDLL(str(library))
    first = ctypes.cast(loaded.outer, ctypes.c_void_p).value
    assert first is not None
    places = range(first, first + 16)
    addresses = cpu_profile.file_addresses(
        library, cpu_profile.load_ranges(os.getpid(), library), [*places, 1]
    )
    assert list(addresses) == list(places), "address 1 is not the library's"
    found = cpu_profile.frames(library, addresses.values())
    assert [Frame("inner", str(source)), Frame("outer", str(source))] in found.values()


@pytest.mark.parametrize(
    ("chain", "name"),
    [
        (
            [("core::slice::get", "core/slice.rs"), ("insert", "core/src/search/candidates.rs")],
            "candidate list",
        ),
        (
            [("crc_u64_parallel3", "crc32c/src/hw_x86_64.rs"), ("check_block", "core/src/graph/file.rs")],
            "page checks (CRC)",
        ),
        ([("gather_l2_u8", "core/src/distance/avx512.rs")], "code distances"),
        ([("l2_u8", "core/src/distance/avx512.rs")], "exact distances"),
        ([("fill", "core/src/graph/pipeline.rs")], "choosing and expanding"),
        ([("__memmove_avx512_unaligned_erms", "/lib/libc.so.6")], "copying pages"),
        ([("_PyEval_EvalFrameDefault", "/lib/libpython3.11.so")], "other"),
    ],
)
def test_time_counts_for_what_the_innermost_telling_function_does(
    chain: list[tuple[str, str]], name: str
) -> None:
    assert cpu_profile.group([Frame(function, file) for function, file in chain]) == name


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("no marks")
    with pytest.raises(ValueError, match="marks"):
        tables.write_into(page, "text", "record")
    page.write_text("a\n<!-- record: begin -->\nold\n<!-- record: end -->\nb\n")
    tables.write_into(page, "new", "record")
    assert page.read_text() == "a\n<!-- record: begin -->\n\nnew\n<!-- record: end -->\nb\n"


def test_a_child_is_timed_to_its_end_and_not_to_the_next_look_at_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "SAMPLE_SECONDS", 60.0)
    usage = process.run_measured([sys.executable, "-c", "print('said')"], tmp_path / "log")
    assert usage.wall_s < 30
    assert usage.peak_bytes > 0
    assert (tmp_path / "log").read_text() == "said\n"


def test_a_child_that_fails_is_an_error_with_its_last_lines(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"exit code 3 of: .*\nlast words"):
        process.run_measured([sys.executable, "-c", "print('last words'); exit(3)"], tmp_path / "log")


def test_commands_of_this_checkout_keep_byte_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    keeps = [*process.indexmill()[:4], "-c", "import sys; print(sys.dont_write_bytecode)"]
    assert process.output_of(keeps) == "False\n"
