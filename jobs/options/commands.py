"""Commands of typer, made of functions whose argument is a model of options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from indexmill.formats.errors import IndexmillError
from indexmill.jobs.options.declare import (
    OUTPUT_PANEL,
    Group,
    flag_of,
    is_argument,
    made_of,
    parameters_of,
)


class Declared(TyperCommand):
    """The command of a function.

    Its parameters are made when they are first asked for: a list of all commands waits for no model.
    """

    def __init__(self, name: str, command: Callable[[Any], None], examples: str) -> None:
        super().__init__(name, help=inspect.getdoc(command), epilog=examples, rich_markup_mode="rich")
        self._command = command

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters, and ``--help``."""
        if self.callback is None:
            app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            app.command()(as_function(self._command))
            made: Any = typer.main.get_command(app)
            self.params, self.callback = made.params, made.callback
        found: Any = super().get_params(ctx)
        if any(getattr(one, "rich_help_panel", None) == OUTPUT_PANEL for one in self.params):
            found[-1].rich_help_panel = OUTPUT_PANEL
        return found


def declared_group(group: Group) -> TyperGroup:
    """Return the group of a module's commands."""
    commands: dict[str, Any] = {
        name: Declared(name, command, examples) for name, command, examples in group.COMMANDS
    }
    return TyperGroup(
        name=group.NAME, commands=commands, help=group.HELP, no_args_is_help=True, rich_markup_mode="rich"
    )


def as_function(command: Callable[[Any], None]) -> Callable[..., None]:
    """Return the command as typer wants it: a function of one keyword argument for each option.

    An error that begins with the name of an option, as errors of the Python interface do, is raised with its flag. The
    name may also be that of a key in a job file, or of a file given as an argument: only a given flag is meant.
    """
    model = get_type_hints(command)["options"]
    parameters = sorted(parameters_of(model), key=_is_output)

    def run(**values: Any) -> None:
        try:
            command(made_of(model, values))
        except IndexmillError as error:
            name, colon, rest = str(error).partition(": ")
            infos = {one.name: one.annotation.__metadata__[0] for one in parameters}
            arguments = [values[one] for one, info in infos.items() if is_argument(info)]
            if any(
                name in map(str, given if isinstance(given, list | tuple) else [given]) for given in arguments
            ):
                raise
            for one in parameters:
                info = infos[one.name]
                if one.name == name and values[name] != one.default and not is_argument(info):
                    raise type(error)(f"{flag_of(name, info)}{colon}{rest}") from error
            raise

    run.__doc__ = command.__doc__
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _is_output(parameter: inspect.Parameter) -> bool:
    return bool(parameter.annotation.__metadata__[0].rich_help_panel == OUTPUT_PANEL)
