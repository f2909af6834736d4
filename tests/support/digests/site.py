"""The folder of a group of cases, and the two ways in which it builds: Python and the command line."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import indexmill

ROOT = Path(__file__).parents[3]
GRAPH = {"R": 16, "L": 30, "pq_bytes": 8, "entries": 16, "sample_vectors": 1000}


@dataclass(frozen=True)
class Site:
    """Where a group writes, and how many threads it has.

    Attributes
    ----------
    folder : Path
        An empty directory of the group's own.
    """

    folder: Path
    workers: int

    def new(self, name: str) -> Path:
        """Return a path in the folder."""
        return self.folder / name

    def build(self, name: str, vectors: Any, **parameters: Any) -> Path:
        """Build an index of any kind; graphs are small unless `parameters` say otherwise."""
        small = {} if "kind" in parameters else GRAPH
        indexmill.build(vectors, self.new(name), workers=self.workers, **{**small, **parameters})
        return self.new(name)

    def command(self, *arguments: object) -> None:
        """Run the command line of this checkout, whether or not it is installed."""
        entry = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["indexmill"]
        module, function = entry.split(":")
        code = f"from {module} import {function}; {function}()"
        paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"indexmill {' '.join(map(str, arguments))}: {done.stderr}")
