"""Requests of index builds, and the objects that they name."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

#: A request as the k-NN plugin sends it, with few documents.
REQUEST: dict[str, Any] = {
    "repository_type": "s3",
    "container_name": "blobs",
    "vector_path": "base/path/uuid_field_seg.knnvec",
    "doc_id_path": "base/path/uuid_field_seg.knndid",
    "tenant_id": "cluster",
    "dimension": 16,
    "doc_count": 2000,
    "data_type": "float",
    "engine": "faiss",
    "index_parameters": {
        "space_type": "l2",
        "algorithm": "hnsw",
        "algorithm_parameters": {"ef_construction": 100, "ef_search": 100, "m": 8},
    },
}
OUT = "base/path/uuid_field_seg.faiss"
#: What a client sends of each type.
SENT = {"float": "<f4", "half_float": "<f4", "byte": "<i1"}


def request(**changes: Any) -> dict[str, Any]:
    return REQUEST | changes


def rows_of(wanted: dict[str, Any]) -> np.ndarray:
    """Vectors as sent for a request: whole numbers, which every type holds."""
    shape = (wanted["doc_count"], wanted["dimension"])
    values = np.random.default_rng(6).normal(0, 25, shape).round().clip(-128, 127)
    return values.astype(SENT[wanted["data_type"]])


def ids_of(wanted: dict[str, Any]) -> np.ndarray:
    return np.arange(wanted["doc_count"], dtype="<i4") * 2 + 1


def put_objects(folder: Path, wanted: dict[str, Any]) -> None:
    """Write what a request names below `folder`, which stands for its container."""
    for name, values in ((wanted["vector_path"], rows_of(wanted)), (wanted["doc_id_path"], ids_of(wanted))):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(values.tobytes())


def answer_to(client: Any, job_id: str, seconds: float = 240) -> dict[str, Any]:
    """The status of a job once it is done."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        status: dict[str, Any] = client.get(f"/_status/{job_id}").json()
        if status["task_status"] != "RUNNING_INDEX_BUILD":
            return status
        time.sleep(0.1)
    raise AssertionError(f"still running after {seconds} s: {status}")
