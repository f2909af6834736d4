"""What a build says of itself: the manifest, which equal builds share, and run.json, which they do not."""

from __future__ import annotations

import json
import platform
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from indexmill.formats.index.manifest import FileEntry, Manifest
from indexmill.pipeline.kinds.common.compute import gpu_facts
from indexmill.pipeline.kinds.common.ingest import InputSummary
from indexmill.pipeline.kinds.graph.emit import RECORD
from indexmill.pipeline.mill.store import software_versions
from indexmill.pipeline.spec import AnyParameters, BuildSpec


def emitted_manifest(p: AnyParameters, summary: InputSummary, emitted: Path) -> Manifest:
    """Return the manifest of the files in directory `emitted`, without a certificate."""
    made = json.loads((emitted / RECORD).read_text())
    return Manifest(
        kind=p.kind,
        build_id=made["build_id"],
        parameters=p.model_dump(),
        input={
            "n_vectors": summary.n_vectors,
            "dim": summary.dim,
            "dtype": summary.dtype,
            "fingerprint": summary.fingerprint,
        },
        software=software_versions() | gpu_facts(p)[1],
        certificate=None,
        files=tuple(FileEntry(**file) for file in made["files"]),
        **{key: made[key] for key in ("layout", "graph", "lsh", "ivf") if key in made},
    )


def run_record(
    spec: BuildSpec, started: str, seconds: Mapping[str, float], peak_memory: int, peak_scratch: int
) -> dict[str, Any]:
    """Return run.json: how this build ran.

    Parameters
    ----------
    started : str
        ISO 8601, UTC.
    seconds : mapping
        Of each stage.
    peak_memory, peak_scratch : int
        Bytes: anonymous memory of all processes, and files in the work directory.
    """
    gpu, _ = gpu_facts(spec.parameters)
    return {
        "started": started,
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "workers": spec.workers,
        "executor": spec.executor,
        "host": {
            "name": socket.gethostname(),
            "machine": platform.machine(),
            "system": platform.system(),
            **({} if gpu is None else {"gpu": gpu}),
        },
        "memory_budget_bytes": spec.memory,
        "peak_memory_bytes": peak_memory,
        "peak_scratch_bytes": peak_scratch,
    }
