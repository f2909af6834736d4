"""Commands declare their options as a model; this makes typer's parameters of it, and an object of what was given.

`commands` makes typer's commands of models. This module does not import typer, which opening an index does not need.

A model is a dataclass whose fields are options, ``Annotated[TYPE, Option(...)]`` with the default at the field. In
modules that opening an index imports, `Option` is that of `kept`, which stands for typer's::

    @dataclass(frozen=True, kw_only=True)
    class Options:
        index: IndexDir
        k: K = 10
        resources: Resources

A field whose type is itself a model stands for all options of that one: the command line is flat, the object is not.
`PANEL` of a model names the group that help pages show its options in. A class that is no dataclass can make its
parameters of something else, such as the pydantic models of jobs: see `Model`.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from indexmill.formats.location import local_path
from indexmill.jobs.options.kept import Kept

T = TypeVar("T")
#: Name, function and examples of each command of a group.
Commands: TypeAlias = tuple[tuple[str, Callable[[Any], None], str], ...]
#: Metavar of an option by its type, where it has none of its own.
_METAVARS: Mapping[Any, str] = {int: "N", float: "X", str: "NAME"}
#: Panel of the options of a command's output; ``--help`` stands there too, where there are panels.
OUTPUT_PANEL = "Output"


class Model(Protocol):
    """A model that is no dataclass: a class that is made by keyword from the options it declares."""

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """Return a parameter for each option, annotated as typer wants it."""


class Verb(Protocol):
    """A module that holds a command: a function whose docstring is the help, and whose annotation is the model."""

    NAME: str
    EXAMPLES: str

    def command(self, options: Any) -> None:
        """Run the command."""


class Group(Protocol):
    """A module that holds several commands."""

    NAME: str
    HELP: str
    COMMANDS: Commands


def option(name: str, kind: Any, default: Any, info: Any, panel: str | None = None) -> inspect.Parameter:
    """Return the parameter of one option or argument; `info` is what ``typer.Option`` or ``typer.Argument`` gave."""
    info = copy.copy(info)  # one annotation may serve several commands
    if not is_argument(info):
        info.rich_help_panel = info.rich_help_panel or panel
        taken = [word for one, word in _METAVARS.items() if one in (get_args(kind) or (kind,))]
        info.metavar = info.metavar or (taken[0] if taken else None)
    if _holds_paths(kind):
        info.parser = _local(info.metavar if is_argument(info) else flag_of(name, info))
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )


def parameters_of(model: type[Any]) -> list[inspect.Parameter]:
    """Return the parameters of all options of a model, those of the models within it in their place."""
    if not is_dataclass(model):
        own: list[inspect.Parameter] = model.parameters()
        return own
    panel = getattr(model, "PANEL", None)
    found = []
    for field, hint in _hints(model):
        if get_origin(hint) is not Annotated:
            found += parameters_of(hint)
            continue
        kind, info = get_args(hint)[0], _made(hint)
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        found.append(option(field.name, kind, default, info, panel))
    return found


def made_of(model: type[T], values: Mapping[str, Any]) -> T:
    """Make an object of a model from the value of each option, by name."""
    if not is_dataclass(model):
        return model(**{one.name: values[one.name] for one in parameters_of(model)})
    given = {
        field.name: values[field.name] if get_origin(hint) is Annotated else made_of(hint, values)
        for field, hint in _hints(model)
    }
    return model(**given)


def flags_given(group: Any) -> Iterable[str]:
    """Name the flags of a dataclass of options that were given: those that are not as they are by default."""
    for field, hint in _hints(type(group)):
        value = getattr(group, field.name)
        if get_origin(hint) is not Annotated:
            yield from flags_given(value)
        elif value != field.default:
            yield flag_of(field.name, _made(hint))


def flag_of(name: str, info: Any) -> str:
    """Return the first flag of an option, as one writes it."""
    declared = [one for one in (info.default, *(info.param_decls or ())) if isinstance(one, str)]
    return declared[0].partition("/")[0] if declared else f"--{name.replace('_', '-')}"


def _hints(model: type[Any]) -> Iterable[tuple[Any, Any]]:
    hints = get_type_hints(model, include_extras=True)
    return [(field, hints[field.name]) for field in fields(model)]


def _made(hint: Any) -> Any:
    """Return typer's option or argument of an annotation, which may be kept."""
    info = get_args(hint)[1]
    return info.made() if isinstance(info, Kept) else info


def _holds_paths(kind: Any) -> bool:
    return kind is Path or any(map(_holds_paths, get_args(kind)))


def _local(name: str) -> Callable[[str | Path], Path]:
    """Return what makes a path of what was given for an option, and refuses a URL before the command begins."""

    def parse(given: str | Path) -> Path:
        return Path(local_path(given, name))

    return parse


def is_argument(info: Any) -> bool:
    """Return whether typer's option or argument is an argument."""
    from typer.models import ArgumentInfo

    return isinstance(info, ArgumentInfo)
