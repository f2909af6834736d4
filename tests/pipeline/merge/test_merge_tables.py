"""`merge` of hash tables with equal functions: the files of a build of all vectors; others are refused by name."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.oracles.lsh.verify import lsh_problems
from tests.support.indexes.builds import assert_sound, build, data_files
from tests.support.indexes.lsh import clusters, contents, fixed, of_metric

import indexmill
from indexmill.formats.errors import InputError
from indexmill.formats.index.manifest import read_manifest

DIM = 8
VECTORS = clusters(900, DIM)
CUTS = (0, 300, 620, 900)


def parts(folder: Path, **how: object) -> list[Path]:
    return [fixed(folder / f"part-{i}", VECTORS[a:b], **how) for i, (a, b) in enumerate(pairwise(CUTS))]


def test_a_merge_writes_the_files_of_a_build_of_all_vectors(tmp_path: Path) -> None:
    three = parts(tmp_path)
    opened = indexmill.merge(*three, out=tmp_path / "both")
    assert len(opened) == len(VECTORS)
    assert contents(tmp_path / "both") == contents(fixed(tmp_path / "all", VECTORS))
    assert lsh_problems(tmp_path / "both") == []
    manifest = read_manifest(tmp_path / "both", ("lsh",))
    assert manifest.parents == tuple(read_manifest(part, ("lsh",)).build_id for part in three)
    assert manifest.lsh["drift"]["built_vectors"] == 320  # of the largest
    indexmill.merge(three[0], three[1])
    indexmill.merge(three[0], three[2])
    assert contents(three[0]) == contents(tmp_path / "both")


def test_deleted_vectors_stay_behind_and_their_ids_are_free(tmp_path: Path) -> None:
    names = [f"s{i % 600}" for i in range(900)]
    prices = pa.table({"price": np.arange(900.0)})
    a, b = (
        fixed(tmp_path / str(first), VECTORS[first:last], ids=names[first:last], metadata=prices[first:last])
        for first, last in ((0, 600), (600, 900))
    )
    before = data_files(a)
    with pytest.raises(InputError, match="id 's0' is not unique"):
        indexmill.merge(a, b)
    assert data_files(a) == before
    indexmill.delete(a, names[:300])
    indexmill.delete(b, names[600:610])
    opened = indexmill.merge(a, b)
    left = np.r_[300:600, 610:900]
    assert len(opened) == len(left)
    assert contents(a) != before
    assert pq.read_table(a / "metadata.parquet")["price"].to_pylist() == left.tolist()
    found = opened.search(VECTORS[left[::50]], 1).ids[:, 0].tolist()
    assert found == [names[i] for i in left[::50]]
    assert_sound(a)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"n_functions": 4}, "hash functions in a table 4; expected 5"),
        ({"n_tables": 7}, "tables 7; expected 6"),
        ({"first_radius": 2.0}, r"radii \[2.0, 4.0, 8.0\]; expected \[1.5, 3.0, 6.0\]"),
        ({"width": 5.0}, "bucket width 5.0; expected 4.0"),
        ({"hash_bits": 2}, "hash bits 2; expected 3"),
        ({"seed": 2}, "other projections of hash functions"),
        (of_metric("cosine"), "metric cosine; expected l2"),
    ],
)
def test_other_functions_are_refused_by_name(tmp_path: Path, how: dict[str, object], message: str) -> None:
    a, b = fixed(tmp_path / "a", VECTORS[:300]), fixed(tmp_path / "b", VECTORS[300:600], **how)
    before = data_files(a)
    with pytest.raises(InputError, match=message):
        indexmill.merge(a, b)
    assert data_files(a) == before


def test_copies_and_other_kinds_are_refused(tmp_path: Path) -> None:
    a, b = fixed(tmp_path / "a", VECTORS[:300]), fixed(tmp_path / "b", VECTORS[:300])
    with pytest.raises(InputError, match="a copy of the same index"):
        indexmill.merge(a, b)
    assert len(indexmill.merge(a, b, out=tmp_path / "both", force=True)) == 600
    graph = tmp_path / "graph"
    build(graph, VECTORS[:300])
    with pytest.raises(InputError, match="graph: an index of kind graph; expected lsh as"):
        indexmill.merge(a, graph)
