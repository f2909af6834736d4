"""Python in the environment of pylance, with what is installed here in front of it."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.engines.environments import python_of

import indexmill


def python_path(*others: Path) -> str:
    """Return what Python is to look for modules in, so that what is installed here stands in front of pylance."""
    installed = (sysconfig.get_path(name) for name in ("purelib", "platlib"))
    here = [str(Path(indexmill.__file__).parents[1]), *installed, *map(str, others)]
    return os.pathsep.join(dict.fromkeys(here))


def with_lance(
    *command: object,
    code: int = 0,
    limit: Callable[[], None] | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run Python where pylance is installed, with what is installed here in front of it; returns what it printed.

    It must end with `code`; of another than 0 what it said on stderr is returned. `limit` is called before it starts.
    """
    done = subprocess.run(
        [str(python_of("lance")), *map(str, command)],
        env={**os.environ, "PYTHONPATH": python_path(), **(environment or {})},
        capture_output=True, text=True, check=False, timeout=240, preexec_fn=limit,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr if code else done.stdout
