"""The benchmark's child processes, and the profile of their CPU time."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from indexmill.jobs.bench.common import tables
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
