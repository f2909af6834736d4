"""The C interface, used from C: examples and tests are compiled against the generated header and run."""

from __future__ import annotations

import ctypes
import inspect
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.oracles.files.small_index import Aids, SmallIndex, write_small_index
from tests.support.indexes.built import Built
from tests.support.indexes.exchanged import exchanged
from tests.support.indexes.ivf import build_lists, make_vectors

import indexmill
from indexmill.reader.choices import (
    DEFAULT_BEAM_WIDTH,
    DEFAULT_ENTRY,
    DEFAULT_INFLIGHT,
    DEFAULT_POLICY,
    DEFAULT_SEARCH_LIST_SIZE,
)
from indexmill.reader.index import Index

READER = Path(__file__).parents[2] / "reader"
INCLUDE = READER / "capi/include"
HEADER = INCLUDE / "indexmill.h"
C11 = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic")
SANITIZERS = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

Compile = Callable[..., Path]


def run(*command: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a program; one that should succeed and does not shows what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0 or not check, f"{command[0]}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the library under the names that programs link and load."""
    header = HEADER.read_text()
    # The packages that `make rust` tests: with others, cargo chooses other features and compiles all again.
    build = ["cargo", "build", "--quiet", "--locked", "--lib", "--workspace", "--exclude", "indexmill-py"]
    subprocess.run(build, cwd=READER, check=True)
    assert HEADER.read_text() == header, "commit the regenerated indexmill.h"
    version = re.search(r"#define IM_ABI_VERSION (\d+)", header)
    assert version
    out = tmp_path_factory.mktemp("capi")
    shutil.copy(READER / "target/debug/libindexmill.so", out / f"libindexmill.so.{version[1]}")
    (out / "libindexmill.so").symlink_to(f"libindexmill.so.{version[1]}")
    return out


@pytest.fixture(scope="module")
def compile_plain(library: Path) -> Compile:
    """Compile a C file of reader/capi; `flags` are further ones of the compiler."""
    compiler = shutil.which("cc")
    assert compiler, "the tests need a C compiler"

    def build(source: str | Path, *flags: str) -> Path:
        source = READER / "capi" / source
        program = library / source.stem
        link = (f"-L{library}", f"-Wl,-rpath,{library}", "-lindexmill", "-lm", "-pthread")
        run(compiler, *C11, *flags, f"-I{INCLUDE}", source, *link, "-o", program)
        return program

    return build


@pytest.fixture(scope="module")
def compile_c(library: Path, compile_plain: Compile) -> Compile:
    """Compile a C file of reader/capi; with sanitizers if this compiler and system have them."""
    probe = library / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    try:
        run(compile_plain(probe, *SANITIZERS))
        flags: tuple[str, ...] = SANITIZERS
    except AssertionError:
        flags = ()
    return lambda name: compile_plain(name, *flags)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> SmallIndex:
    """An index of 200 float32 vectors of 16 dimensions, with string ids and a navigation graph."""
    return write_small_index(tmp_path_factory.mktemp("index") / "ix", id_type="string")


def test_the_header_is_c_plus_plus_too(tmp_path: Path) -> None:
    compiler = shutil.which("c++")
    if not compiler:
        pytest.skip("no C++ compiler")
    source = tmp_path / "embed.cpp"
    source.write_text('#include "indexmill.h"\nImSearchParams params{};\n')
    run(compiler, "-std=c++17", *C11[1:], "-fsyntax-only", f"-I{INCLUDE}", source)


def test_the_header_has_every_function_and_says_which_threads_may_call_it() -> None:
    prototypes = re.findall(r"((?://.*\n)+)[\w ]+ \*?(im_\w+)\(", HEADER.read_text())
    sources = "".join(path.read_text() for path in (READER / "capi/src").glob("*.rs"))
    exported = re.findall(r"#\[unsafe\(no_mangle\)\]\npub .*fn (im_\w+)\(", sources)
    assert sorted(name for _, name in prototypes) == sorted(exported)
    assert len(exported) == sources.count("no_mangle")
    for comment, name in prototypes:
        assert "// Threads: any" in comment, name


@pytest.mark.parametrize("policy", ["beam", "page", "completion", "pipeline"])
def test_the_c_example_finds_what_python_finds(compile_c: Compile, tmp_path: Path, policy: str) -> None:
    written = write_small_index(tmp_path / "ix", n=150, dim=12, id_type="int64")
    queries = np.ascontiguousarray(written.vectors[:3])
    (tmp_path / "q").write_bytes(b"8 bytes!" + queries.tobytes())
    options = ("k=4", "L=40", "threads=2", f"policy={policy}", "skip=8")
    done = run(compile_c("examples/search.c"), tmp_path / "ix", tmp_path / "q", *options)
    want = Index(tmp_path / "ix").search(queries, 4, L=40, policy=policy)  # type: ignore[arg-type]
    lines = done.stdout.splitlines()[1:4]
    assert [re.findall(r" (-?\d+) \(", line) for line in lines] == want.ids.astype(str).tolist()
    pages = [int(shown) for shown in re.findall(r"; (\d+) pages", done.stdout)]
    assert pages == want.counters["pages_read"].tolist()


def test_the_c_example_shows_what_it_holds_in_memory(compile_c: Compile, written: SmallIndex) -> None:
    done = run(compile_c("examples/search.c"), written.path)
    shown = re.search(r"peak memory: ([\d.]+) MiB; the index holds ([\d.]+) MiB$", done.stdout.strip())
    assert shown
    held = Index(written.path).native.memory_bytes / 2**20
    assert float(shown[2]) == pytest.approx(held, abs=0.051)
    assert float(shown[1]) > float(shown[2])


def test_the_c_example_reports_what_is_wrong(compile_c: Compile, tmp_path: Path, written: SmallIndex) -> None:
    search = compile_c("examples/search.c")
    done = run(search, tmp_path, check=False)
    assert done.returncode == 1
    assert "manifest" in done.stderr
    for option in ("policy=best", "L=", "K=3"):
        done = run(search, written.path, tmp_path / "q", option, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith("usage:")


def test_the_c_defaults_are_those_of_python(library: Path) -> None:
    codes = dict(re.findall(r"#define (IM_\w+) (\d+)", HEADER.read_text()))
    struct = re.search(r"typedef struct ImSearchParams \{(.*?)\}", HEADER.read_text(), re.DOTALL)
    assert struct
    types = {"uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64, "float": ctypes.c_float}
    found = re.findall(r"^  (?:const struct )?(\w+) (\*?\w+);", struct[1], re.MULTILINE)

    class Params(ctypes.Structure):
        _fields_ = [(name.strip("*"), types.get(kind, ctypes.c_void_p)) for kind, name in found]

    n_bytes, values = ctypes.sizeof(Params), Params()
    fill = ctypes.CDLL(str(library / "libindexmill.so")).im_search_params_default
    assert fill(ctypes.byref(values), ctypes.c_size_t(n_bytes)) == 0
    want = {
        "struct_bytes": n_bytes,
        "k": inspect.signature(Index.search).parameters["k"].default,
        "search_list_size": DEFAULT_SEARCH_LIST_SIZE,
        "beam_width": DEFAULT_BEAM_WIDTH,
        "policy": int(codes[f"IM_POLICY_{DEFAULT_POLICY.upper()}"]),
        "entry": int(codes[f"IM_ENTRY_{DEFAULT_ENTRY.upper()}"]),
        "threads": 1,
        "inflight": DEFAULT_INFLIGHT,
        "deterministic": 1,
        "reserved": 0,
        "allow": None,
        "cancel": None,
        "nprobe": 0,
        "rerank": int(codes["IM_DEFAULT"]),
        "prune": -1.0,
        "probes": int(codes["IM_DEFAULT"]),
        "candidates": 0,
    }
    assert {name: getattr(values, name) for name, _ in Params._fields_} == want


def test_the_filter_example_finds_the_even_ids_within_the_radius(
    compile_c: Compile, written: SmallIndex, tmp_path: Path
) -> None:
    query = np.ascontiguousarray(written.vectors[6])
    query.tofile(tmp_path / "q")
    distances = ((written.vectors.astype(np.float64) - query) ** 2).sum(axis=1)
    radius = float(np.sort(distances)[30])
    done = run(compile_c("examples/filter.c"), written.path, tmp_path / "q", repr(radius))
    *rows, summary = done.stdout.splitlines()
    want = {i for i in range(0, 200, 2) if distances[i] <= radius}
    assert {int(row.split()[0]) for row in rows} == want
    assert len(rows) == len(want)
    assert summary.startswith(f"{len(want)} of 100 allowed vectors;")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of hash tables of 400 float32 vectors, with string ids."""
    path = tmp_path_factory.mktemp("index") / "lsh"
    how = {"n_functions": 4, "n_tables": 6, "candidates": 20, "hash_bits": 6, "block_bytes": 128}
    ids = [f"n{i}" for i in range(400)]
    indexmill.build(make_vectors("float32", 400), path, kind="lsh", ids=ids, **how)
    return path


@pytest.fixture(scope="module")
def lists(built: Built) -> Path:
    """An index of inverted lists of float32 vectors, with exact vectors beside its codes."""
    return built(build_lists, make_vectors("float32"), codec="sq8", keep_vectors=True)


def test_every_function_refuses_what_is_wrong(
    compile_c: Compile, written: SmallIndex, lists: Path, tables: Path, tmp_path: Path
) -> None:
    damaged, other, on_page = (tmp_path / name for name in ("damaged", "other", "on-page"))
    shutil.copytree(written.path, damaged)
    content = bytearray((damaged / "graph.imx").read_bytes())
    content[4096 * 2 + 100] ^= 1
    (damaged / "graph.imx").write_bytes(content)
    write_small_index(other, dtype="uint8", aids=Aids(n_navigation=0))
    write_small_index(on_page, aids=Aids(on_page=True))
    np.ascontiguousarray(written.vectors[:3]).tofile(tmp_path / "q")
    run(compile_c("tests/errors.c"), written.path, damaged, other, on_page, tmp_path / "q", lists, tables)


def test_the_c_example_searches_indexes_of_every_kind(
    compile_c: Compile, lists: Path, tables: Path, tmp_path: Path
) -> None:
    vectors = make_vectors("float32", 400)
    np.ascontiguousarray(vectors[:5]).tofile(tmp_path / "q")
    search = compile_c("examples/search.c")
    for path, options, how in (
        (lists, (), {}),
        (lists, ("nprobe=3", "rerank=0", "threads=2"), {"nprobe": 3, "rerank": 0}),
        (tables, (), {}),
        (tables, ("probes=2",), {"probes": 2}),
    ):
        want = indexmill.open(path).search(vectors[:5], 4, **how)
        lines = run(search, path, tmp_path / "q", "k=4", *options).stdout.splitlines()[1:6]
        shown = [re.findall(r" (\w+) \(", line) for line in lines]
        rows = zip(want.ids.tolist(), want.slots.tolist(), strict=True)
        assert shown == [[str(name) for name, slot in zip(*row, strict=True) if slot >= 0] for row in rows]
        bytes_read = [int(cost) for line in lines for cost in re.findall(r"; (\d+) bytes", line)]
        assert bytes_read == want.counters["bytes_read"].tolist()


def test_c_programs_find_no_deleted_vector(
    compile_c: Compile, lists: Path, tables: Path, tmp_path: Path
) -> None:
    vectors = make_vectors("float32", 400)
    np.ascontiguousarray(vectors[:5]).tofile(tmp_path / "q")
    graph = indexmill.build(vectors, tmp_path / "graph", R=12, L=30, pq_bytes=6).path
    for path in (graph, lists, tables):
        index = shutil.copytree(path, tmp_path / f"{path.name}-left")
        indexmill.delete(index, range(5), by="vector")
        lines = run(compile_c("examples/search.c"), index, tmp_path / "q", "k=4").stdout.splitlines()[1:6]
        shown = [re.findall(r" (\w+) \(", line) for line in lines]
        want = indexmill.open(index).search(vectors[:5], 4)
        rows = zip(want.ids.tolist(), want.slots.tolist(), strict=True)
        assert shown == [[str(name) for name, slot in zip(*row, strict=True) if slot >= 0] for row in rows]
        assert not {str(i) for i in range(5)} & {name.lstrip("n") for row in shown for name in row}


def test_a_search_ends_when_it_is_cancelled(compile_c: Compile, written: SmallIndex, tmp_path: Path) -> None:
    model = {"latency_us": [[0.0, 200_000.0], [1.0, 200_000.0]], "iops": None, "mb_per_s": None}
    profile = {"kind": "indexmill-device", "version": 1, "name": "slow", "model": model}
    (tmp_path / "slow.json").write_text(json.dumps(profile))
    np.ascontiguousarray(written.vectors[:1]).tofile(tmp_path / "q")
    run(compile_c("tests/cancel.c"), written.path, tmp_path / "q", f"simulated:{tmp_path / 'slow.json'}")


def test_an_index_that_is_exchanged_with_one_of_another_kind_opens_as_either(
    compile_c: Compile, written: SmallIndex, lists: Path, tmp_path: Path
) -> None:
    program, n_lists = compile_c("tests/replaced.c"), len(indexmill.open(lists))
    with exchanged(tmp_path, [written.path, lists], deletes=False) as out:
        run(program, out, "200", str(n_lists))


@pytest.mark.parametrize("engine", ["auto", "pread"])
def test_threads_that_share_an_index_find_what_they_find_alone(
    compile_c: Compile, written: SmallIndex, tmp_path: Path, engine: str
) -> None:
    np.ascontiguousarray(written.vectors[::20]).tofile(tmp_path / "q")
    run(compile_c("tests/threads.c"), written.path, tmp_path / "q", engine)


@pytest.mark.parametrize("program", ["fork", "fork_amid"])
@pytest.mark.parametrize("engine", ["auto", "pread"])
def test_forked_children_search_or_close_their_copy_of_an_index(
    compile_plain: Compile, written: SmallIndex, tmp_path: Path, engine: str, program: str
) -> None:
    """Without AddressSanitizer: a child may find its heap locked by a thread that was not forked, and wait for ever."""
    np.ascontiguousarray(written.vectors[::20]).tofile(tmp_path / "q")
    run(compile_plain(f"tests/{program}.c"), written.path, tmp_path / "q", engine)
