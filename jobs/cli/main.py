"""The `indexmill` command: its subcommands and what they share.

Nothing heavy is imported here: each command imports what it needs when it runs, so `--help` and shell
completion stay quick.
"""

from __future__ import annotations

import atexit
import sys
from gc import freeze
from os import _exit
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from indexmill.jobs.cli.commands import (
    append,
    bench,
    build,
    compare,
    device,
    explain,
    export,
    import_,
    inspect,
    join,
    layout,
    merge,
    plan,
    score,
    search,
    serve_builds,
    status,
    truth,
    tune,
    verify,
)
from indexmill.jobs.cli.commands.generations import compact, delete, gc, rollback, upgrade
from indexmill.jobs.cli.failures import EXIT_CODES, exit_codes
from indexmill.jobs.options.commands import Declared, declared_group
from indexmill.jobs.options.declare import Group, Verb

#: Commands in the order of the help page; the last two are groups.
_VERBS: tuple[Verb, ...] = (
    plan, tune, build, append, merge, delete, compact, rollback, gc, upgrade, layout, explain, status, search, join,
    truth, score, compare, verify, inspect, device, export, serve_builds,
)  # fmt: skip
_GROUPS: tuple[Group, ...] = (import_, bench)


class Commands(TyperGroup):
    """All commands, which have the same exit codes."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for verb in _VERBS:
            self.add_command(Declared(verb.NAME, verb.command, verb.EXAMPLES))
        for group in _GROUPS:
            self.add_command(declared_group(group))

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        with exit_codes():
            return super().invoke(ctx)


def _version(wanted: bool) -> None:
    if wanted:
        from indexmill import __version__

        print(f"indexmill {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="indexmill",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODES,
)


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Build page-aligned vector indexes offline, lay them out for few page reads, and measure them."""


def main() -> None:
    """Run the command line; the entry point of the `indexmill` script."""
    ended: list[SystemExit] = []
    # Functions are called in reverse order at exit: this one is the last.
    atexit.register(_end_without_answers, ended)
    try:
        app()
    except SystemExit as error:
        ended.append(error)
        if _calls_hang():
            _leave_s3_as_it_is()
        raise
    finally:
        freeze()  # else the last collections of the interpreter walk all that was imported, for 0.2 s


def _calls_hang() -> bool:
    client = sys.modules.get("indexmill.formats.urls.client")
    return client is not None and bool(client.calls_hang())


def _leave_s3_as_it_is() -> None:
    """Keep pyarrow from waiting, at exit, for calls that hang."""
    from pyarrow import fs

    if hasattr(fs, "ensure_s3_finalized"):
        atexit.unregister(fs.ensure_s3_finalized)


def _end_without_answers(ended: list[SystemExit]) -> None:
    """End the process at once if calls to storage hang, with which the interpreter could not end."""
    if not ended or not _calls_hang():
        return
    sys.stdout.flush()
    sys.stderr.flush()
    code = ended[0].code
    _exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    main()
