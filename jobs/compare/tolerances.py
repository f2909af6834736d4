"""Tolerances of a gate: how much worse than the first index another one may be.

A tolerance file is TOML, a table for each figure that is judged::

    policy = "pipeline"        # optional; default: every policy measured

    [page_reads]
    at_recall = 0.95
    max_ratio = 1.02

    [qps]
    at_recall = 0.95
    min_ratio = 0.9

    [recall]
    list_size = 64             # optional; default: every list size of the sweep
    max_drop = 0.005
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from indexmill.formats.errors import ConfigError
from indexmill.jobs.choices import nearest
from indexmill.reader.choices import POLICIES

#: Example of each key that a table must have.
_EXAMPLES = {"max_ratio": "max_ratio = 1.02", "min_ratio": "min_ratio = 0.9", "max_drop": "max_drop = 0.005"}


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Ceiling(_Table):
    """A cost that may be at most ``max_ratio`` times that of the first index, at equal recall."""

    max_ratio: float = Field(gt=0)
    at_recall: float = Field(0.95, gt=0, lt=1)


class Least(_Table):
    """A figure that must be at least ``min_ratio`` times that of the first index, at equal recall."""

    min_ratio: float = Field(gt=0)
    at_recall: float = Field(0.95, gt=0, lt=1)


class RecallDrop(_Table):
    """Recall that may be lower by ``max_drop`` than the first index's, at equal list size."""

    max_drop: float = Field(ge=0, lt=1)
    list_size: int | None = Field(None, ge=1)


class Tolerances(_Table):
    """Tolerances of a gate; a figure without a table is not judged."""

    policy: str | None = None
    page_reads: Ceiling | None = None
    latency_mean: Ceiling | None = None
    latency_p99: Ceiling | None = None
    qps: Least | None = None
    recall: RecallDrop | None = None

    @model_validator(mode="after")
    def _judges_something(self) -> Tolerances:
        if not self.model_fields_set - {"policy"}:
            raise ValueError("judges nothing; add a table, such as [page_reads] with max_ratio = 1.02")
        if self.policy is not None and self.policy not in POLICIES:
            raise ValueError(f"policy: expected one of {', '.join(POLICIES)}, got {self.policy!r}")
        return self


def read_tolerances(path: Path) -> Tolerances:
    """Read a tolerance file.

    Raises
    ------
    ConfigError
        If the file is missing, is no TOML, or a key is unknown or out of range: one line for each.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"--gate: {path}: no such file; docs/guides/compare.md shows one") from None
    except IsADirectoryError:
        raise ConfigError(f"--gate: {path}: is a directory; tolerances are a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--gate: {path}: not a TOML file: {error}") from None
    try:
        return Tolerances.model_validate(data)
    except ValidationError as error:
        lines = [_explain(path, one) for one in error.errors()]
        raise ConfigError("\n".join(lines)) from None


def _explain(path: Path, one: Any) -> str:
    """Turn one of pydantic's errors into `where: key: what was expected, what was got`."""
    loc = [str(part) for part in one["loc"]]
    message = one["msg"].removeprefix("Value error, ")
    where = f"--gate: {path}: {'.'.join(loc)}" if loc else f"--gate: {path}"
    if one["type"] == "extra_forbidden":
        inner: dict[str, type[_Table]] = {"recall": RecallDrop, "qps": Least}
        model = Tolerances if len(loc) == 1 else inner.get(loc[0], Ceiling)
        return f"{where}: unknown key; {nearest(loc[-1], model.model_fields)}"
    if one["type"] == "missing":
        return f"{where}: missing; say how much worse is still good, such as {_EXAMPLES[loc[-1]]}"
    got = "" if not loc else f", got {one['input']!r}"
    return f"{where}: {message[0].lower()}{message[1:]}{got}"
