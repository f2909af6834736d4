"""Request and job file of a tuning, shared by the command line and Python."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexmill.formats.errors import ConfigError
from indexmill.formats.location import is_url, local_path
from indexmill.jobs.choices import one_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from indexmill.pipeline.mill.progress import Progress
    from indexmill.pipeline.spec import BuildSpec
    from indexmill.pipeline.tune.report import BuildReport
    from indexmill.pipeline.tune.request import TuneRequest
    from indexmill.pipeline.tune.tables.report import SearchesReport


@dataclass(frozen=True)
class Wanted:
    """What searches are to reach, as it was given; None where it was not.

    Attributes
    ----------
    recall, ratio : float, optional
    k : int
    max_reads : float, optional
    effort : str
    queries : array, shape (q, dim), optional
    work : path, optional
    """

    recall: float | None
    ratio: float | None
    k: int
    max_reads: float | None
    effort: str
    queries: NDArray[Any] | None
    work: str | os.PathLike[str] | None


def tune_request(spec: BuildSpec, wanted: Wanted) -> TuneRequest:
    """Check the request of a tuning of a job.

    Raises
    ------
    ConfigError
        Naming the option.
    """
    from indexmill.pipeline.tune.kinds import target_of, tuner_of
    from indexmill.pipeline.tune.request import TuneRequest

    if spec.parts is not None:
        raise ConfigError("parts: one index is tuned; leave parts out, and tune with the vectors of one part")
    asked, scratch = _checked(wanted)
    return TuneRequest(
        spec=spec,
        target=target_of(tuner_of(spec.parameters.kind), wanted.recall, wanted.ratio),
        k=wanted.k,
        max_reads=wanted.max_reads,
        effort=wanted.effort,
        queries=asked,
        work=scratch,
    )


def tune_index(
    index: str, wanted: Wanted, given: Mapping[str, Any], progress: Progress | None
) -> SearchesReport:
    """Tune the searches of the index at `index`.

    Parameters
    ----------
    given : mapping
        Options of a job: memory and workers alone have a meaning.

    Raises
    ------
    ConfigError
        Naming an option without one, or saying that searches of such an index have one number to choose.
    IndexmillError
        As `tune_searches`.
    """
    from indexmill.jobs.jobfile import resolve
    from indexmill.jobs.kinds.opening import kind_of
    from indexmill.pipeline.tune.kinds import TUNERS, target_of
    from indexmill.pipeline.tune.request import SearchesRequest

    path, (asked, scratch) = Path(local_path(index, "input")), _checked(wanted)
    for name in given:
        if name not in ("memory", "workers"):
            raise ConfigError(f"{name}: for a build, and the searches of an index are tuned; leave it out")
    kind = kind_of(path).NAME
    tuner = TUNERS.get(kind)
    if tuner is None or tuner.searches is None:
        raise ConfigError(
            f"{path}: an index of kind {kind}, whose searches have one number to choose; measure some with "
            "`indexmill score`"
        )
    target = target_of(tuner, wanted.recall, wanted.ratio)
    run = resolve(None, {"input": [str(path)], "out": f"{path}.tuned", **given}, {})
    request = SearchesRequest(
        path=path,
        target=target,
        k=wanted.k,
        max_reads=wanted.max_reads,
        effort=wanted.effort,
        queries=asked,
        memory=run.memory,
        workers=run.workers,
        work=scratch,
    )
    return tuner.searches(request, progress)


def is_index(inputs: Any) -> bool:
    """Return whether vectors are given as the directory of an index, which is to be searched and not read."""
    from indexmill.formats.index.names import MANIFEST_NAME

    return (
        isinstance(inputs, str | os.PathLike)
        and not is_url(inputs)
        and (Path(local_path(inputs, "input")) / MANIFEST_NAME).is_file()
    )


def _checked(wanted: Wanted) -> tuple[NDArray[Any] | None, str | os.PathLike[str] | None]:
    """Check what is wanted; return the queries, and where scratch files go."""
    from indexmill.pipeline.relayout.tuning import as_given
    from indexmill.pipeline.tune.effort import EFFORTS

    one_of(wanted.effort, tuple(EFFORTS), "effort")
    recall, ratio, max_reads = wanted.recall, wanted.ratio, wanted.max_reads
    if recall is not None and not 0 < recall < 1:
        raise ConfigError(f"target_recall: expected more than 0 and less than 1, got {recall}")
    if ratio is not None and not 1 < ratio < math.inf:
        raise ConfigError(f"target_ratio: expected more than 1, and finite, got {ratio}")
    if max_reads is not None and not 1 <= max_reads < math.inf:
        raise ConfigError(f"max_reads: a search reads at least one page, and finitely many, got {max_reads}")
    given = as_given(wanted.queries, None)
    scratch = None if wanted.work is None else local_path(wanted.work, "work")
    return None if given is None else given.vectors, scratch


def write_job(report: BuildReport[Any], path: Path) -> None:
    """Write the recommended job as TOML that `build` takes, without defaults."""
    from indexmill.formats.pagefile.atomic import atomic_write

    with atomic_write(path) as file:
        file.write(job_text(report).encode())


def job_text(report: BuildReport[Any]) -> str:
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
