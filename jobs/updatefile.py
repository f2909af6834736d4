"""Job files of updates: what happens to a finished index every night, in one job.

Such a file is TOML without tables, and names the index as ``base``::

    base = "products.index"            # or a list, which is merged; relative to the job file
    add = "today.parquet"              # or a list
    id_column = "sku"
    replace = true
    delete = "gone.parquet"
    compact = "auto"
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from indexmill.formats.errors import ConfigError, InputError
from indexmill.jobs.choices import nearest
from indexmill.jobs.jobfile import explained, read_job, with_paths
from indexmill.pipeline.update.spec import UpdateSpec

if TYPE_CHECKING:
    from indexmill.pipeline.update.given import Given

#: Keys whose values are paths, resolved against the folder of the job file.
_PATHS = ("base", "add", "delete", "out", "work")


def update_spec(path: Path, given: Mapping[str, Any]) -> UpdateSpec:
    """Return the update of a job file; options that were `given` override it, None means not given.

    Raises
    ------
    ConfigError
        If a key or an option is unknown or missing, or a value is outside its limits.
    """
    flags = {key: value for key, value in given.items() if value not in (None, False, [])}
    known = list(UpdateSpec.model_fields)
    for key in flags:
        if key not in known:
            raise ConfigError(
                f"--{key.replace('_', '-')}: goes with a build, and {path} is an update; leave it out"
            )
    job = read_job(path)
    for key in job:
        if key not in known:
            raise ConfigError(f"{path}: unknown key {key!r}; {nearest(key, known)}")
    if "base" not in job:
        raise ConfigError(f"{path}: base: missing; name the index that is changed")
    try:
        return UpdateSpec.model_validate({**with_paths(job, path.parent, _PATHS), **flags})
    except ValidationError as error:
        raise ConfigError(explained(error, str(path), frozenset(flags))) from None


def given_to(spec: UpdateSpec) -> Given:
    """Open what a job adds and deletes.

    Raises
    ------
    InputError
        If a file is missing or unreadable.
    """
    from indexmill.jobs.api.append import open_files
    from indexmill.jobs.api.deleting import ids_to_delete
    from indexmill.pipeline.update.given import Given

    ids = None
    if spec.delete is not None:
        if not Path(spec.delete).is_file():
            raise InputError(f"delete: {spec.delete}: no such file; name a file of ids")
        ids = ids_to_delete(spec.delete, spec.delete_column)
    if not spec.add:
        return Given(None, ids)
    open_files(spec.add, spec.column, spec.id_column, [])
    return Given(lambda names: open_files(spec.add, spec.column, spec.id_column, names), ids)
