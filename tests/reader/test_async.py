"""Searches that asyncio awaits: they find what others find, hold up no event loop, and end when they are cancelled."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.oracles.files.small_index import SmallIndex, write_small_index
from tests.support.indexes.built import Built
from tests.support.indexes.ivf import build_lists, make_vectors

import indexmill
from indexmill.formats.errors import ConfigError, CorruptFile, InputError
from indexmill.reader import _native
from indexmill.reader.awaiting import outcome
from indexmill.reader.index import Index, RangeResult, SearchResult

#: A device on which a query takes seconds.
SLOW = {
    "kind": "indexmill-device",
    "version": 1,
    "name": "slow",
    "model": {"latency_us": [[0.0, 100_000.0], [1.0, 100_000.0]], "iops": None, "mb_per_s": None},
}
TIMES = {"latency_us", "io_wait_us"}
#: Begins a search that finds 200 ids of 490,000 letters, and then one without queries; takes both outcomes when there
#: is no memory left for the ids.
SHORT = """
import resource, select, sys
import numpy as np
import indexmill
from indexmill.reader import _native
index, box = indexmill.open(sys.argv[1]), _native.Mailbox()
queries = np.zeros((20, index.dim), np.float32)
options = {"k": 10, "nprobe": 1, "prune": None, "rerank": 0, "threads": 1, "inflight": 1}
index.native.search_later(box, 1, queries, options)
select.select([box], [], [])
index.native.search_later(box, 2, queries[:0], options)
pages = int(open("/proc/self/statm").read().split()[0]) + 256
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize(), resource.RLIM_INFINITY))
outcomes = box.take()
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
for token, found, error in outcomes:
    print(token, "found" if error is None else type(error).__name__)
"""


@pytest.fixture(scope="module", params=["none", "int64", "string"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SmallIndex:
    return write_small_index(tmp_path_factory.mktemp("async") / "ix", n=400, id_type=request.param)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> tuple[SmallIndex, str]:
    folder = tmp_path_factory.mktemp("slow")
    (folder / "slow.json").write_text(json.dumps(SLOW))
    return write_small_index(folder / "ix", n=400), f"simulated:{folder / 'slow.json'}"


def same(one: SearchResult | RangeResult, other: SearchResult | RangeResult) -> None:
    for name in ("ids", "scores", "vector_ids", "slots"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    for name in one.counters.keys() - TIMES:
        np.testing.assert_array_equal(one.counters[name], other.counters[name], err_msg=name)


def test_awaited_searches_find_what_others_find(written: SmallIndex) -> None:
    index, queries = Index(written.path), np.roll(written.vectors[:30], 1, axis=1)
    allow = index.filter(np.arange(0, 400, 3))
    choices: list[dict[str, Any]] = [
        {},
        {"L": 30, "policy": "beam"},
        {"allow": allow},
        {"threads": 3, "inflight": 2},
    ]

    async def search() -> tuple[list[SearchResult], list[RangeResult], SearchResult]:
        found = await asyncio.gather(*(index.search_async(queries, 5, **how) for how in choices))
        within = await asyncio.gather(*(index.range_search_async(queries, 30.0, **how) for how in choices))
        return found, within, await index.search_async(queries[:0], 5)

    found, within, none = asyncio.run(search())
    for how, got, near in zip(choices, found, within, strict=True):
        same(got, index.search(queries, 5, **how))
        expected = index.range_search(queries, 30.0, **how)
        same(near, expected)
        np.testing.assert_array_equal(near.starts, expected.starts)
    assert none.ids.shape == (0, 5)


def test_missing_results_are_missing(written: SmallIndex) -> None:
    index = Index(written.path)
    allow = index.filter([7, 9])
    got = asyncio.run(index.search_async(written.vectors[0], 5, allow=allow))
    same(got, index.search(written.vectors[0], 5, allow=allow))
    assert (got.slots[0] < 0).sum() == 3


def test_a_filter_is_made_of_a_condition_or_a_mask_on_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = make_vectors("float32", 400)
    indexmill.build(vectors, tmp_path / "ix", metadata=pa.table({"label": np.arange(400) % 3}), R=16, L=32)
    index, made = Index(tmp_path / "ix"), list[threading.Thread]()
    make = Index.filter

    def noted(self: Index, allow: Any) -> Any:
        made.append(threading.current_thread())
        return make(self, allow)

    monkeypatch.setattr(Index, "filter", noted)
    for allow in ("label = 1", np.arange(400) % 3 == 1):
        got = asyncio.run(index.search_async(vectors[:5], 4, allow=allow))
        near = asyncio.run(index.range_search_async(vectors[:5], 9.0, allow=allow))
        assert threading.main_thread() not in made
        same(got, index.search(vectors[:5], 4, allow=allow))
        same(near, index.range_search(vectors[:5], 9.0, allow=allow))
        made.clear()
    with pytest.raises(InputError, match="where: colour = 1: no metadata column"):
        asyncio.run(index.search_async(vectors[:5], 4, allow="colour = 1"))


def test_searches_of_other_kinds_can_be_awaited(built: Built, tmp_path: Path) -> None:
    lists = indexmill.open(built(build_lists, make_vectors("float32")))
    vectors = make_vectors("float32", 400)
    tables = {
        "kind": "lsh",
        "n_functions": 4,
        "n_tables": 6,
        "candidates": 20,
        "hash_bits": 6,
        "block_bytes": 128,
    }
    indexmill.build(vectors, tmp_path / "lsh", ids=[f"n{i}" for i in range(400)], **tables)
    hashed = indexmill.open(tmp_path / "lsh")
    for index, how in ((lists, {"nprobe": 3}), (hashed, {"candidates": 9})):
        search: Callable[..., Coroutine[Any, Any, SearchResult]] = index.search_async
        same(asyncio.run(search(vectors[:20], 4, **how)), index.search(vectors[:20], 4, **how))


def test_the_event_loop_goes_on_and_no_thread_waits(slow: tuple[SmallIndex, str]) -> None:
    index, queries = Index(slow[0].path, slow[1]), slow[0].vectors[:100]
    before = len(os.listdir("/proc/self/task"))

    async def search() -> tuple[float, float, int]:
        moments = [time.monotonic()]

        async def tick() -> None:
            while True:
                await asyncio.sleep(0.01)
                moments.append(time.monotonic())

        ticking = asyncio.create_task(tick())
        searches = [asyncio.create_task(index.search_async(query, 3, L=8, beam_width=1)) for query in queries]
        done, others = await asyncio.wait(searches, return_when=asyncio.FIRST_COMPLETED)
        threads = len(os.listdir("/proc/self/task")) - before
        ticking.cancel()
        for one in others:
            one.cancel()
        took = float(done.pop().result().counters["latency_us"][0]) / 1e6
        return max(np.diff([*moments, time.monotonic()])), took, threads

    pause, took, threads = asyncio.run(search())
    assert pause < took / 2
    assert threads <= (os.cpu_count() or 1)


def test_a_cancelled_task_cancels_its_search_alone(slow: tuple[SmallIndex, str]) -> None:
    index, queries = Index(slow[0].path, slow[1]), slow[0].vectors[:8]

    async def search() -> SearchResult:
        # One long search; its neighbours on the same threads are cancelled amid their reads.
        long = asyncio.create_task(index.search_async(queries[:1], 3, L=8, beam_width=1))
        for _ in range(3):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(index.search_async(queries, 3, L=400, beam_width=1), 0.4)
        return await long

    begin = time.monotonic()
    same(asyncio.run(search()), Index(slow[0].path).search(queries[:1], 3, L=8, beam_width=1))
    assert time.monotonic() - begin < 100


def test_what_goes_wrong_is_raised_where_it_is_awaited(tmp_path: Path) -> None:
    written = write_small_index(tmp_path / "ix", n=400)
    index = Index(written.path)

    async def search(**how: Any) -> SearchResult:
        return await index.search_async(written.vectors[:3], **how)

    with pytest.raises(InputError, match="at most 400 neighbours"):
        asyncio.run(search(k=401))
    with pytest.raises(ConfigError, match="inflight"):
        asyncio.run(search(inflight=0))
    with pytest.raises(TypeError, match="trace"):
        asyncio.run(search(trace=True))
    with open(written.path / "graph.imx", "r+b") as file:
        file.seek(4096)
        file.write(bytes(written.path.joinpath("graph.imx").stat().st_size - 4096))

    async def both() -> list[SearchResult | BaseException]:
        return await asyncio.gather(search(), search(k=2), return_exceptions=True)

    for _ in range(40):  # a call that has ended gives no query to a thread that asks late
        assert all(isinstance(outcome, CorruptFile) for outcome in asyncio.run(both()))


def test_an_outcome_that_python_cannot_hold_is_an_error_and_the_others_arrive(tmp_path: Path) -> None:
    vectors = make_vectors("float32", 40)
    ids = [f"{i:07}" * 70_000 for i in range(len(vectors))]
    indexmill.build(vectors, tmp_path / "ix", kind="ivf", lists=1, ids=ids)
    command = [sys.executable, "-c", SHORT, str(tmp_path / "ix")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout == "1 RuntimeError\n2 found\n", ran.stderr


def test_a_search_that_goes_without_an_outcome_leaves_an_error(written: SmallIndex) -> None:
    index, box = Index(written.path).native, _native.Mailbox()
    options: _native.Options = {
        "k": 3,
        "search_list_size": 9,
        "beam_width": 4,
        "policy": "pipeline",
        "entry": "medoid",
        "threads": 1,
        "inflight": 0,
        "deterministic": True,
        "allow": None,
    }
    with pytest.raises(ConfigError, match="inflight"):
        index.search_later(box, 5, written.vectors[:2], options)
    [(token, found, error)] = box.take()
    assert (token, found, type(error)) == (5, None, RuntimeError)


class Ticket:
    is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


@pytest.mark.parametrize("end", [GeneratorExit, KeyboardInterrupt, asyncio.CancelledError])
def test_a_search_that_nobody_awaits_any_more_is_cancelled(end: type[BaseException]) -> None:
    ticket, begun = Ticket(), list[int]()

    async def search() -> None:
        awaited = outcome(lambda _, token: begun.append(token) or ticket)  # type: ignore[arg-type, return-value]
        awaited.send(None)
        assert begun == [0]
        assert not ticket.is_cancelled
        with pytest.raises(end):
            awaited.throw(end())

    asyncio.run(search())
    assert ticket.is_cancelled


def test_an_event_loop_closed_amid_a_search_is_forgotten(slow: tuple[SmallIndex, str]) -> None:
    index = Index(slow[0].path, slow[1])
    loop, destroyed = asyncio.new_event_loop(), list[bool]()
    task = loop.create_task(index.search_async(slow[0].vectors[:8], 3, L=8, beam_width=1))
    loop.run_until_complete(asyncio.sleep(0.05))
    loop.close()
    forgotten = weakref.ref(loop)
    loop.set_exception_handler(lambda *_: destroyed.append(True))  # the task
    del loop, task
    gc.collect()
    assert forgotten() is None
    assert destroyed == [True]
    # The search threads have answered it, and go on.
    assert asyncio.run(index.search_async(slow[0].vectors[0], 3, L=3)).ids.shape == (1, 3)


def test_a_task_that_only_its_loop_knows_is_not_forgotten(slow: tuple[SmallIndex, str]) -> None:
    index, found = Index(slow[0].path, slow[1]), list[SearchResult]()

    async def search() -> None:
        found.append(await index.search_async(slow[0].vectors[0], 3, L=3))

    async def begin() -> None:
        asyncio.create_task(search())  # noqa: RUF006
        while not found:
            await asyncio.sleep(0.05)
            gc.collect()

    asyncio.run(asyncio.wait_for(begin(), 30))


def test_other_threads_go_on_while_an_index_is_closed(slow: tuple[SmallIndex, str]) -> None:
    """No thread is asked to let others go on, so that another one runs only where the lock is given away."""
    written, ticks, is_over = slow[0], 0, False

    def tick() -> None:
        nonlocal ticks
        while not is_over:
            ticks += 1
            time.sleep(0)

    interval, ticking = sys.getswitchinterval(), threading.Thread(target=tick)
    sys.setswitchinterval(1000)
    try:
        ticking.start()
        passed = 0
        for _ in range(300):
            index = Index(written.path)
            index.search(written.vectors[:20], 3, threads=3)
            native = index.native
            del index
            before = ticks
            del native
            passed += ticks - before
            if passed:
                break
    finally:
        sys.setswitchinterval(interval)
        is_over = True
        ticking.join()
    assert passed


def test_every_event_loop_gets_its_own_results(written: SmallIndex) -> None:
    index, wrong = Index(written.path), list[BaseException]()

    def ask(k: int) -> None:
        async def search() -> list[SearchResult]:
            return await asyncio.gather(*(index.search_async(query, k) for query in written.vectors[:50]))

        try:
            for _ in range(3):
                for found, query in zip(asyncio.run(search()), written.vectors[:50], strict=True):
                    same(found, index.search(query, k))
        except BaseException as error:
            wrong.append(error)

    askers = [threading.Thread(target=ask, args=(k,)) for k in (1, 4, 7)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert wrong == []


def test_an_index_may_be_forgotten_while_it_is_searched(written: SmallIndex) -> None:
    async def search() -> SearchResult:
        return await Index(written.path).search_async(written.vectors[:40], 3)

    for _ in range(20):
        assert asyncio.run(search()).ids.shape == (40, 3)
