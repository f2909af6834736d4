"""functions.imx: hash functions, radii and search parameters of an LSH index (docs/formats/lsh.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexmill.formats.lsh.shape import MOST_FUNCTIONS, MOST_RADII, MOST_TABLES, LshShape
from indexmill.formats.pagefile.frame import MAX_STORED_DIM, corrupt, f64_from_bits
from indexmill.formats.pagefile.reader import PageFile
from indexmill.formats.pagefile.writer import PageFileWriter

KIND = "LSHF"


@dataclass(frozen=True, eq=False)
class HashFunctions:
    """Compound hashes h_j(o) = floor((a_j . o / R + b_j) / w) of every table and radius.

    Attributes
    ----------
    projections : float32 array, shape (n_tables, n_functions, dim)
        a, shared by all radii.
    offsets : float32 array, shape (n_radii, n_tables, n_functions)
        b, in [0, w].
    multipliers : uint64 array, shape (n_tables, n_functions)
        Odd; the upper 32 bits of the sum of their products with the h_j, modulo 2^64, are the hash v.
    radii : float64 array, shape (n_radii,)
        R, ascending.
    width : float
        w.
    """

    projections: NDArray[np.float32]
    offsets: NDArray[np.float32]
    multipliers: NDArray[np.uint64]
    radii: NDArray[np.float64]
    width: float

    @property
    def dim(self) -> int:
        """Components of a stored vector."""
        return int(self.projections.shape[2])

    @property
    def n_functions(self) -> int:
        """Number of functions m of a compound hash."""
        return int(self.projections.shape[1])

    def check(self) -> None:
        """Raise `ValueError` if shapes, types or values are invalid."""
        tables, functions, dim = self.projections.shape
        shapes = {
            "projections": ((tables, functions, dim), np.float32),
            "offsets": ((len(self.radii), tables, functions), np.float32),
            "multipliers": ((tables, functions), np.uint64),
            "radii": ((len(self.radii),), np.float64),
        }
        for name, (shape, dtype) in shapes.items():
            array = getattr(self, name)
            if array.shape != shape or array.dtype != dtype:
                raise ValueError(f"{name}: {np.dtype(dtype)} {shape}, not {array.dtype} {array.shape}")
            if dtype != np.uint64 and not np.isfinite(array).all():
                raise ValueError(f"{name}: a value is not finite")
        if not (np.isfinite(self.width) and self.width > 0):
            raise ValueError(f"width: above 0, not {self.width}")
        if not (self.radii[0] > 0 and (np.diff(self.radii) > 0).all()):
            raise ValueError("radii: not ascending from above 0")
        if not ((self.offsets >= 0) & (self.offsets <= np.float32(self.width))).all():
            raise ValueError(f"offsets: one is not in 0..{self.width}")
        if not (self.multipliers & np.uint64(1)).all():
            raise ValueError("multipliers: one is even")


@dataclass(frozen=True)
class SearchDefaults:
    """Default parameters of a search: c, S candidates for each radius, T further buckets of each table."""

    ratio: float
    candidates: int
    probes: int


def write_functions(
    path: str | Path, shape: LshShape, functions: HashFunctions, defaults: SearchDefaults
) -> None:
    """Write functions.imx.

    Raises
    ------
    ValueError
        If the functions are invalid or disagree with the shape.
    """
    functions.check()
    tables, m, dim = functions.projections.shape
    if (tables, len(functions.radii)) != (shape.n_tables, shape.n_radii):
        raise ValueError(
            f"functions: {shape.n_tables} tables of {shape.n_radii} radii, not {tables} of {len(functions.radii)}"
        )
    fields: dict[str, int | float] = {
        "n_vectors": shape.n_vectors,
        "dim": dim,
        "n_functions": m,
        "n_tables": tables,
        "n_radii": shape.n_radii,
        "candidates": defaults.candidates,
        "probes": defaults.probes,
        "ratio": float(defaults.ratio),
        "width": float(functions.width),
        "hash_bits": shape.hash_bits,
        "id_bits": shape.id_bits,
        "fingerprint_bits": shape.fingerprint_bits,
        "block_bytes": shape.block_bytes,
    }
    with PageFileWriter(path, KIND, fields) as file:
        for name in ("projections", "offsets", "multipliers", "radii"):
            array = getattr(functions, name)
            file.array(name, array, array.dtype.newbyteorder("<"))


def read_functions(
    path: str | Path, build_id: bytes | None = None
) -> tuple[LshShape, HashFunctions, SearchDefaults]:
    """Read all of functions.imx, every page checked.

    Raises
    ------
    FormatError
        If the file is not an intact functions.imx.
    """
    with PageFile(path, KIND, build_id) as file:
        dim, m = file.field("dim", 1, MAX_STORED_DIM), file.field("n_functions", 1, MOST_FUNCTIONS)
        tables = file.field("n_tables", 1, MOST_TABLES)
        radii = file.field("n_radii", 1, MOST_RADII)
        n = file.field("n_vectors", 1, 2**32 - 1)
        defaults = SearchDefaults(
            f64_from_bits(file.field("ratio")),
            file.field("candidates", 1),
            file.field("probes", 0, 2**16 - 1),
        )
        if not (np.isfinite(defaults.ratio) and defaults.ratio > 1):
            raise corrupt(path, "field 'ratio'", "above 1", defaults.ratio)
        try:
            shape = LshShape(n, tables, radii, file.field("hash_bits"), file.field("block_bytes"))
            functions = HashFunctions(
                projections=file.array("projections", "<f4", tables, m, dim),
                offsets=file.array("offsets", "<f4", radii, tables, m),
                multipliers=file.array("multipliers", "<u8", tables, m),
                radii=file.array("radii", "<f8", radii),
                width=f64_from_bits(file.field("width")),
            )
            functions.check()
        except ValueError as error:
            raise corrupt(path, "hash functions", "what a build writes", error) from error
        shape.check_fields(file, "id_bits", "fingerprint_bits")
    return shape, functions, defaults
