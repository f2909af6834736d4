"""The options of a job, made of the models of `pipeline.spec`: names, types, defaults, choices and words are theirs."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

import typer

from indexmill.jobs.choices import split_names
from indexmill.jobs.kinds.registry import KINDS
from indexmill.jobs.options.declare import OUTPUT_PANEL, option

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from indexmill.pipeline.spec import BuildSpec

JobFile = Annotated[
    Path | None, typer.Argument(metavar="JOB", help="Job file (TOML). A flag overrides what the file says.")
]
#: Panels of help pages in their order, and the options that stand there whatever kinds have them. Any other stands with
#: its kind, or under "Index" if several kinds have it.
_PANELS: dict[str, Collection[str]] = {
    "Input": ("input", "column", "id_column", "metadata_columns"),
    "Index": ("kind",),
    **{panel: names for kind in KINDS.values() for panel, names in kind.PANELS.items()},
    "Resources": ("memory", "scratch", "workers", "executor", "ray_address", "work"),
    OUTPUT_PANEL: ("out", "parts", "force"),
}
_METAVARS = {
    "input": "FILE", "centroids": "FILE", "query_sample": "FILE", "out": "DIR|URL", "work": "DIR",
    "metadata_columns": "A,B", "ray_address": "HOST:PORT", "search_memory": "SIZE|N/vector",
}  # fmt: skip
#: Most characters of a metavar that lists the values of an option; longer lists stand in the text.
_WIDEST = 13


class JobOptions:
    """The options of a job as they were given; None where one was not.

    Attributes
    ----------
    NAMES : tuple of str
        Those that the command takes; empty: all.
    DEFAULTS : mapping
        Words for what the command does without an option, by its name, where that is not what a build does.
    """

    NAMES: ClassVar[tuple[str, ...]] = ()
    DEFAULTS: ClassVar[Mapping[str, str]] = {}

    def __init__(self, **given: Any) -> None:
        self.given = given

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """Return a parameter for each field of the models."""
        shorts: set[str] = set()
        found = {}
        for name, field, panel in _fields():
            short = field.alias if field.alias not in shorts and len(field.alias or "") == 1 else None
            shorts |= {short} if short else set()
            found[name] = _parameter(name, field, panel, short, cls.DEFAULTS.get(name))
        return [one for name, one in found.items() if not cls.NAMES or name in cls.NAMES]

    def spec(self, job: Path | None = None, **more: Any) -> BuildSpec:
        """Merge a job file, the options and `more` of them into the job.

        Raises
        ------
        ConfigError
            As `jobs.jobfile.resolve`.
        """
        from indexmill.jobs.jobfile import resolve
        from indexmill.pipeline.execution.allocator import hold_little
        from indexmill.pipeline.spec import BuildSpec

        hold_little()
        given = {**self.given, **more}
        given["metadata_columns"] = split_names(given.get("metadata_columns"))
        given["force"] = given.get("force") or None
        top = {name: given.pop(name) for name in BuildSpec.model_fields if name in given}
        return resolve(job, top, given)


def _fields() -> Iterator[tuple[str, FieldInfo, str]]:
    """Name, field and panel of each option, panel by panel; a parameter that several kinds have comes once."""
    from indexmill.pipeline.execution.allocator import hold_little

    hold_little()  # before anything imports numpy or Arrow
    from indexmill.pipeline import spec

    known: dict[str, FieldInfo] = {}
    owners: dict[str, list[str]] = {}
    for kind, model in spec.KINDS.items():
        for name, field in model.model_fields.items():
            known.setdefault(name, field)
            owners.setdefault(name, []).append(kind)
    known |= {name: field for name, field in spec.BuildSpec.model_fields.items() if name != "parameters"}
    fixed = {name: panel for panel, names in _PANELS.items() for name in names}
    places = {
        name: fixed.get(name)
        or ("Index" if len(owners[name]) > 1 else next(iter(KINDS[owners[name][0]].PANELS)))
        for name in known
    }
    for panel in _PANELS:
        yield from ((name, known[name], panel) for name in known if places[name] == panel)


def _parameter(
    name: str, field: FieldInfo, panel: str, short: str | None, default: str | None
) -> inspect.Parameter:
    """Make the parameter of a field: optional, since a job file may say it instead."""
    kind, is_size = _scalar(field.annotation, field.metadata)
    choices = [str(one) for one in get_args(kind)] if get_origin(kind) is Literal else []
    if name == "kind":
        choices = list(KINDS)
    kind = str if is_size else type(get_args(kind)[0]) if get_origin(kind) is Literal else kind
    words = [" ".join((field.description or "").split())]
    metavar = _METAVARS.get(name, "SIZE" if is_size else {int: "N", float: "X"}.get(kind, "NAME"))
    if choices and len("|".join(choices)) <= _WIDEST:
        metavar = "|".join(choices)
    elif choices:
        words = [f"{words[0].removesuffix('.')}: {', '.join(choices[:-1])} or {choices[-1]}."]
    is_told = "efault: " in words[0]
    if default is not None:
        words = [words[0].partition(" Default: ")[0], f"(default {default})"]
    elif not (is_told or field.is_required() or field.default in (None, []) or field.default is False):
        words.append(f"(default {_in_words(field.default, is_size)})")
    flags = [f"-{short}"] if short else []
    if kind is not bool or not field.default:
        flags.append(f"--{name.replace('_', '-')}")
    info = typer.Option(*flags, metavar=None if kind is bool else metavar, help=" ".join(words))
    if name == "force":
        return option(name, bool, False, info, panel)
    if name == "input":
        return option(name, list[str] | None, None, info, panel)
    return option(name, (str if get_origin(kind) is list else kind) | None, None, info, panel)


def _scalar(annotation: Any, metadata: Sequence[Any]) -> tuple[Any, bool]:
    """Type of a field without None and without what validates it, and whether it is a size in bytes."""
    from indexmill.pipeline.spec import parse_size

    is_size = any(getattr(one, "func", None) is parse_size for one in metadata)
    if get_origin(annotation) in (Union, UnionType):
        return _scalar(next(one for one in get_args(annotation) if one is not type(None)), metadata)
    if get_origin(annotation) is Annotated:
        return _scalar(get_args(annotation)[0], (*metadata, *annotation.__metadata__))
    return annotation, is_size


def _in_words(default: Any, is_size: bool) -> str:
    """A default as one would type it."""
    if isinstance(default, bool):
        return "yes"
    if is_size:
        return f"{default >> 30}GiB"
    return str(default)
