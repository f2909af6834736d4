"""All parts of a graph index, opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from indexmill.formats.graph import codes, entries, navigation
from indexmill.formats.graph.file import GraphFile
from indexmill.formats.graph.navigation import NAVIGATION_NAME
from indexmill.formats.index import ids
from indexmill.formats.index.manifest import read_manifest
from indexmill.formats.index.vectors import VECTORS_NAME, VectorsFile
from indexmill.formats.pagefile.closing import Closing
from indexmill.formats.pagefile.frame import check_agreement


class IndexFiles(Closing):
    """All parts of one graph index, opened; every page file has the manifest's build id.

    Codes, entry vertices, navigation graph and ids are read completely; nodes are read through `graph`.

    Attributes
    ----------
    manifest : Manifest
    graph : GraphFile
    codebook : Codebook
    codes : uint8 array, shape (n_vertices, M)
    entries : EntryVertices
    navigation : Navigation or None
        None if the manifest names no navigation.imx.
    vectors : VectorsFile or None
        Exact vectors by slot; None if the manifest names no vectors.imx.
    vector_ids : uint32 array, shape (n_vertices,)
        Vector id of each slot.
    user_ids : pyarrow Array or None
        User id of each slot; None if user ids are the vector ids.

    Raises
    ------
    FormatError
        If a part is damaged or the parts do not belong together.
    """

    def __init__(self, directory: str | Path) -> None:
        self.path = Path(directory)
        self.manifest = read_manifest(directory)
        identity = self.manifest.page_file_build_id
        with ExitStack() as stack:
            self.graph = stack.enter_context(GraphFile(self.path / "graph.imx", identity))
            n = self.graph.n_vertices
            self.codebook, self.codes = codes.read_codes(self.path / "codes.imx", identity)
            self.entries = entries.read_entries(self.path / "entries.imx", identity, n)
            names = {entry.name for entry in self.manifest.files}
            self.navigation = None
            if NAVIGATION_NAME in names:
                path = self.path / NAVIGATION_NAME
                self.navigation = navigation.read_navigation(path, identity, n)
            self.vectors = None
            if VECTORS_NAME in names:
                self.vectors = stack.enter_context(VectorsFile(self.path / VECTORS_NAME, identity))
            self.vector_ids, self.user_ids = ids.read_ids(self.path / "ids.imx", identity)
            dim = self.graph.node_format.dim
            fields = [
                ("codes.imx", "n_vertices", len(self.codes), n),
                ("ids.imx", "n_vertices", len(self.vector_ids), n),
                ("codes.imx", "dim", self.codebook.pivots.shape[1], dim),
                ("entries.imx", "dim", self.entries.centroids.shape[1], dim),
            ]
            if code_bytes := self.graph.node_format.code_bytes:
                fields.append(("codes.imx", "n_chunks", self.codes.shape[1], code_bytes))
            kept = () if self.vectors is None else vectors_fields(self.vectors, self.graph)
            check_agreement(self.path, "graph.imx", (*fields, *kept))
            self._stack = stack.pop_all()


def vectors_fields(vectors: VectorsFile, graph: GraphFile) -> Iterator[tuple[str, str, object, object]]:
    """Yield what vectors.imx must have in common with graph.imx: file, field, value found, value expected."""
    row = vectors.row_format
    dtype = row.dtype if row.dtype in ("float32", "float16") else "float32"
    for field, got, expected in (
        ("n_vectors", vectors.n_vectors, graph.n_vertices),
        ("dim", row.dim, graph.node_format.dim),
        ("metric", vectors.metric, graph.metric),
        ("dtype", row.dtype, dtype),
    ):
        yield VECTORS_NAME, field, got, expected
