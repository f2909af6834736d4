"""centroids.imx: the data shared by all batches of an IVF index: centroids and codec (docs/formats/ivf.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.errors import TooNew
from indexmill.formats.graph.codes import MAX_CENTRES, Codebook, offsets_fit, read_rotation
from indexmill.formats.ivf.rabitq import RabitQ, read_rabitq
from indexmill.formats.pagefile.field_codes import DTYPE_CODES, METRIC_CODES, PLAIN_DTYPES, name_of
from indexmill.formats.pagefile.frame import MAX_STORED_DIM, corrupt, f64_from_bits
from indexmill.formats.pagefile.reader import PageFile
from indexmill.formats.pagefile.writer import PageFileWriter

KIND = "CENT"
CENTROIDS_NAME = "centroids.imx"
Codec = Literal["flat", "sq8", "pq", "rabitq", "opq"]
#: Values of field ``codec``.
CODEC_CODES: dict[Codec, int] = {"flat": 0, "sq8": 1, "pq": 2, "rabitq": 3, "opq": 4}
#: Codecs of rows that are PQ codes; those of opq are of rotated vectors.
PRODUCT_CODECS: tuple[Codec, ...] = ("pq", "opq")
MAX_LISTS = 1 << 24
MAX_COPIES = 255
#: Most neighbours of a centroid in the graph of centroids.
MAX_DEGREE = 512
#: Most batches, by the decimal digits in the name of a batch file.
MAX_BATCHES = 10**6


@dataclass(frozen=True, eq=False)
class CellGraph:
    """A graph over the centroids, searched in memory for the centroids near a query.

    Attributes
    ----------
    neighbours : uint32 array, shape (n_lists, degree)
        Short lists are padded with the centroid's own number.
    entry : int
        Centroid where a search starts.
    """

    neighbours: NDArray[np.uint32]
    entry: int


@dataclass(frozen=True, eq=False)
class Centroids:
    """Data shared by all batches.

    Attributes
    ----------
    centroids : float32 array, shape (n_lists, dim)
        Finite; rotated, if there is a `rotation`.
    dtype : str
        Type of a vector's components before the codec, one of `PLAIN_DTYPES`.
    metric : {"l2", "ip", "cosine"}
    max_norm : float
        Largest Euclidean norm of an input vector for metric ip, else 0.
    n_vectors, n_batches : int
    codec : {"flat", "sq8", "pq", "rabitq", "opq"}
    scale : float32 array, shape (2, dim), or None
        Minimum and step of each component, for sq8.
    codebook : Codebook or None
        Codebook of residuals, the vectors minus their list's centroid, for pq; for opq with a rotation.
    copies : int
        Most lists of a vector.
    graph : CellGraph or None
        Graph over the centroids, if there are many.
    rabitq : RabitQ or None
        Rotation of vectors, and bits of a code, for rabitq.
    """

    centroids: NDArray[np.float32]
    dtype: str
    metric: str
    max_norm: float
    n_vectors: int
    n_batches: int
    codec: Codec
    scale: NDArray[np.float32] | None = None
    codebook: Codebook | None = None
    copies: int = 1
    graph: CellGraph | None = None
    rabitq: RabitQ | None = None

    @property
    def n_lists(self) -> int:
        """Number of lists."""
        return len(self.centroids)

    @property
    def dim(self) -> int:
        """Components of a stored vector: for inner product, one more than the user's vectors have."""
        return int(self.centroids.shape[1])

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, without its id."""
        if self.rabitq is not None:
            return self.rabitq.row_bytes
        if self.codebook is not None:
            return len(self.codebook.offsets) - 1
        return self.dim * (1 if self.codec == "sq8" else np.dtype(self.dtype).itemsize)

    @property
    def rotation(self) -> NDArray[np.float32] | None:
        """The orthogonal matrix R of rabitq and opq, float32 (dim, dim): centroids and rows are those of ``x @ R``."""
        if self.rabitq is not None:
            return self.rabitq.rotation
        return None if self.codebook is None else self.codebook.rotation

    @property
    def rotation_bytes(self) -> int:
        """Bytes of the rotation; 0 without one."""
        return 0 if self.rotation is None else self.rotation.nbytes

    def compared(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """Return vectors (m, dim) as they are compared with centroids and rows: rotated, if there is a rotation.

        No row depends on the others.
        """
        if self.rotation is None:
            return vectors
        from indexmill.formats.ivf.rotation import rotated_rows  # loads the compiler; a search needs none

        return rotated_rows(vectors, self.rotation)

    def restored(self, compared: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return rows of `compared`, or centroids, as vectors are: rotated back, if there is a rotation."""
        if self.rotation is None:
            return compared
        from indexmill.formats.ivf.rotation import rotated_rows

        return rotated_rows(compared, self.rotation.T)


def write_centroids(path: str | Path, made: Centroids) -> None:
    """Write centroids.imx.

    Raises
    ------
    ValueError
        If parameters of the codec are missing, or an array has the wrong shape.
    """
    has_part: dict[tuple[str, ...], bool] = {
        ("sq8",): made.scale is not None,
        PRODUCT_CODECS: made.codebook is not None,
        ("rabitq",): made.rabitq is not None,
        ("rabitq", "opq"): made.rotation is not None,
    }
    if any(is_there != (made.codec in codecs) for codecs, is_there in has_part.items()):
        raise ValueError(
            f"codec {made.codec}: sq8 has a scale, pq and opq a codebook, rabitq and opq a rotation, and no other one"
        )
    fields: dict[str, int | float] = {
        "n_lists": made.n_lists,
        "dim": made.dim,
        "dtype": DTYPE_CODES[made.dtype],
        "metric": METRIC_CODES[made.metric],
        "codec": CODEC_CODES[made.codec],
        "row_bytes": made.row_bytes,
        "n_vectors": made.n_vectors,
        "n_batches": made.n_batches,
        "max_norm": float(made.max_norm),
    }
    if made.codebook is not None:
        fields |= {"n_chunks": len(made.codebook.offsets) - 1, "n_centres": len(made.codebook.pivots)}
    if made.rabitq is not None:
        fields["bits"] = made.rabitq.bits
    if made.copies > 1:
        fields["copies"] = made.copies
    if made.graph is not None:
        fields |= {"degree": made.graph.neighbours.shape[1], "entry": made.graph.entry}
    with PageFileWriter(path, KIND, fields) as file:
        file.array("centroids", made.centroids, "<f4")
        if made.scale is not None:
            if made.scale.shape != (2, made.dim):
                raise ValueError(f"scale: shape (2, {made.dim}), not {made.scale.shape}")
            file.array("scale", made.scale, "<f4")
        if made.codebook is not None:
            file.array("offsets", made.codebook.offsets, "<u4")
            file.array("pivots", made.codebook.pivots, "<f4")
        if made.rotation is not None:
            if made.rotation.shape != (made.dim, made.dim):
                raise ValueError(f"rotation: shape ({made.dim}, {made.dim}), not {made.rotation.shape}")
            file.array("rotation", made.rotation.T, "<f4")
        if made.graph is not None:
            file.array("neighbours", made.graph.neighbours, "<u4")


def read_centroids(path: str | Path, build_id: bytes | None = None) -> Centroids:
    """Read all of centroids.imx, every page checked.

    Raises
    ------
    TooNew
        If the codec is one that this version does not know.
    FormatError
        If the file is not an intact centroids.imx.
    """
    with PageFile(path, KIND, build_id) as file:
        n_lists, dim = file.field("n_lists", 1, MAX_LISTS), file.field("dim", 1, MAX_STORED_DIM)
        dtype = name_of(DTYPE_CODES, file.field("dtype", 1, len(PLAIN_DTYPES)))
        codec = _read_codec(file)
        made = Centroids(
            centroids=file.array("centroids", "<f4", n_lists, dim, finite=True),
            dtype=dtype,
            metric=name_of(METRIC_CODES, file.field("metric", 1, len(METRIC_CODES))),
            max_norm=f64_from_bits(file.field("max_norm")),
            n_vectors=file.field("n_vectors", 1, 2**32 - 1),
            n_batches=file.field("n_batches", 1, MAX_BATCHES),
            codec=codec,
            scale=file.array("scale", "<f4", 2, dim, finite=True) if codec == "sq8" else None,
            codebook=_read_codebook(file, dim, codec) if codec in PRODUCT_CODECS else None,
            copies=file.field("copies", 1, MAX_COPIES) if "copies" in file.fields else 1,
            graph=_read_graph(file, n_lists) if "degree" in file.fields else None,
            rabitq=read_rabitq(file, dim) if codec == "rabitq" else None,
        )
        file.field("row_bytes", made.row_bytes, made.row_bytes)
    if not np.isfinite(made.max_norm) or made.max_norm < 0:
        raise corrupt(path, "field 'max_norm'", "a finite number of at least 0", made.max_norm)
    return made


def _read_codec(file: PageFile) -> Codec:
    code = file.field("codec")
    for name, known in CODEC_CODES.items():
        if code == known:
            return name
    names = ", ".join(CODEC_CODES)
    raise TooNew(f"{file.path}: codec {code}: expected one of {names}; install a newer indexmill to read it")


def _read_graph(file: PageFile, n_lists: int) -> CellGraph:
    degree, entry = file.field("degree", 1, MAX_DEGREE), file.field("entry", 0, n_lists - 1)
    neighbours = file.array("neighbours", "<u4", n_lists, degree)
    if int(neighbours.max()) >= n_lists:
        raise corrupt(file.path, "section 'neighbours'", f"lists below {n_lists}", int(neighbours.max()))
    return CellGraph(neighbours, entry)


def _read_codebook(file: PageFile, dim: int, codec: Codec) -> Codebook:
    n_chunks, n_centres = file.field("n_chunks", 1, dim), file.field("n_centres", 1, MAX_CENTRES)
    offsets = file.array("offsets", "<u4", n_chunks + 1)
    if not offsets_fit(offsets, dim):
        raise corrupt(
            file.path, "section 'offsets'", f"strictly increasing from 0 to {dim}", offsets.tolist()
        )
    pivots = file.array("pivots", "<f4", n_centres, dim, finite=True)
    return Codebook(pivots, offsets, read_rotation(file, dim) if codec == "opq" else None)
