"""Commands are declared as models: the flat options of a nested object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pytest
import typer
from typer.testing import CliRunner

from indexmill.jobs.options.commands import as_function
from indexmill.jobs.options.declare import flags_given, made_of, parameters_of
from indexmill.jobs.options.kept import Argument, Option


@dataclass(frozen=True, kw_only=True)
class Inner:
    PANEL: ClassVar = "Inner"
    size: Annotated[int, typer.Option("-s", "--size", min=1, help="How many.")] = 3
    long_name: Annotated[str | None, typer.Option(help="What.")] = None


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: Annotated[str, typer.Argument(metavar="NAME")]
    inner: Inner
    loud: Annotated[bool, typer.Option("--loud")] = False


@dataclass(frozen=True, kw_only=True)
class KeptOptions:
    name: Annotated[str, Argument(metavar="NAME")]
    size: Annotated[int, Option("-s", "--size", min=1, help="How many.")] = 3


def test_options_that_are_kept_are_those_of_typer() -> None:
    name, size = (one.annotation.__metadata__[0] for one in parameters_of(KeptOptions))
    assert type(name) is type(typer.Argument())
    assert (name.metavar, size.param_decls, size.min, size.help) == ("NAME", ("--size",), 1, "How many.")
    assert list(flags_given(KeptOptions(name="a", size=5)))[-1] == "-s"


def test_a_model_within_a_model_is_flat_on_the_command_line_and_nested_in_the_object() -> None:
    assert [one.name for one in parameters_of(Outer)] == ["name", "size", "long_name", "loud"]
    made = made_of(Outer, {"name": "a", "size": 5, "long_name": None, "loud": True})
    assert made == Outer(name="a", inner=Inner(size=5), loud=True)


def test_a_command_gets_what_was_given_and_the_defaults_of_the_rest() -> None:
    seen: list[Outer] = []

    def command(options: Outer) -> None:
        """Do it."""
        seen.append(options)

    app = typer.Typer()
    app.command()(as_function(command))
    runner = CliRunner()
    assert runner.invoke(app, ["x"]).exit_code == 0
    assert runner.invoke(app, ["x", "-s", "7", "--long-name", "y", "--loud"]).exit_code == 0
    assert seen == [
        Outer(name="x", inner=Inner()),
        Outer(name="x", inner=Inner(size=7, long_name="y"), loud=True),
    ]
    assert runner.invoke(app, ["x", "--size", "0"]).exit_code == 2
    shown = runner.invoke(app, ["--help"]).stdout
    assert "Do it." in shown
    assert "─ Inner ─" in shown


@pytest.mark.parametrize(
    ("given", "flags"),
    [
        ({}, []),
        ({"size": 3}, []),
        ({"size": 4}, ["-s"]),
        ({"size": 4, "long_name": "x"}, ["-s", "--long-name"]),
    ],
)
def test_flags_that_were_given_are_named_as_one_writes_them(given: dict[str, Any], flags: list[str]) -> None:
    assert list(flags_given(Inner(**given))) == flags
