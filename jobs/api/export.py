"""Options of an export, shared by `indexmill export` and `indexmill.export`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from indexmill.formats.errors import ConfigError
from indexmill.formats.location import is_url, local_path, path_or_url, work_folder

if TYPE_CHECKING:
    from indexmill.pipeline.export.lance.run import DatasetOptions
    from indexmill.pipeline.export.run import ExportOptions


def export_options(
    to: str,
    out: str | os.PathLike[str],
    ids: str,
    force: bool,
    memory: int | str | None = None,
    workers: int = 2,
    work: str | os.PathLike[str] | None = None,
) -> ExportOptions:
    """Check the options of an export; `memory` in bytes or as ``"4GiB"``.

    Raises
    ------
    ConfigError
        Naming the option and the nearest word it takes.
    """
    _prepare()
    from indexmill.formats.exports.targets import TARGETS
    from indexmill.jobs.choices import one_of, size_of
    from indexmill.pipeline.export.run import DEFAULT_MEMORY, ExportOptions

    return ExportOptions(
        to=one_of(to, tuple(TARGETS), "to"),
        out=local_path(out, "out"),
        ids=one_of(ids, ("user", "slot"), "ids"),
        force=force,
        memory=DEFAULT_MEMORY if memory is None else size_of(memory, "memory"),
        workers=workers,
        work=None if work is None else local_path(work, "work"),
    )


def dataset_options(
    to: str,
    out: str | os.PathLike[str] | None,
    ids: str,
    dataset: str | os.PathLike[str],
    *,
    column: str | None = None,
    force: bool = False,
    executor: str = "local",
    ray_address: str | None = None,
    workers: int = 2,
    work: str | os.PathLike[str] | None = None,
    memory: int | str | None = None,
) -> DatasetOptions:
    """Check the options of an index of an existing dataset.

    Raises
    ------
    ConfigError
        Naming the option.
    """
    _prepare()
    from indexmill.formats.exports.lance.library import NAME
    from indexmill.formats.exports.targets import TARGETS
    from indexmill.jobs.api.joining import EXECUTORS
    from indexmill.jobs.choices import one_of
    from indexmill.pipeline.export.lance.run import DatasetOptions

    if one_of(to, tuple(TARGETS), "to") != NAME:
        raise ConfigError(f"to: {to} cannot index a dataset; expected {NAME}, or no --dataset")
    if out is not None:
        raise ConfigError(
            "out: is not written with --dataset, which gets the index itself; leave one of them out"
        )
    if memory is not None:
        raise ConfigError("memory: bounds a compaction, and an index of a dataset needs none; leave it out")
    if ids != "user":
        raise ConfigError("ids: an existing dataset keeps its columns; leave out --ids, or --dataset")
    place = path_or_url(dataset, "dataset")
    return DatasetOptions(
        dataset=place if is_url(place) else os.path.abspath(place),
        column=column,
        executor=one_of(executor, EXECUTORS, "executor"),
        ray_address=ray_address,
        workers=workers,
        work=None if work is None else work_folder(work),
        force=force,
    )


def _prepare() -> None:
    from indexmill.pipeline.execution.allocator import hold_little

    hold_little()  # before anything imports numpy or Arrow


def target_list() -> list[dict[str, Any]]:
    """Return what every target keeps and what its engine rebuilds."""
    from indexmill.formats.exports.targets import TARGETS

    return [target.to_dict() for target in TARGETS.values()]
