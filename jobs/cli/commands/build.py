"""`indexmill build`: one index from a job file or from flags, or an update of a finished one by a job file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from indexmill.formats.location import is_url, shown_path
from indexmill.jobs.kinds.job import JobFile, JobOptions
from indexmill.jobs.options.declare import OUTPUT_PANEL
from indexmill.jobs.options.shared import Json, examples

if TYPE_CHECKING:
    from indexmill.pipeline.build import Fit
    from indexmill.pipeline.spec import BuildSpec

NAME = "build"
EXAMPLES = examples(
    "indexmill build job.toml --workers 4",
    "indexmill build nightly.toml  # base, add, delete: an update",
    "indexmill build --input words.parquet --id-column word --metric cosine --out words.index",
    "indexmill build --input base.u8bin --kind lsh --success 0.9 --out base.lsh",
    "indexmill build --input base.u8bin --kind lsh -c 2 -w 4 -m 15 --n-tables 25 -S 500 --out base.lsh",
    "indexmill build --input base.u8bin --out s3://bucket/base.index",
    "indexmill build --input base.u8bin --parts 4 --out base.set",
    "indexmill build --kind ivf --input base.u8bin --lists 4096 --out base.ivf",
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `build`."""

    PANEL: ClassVar = OUTPUT_PANEL
    job: JobFile = None
    given: JobOptions
    json_: Json = False


def command(options: Options) -> None:
    """Build an index, or update one: merge, delete, add and compact as a job file with `base` says.

    Run again, a killed or failed job resumes where it stopped.
    """
    from indexmill.jobs.jobfile import is_update

    if options.job is not None and is_update(options.job):
        _update(options.job, options)
    else:
        _build(options)


def _build(options: Options) -> None:
    from indexmill.jobs.cli.foresight import foresee
    from indexmill.jobs.cli.summary import show_result
    from indexmill.jobs.console.progress import build_progress
    from indexmill.pipeline.build import run_build
    from indexmill.pipeline.urls.output import read_run_at

    spec = options.given.spec(options.job)
    if spec.parts is not None:
        _build_set(spec, options.json_)
        return
    with build_progress() as progress:
        foresee(spec, progress)
        manifest = run_build(spec, progress=progress, fit=_fit(spec))
    run = read_run_at(spec.out, manifest["build_id"]) if is_url(spec.out) else None
    show_result(shown_path(spec.out), manifest, options.json_, run)


def _fit(spec: BuildSpec) -> Fit | None:
    """Return what fits a job to a running cluster; all others are spared the time to load it."""
    if spec.executor != "ray":
        return None
    from indexmill.pipeline.cut import cut_for_cluster

    return cut_for_cluster


def _build_set(spec: BuildSpec, json_: bool) -> None:
    from indexmill.jobs.cli.summary import show_set
    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.pipeline.sets.build import run_set_build

    with stderr_progress() as each_part:
        manifest = run_set_build(spec, progress=each_part)
    show_set(spec.out, manifest, json_)


def _update(job: Path, options: Options) -> None:
    from indexmill.jobs.cli.summary import show_update
    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.jobs.updatefile import given_to, update_spec
    from indexmill.pipeline.update.run import run_update

    spec = update_spec(job, options.given.given)
    given = given_to(spec)
    with stderr_progress() as progress:
        result = run_update(spec, given, progress)
    show_update(spec.out or spec.base[0], result, options.json_)
