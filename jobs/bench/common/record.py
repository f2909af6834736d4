"""A benchmark's record: one JSON file of what was measured, when, on which machine and from which commit."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common import machine
from indexmill.jobs.bench.programs.workspace import ALPHA, BUILD_LIST_SIZE, MAX_DEGREE, PQ_BYTES, SEED

RECORDS = machine.REPOSITORY / "jobs" / "bench" / "records"
#: Counts up when parts change what they record; tables are written from records of this format alone.
FORMAT = 2


def load(path: Path) -> dict[str, Any]:
    """Read a record; an empty one if there is none."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def begin(
    record: dict[str, Any], path: Path, name: str, data: Any, parameters: dict[str, Any], peer: list[str]
) -> None:
    """Write into `record`, which is kept in `path`, what all parts have in common.

    Parameters
    ----------
    data : dict or list of dict
        Each with ``name``, ``n_vectors``, ``dim`` and ``dtype``.
    parameters : dict
        Those that not all benchmarks share.
    peer : list of str
        Packages that are measured beside indexmill.

    Raises
    ------
    ValueError
        If the record is of other data or of an earlier format.
    """
    if record and record["data"] != data:
        raise ValueError(
            f"the record in {path.parent} is of {record['data']}, not of {data}; name another --out"
        )
    if record.get("parts") and record.get("format") != FORMAT:
        raise ValueError(
            f"{path}: a record of an earlier format, which its tables cannot be written from; remove it"
        )
    record["format"] = FORMAT
    record["benchmark"] = name
    record["data"] = data
    record["machine"] = machine.machine_facts()
    record["versions"] = {**machine.software_versions(), "peer": peer}
    record["parameters"] = {
        "R": MAX_DEGREE,
        "L": BUILD_LIST_SIZE,
        "alpha": ALPHA,
        "pq_bytes": PQ_BYTES,
        "seed": SEED,
        **parameters,
    }
    record.setdefault("parts", {})


def start_part() -> dict[str, Any]:
    """Return when and from what a part is measured."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": machine.commit(),
        "load_before": machine.load_average(),
    }


def save(record: dict[str, Any], path: Path) -> None:
    """Write a record, whole or not at all."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(record, indent=1) + "\n")
    fresh.replace(path)


def keep(path: Path) -> Path:
    """Copy a record to where the repository keeps them, named by the day of its last part."""
    record = load(path)
    day = max(part["started"] for part in record["parts"].values())[:10]
    RECORDS.mkdir(exist_ok=True)
    kept = RECORDS / f"{day}-{record['benchmark']}.json"
    shutil.copyfile(path, kept)
    return kept
