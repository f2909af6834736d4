"""Files of an IVF index: they are read as written, and damage is refused before it is used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.files.lists import read_list

from indexmill.formats.errors import CorruptFile, FormatError, TooNew
from indexmill.formats.graph.codes import Codebook
from indexmill.formats.ivf.batch import ENTRY, BatchFile, make_directory, write_batch
from indexmill.formats.ivf.centroids import Centroids, read_centroids, write_centroids
from indexmill.formats.ivf.rabitq import RabitQ
from indexmill.formats.pagefile.writer import PageFileWriter

SIZES = np.array([3, 0, 900, 3, 40])
ROW = 7
#: Fields of a sound centroids.imx.
STATED: dict[str, Any] = {
    "n_lists": 5, "dim": 6, "dtype": 2, "metric": 2, "codec": 0, "row_bytes": 12, "n_vectors": 946, "n_batches": 3,
    "max_norm": 2.5,
}  # fmt: skip


def batch_pieces() -> tuple[np.ndarray, np.ndarray]:
    """Ids and rows of a batch that begins at vector 50, in file order."""
    rng = np.random.default_rng(2)
    order = rng.permutation(int(SIZES.sum())).astype(np.uint32) + 50
    ends = np.cumsum(make_directory(SIZES, ROW)["size"])[:-1]
    ids = np.concatenate([np.sort(part) for part in np.split(order, ends.astype(int))])
    return ids, rng.integers(0, 256, (len(ids), ROW)).astype(np.uint8)


def write(path: Path, cut: int = 300) -> tuple[np.ndarray, np.ndarray]:
    ids, rows = batch_pieces()
    write_batch(
        path, 4, 50, SIZES, ROW, ((ids[i : i + cut], rows[i : i + cut]) for i in range(0, len(ids), cut))
    )
    return ids, rows


def test_lists_are_read_as_they_were_written(tmp_path: Path) -> None:
    ids, rows = write(tmp_path / "b.imx")
    with BatchFile(tmp_path / "b.imx", 4, 5, ROW) as batch:
        assert batch.directory["list"].tolist() == [2, 4, 0, 3, 1]
        assert batch.directory["first_page"].tolist() == [0, 3, 4, 5, 6]
        assert (batch.first_vector, batch.n_vectors) == (50, 946)
        parts = [read_list(batch, place) for place in range(5)]
    assert np.array_equal(np.concatenate([part[0] for part in parts]), ids)
    assert np.array_equal(np.concatenate([part[1] for part in parts]), rows)


def test_how_the_pieces_are_cut_does_not_reach_the_bytes(tmp_path: Path) -> None:
    write(tmp_path / "a.imx", 300)
    write(tmp_path / "b.imx", 7)
    assert (tmp_path / "a.imx").read_bytes() == (tmp_path / "b.imx").read_bytes()


@pytest.mark.parametrize("change", [-1, 1])
def test_pieces_of_another_number_are_refused(tmp_path: Path, change: int) -> None:
    ids, rows = batch_pieces()
    ids, rows = np.resize(ids, len(ids) + change), np.resize(rows, (len(rows) + change, ROW))
    with pytest.raises(ValueError, match=r"1 vectors (more|fewer) than the sizes"):
        write_batch(tmp_path / "b.imx", 4, 50, SIZES, ROW, [(ids, rows)])
    assert not list(tmp_path.iterdir())


def directory_of(**changes: Any) -> np.ndarray:
    directory = make_directory(SIZES, ROW)
    for name, (place, value) in changes.items():
        directory[name][place] = value
    return directory


@pytest.mark.parametrize(
    ("fields", "directory", "message"),
    [
        ({"batch": 3}, {}, "field 'batch'"),
        ({"n_lists": 6}, {}, "field 'n_lists'"),
        ({"row_bytes": 8}, {}, "field 'row_bytes'"),
        ({"first_vector": 2**32}, {}, "field 'first_vector'"),
        ({"n_vectors": 945}, {}, "sizes: expected 945 in all, got 946"),
        ({}, {"list": (0, 4)}, "lists: expected each of 0..4 once"),
        ({}, {"size": (0, 2**32 - 1)}, "sizes: expected 946 in all"),
        ({}, {"first_page": (1, 2)}, "longest lists first"),
        ({}, {"first_page": (1, 2**63)}, "longest lists first"),
    ],
)
def test_a_directory_that_lies_is_refused(
    tmp_path: Path, fields: dict[str, int], directory: dict[str, Any], message: str
) -> None:
    stated = {"batch": 4, "first_vector": 50, "n_vectors": 946, "n_lists": 5, "row_bytes": ROW} | fields
    with PageFileWriter(tmp_path / "b.imx", "IVFB", stated) as file:
        with file.section("directory") as section:
            section.write(directory_of(**directory))
        with file.section("lists") as section:
            section.write(bytes(6 * 4096))
    with pytest.raises(CorruptFile, match=message):
        BatchFile(tmp_path / "b.imx", 4, 5, ROW)


def test_ids_outside_the_batch_or_out_of_order_are_refused(tmp_path: Path) -> None:
    ids, rows = batch_pieces()
    for place, value in ((0, 49), (5, 996), (3, 50)):
        wrong = ids.copy()
        wrong[place] = value
        write_batch(tmp_path / "b.imx", 4, 50, SIZES, ROW, [(wrong, rows)])
        with BatchFile(tmp_path / "b.imx", 4, 5, ROW) as batch, pytest.raises(CorruptFile, match="id"):
            read_list(batch, 0)


def made(codec: Any) -> Centroids:
    rng = np.random.default_rng(1)
    scale = rng.random((2, 6)).astype(np.float32) if codec == "sq8" else None
    rotation = np.roll(np.eye(6, dtype=np.float32), 1, axis=0)
    book = Codebook(rng.random((9, 6)).astype(np.float32), np.array([0, 2, 6], np.uint32))
    if codec == "opq":
        book = replace(book, rotation=rotation)
    return Centroids(
        rng.random((5, 6)).astype(np.float32), "float16", "ip", 2.5, 946, 3, codec, scale,
        book if codec in ("pq", "opq") else None,
        rabitq=RabitQ(3, rotation) if codec == "rabitq" else None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("codec", "row_bytes"), [("flat", 12), ("sq8", 6), ("pq", 2), ("rabitq", 11), ("opq", 2)]
)
def test_centroids_and_codecs_are_read_as_they_were_written(
    tmp_path: Path, codec: str, row_bytes: int
) -> None:
    wanted = made(codec)
    write_centroids(tmp_path / "c.imx", wanted)
    got = read_centroids(tmp_path / "c.imx")
    assert got.row_bytes == row_bytes
    assert np.array_equal(got.centroids, wanted.centroids)
    for name in ("dtype", "metric", "max_norm", "n_vectors", "n_batches", "codec"):
        assert getattr(got, name) == getattr(wanted, name)
    assert (got.scale is None) == (codec != "sq8")
    if codec == "sq8":
        assert np.array_equal(got.scale, wanted.scale)
    if codec in ("pq", "opq"):
        assert got.codebook is not None
        assert wanted.codebook is not None
        assert np.array_equal(got.codebook.pivots, wanted.codebook.pivots)
    if codec == "rabitq":
        assert got.rabitq is not None
        assert wanted.rabitq is not None
        assert got.rabitq.bits == wanted.rabitq.bits
    assert (got.rotation is not None) == (codec in ("rabitq", "opq"))
    if got.rotation is not None:
        assert wanted.rotation is not None
        assert np.array_equal(got.rotation, wanted.rotation)
        compared = got.compared(wanted.centroids)
        assert np.array_equal(compared, wanted.centroids @ wanted.rotation)
        assert np.array_equal(got.restored(compared), wanted.centroids)
        assert got.rotation_bytes == 4 * 6 * 6


@pytest.mark.parametrize("codec", ["rabitq", "opq"])
def test_a_rotation_that_stretches_is_refused(tmp_path: Path, codec: str) -> None:
    wanted = made(codec)
    assert wanted.rotation is not None
    wanted.rotation[2, 1] = 0.1
    write_centroids(tmp_path / "c.imx", wanted)
    with pytest.raises(CorruptFile, match="section 'rotation': expected rows of length 1"):
        read_centroids(tmp_path / "c.imx")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"codec": 3}, "field 'bits'"),
        ({"codec": 4}, "field 'n_chunks'"),
        ({"dtype": 5}, "field 'dtype'"),
        ({"dim": 7}, "section 'centroids': payload"),
        ({"row_bytes": 13}, "field 'row_bytes'"),
        ({"codec": 1}, "section 'scale'|sections"),
        ({"n_batches": 0}, "field 'n_batches'"),
        ({"max_norm": float("nan")}, "field 'max_norm'"),
    ],
)
def test_centroids_that_lie_are_refused(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    with (
        PageFileWriter(tmp_path / "c.imx", "CENT", STATED | fields) as file,
        file.section("centroids") as section,
    ):
        section.write(made("flat").centroids)
    with pytest.raises(FormatError, match=message):
        read_centroids(tmp_path / "c.imx")


def test_a_codec_of_a_later_version_is_named(tmp_path: Path) -> None:
    with PageFileWriter(tmp_path / "c.imx", "CENT", STATED | {"codec": 5}) as file:
        file.array("centroids", made("flat").centroids, "<f4")
    names = "flat, sq8, pq, rabitq, opq"
    with pytest.raises(TooNew, match=rf"c\.imx: codec 5: expected one of {names}; install a newer indexmill"):
        read_centroids(tmp_path / "c.imx")


@pytest.mark.parametrize("codec", ["pq", "opq"])
def test_a_codec_and_a_rotation_go_together(tmp_path: Path, codec: str) -> None:
    other = made("opq" if codec == "pq" else "pq").codebook
    with pytest.raises(ValueError, match=f"codec {codec}: .* rabitq and opq a rotation"):
        write_centroids(tmp_path / "c.imx", replace(made(codec), codebook=other))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("sections", [(), ("offsets",), ("offsets", "pivots")])
def test_rotated_codes_with_a_missing_section_are_refused(tmp_path: Path, sections: tuple[str, ...]) -> None:
    wanted = made("opq")
    assert wanted.codebook is not None
    arrays: dict[str, tuple[Any, str]] = {
        "offsets": (wanted.codebook.offsets, "<u4"), "pivots": (wanted.codebook.pivots, "<f4"),
    }  # fmt: skip
    stated = STATED | {"codec": 4, "row_bytes": 2, "n_chunks": 2, "n_centres": 9}
    with PageFileWriter(tmp_path / "c.imx", "CENT", stated) as file:
        file.array("centroids", wanted.centroids, "<f4")
        for name in sections:
            file.array(name, *arrays[name])
    missing = ("offsets", "pivots", "rotation")[len(sections)]
    with pytest.raises(CorruptFile, match=missing):
        read_centroids(tmp_path / "c.imx")


def test_centroids_are_finite(tmp_path: Path) -> None:
    wanted = made("flat")
    wanted.centroids[2, 2] = np.inf
    write_centroids(tmp_path / "c.imx", wanted)
    with pytest.raises(CorruptFile, match="section 'centroids'"):
        read_centroids(tmp_path / "c.imx")


def test_the_entry_has_the_size_of_the_specification() -> None:
    assert ENTRY.itemsize == 16
