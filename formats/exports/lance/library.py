"""pylance, Lance's own library: its import, our centroids and codebook as its arguments, and one segment of an index.

A segment is the index of some fragments of a dataset. pylance writes segments without committing them, and merges them
later. It is given the list of every row, so it assigns nothing; codes it computes by the codebook that it is given.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.errors import ConfigError
from indexmill.formats.exports.target import cannot_hold
from indexmill.formats.graph.codes import MAX_CENTRES, Codebook
from indexmill.formats.ivf.centroids import Centroids

NAME = "lance"
#: Seed of the signs of a rotation.
_SIGNS_SEED = 0x519
#: Held while pylance is imported, because the environment is another one meanwhile.
_IMPORTING = threading.Lock()


def pylance() -> Any:
    """Return the module of pylance, imported without its warnings about lists that are empty in a file.

    Raises
    ------
    ConfigError
        If it is not installed.
    """
    with _IMPORTING:
        is_set = "LANCE_LOG" in os.environ
        os.environ.setdefault("LANCE_LOG", "error")  # read once, during the import
        try:
            return import_module("lance")
        except ImportError as error:
            raise ConfigError(
                f"to: {NAME}: the files are written by Lance's own library, which is missing ({error}); "
                "pip install 'indexmill[lance]'"
            ) from error
        finally:
            if not is_set:
                os.environ.pop("LANCE_LOG", None)  # the caller's environment stays unchanged


def check_codebook(shared: Centroids) -> None:
    """Refuse PQ codes of rotated vectors, and those whose chunks differ in size, which Lance does not have.

    Raises
    ------
    ConfigError
    """
    if shared.codebook is None:
        return
    if shared.codebook.rotation is not None:
        action = "build with --pq-rotation none, or export to faiss-ivf"
        raise cannot_hold(NAME, "PQ codes of", "rotated vectors", "those of vectors as they are", action)
    sizes = np.diff(shared.codebook.offsets)
    if len(np.unique(sizes)) > 1:
        action = f"build with --pq-bytes that divides {shared.dim}, or export to faiss-ivf"
        got = f"{sizes.min()} and {sizes.max()} components"
        raise cannot_hold(NAME, "chunks of", got, "chunks of one size", action)


def arguments_of(
    centroids: NDArray[np.float32], codebook: Codebook | None, metric: str, name: str
) -> dict[str, Any]:
    """Return the arguments of pylance that all segments of an index have in common.

    Parameters
    ----------
    centroids : float32 array, shape (n_lists, dim)
    codebook : Codebook or None
        Of residuals, with chunks of one size; None for lists of vectors.
    metric : {"L2", "cosine"}
    name : str
        Of the index.
    """
    arguments: dict[str, Any] = {
        "index_type": "IVF_FLAT",
        "name": name,
        "metric": metric,
        "num_partitions": len(centroids),
        "ivf_centroids": np.ascontiguousarray(centroids),
    }
    if codebook is not None:
        by_chunk = _by_chunk(codebook)
        arguments |= {"index_type": "IVF_PQ", "num_sub_vectors": len(by_chunk), "pq_codebook": by_chunk}
    return arguments


def rabitq_arguments(dim: int, bits: int) -> dict[str, Any]:
    """Return the arguments of RaBitQ codes, which pylance computes after a rotation of its own.

    It would draw the signs of the rotation. All segments need the same ones, also those of a run that resumes, so they
    are drawn here, in every run alike.
    """
    drawn = json.loads(import_module("lance.lance").indices.build_rq_model(dimension=dim, num_bits=bits))
    signs = np.random.default_rng(_SIGNS_SEED).integers(256, size=len(drawn["fast_rotation_signs"]))
    model = json.dumps({**drawn, "fast_rotation_signs": signs.tolist()})
    return {"index_type": "IVF_RQ", "num_bits": bits, "rabitq_model": model}


def _by_chunk(codebook: Codebook) -> NDArray[np.float32]:
    """Return the pivots in Lance's order, (chunk, centre, component); missing centres repeat the first one."""
    pivots = codebook.pivots
    whole = np.concatenate([pivots, np.repeat(pivots[:1], MAX_CENTRES - len(pivots), axis=0)])
    by_chunk = whole.reshape(MAX_CENTRES, len(codebook.offsets) - 1, -1).transpose(1, 0, 2)
    return np.ascontiguousarray(by_chunk)


def write_segment(
    dataset: Any,
    column: str,
    fragments: Sequence[int],
    assigned: tuple[NDArray[np.uint64], NDArray[np.uint32]],
    arguments: Mapping[str, Any],
    scratch: Path,
) -> Any:
    """Write the index of some fragments as one segment, and return pylance's description of it; nothing is committed.

    Memory: that of pylance, which sorts what it indexes: two to three times the vectors of the fragments.

    Parameters
    ----------
    dataset : lance.LanceDataset
    fragments : sequence of int
        Their numbers.
    assigned : (uint64 array, uint32 array), shape (m,)
        Row id and list of every row of the fragments.
    arguments : mapping
        Of `arguments_of`, and others of ``create_index_uncommitted``.
    scratch : Path
        Temporary dataset of the lists, which is deleted again.
    """
    row_ids, lists = assigned
    table = pa.table({"row_id": pa.array(row_ids), "partition": pa.array(lists)})
    pylance().write_dataset(table, str(scratch), max_rows_per_file=len(table))
    try:
        return dataset.create_index_uncommitted(
            column, fragment_ids=list(fragments), precomputed_partition_dataset=str(scratch), **arguments
        )
    finally:
        shutil.rmtree(scratch)
