"""Virtual environments of programs that are measured beside indexmill, each with packages of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

#: Version of Python of all environments: diskannpy has no wheels for later ones.
_VERSION = (3, 11)


def make_environment(folder: Path, packages: Sequence[str]) -> Path:
    """Create an environment with `packages` unless it is there; return its interpreter.

    Raises
    ------
    RuntimeError
        If no Python 3.11 is at hand.
    subprocess.CalledProcessError
        If a package cannot be installed; nothing is left behind.
    """
    interpreter = folder / "bin" / "python"
    if interpreter.exists():
        return interpreter
    name = ".".join(map(str, _VERSION))
    python = sys.executable if sys.version_info[:2] == _VERSION else shutil.which(f"python{name}")
    if python is None:
        raise RuntimeError(f"{folder}: {packages[0]} needs Python {name}, and none is on PATH; install it")
    try:
        subprocess.run([python, "-m", "venv", folder], check=True)
        subprocess.run([interpreter, "-m", "pip", "install", "--quiet", *packages], check=True)
    except subprocess.CalledProcessError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return interpreter
