"""Options and arguments of commands, kept until a command line is made of them.

What opens an index needs its kind, whose module declares options; importing typer would take as long as a search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Kept:
    """What ``typer.Option`` or ``typer.Argument`` is given.

    Attributes
    ----------
    name : {"Option", "Argument"}
    words : tuple of str
        Its flags.
    settings : dict
        Its keywords.
    """

    name: str
    words: tuple[str, ...]
    settings: dict[str, Any]

    def made(self) -> Any:
        """Return what typer makes of it."""
        import typer

        return getattr(typer, self.name)(*self.words, **self.settings)


def Option(*words: str, **settings: Any) -> Kept:
    """Keep an option; arguments are those of ``typer.Option`` behind the default."""
    return Kept("Option", words, settings)


def Argument(**settings: Any) -> Kept:
    """Keep an argument; keywords are those of ``typer.Argument``."""
    return Kept("Argument", (), settings)
