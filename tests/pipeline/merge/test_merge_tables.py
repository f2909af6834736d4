"""`merge` of hash tables: the files of a build of all vectors, whether they are hashed again or not."""

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
    "how",
    [
        {"n_functions": 4},
        {"n_tables": 7},
        {"n_radii": 2},
        {"first_radius": 2.0},
        {"width": 5.0},
        {"hash_bits": 2},
        {"block_bytes": 256},
        {"seed": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("at", [0, 1])
def test_vectors_of_other_functions_are_hashed_by_those_of_the_largest(
    tmp_path: Path, how: dict[str, object], at: int
) -> None:
    """As a build of all vectors with these functions has them, whichever index comes first."""
    cuts = [(0, 500), (500, 900)] if at == 0 else [(0, 400), (400, 900)]
    two = [
        fixed(tmp_path / str(i), VECTORS[first:last], **({} if i == at else how))
        for i, (first, last) in enumerate(cuts)
    ]
    indexmill.delete(two[1 - at], np.arange(0, 100, 3), by="vector")
    gone = np.arange(0, 100, 3) + cuts[1 - at][0]
    indexmill.merge(*two, out=tmp_path / "both")
    assert contents(tmp_path / "both") == contents(fixed(tmp_path / "all", np.delete(VECTORS, gone, axis=0)))
    assert lsh_problems(tmp_path / "both") == []
    merged, base = read_manifest(tmp_path / "both", ("lsh",)), read_manifest(two[at], ("lsh",))
    assert (merged.parameters, merged.certificate) == (base.parameters, base.certificate)
    assert merged.lsh["radii"] == base.lsh["radii"]
    assert (merged.lsh["drift"]["built_vectors"], merged.lsh["drift"]["added_vectors"]) == (500, 366)


def test_under_inner_product_all_vectors_get_the_longest_norm(tmp_path: Path) -> None:
    """Each part has another longest vector, and the largest part not the longest of all."""
    scaled = np.concatenate([VECTORS[:300] / 2, VECTORS[300:700], VECTORS[700:] * 2])
    cuts = ((0, 300), (300, 700), (700, 900))
    how = {**of_metric("ip"), "seed": 3}
    three = [fixed(tmp_path / str(a), scaled[a:b], **{**how, "seed": a}) for a, b in cuts]
    indexmill.merge(*three, out=tmp_path / "all")
    assert contents(tmp_path / "all") == contents(fixed(tmp_path / "built", scaled, **{**how, "seed": 300}))
    assert lsh_problems(tmp_path / "all") == []
    indexmill.merge(three[1], three[0])  # whose longest vector is the longest: chains of the first stay
    assert lsh_problems(three[1]) == []


def test_bytes_do_not_depend_on_workers(tmp_path: Path) -> None:
    """Of vectors that are read, hashed again, and left out."""
    three = [fixed(tmp_path / f"{a}", VECTORS[a:b], seed=a // 620) for a, b in pairwise(CUTS)]
    indexmill.delete(three[0], np.arange(0, 300, 7), by="vector")
    for workers in (1, 2):
        indexmill.merge(*three, out=tmp_path / f"all-{workers}", workers=workers)
    assert data_files(tmp_path / "all-1") == data_files(tmp_path / "all-2")


def test_another_metric_is_refused_by_name(tmp_path: Path) -> None:
    a, b = (
        fixed(tmp_path / "a", VECTORS[:300]),
        fixed(tmp_path / "b", VECTORS[300:600], **of_metric("cosine")),
    )
    before = data_files(a)
    with pytest.raises(InputError, match="metric cosine; expected l2"):
        indexmill.merge(a, b)
    assert data_files(a) == before


def test_a_vector_that_the_functions_cannot_hash_is_named(tmp_path: Path) -> None:
    far = VECTORS[300:400].copy()
    far[7] *= 1e16
    a = fixed(tmp_path / "a", VECTORS[:300])
    b = fixed(tmp_path / "b", far, first_radius=1e13)
    before = data_files(a)
    with pytest.raises(InputError, match="b: vector 7: the vector lies too far from zero"):
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
