"""A fresh environment: a virtual environment of the running Python, or of the Python in the root of another system."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from indexmill.jobs.bench.common.process import allocated_bytes, failed, output_of

#: Settings that commands keep: how pip reaches its registry. All others are left out, as a new user lacks them.
_KEPT = re.compile(r"PIP_\w+|\w+_PROXY|SSL_CERT_FILE", re.IGNORECASE)
#: Settings among them that name a file, which a root then needs.
_FILES = ("PIP_CERT", "SSL_CERT_FILE")
#: Shows the kernel's file systems to one command alone, in the root that its first word names.
_ENTER = 'for one in proc sys dev; do mount --rbind "/$one" "$0/$one" || exit; done; exec chroot "$0" "$@"'


#: Packages of an empty virtual environment.
_BROUGHT = {"pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils"}


@dataclass(frozen=True)
class Environment:
    """A folder with a virtual environment and a home, both empty at first.

    Attributes
    ----------
    folder : Path
        Everything of it, as its own programs name it.
    root : Path or None
        Folder with another system, whose ``python3`` the environment is of; None for this system, and the running
        Python. Commands of a root need the right to mount.
    """

    folder: Path
    root: Path | None = None

    def seen(self, path: str | Path) -> Path:
        """Return where this system has a path of the environment."""
        return Path(path) if self.root is None else self.root / Path(path).relative_to("/")

    @property
    def home(self) -> Path:
        """Working folder of commands, as they name it."""
        return self.folder / "home"

    @property
    def packages(self) -> Path:
        """Folder of installed packages, as this system names it."""
        (found,) = self.seen(self.folder).glob("venv/lib/python3*/site-packages")
        return found

    def make(self) -> None:
        """Make it anew.

        Raises
        ------
        RuntimeError
            If the root has no Python that makes virtual environments, or may not be entered.
        """
        shutil.rmtree(self.seen(self.folder), ignore_errors=True)
        self.seen(self.home).mkdir(parents=True)
        if self.root is not None:
            named = [os.environ[name] for name in _FILES if name in os.environ]
            for path in ("/etc/resolv.conf", *named):
                self.seen(path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, self.seen(path))
        python = sys.executable if self.root is None else "/usr/bin/python3"
        output_of(self.command(python, "-m", "venv", self.folder / "venv"))

    def command(self, *words: object) -> list[str]:
        """Return the command that runs `words` within, in its home and with the programs of the environment first.

        Of this system no other programs are found, so that no compiler is; of a root all that it has.
        """
        settings = {name: value for name, value in os.environ.items() if _KEPT.fullmatch(name)}
        path = f"{self.folder}/venv/bin" + ("" if self.root is None else ":/usr/bin:/bin")
        settings |= {"PATH": path, "HOME": str(self.home), "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
        assignments = [f"{name}={value}" for name, value in settings.items()]
        inner = ["/usr/bin/env", "-i", "-C", str(self.home), *assignments, *map(str, words)]
        return (
            inner if self.root is None else ["unshare", "--mount", "sh", "-c", _ENTER, str(self.root), *inner]
        )

    def bytes_of_packages(self) -> dict[str, int]:
        """Return the disk space of each installed package, largest first, without pip and setuptools."""
        sizes: dict[str, int] = {}
        for entry in self.packages.iterdir():
            name = re.split(r"[.-]", entry.name)[0]  # pyarrow, pyarrow.libs and pyarrow-26.0.1.dist-info
            size = allocated_bytes(entry) if entry.is_dir() else entry.stat().st_size
            sizes[name] = sizes.get(name, 0) + size
        own = {name: size for name, size in sizes.items() if name not in _BROUGHT}
        return dict(sorted(own.items(), key=lambda item: -item[1]))


def seconds_until(command: Sequence[str], log: Path, text: str) -> tuple[float, float]:
    """Run a command to its end, its output in `log`; return the seconds until a line has `text`, and until the end.

    Raises
    ------
    RuntimeError
        If it fails, or says nothing of the kind.
    """
    began, first = time.perf_counter(), None
    with (
        open(log, "wb") as file,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child,
    ):
        assert child.stdout is not None
        for line in child.stdout:
            file.write(line)
            if first is None and text.encode() in line:
                first = time.perf_counter() - began
    if child.returncode or first is None:
        raise failed(child.returncode, command, log)
    return first, time.perf_counter() - began
