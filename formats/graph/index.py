"""All parts of a graph index, opened."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from indexmill.formats.graph import codes, entries, navigation
from indexmill.formats.graph.file import GraphFile
from indexmill.formats.graph.navigation import NAVIGATION_NAME
from indexmill.formats.index import ids
from indexmill.formats.index.manifest import read_manifest
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
            self.navigation = None
            if any(entry.name == NAVIGATION_NAME for entry in self.manifest.files):
                path = self.path / NAVIGATION_NAME
                self.navigation = navigation.read_navigation(path, identity, n)
            self.vector_ids, self.user_ids = ids.read_ids(self.path / "ids.imx", identity)
            dim = self.graph.node_format.dim
            fields = (
                ("codes.imx", "n_vertices", len(self.codes), n),
                ("ids.imx", "n_vertices", len(self.vector_ids), n),
                ("codes.imx", "dim", self.codebook.pivots.shape[1], dim),
                ("entries.imx", "dim", self.entries.centroids.shape[1], dim),
            )
            check_agreement(self.path, "graph.imx", fields)
            self._stack = stack.pop_all()
