"""The C interface, used from C: the example is compiled against the generated header and run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.oracles.small_index import write_small_index

from indexmill.reader.index import Index

READER = Path(__file__).parent.parent / "reader"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    assert compiler, "the tests need a C compiler"
    header = (READER / "capi/include/indexmill.h").read_text()
    build = ["cargo", "build", "--quiet", "--locked", "-p", "indexmill-capi"]
    subprocess.run(build, cwd=READER, check=True)
    assert (READER / "capi/include/indexmill.h").read_text() == header, "commit the regenerated indexmill.h"
    out = tmp_path_factory.mktemp("capi")
    shutil.copy(READER / "target/debug/libindexmill.so", out / "libindexmill.so.0")
    (out / "libindexmill.so").symlink_to("libindexmill.so.0")
    source, include = READER / "capi/examples/search.c", READER / "capi/include"
    flags = ["-Wall", "-Wextra", "-Werror", f"-I{include}", f"-L{out}", f"-Wl,-rpath,{out}"]
    subprocess.run([compiler, str(source), *flags, "-lindexmill", "-o", str(out / "search")], check=True)
    return out / "search"


def test_the_c_example_finds_what_python_finds(program: Path, tmp_path: Path) -> None:
    written = write_small_index(tmp_path / "ix", n=150, dim=12, id_type="int64")
    queries = np.ascontiguousarray(written.vectors[:3])
    queries.tofile(tmp_path / "q")
    done = subprocess.run(
        [program, tmp_path / "ix", tmp_path / "q", "4", "40"], capture_output=True, text=True, check=True
    )
    want = Index(tmp_path / "ix").search(queries, 4, L=40)
    for row in want.ids.tolist():
        for user_id in row:
            assert f" {user_id}" in done.stdout


def test_the_c_example_reports_what_is_wrong(program: Path, tmp_path: Path) -> None:
    done = subprocess.run([program, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "manifest" in done.stderr
