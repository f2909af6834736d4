from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from tests.oracles import golden

from indexmill.formats.index import IndexFiles, verify_index

V1_0 = Path(__file__).parent / "golden" / "v1_0"
BUILD_ID = "98715c6a8c39b58ac3bd1b71f6dbe44721d3f000ef0371f3db7777e0b33a5744"


def test_version_1_0_opens_and_says_what_was_written() -> None:
    assert verify_index(V1_0) == []
    with IndexFiles(V1_0) as index:
        assert index.manifest.build_id == BUILD_ID
        assert index.manifest.certificate == {"recall_at_10": 1.0}
        assert index.manifest.parameters["note"] == "golden, größer"
        graph = index.graph
        assert (graph.n_vertices, graph.node_format, graph.metric) == (golden.N, golden.NODE_FORMAT, "ip")
        assert graph.max_norm == golden.MAX_NORM
        scale = graph.scale()
        assert scale is not None
        assert np.array_equal(scale, golden.SCALE)
        nodes = graph.read_all()
        assert np.array_equal(nodes.vectors, golden.NODES.vectors)
        assert np.array_equal(nodes.degrees, golden.NODES.degrees)
        for slot, degree in enumerate(nodes.degrees):
            wanted = [*golden.NODES.neighbours[slot, :degree], *[0] * (golden.R - int(degree))]
            assert nodes.neighbours[slot].tolist() == wanted
        assert np.array_equal(index.codebook.pivots, golden.CODEBOOK.pivots)
        assert np.array_equal(index.codebook.offsets, golden.CODEBOOK.offsets)
        assert np.array_equal(index.codes, golden.CODES)
        assert index.entries.medoid == golden.ENTRIES.medoid
        assert np.array_equal(index.entries.centroids, golden.ENTRIES.centroids)
        assert np.array_equal(index.entries.vertices, golden.ENTRIES.vertices)
        assert np.array_equal(index.vector_ids, golden.VECTOR_IDS)
        assert index.user_ids == golden.USER_IDS


def test_today_the_same_contents_give_the_same_bytes_as_version_1_0(tmp_path: Path) -> None:
    golden.write_golden(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in V1_0.iterdir())
    for path in V1_0.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


def test_the_golden_manifest_states_version_1_0() -> None:
    assert json.loads((V1_0 / "manifest.json").read_text("utf-8"))["format"] == {
        "name": "indexmill",
        "major": 1,
        "minor": 0,
    }
