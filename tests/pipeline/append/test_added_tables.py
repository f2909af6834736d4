"""Appends of few vectors to hash tables: the tables stay, and added tables hold the new entries alone."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.oracles.lsh.search import LshOracle
from tests.oracles.lsh.verify import lsh_problems
from tests.support.cli import run, run_json
from tests.support.indexes.builds import assert_sound, data_files
from tests.support.indexes.lsh import clusters, contents, damaged, fixed, of_metric

import indexmill
from indexmill.formats.errors import BudgetError, CorruptFile, TooNew
from indexmill.formats.index import manifest as manifests
from indexmill.formats.index.manifest import Manifest, parse_manifest, read_manifest, write_manifest
from indexmill.formats.lsh.index import LshFiles
from indexmill.formats.lsh.names import ADDED, BASE
from indexmill.formats.lsh.shape import LshShape
from indexmill.pipeline.append.tables.added import LEAST_SHARE, shape_beside
from indexmill.pipeline.append.tables.drift import COMPACT_READS, Reads, with_reads
from indexmill.pipeline.append.tables.run import MEASURED
from indexmill.pipeline.draws import CERTIFICATE, drawn_rows
from indexmill.pipeline.generations.tables.memory import added_bytes, needed_bytes
from indexmill.pipeline.generations.tables.opened import OpenedTables
from indexmill.pipeline.generations.tables.scratch import added_scratch_bytes, scratch_bytes
from indexmill.reader.lsh import LshIndex

N, DIM, K = 700, 8, 10
ALL = clusters(N + 60, DIM)
OLD, NEW = ALL[:N], ALL[N:]
QUERIES = clusters(30, DIM, seed=5)
#: Counters of a search that are those of an index with one pair of files, too.
SAME = ("radii", "candidates", "distances")


def build(out: Path, vectors: NDArray[Any] = OLD, ids: Any = None, **how: Any) -> Path:
    return fixed(out, vectors, ids, **how)


def extended(out: Path, **how: Any) -> Path:
    """An index with added tables."""
    index = build(out, **how)
    indexmill.append(index, NEW)
    return index


def manifest_of(index: Path) -> Manifest:
    return read_manifest(index, ("lsh",))


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_searches_find_what_they_find_in_tables_of_all_vectors(tmp_path: Path, metric: str) -> None:
    both = ALL.copy()
    both[3] *= 4  # no appended vector is longer
    index, whole = (
        build(tmp_path / name, vectors, **of_metric(metric), block_bytes=512)
        for name, vectors in (("ix", both[:N]), ("all", both))
    )
    opened, rebuilt = indexmill.append(index, both[N:]), indexmill.open(whole)
    assert lsh_problems(index) == []
    assert_sound(index)
    oracle = LshOracle(index)
    assert len(oracle.files.pairs) == 2
    for k, candidates, probes in ((K, None, None), (1, 3, 2), (300, 10**6, 0)):
        found = opened.search(QUERIES, k, candidates=candidates, probes=probes)
        wanted = rebuilt.search(QUERIES, k, candidates=candidates, probes=probes)
        np.testing.assert_array_equal(found.vector_ids, wanted.vector_ids)
        np.testing.assert_array_equal(found.scores, wanted.scores)
        for name in SAME:
            np.testing.assert_array_equal(found.counters[name], wanted.counters[name], err_msg=name)
        for i, query in enumerate(QUERIES[:5]):
            slow = oracle.search(query, k, candidates or 50, probes or 0)
            assert found.counters["table_reads"][i] == slow.table_reads
            assert found.slots[i].tolist() == slow.slots + [-1] * (k - len(slow.slots))
    assert (found.counters["table_reads"] >= wanted.counters["table_reads"]).all()


def test_tables_stay_and_the_manifest_says_of_which_index_they_are(tmp_path: Path) -> None:
    index = build(tmp_path / "ix")
    before, built = data_files(index), manifest_of(index)
    inodes = {name: os.stat(index / name).st_ino for name in BASE}
    indexmill.append(index, NEW)
    after, manifest = data_files(index), manifest_of(index)
    assert set(after) - set(before) == set(ADDED)
    assert {name: os.stat(index / name).st_ino for name in BASE} == inodes
    entries = {entry.name: entry for entry in manifest.files}
    old = {entry.name: entry for entry in built.files}
    for name in BASE:
        assert after[name] == before[name]
        assert entries[name].sha256 == old[name].sha256
        assert entries[name].build_id == built.build_id[:32]
    assert {name for name, entry in entries.items() if entry.build_id is not None} == set(BASE)
    assert b'"major": 4' in after["manifest.json"]
    facts, added = manifest.lsh, manifest.lsh["added"]
    assert {key: facts[key] for key in ("n_buckets", "n_blocks", "blocks")} == {
        key: built.lsh[key] for key in ("n_buckets", "n_blocks", "blocks")
    }
    with LshFiles(index) as files:
        pair = files.pairs[1]
        assert pair.shape == LshShape(N + 60, 6, 3, 3, 128, N)
        assert (added["vectors"], added["n_blocks"]) == (60, pair.buckets.n_blocks)
        assert added["n_buckets"] == pair.tables.n_buckets == sum(added["buckets"])
        assert max(added["longest_chain"]) == pair.buckets.longest_chain
    drift = facts["drift"]
    assert (drift["built_vectors"], drift["added_vectors"], drift["rebuild"]) == (N, 60, False)
    assert "chain_ratio" not in drift
    assert manifest.input["n_vectors"] == N + 60


def test_an_index_has_one_pair_of_added_tables_until_they_would_hold_too_many(tmp_path: Path) -> None:
    index, names = build(tmp_path / "ix"), [*BASE, *ADDED, "functions.imx", "ids.imx", "vectors.imx"]
    whole = build(tmp_path / "all", np.concatenate([ALL, QUERIES[:20]]))
    for first, last in ((0, 1), (1, 40), (40, 60)):
        indexmill.append(index, NEW[first:last])
        assert sorted(path.name for path in index.glob("*.imx")) == sorted(names)
        assert manifest_of(index).lsh["added"]["vectors"] == last
        assert lsh_problems(index) == []
    once = extended(tmp_path / "once")
    assert {name: contents(index)[name] for name in ADDED} == {name: contents(once)[name] for name in ADDED}
    indexmill.append(index, QUERIES[:20])
    assert contents(index) == contents(whole)
    manifest = manifest_of(index)
    assert "added" not in manifest.lsh
    assert manifest.lsh["drift"]["chain_ratio"] >= 1
    assert all(entry.build_id is None for entry in manifest.files)
    assert b'"major": 1' in data_files(index)["manifest.json"]
    indexmill.append(index, NEW[:5] + 1)  # beside tables that are not those of the build
    assert manifest_of(index).lsh["drift"]["chain_ratio"] == manifest.lsh["drift"]["chain_ratio"]
    assert lsh_problems(index) == []


def test_added_tables_hold_up_to_a_tenth_of_what_the_tables_hold() -> None:
    tables = LshShape(1000, 6, 3, 3, 512)
    assert shape_beside(tables, 1001) == LshShape(1001, 6, 3, 3, 128, 1000)
    assert shape_beside(tables, 1000 + 1000 // LEAST_SHARE) is not None
    assert shape_beside(tables, 1001 + 1000 // LEAST_SHARE) is None
    assert shape_beside(LshShape(9, 6, 3, 3, 512), 10) is None


@pytest.mark.parametrize("bits", [0, 9])
def test_entries_of_added_tables_have_other_widths(tmp_path: Path, bits: int) -> None:
    index = build(tmp_path / "ix", ALL[:250], hash_bits=bits)
    indexmill.append(index, ALL[250:270])
    with LshFiles(index) as files:
        assert [pair.shape.id_bits for pair in files.pairs] == [8, 9]
        if bits == 0:
            assert [pair.shape.fingerprint_bits for pair in files.pairs] == [32, 31]
    assert lsh_problems(index) == []
    assert_sound(index)
    indexmill.compact(index)
    assert contents(index) == contents(build(tmp_path / "all", ALL[:270], hash_bits=bits))


def test_a_compaction_puts_all_entries_into_one_pair_of_files(tmp_path: Path) -> None:
    index, whole = extended(tmp_path / "ix"), build(tmp_path / "all", ALL)
    before = manifest_of(index)
    opened = indexmill.compact(index)
    assert contents(index) == contents(whole)
    assert (len(opened), manifest_of(index).generation) == (len(ALL), before.generation + 1)
    assert manifest_of(index).input == before.input
    assert indexmill.rollback(index)["restored"] == before.generation
    assert set(ADDED) <= set(data_files(index))
    gone = np.array([3, 400, N - 1, N, N + 31])
    indexmill.delete(index, gone, by="vector")
    assert lsh_problems(index) == []
    indexmill.compact(index)
    assert contents(index) == contents(build(tmp_path / "left", np.delete(ALL, gone, axis=0)))
    drift = manifest_of(index).lsh["drift"]
    assert (drift["built_vectors"], drift["added_vectors"], drift["removed_vectors"]) == (N - 3, 58, 5)


def test_fingerprints_that_get_longer_are_hashed_again(tmp_path: Path) -> None:
    index = build(tmp_path / "ix", ALL[:256], hash_bits=0)
    indexmill.append(index, ALL[256:270])
    gone = np.arange(240, 260)
    indexmill.delete(index, gone, by="vector")
    indexmill.compact(index)
    assert contents(index) == contents(
        build(tmp_path / "left", np.delete(ALL[:270], gone, axis=0), hash_bits=0)
    )


def test_a_merge_takes_the_entries_of_both_pairs(tmp_path: Path) -> None:
    first, second = extended(tmp_path / "a"), build(tmp_path / "b", QUERIES)
    indexmill.merge(second, first, out=tmp_path / "both")
    assert contents(tmp_path / "both") == contents(build(tmp_path / "all", np.concatenate([QUERIES, ALL])))
    indexmill.merge(first, second)
    assert contents(first) == contents(build(tmp_path / "other", np.concatenate([ALL, QUERIES])))
    assert "added" not in manifest_of(first).lsh


def test_vectors_are_replaced_deleted_and_brought_back(tmp_path: Path) -> None:
    names = [f"s{i}" for i in range(N)]
    index = build(tmp_path / "ix", OLD, names)
    opened = indexmill.append(index, NEW[:30], ids=[*names[:10], *(f"n{i}" for i in range(20))], replace=True)
    assert opened.n_deleted == 10
    indexmill.delete(index, ["n5"])
    assert lsh_problems(index) == []
    assert_sound(index)
    found = indexmill.open(index).search(NEW[:30], 1, candidates=10**6)
    assert "n5" not in found.ids[:, 0].tolist()
    assert found.ids[:5, 0].tolist() == names[:5]
    indexmill.append(index, NEW[30:], ids=[f"m{i}" for i in range(30)])
    assert manifest_of(index).n_deleted == 11
    assert set(ADDED) <= set(data_files(index))
    indexmill.rollback(index, 3)
    assert manifest_of(index).lsh["added"]["vectors"] == 30
    assert manifest_of(index).n_deleted == 11
    assert indexmill.upgrade(index)["generation"] == manifest_of(index).generation
    indexmill.gc(index)
    assert_sound(index)


def test_an_export_has_the_entries_of_both_pairs(tmp_path: Path) -> None:
    found = []
    for name, index in (("a", extended(tmp_path / "ix")), ("b", build(tmp_path / "all", ALL))):
        indexmill.export(index, "faiss-lsh", tmp_path / name)
        starts, slots, prints = (
            np.load(tmp_path / name / f"{part}.npy") for part in ("starts", "slots", "fingerprints")
        )
        buckets = np.repeat(np.arange(len(starts) - 1), np.diff(starts).astype(np.int64))
        order = np.lexsort((slots, buckets))
        found.append((starts, slots[order], prints[order]))
    for mine, wanted in zip(*found, strict=True):
        np.testing.assert_array_equal(mine, wanted)


def test_older_readers_refuse_added_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = extended(tmp_path / "ix")
    monkeypatch.setattr(manifests, "NEWEST", (3, 0))
    with pytest.raises(TooNew, match=r"expected major 1 to 3, got 4\.0; install a newer indexmill"):
        manifest_of(index)


@pytest.mark.parametrize(("gone", "left"), [ADDED, ADDED[::-1]])
def test_one_file_of_a_pair_is_refused(tmp_path: Path, gone: str, left: str) -> None:
    index = extended(tmp_path / "ix")
    manifest = parse_manifest(index)
    files = tuple(entry for entry in manifest.files if entry.name != gone)
    (index / "manifest.json").unlink()
    write_manifest(index, Manifest(**{**vars(manifest), "files": files}))
    said = f"files: expected added-tables.imx and added-buckets.imx, or neither, got only {left}"
    with pytest.raises(CorruptFile, match=said):
        LshFiles(index)
    with pytest.raises(CorruptFile, match=said):
        indexmill.open(index)


def test_damage_of_added_tables_is_named(tmp_path: Path) -> None:
    index = extended(tmp_path / "ix")
    with LshFiles(index) as files:
        at = 4096 * (1 + -(-8 * files.pairs[1].tables.n_buckets // 4096))
    header = (index / ADDED.tables).read_bytes()[:4096]
    first = header.index(b"first_slot") + 16
    for name, file, patches, said in (
        ("zero", ADDED.tables, {4096: bytes(8)}, "a bucket with entries as in the bitmap, got pointer 0"),
        ("bits", ADDED.tables, {at: b"\x01\x00"}, "section 'occupied': expected"),
        ("slot", ADDED.buckets, {4096 + 16: b"\x07\x00"}, f"slot: expected {N}..{N + 59}, got"),
    ):
        bad = damaged(index, tmp_path / name, file, patches, 128 if file == ADDED.buckets else None)
        problems = lsh_problems(bad)
        assert len(problems) == 1, problems
        assert file in problems[0]
        assert said in problems[0]
    bad = shutil.copytree(index, tmp_path / "first")
    raw = bytearray((bad / ADDED.tables).read_bytes())
    raw[first] ^= 1
    (bad / ADDED.tables).write_bytes(raw)
    with pytest.raises(CorruptFile, match=r"added-tables\.imx: .*CRC32C"):
        LshFiles(bad)
    other = extended(tmp_path / "other", seed=2)
    shutil.copyfile(other / BASE.tables, index / "t")
    (index / "t").rename(index / BASE.tables)
    with pytest.raises(CorruptFile, match=r"tables\.imx: (build id|size)"):
        indexmill.open(index)


@pytest.mark.parametrize(
    ("patches", "said"),
    [
        ({4096 + 16: b"\x07\x00"}, rf"block 0 \(offset 4096\): slot: expected {N}..{N + 59}, got"),
        (
            {4096 + 4: b"\x01\x00"},
            "entries of table 0, radius 0: expected 60, one of each vector that stays, got",
        ),
    ],
    ids=["slot", "count"],
)
def test_damage_is_named_by_what_writes_tables_and_the_index_stays(
    tmp_path: Path, patches: dict[int, bytes], said: str
) -> None:
    index = extended(tmp_path / "ix", hash_bits=0)
    bad = damaged(index, tmp_path / "bad", ADDED.buckets, patches, 128)
    before = data_files(bad)
    for change in (lambda: indexmill.append(bad, NEW[:1]), lambda: indexmill.compact(bad)):
        with pytest.raises(CorruptFile, match=rf"added-buckets\.imx: {said}"):
            change()
        assert data_files(bad) == before


def test_few_vectors_take_less_memory_and_room_than_all(tmp_path: Path) -> None:
    index = extended(tmp_path / "ix")
    before = data_files(index)
    with OpenedTables(index) as opened:
        beside = shape_beside(opened.files.pairs[0].shape, N + 65)
        assert beside is not None
        need = added_bytes([opened], beside, 5)
        assert need < needed_bytes([opened], [opened.n], 5)
        assert added_scratch_bytes(opened, beside, 5) < scratch_bytes([opened], [opened.n], 5)
    with pytest.raises(BudgetError, match=f"765 vectors in 18 hash tables take {need:,} bytes"):
        indexmill.append(index, NEW[:5], memory=need - 1)
    assert data_files(index) == before


def test_inspect_tells_of_added_tables_and_of_the_memory_they_take(tmp_path: Path) -> None:
    index = extended(tmp_path / "ix")
    assert "60 vectors in" in run("inspect", index).stdout
    assert run_json("verify", index)["sound"]
    told, held = run_json("inspect", index)["memory_bytes"], LshIndex(index, tables="memory").memory
    assert told == {name: held[name] for name in told}
    with LshFiles(index) as files:
        n_pointers = files.shape.n_pointers + files.pairs[1].tables.n_buckets
    assert held["tables"] == 8 * n_pointers
    assert held["bitmap"] == 2 * (6 * 3 * 8 // 8) + 8


def test_a_plan_foretells_which_append_lets_the_tables_stay(tmp_path: Path) -> None:
    build(tmp_path / "ix")
    stages = []
    for n in (60, 80):
        np.save(tmp_path / "new.npy", np.concatenate([NEW, QUERIES])[:n])
        (tmp_path / "job.toml").write_text('base = "ix"\nadd = "new.npy"\nworkers = 1\n')
        stages.append(run_json("plan", tmp_path / "job.toml")["stages"])
    few, many = stages
    assert list(many) == ["append ingest", "append tables", "append seal"]
    assert list(few) == [*many, "append measure"]
    assert few["append tables"]["memory_bytes"] < many["append tables"]["memory_bytes"]


def reads(index: Path, slots: NDArray[Any]) -> float:
    """Mean reads of searches for vectors of `OLD`, of tables and buckets."""
    found = indexmill.open(index).search(OLD[slots], K + 1).counters
    return float((found["table_reads"].astype(int) + found["block_reads"].astype(int)).mean())


def test_drift_tells_what_added_tables_cost_a_search(tmp_path: Path) -> None:
    """Of the same vectors in every append, over what searches read of the tables alone; a compaction ends it."""
    index = build(tmp_path / "ix")
    slots = drawn_rows(1, CERTIFICATE, N, MEASURED)
    alone = reads(index, slots)
    for first, last in ((0, 20), (20, 50)):
        indexmill.append(index, NEW[first:last])
        drift, now = manifest_of(index).lsh["drift"], reads(index, slots)
        assert (drift["reads_tables"], drift["reads"]) == (pytest.approx(alone), pytest.approx(now))
        assert drift["reads_vectors"] == MEASURED
        assert drift["reads_ratio"] == pytest.approx(now / alone)
        assert drift["compact"] is (now >= COMPACT_READS * alone)
        assert ("compact: searches read" in drift["advice"]) is drift["compact"]
    assert drift["reads_ratio"] > 1
    indexmill.compact(index)
    of_reads = {"reads", "reads_vectors", "reads_tables", "reads_ratio", "compact"}
    assert not of_reads & manifest_of(index).lsh["drift"].keys()


def test_all_appends_measure_searches_for_the_vectors_of_the_first(tmp_path: Path) -> None:
    """Whatever number of vectors the version measured that made the first one; nothing where it did not tell."""
    index = build(tmp_path / "ix")
    slots = drawn_rows(1, CERTIFICATE, N, 50)
    alone = reads(index, slots)
    indexmill.append(index, NEW[:20])
    old = manifest_of(index)
    found = with_reads(old.lsh["drift"], Reads(50, alone, reads(index, slots)))
    write_manifest(index, replace(old, lsh={**old.lsh, "drift": found}))
    untold = shutil.copytree(index, tmp_path / "untold")
    indexmill.append(index, NEW[20:40])
    drift = manifest_of(index).lsh["drift"]
    assert (drift["reads_vectors"], drift["reads_tables"]) == (50, pytest.approx(alone))
    assert drift["reads"] == pytest.approx(reads(index, slots))
    del found["reads_vectors"]
    write_manifest(untold, replace(old, lsh={**old.lsh, "drift": found}))
    indexmill.append(untold, NEW[20:40])
    assert not {"reads", "reads_tables", "compact"} & manifest_of(untold).lsh["drift"].keys()


def test_a_compaction_is_advised_from_the_documented_ratio_if_no_rebuild_is() -> None:
    kept = {"rebuild": False, "advice": "keep: so"}
    assert with_reads(kept, Reads(25, 100.0, 124.0))["advice"] == "keep: so"
    assert with_reads(kept, Reads(25, 100.0, 125.0))["compact"]
    assert with_reads(kept, Reads(25, 0.0, 0.0))["reads_ratio"] == 1
    rebuilt = {"rebuild": True, "advice": "rebuild: so"}
    assert with_reads(rebuilt, Reads(25, 100.0, 200.0))["advice"] == "rebuild: so"


def with_ratio(index: Path, ratio: float) -> None:
    """Let the manifest tell of other reads."""
    old = manifest_of(index)
    drift = with_reads(old.lsh["drift"], Reads(MEASURED, 100.0, 100.0 * ratio))
    write_manifest(index, replace(old, lsh={**old.lsh, "drift": drift}))


def test_a_nightly_job_compacts_where_the_drift_advises_it(tmp_path: Path) -> None:
    index, job = extended(tmp_path / "ix"), tmp_path / "job.toml"
    job.write_text('base = "ix"\ncompact = "auto"\n')
    with_ratio(index, 1.2)
    assert run_json("plan", job)["stages"] == {}
    assert run_json("build", job)["steps"] == []
    with_ratio(index, 1.25)
    assert set(run_json("plan", job)["stages"]) == {"compact tables", "compact seal", "compact certify"}
    assert run_json("build", job)["steps"] == [{"step": "compact", "removed": 0, "folded": 60}]
    assert not (index / ADDED.tables).exists()
    assert run_json("build", job)["steps"] == []


def test_a_plan_says_that_a_compaction_waits_for_the_reads(tmp_path: Path) -> None:
    build(tmp_path / "ix")
    np.save(tmp_path / "new.npy", NEW)
    job = tmp_path / "job.toml"
    job.write_text('base = "ix"\nadd = "new.npy"\ncompact = "auto"\n')
    plan = run_json("plan", job)
    assert "compact tables" in plan["stages"]
    assert "if the drift of the index advises it" in plan["note"]
