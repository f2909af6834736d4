"""An index opened to be extended or laid out: every part is checked, and only the ids are held in memory."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import ValidationError

from indexmill.builders.vamana.graph import VamanaParameters
from indexmill.formats.errors import ConfigError, InputError
from indexmill.formats.graph.codes import CodesFile
from indexmill.formats.graph.entries import read_entries
from indexmill.formats.graph.file import GraphFile
from indexmill.formats.graph.index import vectors_fields
from indexmill.formats.graph.navigation import NAVIGATION_NAME, read_navigation
from indexmill.formats.graph.nodes import NodeBlock
from indexmill.formats.index.deleted import read_deleted
from indexmill.formats.index.ids import KIND as IDS_KIND
from indexmill.formats.index.ids import ids_of
from indexmill.formats.index.manifest import Manifest, check_digest_of, read_manifest
from indexmill.formats.index.names import MANIFEST_NAME, METADATA_NAME
from indexmill.formats.index.vectors import VECTORS_NAME, VectorsFile
from indexmill.formats.pagefile.frame import check_agreement, corrupt
from indexmill.formats.pagefile.reader import PageFile
from indexmill.layout.portfolio import ORDERS
from indexmill.pipeline.generations.built import BuiltVectors
from indexmill.pipeline.generations.node_space import NodeSpace
from indexmill.pipeline.kinds.common.parameters import KindParameters
from indexmill.pipeline.kinds.graph.parameters import Parameters
from indexmill.pipeline.mill.publish import bring_back

P = TypeVar("P", bound=KindParameters)


def check_there(path: Path) -> None:
    """Refuse a path without an index; one that a killed publish left aside is brought back.

    Raises
    ------
    InputError
    ConfigError
        As `bring_back`.
    """
    bring_back(path)
    if not (path / MANIFEST_NAME).is_file():
        raise InputError(
            f"{path}: no such index; expected a directory with a {MANIFEST_NAME}; check the path"
        )


def stated_parameters(model: type[P], path: Path, manifest: Manifest) -> P:
    """Return the parameters of the build that the manifest of the index at `path` states.

    Raises
    ------
    CorruptFile
        If no build has them.
    """
    stated = manifest.parameters
    known = {key: stated[key] for key in model.model_fields if key in stated}
    try:
        return model.model_validate(known | {"kind": manifest.kind})
    except ValidationError as error:
        raise corrupt(path / MANIFEST_NAME, "key 'parameters'", "the parameters of a build", error) from error


def id_type_of(user_ids: pa.Array | None) -> str:
    """Return ``"none"``, ``"int64"``, ``"uint64"``, ``"string"`` or ``"binary"``."""
    return "none" if user_ids is None else str(user_ids.type).removeprefix("large_")


def open_metadata(stack: ExitStack, path: Path, manifest: Manifest) -> pq.ParquetFile | None:
    """Open metadata.parquet, if there is one, and check that it is that of the manifest.

    Raises
    ------
    CorruptFile
        If it is not.
    """
    file = _open_metadata_file(stack, path, manifest)
    return None if file is None else stack.enter_context(pq.ParquetFile(file))


def _open_metadata_file(stack: ExitStack, path: Path, manifest: Manifest) -> pa.NativeFile | None:
    """Open the bytes of metadata.parquet as `open_metadata` does."""
    stated = next((entry for entry in manifest.files if entry.name == METADATA_NAME), None)
    if stated is None:
        return None
    file = stack.enter_context(pa.OSFile(str(path / METADATA_NAME)))
    check_digest_of(file, path / METADATA_NAME, stated)
    return file


def check_input(
    path: Path, manifest: Manifest, metadata: pq.ParquetFile | None, n: int, dim: int, counted_by: str
) -> None:
    """Check that a manifest and metadata tell of as many vectors and components as the file `counted_by` has.

    Raises
    ------
    CorruptFile
        If they do not.
    """
    rows = n if metadata is None else metadata.metadata.num_rows
    facts = (
        (METADATA_NAME, "rows", rows, n),
        (MANIFEST_NAME, "n_vectors of 'input'", manifest.input.get("n_vectors"), n),
        (MANIFEST_NAME, "dim of 'input'", manifest.input.get("dim"), dim),
    )
    check_agreement(path, counted_by, facts)


def labels_lost(*manifests: Manifest) -> dict[str, Any]:
    """Return what key ``graph`` says of a graph made of those of `manifests` if one had edges within labels.

    Of several columns that is the first.
    """
    for graph in (manifest.graph for manifest in manifests):
        column = graph.get("labels", {}).get("column", graph.get("labels_lost"))
        if column is not None:
            return {"labels_lost": column}
    return {}


def refuse_deletions(path: str | os.PathLike[str], manifest: Manifest, what: str) -> None:
    """Refuse to write the vectors of an index anew while some of them are deleted: they would come back.

    Parameters
    ----------
    what : str
        What was to be done.

    Raises
    ------
    ConfigError
    """
    if manifest.deleted is not None:
        raise ConfigError(
            f"{path}: {manifest.n_deleted:,} vectors were deleted, and {what} would bring them back; remove "
            "them for good with `indexmill compact`, or undo the deletion with `indexmill rollback`"
        )


class OpenedIndex:
    """The parts of one index; its files stay open, so the index may be replaced meanwhile.

    Attributes
    ----------
    path : Path
    name : Path
        What messages call it.
    manifest : Manifest
    parameters : Parameters
        Of the build.
    graph : GraphFile
    codes : CodesFile
    entries : EntryVertices
    navigation : Navigation or None
    vectors : VectorsFile or None
        Exact vectors in slot order, where the index has them besides nodes of codes.
    metadata : pyarrow ParquetFile or None
        Rows in vector-id order.
    space : NodeSpace
    id_type : str
        See `id_type_of`.
    ids_bytes : int
        Size of ids.imx.
    deleted : uint32 array, shape (m,)
        Slots of deleted vectors, ascending.

    Raises
    ------
    InputError
        If there is no index at `path`.
    FormatError
        If a part is damaged or the parts do not belong together.
    """

    def __init__(self, path: str | os.PathLike[str], name: Path | None = None) -> None:
        self.path = path = Path(path)
        self.name = path if name is None else name
        check_there(path)
        self.manifest = manifest = read_manifest(path)
        self.parameters = stated_parameters(Parameters, path, manifest)
        identity = manifest.page_file_build_id
        with ExitStack() as stack:
            self.graph = stack.enter_context(GraphFile(path / "graph.imx", identity))
            self.n = n = self.graph.n_vertices
            self.codes = stack.enter_context(CodesFile(path / "codes.imx", identity))
            self.entries = read_entries(path / "entries.imx", identity, n)
            names = {entry.name for entry in manifest.files}
            self.navigation = None
            if NAVIGATION_NAME in names:
                self.navigation = read_navigation(path / NAVIGATION_NAME, identity, n)
            self.vectors = None
            if VECTORS_NAME in names:
                self.vectors = stack.enter_context(VectorsFile(path / VECTORS_NAME, identity))
                check_agreement(path, "graph.imx", vectors_fields(self.vectors, self.graph))
            self._ids_file = stack.enter_context(PageFile(path / "ids.imx", IDS_KIND, identity))
            ids = ids_of(self._ids_file)
            self._ids: tuple[NDArray[np.uint32], pa.Array | None] | None = ids
            self.id_type = id_type_of(ids[1])
            self.ids_bytes = self._ids_file.header.file_bytes
            file = self._metadata_file = _open_metadata_file(stack, path, manifest)
            self.metadata = None if file is None else stack.enter_context(pq.ParquetFile(file))
            self._check_agreement()
            self.deleted = read_deleted(path, manifest, n)
            self.space = NodeSpace.of(self.graph)
            self._stack = stack.pop_all()

    def __enter__(self) -> OpenedIndex:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def compared(self, first: int, nodes: NodeBlock) -> NDArray[Any]:
        """Return the vectors of `nodes`, the first of which is in slot `first`, as rows that the graph kernels compare.

        They are the exact ones, if the index has them, else what the nodes hold.
        """
        if self.vectors is None:
            return self.space.compared(nodes.vectors)
        return self.vectors.read(first, len(nodes)).astype(np.float32, copy=False)

    def copy_metadata(self, path: Path) -> None:
        """Copy metadata.parquet, which the index has, to a new file."""
        assert self._metadata_file is not None
        self._metadata_file.seek(0)
        with open(path, "xb") as copy:
            shutil.copyfileobj(self._metadata_file, copy)

    @property
    def vector_ids(self) -> NDArray[np.uint32]:
        """Vector id of each slot, uint32 (n,)."""
        return self._held_ids()[0]

    @property
    def user_ids(self) -> pa.Array | None:
        """User id of each slot, or None."""
        return self._held_ids()[1]

    def release_ids(self) -> None:
        """Let go of the ids; they are read again when they are wanted."""
        self._ids = None

    def _held_ids(self) -> tuple[NDArray[np.uint32], pa.Array | None]:
        if self._ids is None:
            self._ids = ids_of(self._ids_file)
        return self._ids

    @property
    def dim(self) -> int:
        """Dimensions of the user's vectors; inner product stores one more."""
        return self.graph.node_format.dim - (self.graph.metric == "ip")

    @property
    def input_dtype(self) -> str:
        """Type of the vectors the index was built from."""
        return str(self.manifest.input.get("dtype"))

    @property
    def vamana(self) -> VamanaParameters:
        """Parameters for adding a vertex: one pass with the slack of the build, whose last pass met a whole graph."""
        p = self.parameters
        degree = self.graph.node_format.max_degree
        return VamanaParameters(degree, p.build_list_size, p.alpha, saturate=p.saturate)

    @property
    def inherited(self) -> dict[str, Any]:
        """What key ``graph`` of the manifest of a later generation says of the graph: that queries shaped it."""
        graph = self.manifest.graph
        return {"shaped_by_queries": True} if {"query_sample", "shaped_by_queries"} & graph.keys() else {}

    @property
    def handed_down(self) -> dict[str, Any]:
        """What key ``graph`` says of the graph after its lists changed: `inherited`, and which labels had edges."""
        return self.inherited | labels_lost(self.manifest)

    @property
    def order(self) -> str:
        """Name of the order that lays new vectors out: that of the layout, if it is one that can be made again."""
        name = self.manifest.layout.get("order")
        return name if name in ORDERS else self.parameters.order

    @property
    def of_build(self) -> BuiltVectors:
        """Vectors of the last full build."""
        return BuiltVectors.of(self.manifest.drift, self.n)

    @property
    def built(self) -> int:
        """How many vectors are of the last full build."""
        return self.of_build.n

    @property
    def laid_out(self) -> int:
        """Slots of the last full build or layout: those below never move, whatever was added since."""
        recorded = (self.manifest.drift or {}).get("laid_out_vectors")
        return recorded if isinstance(recorded, int) and 1 <= recorded <= self.n else self.built

    def _check_agreement(self) -> None:
        dim, chunks = self.graph.node_format.dim, len(self.codes.codebook.offsets) - 1
        metadata_rows = self.n if self.metadata is None else self.metadata.metadata.num_rows
        for name, what, got, expected in (
            ("codes.imx", "field 'n_vertices'", self.codes.n_vertices, self.n),
            ("codes.imx", "field 'dim'", self.codes.codebook.pivots.shape[1], dim),
            ("codes.imx", "field 'n_chunks'", chunks, self.graph.node_format.code_bytes or chunks),
            ("entries.imx", "field 'dim'", self.entries.centroids.shape[1], dim),
            ("ids.imx", "field 'n_vertices'", len(self.vector_ids), self.n),
            (METADATA_NAME, "rows", metadata_rows, self.n),
            (MANIFEST_NAME, "key 'input': n_vectors", self.manifest.input.get("n_vectors"), self.n),
            (MANIFEST_NAME, "key 'input': dim", self.manifest.input.get("dim"), self.dim),
        ):
            if got != expected:
                raise corrupt(self.path / name, what, f"{expected} as in graph.imx", got)
