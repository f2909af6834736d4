"""Indexes of SVS and JVector: imported from what an export wrote, and refused where they are damaged."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.oracles.files.small_index import write_small_index
from tests.support.cli import run
from tests.support.indexes.imports import read_all

import indexmill
from indexmill.formats.errors import ConfigError, CorruptFile, ForeignFile, FormatError, InputError
from indexmill.formats.imports.index import ImportedIndex
from indexmill.formats.imports.jvector import open_jvector
from indexmill.formats.imports.svs import open_svs

PATHS = {"svs": "out", "jvector": "out/index.jvector"}


def opened(program: str, folder: Path) -> ImportedIndex:
    path = folder / PATHS[program]
    return open_svs(path) if program == "svs" else open_jvector(path)


@pytest.mark.parametrize("program", PATHS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int8"])
def test_the_graph_and_the_vectors_are_read_as_they_are(tmp_path: Path, program: str, dtype: str) -> None:
    small = write_small_index(tmp_path / "ix", dtype=dtype, dim=13)
    indexmill.export(small.path, program, tmp_path / "out")
    index = opened(program, tmp_path)
    vectors, lists = read_all(index)
    assert lists == [row[:d].tolist() for row, d in zip(small.neighbours, small.degrees, strict=True)]
    assert (vectors == small.stored).all()
    assert vectors.dtype == (dtype if program == "svs" else "float32")
    assert (index.kind, index.entry, index.metric) == (program, small.entries.medoid, None)


@pytest.mark.parametrize("program", PATHS)
def test_the_command_imports(tmp_path: Path, program: str) -> None:
    small = write_small_index(tmp_path / "ix", id_type="none")
    indexmill.export(small.path, program, tmp_path / "out")
    result = run("import", program, tmp_path / PATHS[program], "--pq-bytes", 4, "--out", tmp_path / "y")
    assert result.exit_code == 0, result.stderr
    assert f"imported from {program}" in result.stdout
    with pytest.raises(ConfigError, match=f"files of {program} state their type"):
        indexmill.import_index(tmp_path / PATHS[program], tmp_path / "z", program=program, dtype="uint8")
    with pytest.raises(InputError, match=r"no such file|no index of SVS"):
        indexmill.import_index(tmp_path / "nothing", tmp_path / "z", program=program)
    assert not (tmp_path / "z").exists()


Change = Callable[[Path], object]


def patch(name: str, offset: int, kind: str, value: int) -> Change:
    """Overwrite a number of a file."""

    def change(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        struct.pack_into(kind, data, offset, value)
        (folder / name).write_bytes(data)

    return change


def replace(name: str, old: str, new: str) -> Change:
    """Change the text of a file."""
    return lambda folder: (folder / name).write_text((folder / name).read_text().replace(old, new))


def cut(name: str) -> Change:
    """Take the last byte of a file away."""
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-1])


GRAPH, DATA, NODES = "graph/graph_0.svs", "data/data_0.svs", "index.jvector"
CONFIGS = [f"{part}/svs_config.toml" for part in ("config", "graph", "data")]
DAMAGES: dict[str, list[tuple[Change, type[FormatError], str]]] = {
    "svs": [
        (patch(GRAPH, 0, "<Q", 1), ForeignFile, "byte 0: expected 0xcad4a6b2579980fe"),
        (patch(GRAPH, 24, "<Q", 201), CorruptFile, "rows and columns"),
        (patch(DATA, 32, "<Q", 2**60), CorruptFile, "rows and columns"),
        (patch(GRAPH, 1024, "<I", 9), CorruptFile, "vertex 0, at byte 1,024: degree: expected 0 to 8"),
        (patch(GRAPH, 1024 + 36 * 7 + 4, "<I", 200), CorruptFile, "vertex 7, neighbour 0, at byte 1,280"),
        (cut(GRAPH), CorruptFile, "size of the file"),
        (cut(DATA), CorruptFile, "size of the file"),
        (replace(CONFIGS[0], "entry_point = ", "entry_point = 9000"), CorruptFile, "key 'entry_point'"),
        (replace(CONFIGS[0], "[object", "[objects"), CorruptFile, "table 'object'"),
        (replace(CONFIGS[0], "[object]", "[[["), CorruptFile, "expected TOML"),
        (replace(CONFIGS[1], "num_vertices = 200", "num_vertices = 199"), CorruptFile, "num_vertices"),
        (replace(CONFIGS[1], "max_degree = 8", "max_degree = 0"), CorruptFile, "max_degree"),
        (replace(CONFIGS[2], "uncompressed_data", "lvq_data"), ForeignFile, "without compression"),
        (replace(CONFIGS[2], "'float32'", "'float64'"), ForeignFile, "one of float32"),
        (replace(CONFIGS[2], "'data_0.svs'", "'../graph/graph_0.svs'"), CorruptFile, "a file beside it"),
        (replace(CONFIGS[2], "dims = 16", "dims = 'many'"), CorruptFile, "key 'dims': expected int"),
    ],
    "jvector": [
        (patch(NODES, 0, ">I", 1), ForeignFile, "byte 0: magic"),
        (patch(NODES, 4, ">I", 4), ForeignFile, "byte 4: version: expected 0x3"),
        (patch(NODES, 8, ">I", 2**31), CorruptFile, "size of the file"),
        (patch(NODES, 12, ">I", 0), CorruptFile, "dimension"),
        (patch(NODES, 16, ">I", 200), CorruptFile, "entry vertex"),
        (patch(NODES, 20, ">I", 9999), CorruptFile, "byte 20: R"),
        (patch(NODES, 24, ">I", 2), ForeignFile, "features"),
        (patch(NODES, 28, ">I", 5), CorruptFile, "vertex 0, at byte 28: ordinal"),
        (patch(NODES, 28 + 4 + 64, ">I", 9), CorruptFile, "vertex 0, at byte 96: degree: expected 0 to 8"),
        (patch(NODES, 28 + 4 + 64 + 4, ">I", 200), CorruptFile, "vertex 0, neighbour 0, at byte 100"),
        (cut(NODES), CorruptFile, "size of the file"),
    ],
}


@pytest.mark.parametrize(
    ("program", "i"), [(program, i) for program, found in DAMAGES.items() for i in range(len(found))]
)
def test_damage_is_refused_and_named(tmp_path: Path, small_exports: Path, program: str, i: int) -> None:
    change, error, message = DAMAGES[program][i]
    folder = tmp_path / "out"
    shutil.copytree(small_exports / program, folder)
    change(folder)
    with pytest.raises(error, match=message):
        read_all(opened(program, tmp_path))


@pytest.fixture(scope="module")
def small_exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vamana")
    small = write_small_index(folder / "ix", id_type="none")
    for program in PATHS:
        indexmill.export(small.path, program, folder / program)
    return folder


def test_vectors_that_are_no_numbers_are_refused(tmp_path: Path, small_exports: Path) -> None:
    shutil.copytree(small_exports / "svs", tmp_path / "out")
    np.memmap(tmp_path / "out" / DATA, np.float32, "r+", 1024)[5] = np.nan
    with pytest.raises(InputError, match="row 0: component 5 is nan"):
        indexmill.import_index(tmp_path / "out", tmp_path / "y", program="svs")
    assert not (tmp_path / "y").exists()
