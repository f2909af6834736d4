"""The reader in programs of other languages: the library installed, the Go and the Java example built and run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.engines.environments import jna
from tests.oracles.files.small_index import SmallIndex, write_small_index

import indexmill

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "reader/capi/examples"
K = 4


def run(
    *command: str | Path, cwd: Path = ROOT, check: bool = True, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a program; one that should succeed and does not shows what it said."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=600, cwd=cwd, env={**os.environ, **env}
    )
    assert done.returncode == 0 or not check, f"{command[0]}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `make install-library` has put the library."""
    folder = tmp_path_factory.mktemp("prefix")
    run("make", "install-library", "PROFILE=dev", f"PREFIX={folder}")
    return folder


def pkg_config(prefix: Path) -> dict[str, str]:
    return {"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig"), "LD_LIBRARY_PATH": str(prefix / "lib")}


@pytest.fixture(scope="module")
def go_example(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str | Path]:
    program = tmp_path_factory.mktemp("go") / "search"
    flags = f"-O2 -g -I{prefix / 'include'}"  # Go's cache knows flags of the environment, but not those of pkg-config
    env = {"CGO_ENABLED": "1", "CGO_CFLAGS": flags, **pkg_config(prefix)}
    run("go", "build", "-o", program, ".", cwd=EXAMPLES / "go", **env)
    return [program]


@pytest.fixture(scope="module")
def java_example(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str | Path]:
    classes = tmp_path_factory.mktemp("java")
    sources = sorted((EXAMPLES / "java").glob("*.java"))
    run("javac", "-Xlint:all", "-Werror", "-cp", f"{jna()}/*", "-d", classes, *sources)
    return ["java", f"-Djna.library.path={prefix / 'lib'}", "-cp", f"{jna()}/*:{classes}", "Search"]


@pytest.fixture(params=["go_example", "java_example"])
def example(request: pytest.FixtureRequest) -> list[str | Path]:
    found: list[str | Path] = request.getfixturevalue(request.param)
    return found


def answers(text: str) -> list[list[tuple[str, float]]]:
    """Return ids and scores of each query."""
    return [
        [(name, float(score)) for name, score in re.findall(r" (\S+) \((\S+)\)", line)]
        for line in text.splitlines()
    ]


def expected(small: SmallIndex, queries: np.ndarray) -> list[list[tuple[str, float]]]:
    found = indexmill.open(small.path).search(queries, K, L=100)
    return [
        [(name.decode() if isinstance(name, bytes) else str(name), float(np.float32(score)))
         for name, score in zip(names, scores, strict=True)]
        for names, scores in zip(found.ids.tolist(), found.scores, strict=True)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "metric", "id_type"),
    [
        ("float32", "l2", "int64"),
        ("float32", "ip", "uint64"),
        ("uint8", "l2", "none"),
        ("int8", "l2", "string"),
        ("sq8", "cosine", "string"),
    ],
)
def test_the_examples_find_what_python_finds(
    example: list[str | Path], prefix: Path, tmp_path: Path, dtype: str, metric: str, id_type: str
) -> None:
    small = write_small_index(tmp_path / "ix", dtype=dtype, metric=metric, id_type=id_type)
    queries = np.ascontiguousarray(small.vectors[5:8])
    queries.tofile(tmp_path / "queries")
    done = run(*example, tmp_path / "ix", tmp_path / "queries", str(K), **pkg_config(prefix))
    found, wanted = answers(done.stdout), expected(small, queries)
    assert [[name for name, _ in row] for row in found] == [[name for name, _ in row] for row in wanted]
    for row, want in zip(found, wanted, strict=True):
        assert [score for _, score in row] == pytest.approx([score for _, score in want], rel=1e-5, abs=1e-30)


def test_the_examples_report_what_is_wrong(example: list[str | Path], prefix: Path, tmp_path: Path) -> None:
    small = write_small_index(tmp_path / "ix")
    small.vectors[:1].tofile(tmp_path / "queries")
    missing = run(*example, tmp_path, tmp_path / "queries", check=False, **pkg_config(prefix))
    assert (missing.returncode, "manifest" in missing.stderr) == (1, True), missing.stderr
    asked = (*example, tmp_path / "ix", tmp_path / "queries", "201")
    many = run(*asked, check=False, **pkg_config(prefix))
    assert (many.returncode, "ask for at most 200" in many.stderr) == (1, True), many.stderr
    none = run(*example, tmp_path / "ix", tmp_path / "queries", "0", check=False, **pkg_config(prefix))
    assert (none.returncode, "expected at least 1, got 0" in none.stderr) == (1, True), none.stderr
    used = run(*example, check=False, **pkg_config(prefix))
    assert (used.returncode != 0, "usage:" in used.stderr) == (True, True), used.stderr


def test_the_installed_library_is_found_by_pkg_config(prefix: Path, tmp_path: Path) -> None:
    small = write_small_index(tmp_path / "ix")
    flags = run("pkg-config", "--cflags", "--libs", "indexmill", **pkg_config(prefix)).stdout.split()
    run("cc", "-std=c11", EXAMPLES / "search.c", *flags, "-o", tmp_path / "search")
    done = run(tmp_path / "search", small.path, **pkg_config(prefix))
    assert done.stdout.startswith("200 vectors of 16 dimensions")
    version = re.search(r'^version = "(.*)"', (ROOT / "reader/Cargo.toml").read_text(), re.MULTILINE)
    assert version
    assert run("pkg-config", "--modversion", "indexmill", **pkg_config(prefix)).stdout.strip() == version[1]


def test_the_installed_library_can_be_linked_into_a_program(prefix: Path, tmp_path: Path) -> None:
    small = write_small_index(tmp_path / "ix")
    (prefix / "static").mkdir()
    shutil.copy(prefix / "lib/libindexmill.a", prefix / "static")
    private = run("pkg-config", "--libs-only-l", "--static", "indexmill", **pkg_config(prefix)).stdout.split()
    link = [f"-I{prefix / 'include'}", f"-L{prefix / 'static'}", *private]
    run("cc", "-std=c11", EXAMPLES / "search.c", *link, "-o", tmp_path / "search")
    assert run(tmp_path / "search", small.path, LD_LIBRARY_PATH="").stdout.startswith("200 vectors")


def test_the_crate_is_whole() -> None:
    listed = run(
        "cargo", "package", "--list", "--allow-dirty", "-p", "indexmill-core", cwd=ROOT / "reader"
    ).stdout.split()
    assert {"Cargo.toml", "README.md", "src/lib.rs"} <= set(listed)
    documented = run("cargo", "doc", "--locked", "--no-deps", "-p", "indexmill-core", "-p", "indexmill-capi",
                     cwd=ROOT / "reader", RUSTDOCFLAGS="-D warnings")  # fmt: skip
    assert "warning" not in documented.stderr
