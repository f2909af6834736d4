"""Ground-truth files come back as written, and a file of another size or kind is refused."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.formats.errors import InputError
from indexmill.formats.sources.truth import Truth, read_truth, write_truth


def make(n_queries: int = 4, k: int = 3, seed: int = 0) -> Truth:
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 2**32, (n_queries, k), dtype=np.uint32)
    return Truth(ids, np.sort(rng.random((n_queries, k), dtype=np.float32), axis=1))


@settings(deadline=None)
@given(n_queries=st.integers(1, 9), k=st.integers(1, 9), seed=st.integers(0, 99))
def test_truth_comes_back_as_written(n_queries: int, k: int, seed: int) -> None:
    truth = make(n_queries, k, seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.gt"
        write_truth(path, truth)
        found = read_truth(path)
        assert [p.name for p in Path(folder).iterdir()] == ["t.gt"]
    assert np.array_equal(found.ids, truth.ids)
    assert np.array_equal(found.distances, truth.distances)
    assert (found.ids.dtype, found.distances.dtype) == (np.uint32, np.float32)


def test_bytes_are_the_big_ann_layout(tmp_path: Path) -> None:
    truth = Truth(np.array([[7, 8]], np.uint32), np.array([[0.5, 2.0]], np.float32))
    write_truth(tmp_path / "t.gt", truth)
    words = np.array([1, 2, 7, 8], "<u4").tobytes() + np.array([0.5, 2.0], "<f4").tobytes()
    assert (tmp_path / "t.gt").read_bytes() == words


def test_truth_is_read_from_a_url(tmp_path: Path) -> None:
    write_truth(tmp_path / "t.gt", make())
    url = f"memory://indexmill-{uuid.uuid4().hex}/t.gt"
    with fsspec.open(url, "wb") as file:
        file.write((tmp_path / "t.gt").read_bytes())
    assert np.array_equal(read_truth(url).ids, make().ids)


def test_wrong_size_shows_the_arithmetic(tmp_path: Path) -> None:
    path = tmp_path / "t.gt"
    write_truth(path, make(4, 3))
    whole = path.read_bytes()
    arithmetic = r"4 queries x 3 neighbours, so expected 8 \+ 4 x 3 x \(4 \+ 4\) = 104 bytes; got "
    for data, message in (
        (whole[:-1], arithmetic + "103; is this"),
        (whole + b"x", arithmetic + "105; is this"),
        (whole[: 8 + 48], arithmetic + "56; it seems to hold ids without distances"),
        (whole[:6], r"6 bytes; expected at least 8"),
        (b"", r"0 bytes; expected at least 8"),
        (np.array([0, 5], "<u4").tobytes(), r"0 queries x 5 neighbours; expected at least 1 x 1"),
    ):
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"t\.gt: .*" + message):
            read_truth(path)


def test_missing_truth_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.gt: not found; expected a ground-truth file"):
        read_truth(tmp_path / "none.gt")


def test_truth_refuses_other_shapes_and_types() -> None:
    ids, distances = np.zeros((2, 3), np.uint32), np.zeros((2, 3), np.float32)
    for a, b in ((ids[:1], distances), (ids[0], distances[0]), (ids[:0], distances[:0])):
        with pytest.raises(ValueError, match=r"expected both \(n_queries, k\)"):
            Truth(a, b)
    with pytest.raises(ValueError, match="expected uint32, float32"):
        Truth(ids, distances.astype(np.float64))  # type: ignore[arg-type]
