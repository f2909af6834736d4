"""Files beyond 2^32 bytes, 2^24 pages and 2^24 blocks, most of which are holes: what lies far behind comes back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.support.sizes.far import (
    N_FAR,
    R,
    far_graph,
    far_lists,
    far_nodes,
    far_tables,
    far_vectors,
)
from tests.support.sizes.sparse import (
    BYTES_32,
    PAGES_24,
    damage,
    holes,
    need_holes,
    on_disk,
    write_zeros,
    zero_rows,
)

from indexmill.formats.errors import CorruptFile
from indexmill.formats.graph.file import GraphFile, write_graph
from indexmill.formats.graph.nodes import NodeBlock, NodeFormat
from indexmill.formats.index.vectors import RowFormat, VectorsFile, writing_vectors
from indexmill.formats.ivf.index import IvfFiles
from indexmill.formats.ivf.lists import ListReader
from indexmill.formats.lsh.index import LshFiles
from indexmill.formats.pagefile.direct import aligned_buffer, read_section
from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.formats.pagefile.reader import PageFile
from indexmill.formats.pagefile.writer import PageFileWriter
from indexmill.formats.sources.source import open_source

#: A node of one page, and pages of as many bytes as 32 bits count.
ONE_PAGE, PAGES_32 = 900, BYTES_32 // PAGE_BYTES
#: Most bytes of a test on disk: 4 bytes a page.
MOST_ON_DISK = 90 << 20


@pytest.fixture(autouse=True)
def _holes(tmp_path: Path) -> None:
    need_holes(tmp_path)


def write_far_page(path: Path, pages_before: int) -> bytes:
    """Write a file with a section of zeros and one page behind them, and another section; return that page."""
    page = np.random.default_rng(1).bytes(PAGE_BYTES)
    with holes(), PageFileWriter(path, "TEST", {"one": 1}) as file:
        with file.section("data") as section:
            write_zeros(section, pages_before * PAGE_BYTES)
            section.write(page)
        with file.section("more") as section:
            section.write(page[:100])
    return page


def test_pages_beyond_two_to_the_24_come_back(tmp_path: Path) -> None:
    path, last = tmp_path / "file.imx", PAGES_24 + 3
    page = write_far_page(path, last)
    assert path.stat().st_size > PAGES_24 * PAGE_BYTES
    assert on_disk(path) < MOST_ON_DISK
    with PageFile(path, "TEST") as file:
        assert file.read_pages("data", last, 1) == page
        assert file.read_pages("data", last - 2, 3) == bytes(2 * PAGE_BYTES) + page
        assert file.section("more") == page[:100]
        numbers = np.array([last, 0, last - 1], np.int64)
        assert file.take_pages("data", numbers).tobytes() == page + bytes(2 * PAGE_BYTES)
        out = aligned_buffer(2 * PAGE_BYTES)
        read_section(file, "data", out, last - 1, 2)
        assert out.tobytes() == bytes(PAGE_BYTES) + page
        with pytest.raises(IndexError, match=f"has {last + 1} pages"):
            file.read_pages("data", last + 1, 1)


def test_damage_beyond_two_to_the_24_pages_is_found_and_named(tmp_path: Path) -> None:
    path, last = tmp_path / "file.imx", PAGES_24 + 3
    write_far_page(path, last)
    damage(path, (last + 1) * PAGE_BYTES + 17)
    where = rf"page {last + 1} \(offset {(last + 1) * PAGE_BYTES}\): CRC32C"
    with PageFile(path, "TEST") as file:
        with pytest.raises(CorruptFile, match=where):
            file.read_pages("data", last, 1)
        with pytest.raises(CorruptFile, match=where):
            file.take_pages("data", np.array([last], np.int64))
        with pytest.raises(CorruptFile, match=where):
            read_section(file, "data", aligned_buffer(PAGE_BYTES), last, 1)


def test_the_whole_of_a_file_beyond_two_to_the_32_bytes_is_verified(tmp_path: Path) -> None:
    path = tmp_path / "file.imx"
    write_far_page(path, PAGES_32)
    with PageFile(path, "TEST") as file:
        file.verify()
    damage(path, (PAGES_32 + 1) * PAGE_BYTES + 17)
    with PageFile(path, "TEST") as file, pytest.raises(CorruptFile, match=f"page {PAGES_32 + 1} "):
        file.verify()


def test_the_writer_of_nodes_places_them_beyond_two_to_the_32_bytes(tmp_path: Path) -> None:
    node, n = NodeFormat(ONE_PAGE, "float32", R), PAGES_32 + N_FAR
    far, step = far_nodes(n, ONE_PAGE), 1 << 12
    empty = NodeBlock(
        np.zeros((step, ONE_PAGE), np.float32), np.zeros((step, R), np.uint32), np.zeros(step, np.uint32)
    )
    with holes():
        blocks = (far if first == n - N_FAR else empty for first in range(0, n, step))
        write_graph(tmp_path / "graph.imx", node, n, "l2", blocks)
    assert on_disk(tmp_path / "graph.imx") < MOST_ON_DISK
    with GraphFile(tmp_path / "graph.imx") as graph:
        found = graph.read_nodes(n - N_FAR - 1, N_FAR + 1)
    assert not found.vectors[0].any()
    assert np.array_equal(found.vectors[1:], far.vectors)
    assert np.array_equal(found.neighbours[1:], far.neighbours)


@pytest.mark.parametrize("code_bytes", [0, 4])
def test_nodes_beyond_two_to_the_24_pages_come_back(tmp_path: Path, code_bytes: int) -> None:
    index = far_graph(tmp_path / "index", 65000, PAGES_24, code_bytes)
    assert on_disk(index.path) < MOST_ON_DISK
    with GraphFile(index.path / "graph.imx") as graph:
        found = graph.read_nodes(index.n - N_FAR, N_FAR)
        assert graph.node_format.n_pages(graph.n_vertices) > PAGES_24
    assert np.array_equal(found.vectors, index.vectors)
    assert int(found.neighbours.min()) == index.n - N_FAR


def test_the_writer_of_vectors_places_them_beyond_two_to_the_32_bytes(tmp_path: Path) -> None:
    dim, path = 1 << 16, tmp_path / "vectors.imx"
    n, vectors = BYTES_32 // (4 * dim) + N_FAR, far_vectors(dim)
    with holes(), writing_vectors(path, RowFormat(dim, "float32"), n, "l2") as file:
        for rows in zero_rows(n - N_FAR, 4 * dim):
            file.write(rows.view(np.float32))
        file.write(vectors)
    with VectorsFile(path) as opened:
        assert np.array_equal(opened.read(n - N_FAR, N_FAR), vectors)
        slots = np.array([n - 1, 3, n - N_FAR], np.uint32)
        assert np.array_equal(opened.take(slots), np.stack([vectors[-1], 0 * vectors[0], vectors[0]]))


def test_lists_beyond_two_to_the_24_pages_come_back(tmp_path: Path) -> None:
    index = far_lists(tmp_path / "index", 1 << 16, PAGES_24)
    assert on_disk(index.path) < MOST_ON_DISK
    with ListReader(IvfFiles(index.path)) as lists:
        assert lists.sizes.tolist() == [N_FAR, index.n - N_FAR]
        rows = np.concatenate(list(lists.rows(0))).view("<f4")
        ids = np.concatenate(list(lists.ids(0)))
        ids_of_the_long = np.concatenate(list(lists.ids(1)))  # they stand behind its rows
    assert np.array_equal(rows, index.vectors)
    assert ids.tolist() == list(range(index.n - N_FAR, index.n))
    assert np.array_equal(ids_of_the_long, np.arange(index.n - N_FAR))


@pytest.mark.parametrize("block_bytes", [128, 4096])
def test_chains_beyond_two_to_the_24_blocks_come_back(tmp_path: Path, block_bytes: int) -> None:
    index = far_tables(tmp_path / "index", block_bytes, PAGES_24 + 1)
    assert on_disk(index.path) < MOST_ON_DISK
    with LshFiles(index.path) as files:
        (pair,) = files.pairs
        assert pair.buckets.n_blocks > PAGES_24
        for table in range(files.shape.n_tables):
            pointers = [pair.tables.pointer(1, table, bucket) for bucket in range(2)]
            slots = [pair.buckets.split(pair.buckets.chain(pointer))[0] for pointer in pointers if pointer]
            assert sorted(np.concatenate(slots).tolist()) == list(range(index.n - N_FAR, index.n))
        assert np.array_equal(files.vectors.read(index.n - N_FAR, N_FAR), index.vectors)


@pytest.mark.parametrize("suffix", ["npy", "fbin", "u8bin"])
def test_rows_of_inputs_beyond_two_to_the_32_bytes_come_back(tmp_path: Path, suffix: str) -> None:
    path, dim = tmp_path / f"vectors.{suffix}", 1 << 15
    dtype = np.dtype("u1" if suffix == "u8bin" else "<f4")
    n = BYTES_32 // (dim * dtype.itemsize) + 3
    row = (np.arange(dim) % 251).astype(dtype)
    with open(path, "wb") as file:
        if suffix == "npy":
            header = {"descr": dtype.str, "fortran_order": False, "shape": (n, dim)}
            np.lib.format.write_array_header_1_0(file, header)
        else:
            file.write(np.array([n, dim], "<u4").tobytes())
        file.seek((n - 1) * row.nbytes, 1)
        file.write(row.tobytes())
    source = open_source(path)
    assert source.n_vectors == n
    found = source.read(np.array([n - 1, 0, n - 2]))
    assert np.array_equal(found, np.stack([row, 0 * row, 0 * row]))
