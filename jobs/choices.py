"""How a search can be made: the words that flags take, as the reader lists them.

The reader's `index` module has the one list of policies and entries, but it loads numpy and the native module.
Help pages and shell completion must not wait for those, so the two tuples are read out of its source.
"""

from __future__ import annotations

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_LISTED_IN = "indexmill.reader.index"
#: Engines that take no file.
ENGINES = ("auto", "io_uring", "sqpoll", "pread", "mmap")
#: What stands before the name of a device profile.
SIMULATED = "simulated:"


@cache
def reader_choices(name: str) -> tuple[str, ...]:
    """Return the tuple of words that the reader's `index` module assigns to `name`.

    Raises
    ------
    LookupError
        If there is no such tuple of literals.
    """
    spec = find_spec(_LISTED_IN)
    if spec is not None and spec.origin is not None:
        for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.AnnAssign) and node.value and ast.unparse(node.target) == name:
                return tuple(ast.literal_eval(node.value))
    raise LookupError(f"{_LISTED_IN}: no annotated tuple {name}")


POLICIES = reader_choices("POLICIES")
ENTRIES = reader_choices("ENTRIES")


def check_engine(name: str, flag: str = "--engine") -> str:
    """Return the engine's name if there is such an engine; the reader itself checks the profile it may name.

    Raises
    ------
    ConfigError
        Naming the flag and what it takes.
    """
    if name in ENGINES or (name.startswith(SIMULATED) and name != SIMULATED):
        return name
    from indexmill.formats.errors import ConfigError
    from indexmill.jobs.jobfile import nearest

    raise ConfigError(
        f"{flag}: expected one of {', '.join(ENGINES)} or {SIMULATED}PROFILE.json, got {name!r};"
        f" {nearest(name, ENGINES)}"
    )


def simulated_profile(engine: str) -> Path | None:
    """Path of the device profile that a simulated engine's name holds; None for the others."""
    return Path(engine.removeprefix(SIMULATED)) if engine.startswith(SIMULATED) else None
