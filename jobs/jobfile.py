"""Job files and flags become one `BuildSpec`: flags beat the job file, the job file beats defaults.

A job file is TOML. The input, the output and how to run stand at the top, what decides the bytes of the index
in the table ``[parameters]``::

    input = "vectors.parquet"          # or a list; relative to the job file
    out = "index"
    id_column = "word"
    memory = "4GiB"

    [parameters]
    metric = "cosine"
    R = 32
    order = "agglomerative"
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from indexmill.formats.errors import ConfigError
from indexmill.formats.location import has_scheme
from indexmill.jobs.choices import nearest
from indexmill.pipeline.kinds.registry import DEFAULT_KIND
from indexmill.pipeline.spec import KINDS, BuildSpec

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

#: Keys that only an update has.
_OF_UPDATES = ("base", "add", "delete")
#: Keys whose values are paths, resolved against the folder of the job file.
_PATHS = ("out", "work", "centroids", "query_sample")


def read_job(path: Path) -> dict[str, Any]:
    """Read a job file as it stands.

    Raises
    ------
    ConfigError
        If the file is missing or is no TOML.
    """
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such job file; write one or pass --input and --out") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a directory; a job is a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a TOML file: {error}; --input takes vectors") from None


def is_update(path: Path) -> bool:
    """Tell whether a job file is that of an update (`jobs.updatefile`).

    Raises
    ------
    ConfigError
        As `read_job`.
    """
    return not set(_OF_UPDATES).isdisjoint(read_job(path))


def load_job(path: Path) -> dict[str, Any]:
    """Read the job file of a build; relative paths in it become relative to its folder.

    Raises
    ------
    ConfigError
        If the file is missing, is no TOML or holds an unknown key.
    """
    job = read_job(path)
    table = job.get("parameters", {})
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: parameters: expected a table [parameters], got {table!r}")
    check_keys(job, table, str(path))
    return with_paths(job, path.parent, (*_PATHS, "input"))


def with_paths(job: Mapping[str, Any], folder: Path, keys: Iterable[str]) -> dict[str, Any]:
    """Return a job whose paths under `keys`, single ones or lists, are relative to `folder` no more."""

    def beside(value: Any) -> Any:
        if isinstance(value, list):
            return [beside(one) for one in value]
        return _beside(folder, value) if isinstance(value, str) else value

    return {**job, **{key: beside(job[key]) for key in keys if key in job}}


def resolve(job: Path | None, flags: Mapping[str, Any], parameter_flags: Mapping[str, Any]) -> BuildSpec:
    """Merge defaults, a job file and flags into a validated `BuildSpec`.

    Parameters
    ----------
    job : Path or None
        The job file, if there is one.
    flags, parameter_flags : mappings
        Values of the command line for `BuildSpec` and `Parameters`; None means not given.

    Raises
    ------
    ConfigError
        If a key is unknown or missing, or a value is outside its limits; the message names the key and
        where it was set.
    """
    loaded = load_job(job) if job is not None else {}
    given = {key: value for key, value in flags.items() if value is not None}
    given_parameters = {key: value for key, value in parameter_flags.items() if value is not None}
    said = loaded.pop("parameters", {})
    kind = given_parameters.get("kind", said.get("kind", DEFAULT_KIND))
    parameters = _field_names(said, str(job), kind)
    data = {**loaded, **given, "parameters": {**parameters, **given_parameters}}
    missing = [key for key in ("input", "out") if key not in data]
    if missing:
        where = f"{job}: " if job is not None else ""
        raise ConfigError(f"{where}{missing[0]}: missing; add it to a job file or pass --{missing[0]}")
    return make_spec(data, str(job) if job is not None else "", {*given, *given_parameters})


def make_spec(data: Mapping[str, Any], source: str = "", flags: Iterable[str] = ()) -> BuildSpec:
    """Validate `data` as a `BuildSpec`; `source` is the job file and `flags` the keys set by flags.

    Raises
    ------
    ConfigError
        One line for each thing that is wrong.
    """
    check_keys(data, data.get("parameters", {}), source)
    try:
        return BuildSpec.model_validate(data)
    except ValidationError as error:
        raise ConfigError(explained(error, source, frozenset(flags))) from None


def check_keys(job: Mapping[str, Any], parameters: Mapping[str, Any], source: str) -> None:
    """Refuse keys that no build knows.

    Raises
    ------
    ConfigError
        Naming `source`, the key and the nearest key that exists.
    """
    prefix = f"{source}: " if source else ""
    kind = parameters.get("kind", DEFAULT_KIND)
    if kind not in tuple(KINDS):
        raise ConfigError(f"{prefix}kind: expected {' or '.join(KINDS)}, got {kind!r}")
    top = list(BuildSpec.model_fields)
    inner = _names(kind)
    for key in job:
        if key not in top:
            if key in inner:
                raise ConfigError(f"{prefix}unknown key {key!r}; it belongs in the table [parameters]")
            raise ConfigError(f"{prefix}unknown key {key!r}; {nearest(key, [*top, *inner])}")
    for key in parameters:
        if key not in inner:
            if key in top:
                raise ConfigError(
                    f"{prefix}unknown key 'parameters.{key}'; move {key!r} to the top of the file"
                )
            others = [other for other in KINDS if key in _names(other)]
            if others:
                raise ConfigError(
                    f"{prefix}{key}: belongs to kind {' or '.join(others)}, and the kind is {kind}; leave it out"
                )
            raise ConfigError(f"{prefix}unknown key 'parameters.{key}'; {nearest(key, inner)}")


def aliases(kind: str) -> dict[str, str]:
    """Short parameter names of the papers and the fields they stand for: ``{"R": "max_degree", ...}``."""
    fields = KINDS[kind].model_fields if kind in KINDS else {}
    return {field.alias: name for name, field in fields.items() if field.alias is not None}


def _names(kind: str) -> list[str]:
    """All names of the parameters of a kind."""
    return [*KINDS[kind].model_fields, *aliases(kind)]


def _beside(folder: Path, path: str) -> str:
    """Resolve `path` against `folder`, unless it is absolute or a URL."""
    return path if has_scheme(path) else str(folder / path)


def _field_names(parameters: Mapping[str, Any], source: str, kind: str) -> dict[str, Any]:
    """Rename aliases to field names, so that a flag replaces either spelling."""
    short = aliases(kind)
    renamed: dict[str, Any] = {}
    for key, value in parameters.items():
        name = short.get(key, key)
        if name in renamed:
            raise ConfigError(f"{source}: parameters.{key}: also set under its other name; keep one of them")
        renamed[name] = value
    return renamed


def explained(error: ValidationError, source: str, flags: frozenset[str]) -> str:
    """Return a line for each thing that is wrong with a job: where it was set, what was expected and what was got."""
    return "\n".join(_explain_one(one, source, flags) for one in error.errors())


def _explain_one(one: ErrorDetails, source: str, flags: frozenset[str]) -> str:
    """Turn one of pydantic's errors into `where: key: what was expected, what was got`."""
    loc = [str(part) for part in one["loc"]]
    message = one["msg"].removeprefix("Value error, ")
    if not loc:  # a rule over several keys names its key itself
        return message
    inside = loc[0] == "parameters" and len(loc) > 1
    short = aliases(loc.pop(1)) if inside else {}
    if inside and len(loc) == 1:  # a rule over several parameters
        return message
    key = short.get(loc[1], loc[1]) if inside else loc[0]
    shorts = [f" ({letter})" for letter, name in short.items() if name == key]
    if key in flags:
        where = f"--{key.replace('_', '-')}"
    else:
        where = (f"{source}: " if source else "") + ("parameters." if inside else "") + key
    got = "" if repr(one["input"]) in message else f", got {one['input']!r}"
    return f"{where}{''.join(shorts)}: {message[0].lower()}{message[1:]}{got}"
