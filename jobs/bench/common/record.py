"""A benchmark's record: one JSON file of what was measured, when, on which machine and from which commit."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common.parameters import ALPHA, BUILD_LIST_SIZE, MAX_DEGREE, PQ_BYTES, SEED
from indexmill.jobs.devices import machine

RECORDS = machine.REPOSITORY / "jobs" / "bench" / "records"
#: Counts up when parts change what they record; tables are written from records of this format alone.
FORMAT = 2
#: Key that marks a list of rows that is stored by columns.
_COLUMNS = "#columns"
#: Characters of a line within which a list or an object stays on one line.
_LINE = 160
#: Characters of an object within which it may be a row.
_ROW = 1000


def load(path: Path) -> dict[str, Any]:
    """Read a record; an empty one if there is none."""
    found: dict[str, Any] = json.loads(path.read_text(), object_hook=_rows) if path.exists() else {}
    return found


def read_json(path: Path) -> dict[str, Any]:
    """Read an object of a JSON file."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def save(record: dict[str, Any], path: Path) -> None:
    """Write a record, whole or not at all: rows with the same names by columns, each on a line of its own."""
    fresh = path.with_suffix(".new")
    fresh.write_text(_text(record, "") + "\n")
    fresh.replace(path)


def _text(value: Any, indent: str) -> str:
    """Return JSON; what fits a line, and a row, is one line."""
    line = json.dumps(value)
    if not isinstance(value, dict | list) or len(indent) + len(line) <= _LINE:
        return line
    deeper = indent + " "
    if isinstance(value, dict):
        items, ends = [f"{json.dumps(key)}: {_text(one, deeper)}" for key, one in value.items()], "{}"
    elif _is_table(value):
        names = f'{indent} "{_COLUMNS}": {json.dumps(list(value[0]))},\n{indent} "rows": '
        rows = f",\n{deeper} ".join(json.dumps(list(one.values())) for one in value)
        return f"{{\n{names}[\n{deeper} {rows}\n{deeper}]\n{indent}}}"
    elif not any(isinstance(one, dict | list) for one in value):
        return line
    else:
        items, ends = [_text(one, deeper) for one in value], "[]"
    return ends[0] + "\n" + ",\n".join(deeper + item for item in items) + f"\n{indent}{ends[1]}"


def _is_table(value: list[Any]) -> bool:
    """Whether a list is one of short objects with the same names."""
    if len(value) < 2 or not all(isinstance(one, dict) and one for one in value):
        return False
    return all(list(one) == list(value[0]) and len(json.dumps(one)) <= _ROW for one in value)


def _rows(value: dict[str, Any]) -> Any:
    if _COLUMNS not in value:
        return value
    return [dict(zip(value[_COLUMNS], row, strict=True)) for row in value["rows"]]


def begin(
    record: dict[str, Any],
    path: Path,
    name: str,
    data: list[dict[str, Any]],
    parameters: dict[str, Any],
    peers: tuple[str, ...] = (),
) -> None:
    """Write into `record`, which is kept in `path`, what all parts have in common.

    Parts that another machine has measured keep that machine's facts, as ``machine``.

    Parameters
    ----------
    data : list of dict
        Each with ``name``, ``n_vectors``, ``dim`` and ``dtype``.
    parameters : dict
        Those that not all benchmarks share.
    peers : tuple of str
        Packages that are measured beside indexmill: ``NAME==VERSION``, or the name of one that is installed here.

    Raises
    ------
    ValueError
        If the record is of other data or of an earlier format.
    """
    if record and record["data"] != data:
        raise ValueError(f"{path}: a record of {record['data']}, not of {data}; name another --out")
    if record.get("parts") and record.get("format") != FORMAT:
        raise ValueError(
            f"{path}: a record of an earlier format, which its tables cannot be written from; remove it"
        )
    here = machine.machine_facts()
    before = record.get("machine", here)
    if before != here:
        for part in record["parts"].values():
            part.setdefault("machine", before)
    shared = {"R": MAX_DEGREE, "L": BUILD_LIST_SIZE, "alpha": ALPHA, "pq_bytes": PQ_BYTES, "seed": SEED}
    record |= {
        "format": FORMAT,
        "benchmark": name,
        "data": data,
        "machine": here,
        "versions": {**machine.software_versions(), "peer": [_with_version(peer) for peer in peers]},
        "parameters": shared | parameters,
    }
    record.setdefault("parts", {})


def _with_version(package: str) -> str:
    """Return ``NAME==VERSION`` of a package that is installed here, and others as they are."""
    try:
        return f"{package}=={version(package)}"
    except PackageNotFoundError:
        return package


def start_part() -> dict[str, Any]:
    """Return when and from what a part is measured."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": machine.commit(),
        "load_before": machine.load_average(),
    }


def kept_as(record: dict[str, Any]) -> Path:
    """Return where the repository keeps a record: named by the day of its last part."""
    day = max(part["started"] for part in record["parts"].values())[:10]
    return RECORDS / f"{day}-{record['benchmark']}.json"
