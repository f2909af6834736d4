"""Rounds of requests of openings and searches, and stores that fail, hang or change meanwhile."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.support.indexes.by_ranges import IDS, KINDS, QUERIES, VECTORS

import indexmill
from indexmill.formats.errors import CorruptFile, FormatError, InputError
from indexmill.formats.urls import retry
from indexmill.jobs.bench.stored.throttled import Line, Request, Throttled, place, rounds
from indexmill.pipeline.urls import beside
from indexmill.pipeline.urls import ranges as url_ranges
from indexmill.pipeline.urls.cache import BYTES_VARIABLE, CACHE_VARIABLE
from indexmill.pipeline.urls.storage import MIRROR_VARIABLE

#: Long beside what a busy machine takes to begin the requests of a round.
FIRST_BYTE_S = 0.15


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    monkeypatch.setattr(Throttled, "line", Line(FIRST_BYTE_S))
    return Throttled.line


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a store; nothing of it is on this machine. Large files are those of more than four pages."""
    monkeypatch.setattr(retry, "FIRST_SECONDS", 1e-3)
    monkeypatch.setattr(url_ranges, "WHOLE_BYTES", 4 * 4096)
    monkeypatch.setenv(MIRROR_VARIABLE, str(tmp_path / "mirror"))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv(BYTES_VARIABLE, "128MiB")
    return tmp_path / "store"


class Unreliable(Line):
    """A line whose every tenth answer, and the first after the manifest, is told to `spoil`."""

    def __init__(self, spoil: Callable[[], None]) -> None:
        super().__init__(1e-3)
        self._spoil, self._counting, self.n = spoil, threading.Lock(), 0

    def carry(self, path: str, offset: int, data: bytes, began_s: float) -> bytes:
        with self._counting:
            self.n += 1
            is_spoilt = self.n == 2 or self.n % 10 == 0
        if is_spoilt:
            self._spoil()
        return super().carry(path, offset, data, began_s)


def after_the_manifest(monkeypatch: pytest.MonkeyPatch, change: Callable[[], None]) -> None:
    """Let an index change between the first answer of its store and the next request."""

    class Changing(Line):
        def carry(self, path: str, offset: int, data: bytes, began_s: float) -> bytes:
            if not self.requests:
                change()
            return super().carry(path, offset, data, began_s)

    monkeypatch.setattr(Throttled, "line", Changing(1e-3))


def test_rounds_are_requests_that_followed_one_another() -> None:
    def asked(*spans: tuple[float, float]) -> list[Request]:
        return [Request("x", 0, 1, began, ended) for began, ended in spans]

    assert rounds([]) == 0
    assert rounds(asked((0, 1), (0, 2), (0.5, 3))) == 1
    assert rounds(asked((2, 3), (0, 1), (1, 2))) == 3
    assert rounds(asked((0, 1), (0, 5), (1.5, 2), (2, 6), (5, 7))) == 3


@pytest.mark.parametrize("ids", ["storage", "memory"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_opening_takes_two_rounds(
    store: Path, line: Line, indexes: dict[str, Path], kind: str, ids: str
) -> None:
    url = place(indexes[kind], store)
    opened = indexmill.open(url, engine="ranges", ids=ids)  # type: ignore[arg-type]
    assert opened.engine == "ranges"
    asked = line.take()
    assert rounds(asked) == 2
    assert sum(one.ended_s <= min(other.began_s for other in asked[1:]) for one in asked) == 1, "the manifest"
    local = indexmill.open(indexes[kind], ids=ids)  # type: ignore[arg-type]
    assert np.array_equal(
        opened.search(QUERIES, 5).ids, local.search(QUERIES, 5, **opened.search_defaults).ids
    )


def test_what_this_machine_has_takes_the_round_of_the_manifest(
    store: Path, line: Line, indexes: dict[str, Path]
) -> None:
    url = place(indexes["codes on pages"], store)
    indexmill.open(url, engine="ranges")
    line.take()
    indexmill.open(url, engine="ranges")
    assert len(line.take()) == 1


def test_a_search_takes_few_rounds_and_finds_what_the_local_one_finds(
    store: Path, line: Line, indexes: dict[str, Path]
) -> None:
    line.first_byte_s = 1e-3
    far = indexmill.open(place(indexes["codes on pages"], store), engine="ranges")
    here = indexmill.open(indexes["codes on pages"])
    assert here.search_defaults == {"policy": "pipeline", "beam_width": 8}
    for query in QUERIES:
        found, want = far.search(query, 5), here.search(query, 5, **far.search_defaults)
        assert found.counters["rounds"][0] <= 6
        assert found.counters["rounds"][0] <= want.counters["hops"][0] + 1, "one more for ids"
        assert np.array_equal(found.ids, want.ids)
        assert np.array_equal(found.scores, want.scores)
        for name in ("pages_read", "expansions", "hops"):
            assert np.array_equal(found.counters[name], want.counters[name])


@pytest.mark.parametrize("kind", KINDS)
def test_one_request_in_ten_may_fail(
    store: Path, indexes: dict[str, Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OSError("connection reset")

    monkeypatch.setattr(Throttled, "line", line := Unreliable(fail))
    far = indexmill.open(place(indexes[kind], store), engine="ranges")
    here = indexmill.open(indexes[kind])
    for query in QUERIES:
        assert np.array_equal(far.search(query, 5).ids, here.search(query, 5, **far.search_defaults).ids)
    assert line.n > 10


@pytest.fixture
def released() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("kind", KINDS)
def test_one_request_in_ten_may_hang_while_an_index_is_opened(
    store: Path,
    indexes: dict[str, Path],
    kind: str,
    released: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hung = []

    def hang() -> None:
        hung.append(0)
        released.wait(60)

    monkeypatch.setattr(beside, "PATIENCE_S", 0.1)
    monkeypatch.setattr(Throttled, "line", Unreliable(hang))
    far = indexmill.open(place(indexes[kind], store), engine="ranges")
    assert hung
    monkeypatch.setattr(Throttled, "line", Line(1e-3))
    here = indexmill.open(indexes[kind])
    assert np.array_equal(far.search(QUERIES, 5).ids, here.search(QUERIES, 5, **far.search_defaults).ids)


def test_an_index_that_is_replaced_while_it_is_opened_is_named(
    store: Path, indexes: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = place(indexes["graph"], store)

    def replace() -> None:
        for folder in store.glob("data-*"):
            shutil.rmtree(folder)
        place(indexes["ivf"], store)

    after_the_manifest(monkeypatch, replace)
    with pytest.raises(InputError, match="it was replaced just now; open it again"):
        indexmill.open(url, engine="ranges")
    assert indexmill.open(url, engine="ranges").kind == "ivf"


@pytest.mark.parametrize("name", ["graph.imx", "ids.imx", "entries.imx"])
def test_an_object_of_another_build_is_found_while_an_index_is_opened(
    store: Path, indexes: dict[str, Path], tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = place(indexes["codes on pages"], store)
    indexmill.build(VECTORS[::-1].copy(), tmp_path / "other", ids=IDS, **KINDS["codes on pages"])
    (place_of_file,) = store.glob(f"data-*/{name}")

    def replace() -> None:
        place_of_file.unlink()
        shutil.copyfile(tmp_path / "other" / name, place_of_file)

    after_the_manifest(monkeypatch, replace)
    with pytest.raises(FormatError, match=name) as refused:
        indexmill.open(url, engine="ranges")
    assert isinstance(refused.value, CorruptFile) or "build" in str(refused.value)
