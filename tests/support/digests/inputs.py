"""Builds from every format of input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
from numpy.typing import NDArray
from tests.support.digests.site import Site
from tests.support.digests.vectors import DIM, colours, names, rows
from tests.support.digests.written import Cases


def inputs(site: Site) -> Cases:
    """Every format of input, in one file and in several."""
    float32, uint8, int8 = rows(600), rows(600, "uint8"), rows(600, "int8")
    column = pa.FixedSizeListArray.from_arrays(pa.array(float32.ravel()), DIM)
    table = colours(600).append_column("name", pa.array(names(600))).append_column("vector", column)

    def vecs(suffix: str, vectors: NDArray[Any]) -> Path:
        lengths = np.full((len(vectors), 1), vectors.shape[1], "<i4").view(np.uint8)
        body = np.ascontiguousarray(vectors).view(np.uint8).reshape(len(vectors), -1)
        site.new(f"base{suffix}").write_bytes(np.hstack([lengths, body]).tobytes())
        return site.new(f"base{suffix}")

    def bins(suffix: str, vectors: NDArray[Any]) -> Path:
        head = np.array(vectors.shape, "<u4").tobytes()
        site.new(f"base{suffix}").write_bytes(head + np.ascontiguousarray(vectors).tobytes())
        return site.new(f"base{suffix}")

    for first, last in ((0, 250), (250, 600)):
        pq.write_table(
            table.slice(first, last - first), site.new(f"part-{first}.parquet"), row_group_size=100
        )
    feather.write_feather(table, str(site.new("base.arrow")), compression="uncompressed")
    np.save(site.new("base.npy"), float32)
    np.save(site.new("wide.npy"), float32.astype(np.float64))
    with h5py.File(site.new("base.hdf5"), "w") as file:
        file["train"] = float32
    columns = {"id_column": "name", "metadata_columns": ["colour", "score"]}
    parts = [site.new("part-0.parquet"), site.new("part-250.parquet")]
    for name, source, how in (
        ("parquet", parts, columns),
        ("parquet-glob", str(site.new("part-*.parquet")), columns | {"column": "vector"}),
        ("arrow", site.new("base.arrow"), columns),
        ("table", table, columns),
        ("npy", site.new("base.npy"), {}),
        ("float64", site.new("wide.npy"), {}),
        ("hdf5", site.new("base.hdf5"), {"column": "train"}),
        ("fvecs", vecs(".fvecs", float32), {}),
        ("bvecs", vecs(".bvecs", uint8), {}),
        ("fbin", bins(".fbin", float32), {}),
        ("u8bin", bins(".u8bin", uint8), {}),
        ("i8bin", bins(".i8bin", int8), {"kind": "lsh"}),
    ):
        yield name, site.build(name, source, **how)
