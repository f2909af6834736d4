"""Request and job file of a tuning, shared by the command line and Python."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexmill.formats.errors import ConfigError
from indexmill.formats.location import is_url, local_path
from indexmill.jobs.choices import one_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from indexmill.pipeline.spec import BuildSpec
    from indexmill.pipeline.tune.report import TuneReport, TuneRequest


def tune_request(
    spec: BuildSpec,
    target_recall: float,
    k: int,
    max_reads: float | None,
    effort: str,
    queries: NDArray[Any] | None,
    work: str | os.PathLike[str] | None,
) -> TuneRequest:
    """Check the request of a tuning.

    Raises
    ------
    ConfigError
        Naming the option.
    """
    from indexmill.pipeline.relayout.tuning import as_given
    from indexmill.pipeline.tune.report import TuneRequest
    from indexmill.pipeline.tune.run import EFFORTS

    one_of(effort, tuple(EFFORTS), "effort")
    if not 0 < target_recall < 1:
        raise ConfigError(f"target_recall: expected more than 0 and less than 1, got {target_recall}")
    if max_reads is not None and not 1 <= max_reads < math.inf:
        raise ConfigError(f"max_reads: a search reads at least one page, and finitely many, got {max_reads}")
    given = as_given(queries, None)
    asked = None if given is None else given.vectors
    scratch = None if work is None else local_path(work, "work")
    return TuneRequest(spec, target_recall, k, max_reads, effort, asked, scratch)


def write_job(report: TuneReport, path: Path) -> None:
    """Write the recommended job as TOML that `build` takes, without defaults."""
    from indexmill.formats.pagefile.atomic import atomic_write

    with atomic_write(path) as file:
        file.write(job_text(report).encode())


def job_text(report: TuneReport) -> str:
    """Return the recommended job as TOML; local paths are absolute, so that it may lie anywhere."""
    job = report.job
    assert job is not None
    assert report.parameters is not None
    top = job.model_dump(exclude_defaults=True, exclude={"parameters", "work", "force"})
    top["input"] = [_absolute(one) for one in job.input]
    top["out"] = _absolute(job.out)
    return "\n".join([*_lines(top), "", "[parameters]", *_lines(report.parameters)]) + "\n"


def _lines(values: dict[str, Any]) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in values.items()]


def _absolute(path: str) -> str:
    return path if is_url(path) else os.path.abspath(local_path(path, "input"))


def _toml(value: Any) -> str:
    """Numbers, booleans, strings and lists of them are the same in TOML and JSON, except for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
