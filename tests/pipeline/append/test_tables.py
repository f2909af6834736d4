"""`append` to hash tables: the bytes of a build with the same functions, drift, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from tests.oracles.lsh.verify import lsh_problems
from tests.support.indexes.builds import assert_sound, data_files
from tests.support.indexes.lsh import FIXED, clusters, contents, damaged, fixed, of_metric

import indexmill
from indexmill.builders.lsh.rechain import packed
from indexmill.formats.errors import BudgetError, ConfigError, InputError
from indexmill.formats.index.manifest import read_manifest
from indexmill.formats.lsh.shape import LshShape
from indexmill.formats.lsh.tables import TablesFile
from indexmill.pipeline.generations.tables import chains

N, DIM = 700, 8
BOTH = clusters(N + 80, DIM)
OLD, NEW = BOTH[:N], BOTH[N:]


def build(out: Path, vectors: NDArray[Any] = OLD, ids: Any = None, **how: Any) -> Path:
    return fixed(out, vectors, ids, **how)


def lsh(index: Path) -> dict[str, Any]:
    return dict(read_manifest(index, ("lsh",)).lsh)


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_an_append_writes_the_files_of_a_build_with_its_functions(tmp_path: Path, metric: str) -> None:
    both = BOTH.copy()
    both[3] *= 4  # no appended vector is longer
    index, whole = (
        build(tmp_path / name, vectors, **of_metric(metric))
        for name, vectors in (("ix", both[:N]), ("all", both))
    )
    opened = indexmill.append(index, both[N:])
    assert len(opened) == len(both)
    assert contents(index) == contents(whole)
    assert lsh_problems(index) == []
    assert_sound(index)
    facts = {key: value for key, value in lsh(index).items() if key != "drift"}
    assert facts == pytest.approx({**lsh(whole), "radii": lsh(index)["radii"]})
    manifest, before = read_manifest(index, ("lsh",)), read_manifest(whole, ("lsh",))
    assert (manifest.generation, manifest.input["n_vectors"]) == (2, len(both))
    assert manifest.parameters == before.parameters


@pytest.mark.parametrize("dtype", ["uint8", "int8", "float16"])
def test_every_input_type_is_appended(tmp_path: Path, dtype: str) -> None:
    both = np.clip(np.rint(BOTH * 8 + (100 if dtype == "uint8" else 0)), -120, 250).astype(dtype)
    index, whole = (
        build(tmp_path / "ix", both[:N], first_radius=10),
        build(tmp_path / "all", both, first_radius=10),
    )
    indexmill.append(index, both[N:])
    assert contents(index) == contents(whole)


@pytest.mark.parametrize("bits", [0, 1, 2])
def test_slots_that_need_another_bit_take_it_from_fingerprints(tmp_path: Path, bits: int) -> None:
    n = 1 << 8 + bits
    index = build(tmp_path / "ix", BOTH[: n - 10] if bits < 2 else clusters(n - 10, DIM), hash_bits=bits)
    more = clusters(n + 110, DIM, seed=0 if bits == 2 else 3)[n - 10 :]
    indexmill.append(index, more)
    old = BOTH[: n - 10] if bits < 2 else clusters(n - 10, DIM)
    assert contents(index) == contents(build(tmp_path / "all", np.concatenate([old, more]), hash_bits=bits))
    before, after = (LshShape(size, 6, 3, bits, 128) for size in (n - 10, n + 110))
    assert (before.fingerprint_bits, after.fingerprint_bits) == (32 - bits, 31 - bits)
    assert lsh_problems(index) == []


def test_pieces_of_a_table_may_end_at_any_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, whole = build(tmp_path / "ix"), build(tmp_path / "all", BOTH)
    monkeypatch.setattr(chains, "PIECE_ENTRIES", 200)
    indexmill.append(index, NEW)
    assert contents(index) == contents(whole)


def test_pieces_hold_few_blocks_though_each_added_vector_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, most = build(tmp_path / "ix", hash_bits=12), []
    capacity = LshShape(N, 6, 3, 12, 128).capacity

    def counted(*arguments: Any) -> Any:
        most.append(packed(*arguments))
        return most[-1]

    monkeypatch.setattr(chains, "PIECE_ENTRIES", 20 * capacity)
    monkeypatch.setattr(chains, "packed", counted)
    indexmill.append(index, clusters(2000, DIM, seed=3))
    assert max(len(piece.blocks) - piece.lengths.max() for piece in most) <= 20
    assert sum(len(piece.blocks) for piece in most) == lsh(index)["n_blocks"]


def test_many_small_appends_end_in_the_bytes_of_one(tmp_path: Path) -> None:
    one, many = build(tmp_path / "one"), build(tmp_path / "many")
    indexmill.append(one, NEW)
    for first in range(0, len(NEW), 20):
        indexmill.append(many, NEW[first : first + 20])
    assert contents(many) == contents(one)
    assert {k: v for k, v in lsh(many).items() if k != "drift"} == {
        k: v for k, v in lsh(one).items() if k != "drift"
    }
    drifts = [lsh(index)["drift"] for index in (one, many)]
    assert drifts[0] == drifts[1]
    assert read_manifest(many, ("lsh",)).generation == 5


def test_the_same_input_gives_the_same_bytes_for_any_workers(tmp_path: Path) -> None:
    old, made = build(tmp_path / "old"), []
    for workers in (1, 3):
        indexmill.append(old, NEW, out=tmp_path / f"out{workers}", workers=workers)
        made.append(data_files(tmp_path / f"out{workers}"))
    assert made[0] == made[1]
    assert read_manifest(old, ("lsh",)).generation == 1


def test_user_ids_and_metadata_follow(tmp_path: Path) -> None:
    def table(vectors: NDArray[Any], first: int) -> pa.Table:
        n = range(first, first + len(vectors))
        rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIM)
        return pa.table({"sku": [f"s{i}" for i in n], "price": [float(i) for i in n], "v": rows})

    pq.write_table(table(OLD, 0), tmp_path / "old.parquet")
    pq.write_table(table(NEW, N), tmp_path / "new.parquet")
    index = tmp_path / "ix"
    indexmill.build(tmp_path / "old.parquet", index, id_column="sku", metadata_columns=["price"], **FIXED)
    opened = indexmill.append(index, tmp_path / "new.parquet", id_column="sku")
    assert opened.search(NEW[:9], 1).ids[:, 0].tolist() == [f"s{N + i}" for i in range(9)]
    prices = pq.read_table(index / "metadata.parquet")["price"].to_pylist()
    assert prices == [float(i) for i in range(len(BOTH))]
    assert_sound(index)


def test_drift_tells_when_parameters_no_longer_suit(tmp_path: Path) -> None:
    index = build(tmp_path / "ix")
    indexmill.append(index, NEW)
    drift = lsh(index)["drift"]
    assert (drift["built_vectors"], drift["added_vectors"], drift["radii_missing"]) == (N, len(NEW), 0)
    assert drift["chain_blocks_built"] <= drift["chain_blocks"]
    assert drift["chain_ratio"] == round(drift["chain_blocks"] / drift["chain_blocks_built"], 6)
    assert (drift["rebuild"], drift["advice"][:4]) == (False, "keep")
    indexmill.append(index, clusters(4 * N, DIM))
    drift = lsh(index)["drift"]
    assert drift["chain_ratio"] > 2
    assert drift["rebuild"]
    assert "added since the parameters" in drift["advice"]
    assert "chains of the first radius are" in drift["advice"]
    far = build(tmp_path / "far")
    indexmill.append(far, NEW * 8)
    drift = lsh(far)["drift"]
    assert drift["radii_missing"] == 2
    assert "2 more radii" in drift["advice"]
    assert lsh(far)["extent"] > 4 * drift["extent_built"]


def test_chains_in_another_order_are_refused(tmp_path: Path) -> None:
    index = build(tmp_path / "ix")
    shape = LshShape(N, 6, 3, 3, 128)
    with TablesFile(index / "tables.imx", shape) as tables:
        at = int(np.flatnonzero(tables.pointers(0, 8))[0])
    wrong = damaged(index, tmp_path / "wrong", "tables.imx", {4096 + 8 * at + 6: (1).to_bytes(2, "little")})
    before = data_files(wrong)
    with pytest.raises(
        InputError, match=r"tables\.imx: table entries from 0: expected chains that lie one after"
    ):
        indexmill.append(wrong, NEW)
    assert data_files(wrong) == before


def test_what_does_not_go_into_the_tables_is_refused(tmp_path: Path) -> None:
    small = NEW / 2
    index = build(tmp_path / "ix", ids=[f"a{i}" for i in range(N)], metric="ip")
    before = data_files(index)
    names = [f"b{i}" for i in range(len(NEW))]
    with pytest.raises(InputError, match=r"row 0: norm .*under inner product"):
        indexmill.append(index, NEW * 100, ids=names)
    with pytest.raises(InputError, match="dimension 7; expected 8"):
        indexmill.append(index, small[:, :7], ids=names)
    with pytest.raises(InputError, match="id 'a3' is not unique"):
        indexmill.append(index, small, ids=["a3", *names[1:]])
    with pytest.raises(InputError, match="id type none"):
        indexmill.append(index, small)
    with pytest.raises(BudgetError, match="hash tables take"):
        indexmill.append(index, small, ids=names, memory="1MiB")
    assert data_files(index) == before
    nameless = build(tmp_path / "nameless")
    with pytest.raises(ConfigError, match="no user ids"):
        indexmill.append(nameless, NEW, replace=True)
    far = NEW.copy()
    far[7] = NEW[7] * np.float32(1e9)
    files = [str(tmp_path / "near.npy"), str(tmp_path / "far.npy")]
    np.save(files[0], far[:4])
    np.save(files[1], far[4:])
    with pytest.raises(InputError, match=r"far.npy: row 3: the vector lies too far from zero"):
        indexmill.append(build(tmp_path / "fine", first_radius=1e-12, n_radii=1), files)
