"""Opening an index while another process exchanges it with another build, and FIFOs in place of its files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.files.small_index import write_small_index
from tests.support.indexes.built import Built
from tests.support.indexes.exchanged import exchanged
from tests.support.indexes.ivf import build_lists, make_vectors

import indexmill
from indexmill.formats.errors import CorruptFile, ForeignFile
from indexmill.reader import native
from indexmill.reader.index import Index

Make = Callable[[Path, int], None]

#: Opens for each kind: before directories were opened as one, every second or third one failed.
OPENS = 150
#: What the other process does: builds in place of the index, again and again.
BUILDER = """
import json, sys
import numpy as np
import indexmill
for seed in range(5):
    vectors = np.random.default_rng(seed).normal(size=(300 + seed, 8)).astype(np.float32)
    indexmill.build(vectors, sys.argv[1], force=seed > 0, **json.loads(sys.argv[2]))
    print("ready", flush=True)
"""


def graph(path: Path, seed: int) -> None:
    write_small_index(path, 150 + 40 * seed, seed=seed, metadata=True)


def lsh(path: Path, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(200 + 50 * seed, 8)).astype(np.float32)
    indexmill.build(
        vectors, path, kind="lsh", n_functions=3, n_tables=4, candidates=10, hash_bits=4, block_bytes=128
    )


def ivf(path: Path, seed: int) -> None:
    build_lists(path, make_vectors("float32", 600 + 200 * seed, seed), lists=6, batch_vectors=400)


@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("makes", [(graph, graph), (lsh, lsh), (ivf, ivf), (graph, ivf), (lsh, graph)])
def test_an_index_that_is_exchanged_all_the_time_opens_as_one_of_its_builds(
    built: Built, tmp_path: Path, makes: tuple[Make, Make], deletes: bool
) -> None:
    builds = [built(make, seed) for seed, make in enumerate(makes)]
    known = {indexmill.open(path).native.build_id: len(indexmill.open(path)) for path in builds}
    assert len(known) == 2
    seen, began = set(), time.monotonic()
    with exchanged(tmp_path, builds, deletes) as out:
        for i in count(1):
            index = indexmill.open(out)
            assert len(index) == known[index.native.build_id]
            assert index.metadata([1, 0]).num_rows in (0, 2)
            seen.add(index.native.build_id)
            took = time.monotonic() - began  # on a busy machine the other process may not run for a while
            if took > 60 or (len(seen) == 2 and (i >= OPENS or took > 5)):
                break
        for _ in range(0 if deletes else 5):  # it would need all files for longer than they are there
            assert native.verify(out) == []
    assert seen == known.keys(), "both builds were there"


@pytest.mark.parametrize(
    "options",
    [
        {"R": 8, "L": 12},
        {
            "kind": "lsh",
            "n_functions": 3,
            "n_tables": 4,
            "candidates": 10,
            "hash_bits": 4,
            "block_bytes": 128,
        },
        {"kind": "ivf", "lists": 6, "batch_vectors": 100},
    ],
    ids=["graph", "lsh", "ivf"],
)
def test_an_index_that_is_built_anew_all_the_time_opens(tmp_path: Path, options: dict[str, Any]) -> None:
    out, seen = tmp_path / "ix", set()
    arguments = [str(out), json.dumps(options)]
    with subprocess.Popen(
        [sys.executable, "-c", BUILDER, *arguments], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        while other.poll() is None:
            index = indexmill.open(out)
            seen.add((index.native.build_id, len(index)))
    assert other.returncode == 0
    assert len(seen) > 1, "several builds were there"


def test_metadata_of_an_exchanged_index_is_that_of_the_index_that_was_opened(tmp_path: Path) -> None:
    for name, n in [("ix", 120), ("other", 130)]:
        write_small_index(tmp_path / name, n, seed=n, metadata=True)
    index = Index(tmp_path / "ix")
    (tmp_path / "ix").rename(tmp_path / "old")
    (tmp_path / "other").rename(tmp_path / "ix")
    shutil.rmtree(tmp_path / "old")
    assert index.metadata(np.arange(120)).num_rows == 120


@pytest.mark.parametrize("what", ["fifo", "hole"])
def test_what_is_no_manifest_is_refused_at_once_by_every_call_that_opens(tmp_path: Path, what: str) -> None:
    write_small_index(tmp_path, 60)
    manifest = tmp_path / "manifest.json"
    manifest.unlink()
    if what == "fifo":
        os.mkfifo(manifest)
    else:
        with open(manifest, "wb") as file:
            file.truncate(100 << 30)  # takes no room
    np.save(tmp_path / "q.npy", np.zeros((1, 16), np.float32))
    cli = ["-m", "indexmill.jobs.cli.main"]
    for arguments, code in [
        (["-c", "import sys, indexmill; indexmill.open(sys.argv[1])", tmp_path], 1),
        ([*cli, "verify", tmp_path], 6),
        ([*cli, "inspect", tmp_path], 6),
        ([*cli, "search", tmp_path, "--queries", tmp_path / "q.npy"], 6),
    ]:
        done = subprocess.run(
            [sys.executable, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == code, done.stderr
        assert f"{manifest}: expected a manifest" in done.stderr
        assert "MemoryError" not in done.stderr


@pytest.mark.parametrize("name", ["metadata.parquet", "graph.imx", "ids.imx", "manifest.json"])
def test_a_fifo_in_place_of_a_file_is_refused_at_once(tmp_path: Path, name: str) -> None:
    write_small_index(tmp_path, 60, metadata=True)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    code = "import sys; from indexmill.reader.index import Index; Index(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert name in done.stderr.splitlines()[-1]
    with pytest.raises((CorruptFile, ForeignFile), match=name):
        Index(tmp_path)
    assert name in native.verify(tmp_path)[0]


def test_a_fifo_that_the_index_does_not_name_is_left_alone(tmp_path: Path) -> None:
    write_small_index(tmp_path, 60)
    os.mkfifo(tmp_path / "metadata.parquet")
    code = (
        "import sys; from indexmill.reader.index import Index; print(len(Index(sys.argv[1]).metadata([0])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "0\n"
