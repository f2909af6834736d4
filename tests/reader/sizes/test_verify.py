"""`verify` of files beyond 2^32 bytes and 2^24 blocks."""

from __future__ import annotations

from pathlib import Path

from tests.support.damage import reseal
from tests.support.sizes.far import N_FAR, far_graph, far_tables
from tests.support.sizes.sparse import BYTES_32, PAGES_24, need_holes

from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.reader.native import verify


def test_a_graph_beyond_two_to_the_32_bytes_is_sound(tmp_path: Path) -> None:
    need_holes(tmp_path)
    index = far_graph(tmp_path / "index", 900, BYTES_32 // PAGE_BYTES)
    reseal(index.path)
    assert verify(str(index.path)) == []


def test_chains_beyond_two_to_the_24_blocks_are_followed(tmp_path: Path) -> None:
    """All that is wrong is what was left out: the entries of the vectors before, after all of the far ones."""
    need_holes(tmp_path)
    index = far_tables(tmp_path / "index", 128, PAGES_24 + 1, dim=4)
    reseal(index.path)
    (said,) = verify(str(index.path))
    assert f"radius 0, table 0: expected {index.n} entries, got {N_FAR}" in said
