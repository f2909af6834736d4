"""Kernels of a job, compiled before it begins where the cache lacks them.

LLVM keeps 0.2 to 0.5 GiB in a process that has compiled, which no budget of a build has room for. So a process of its
own compiles, by tiny builds, and ends. A note beside the machine code names what a tiny build used: with it, and with
all that it names in place, nothing is started.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import warnings
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numba
from llvmlite import binding

from indexmill import __version__, builders, formats, layout
from indexmill.formats.kernel import are_kept, cache_folder
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.kinds.registry import kind_of
from indexmill.pipeline.kinds.rehearsal import Rehearsal
from indexmill.pipeline.mill.progress import Progress, stage_progress
from indexmill.pipeline.spec import BuildSpec

#: Seconds after which progress tells of the compilation.
_QUIET_SECONDS = 2.0
#: Packages with the kernels that builds use.
KERNEL_PACKAGES = (builders, formats, layout)
#: A build of at most so many vectors within at least so much memory compiles for itself, which is faster and fits.
_SMALL_BUILD, _ROOM_BYTES = 20_000, 1 << 30


def compile_kernels(spec: BuildSpec, source: VectorSource, progress: Progress) -> None:
    """Compile the kernels of a build that are not in the cache; one warning where that fails.

    Raises
    ------
    ConfigError, InputError, BudgetError
        As the size of the build.
    """
    folder = cache_folder()
    if folder is None or (source.n_vectors <= _SMALL_BUILD and spec.memory >= _ROOM_BYTES):
        return
    rehearsals = kind_of(spec.parameters).size().rehearsals(spec, source)
    missing = {note: one for one in rehearsals if not _is_compiled(note := _note(folder, one))}
    if missing:
        _rehearse(missing, progress)


def _note(folder: Path, what: Rehearsal) -> Path:
    """Return the path of the note that a rehearsal leaves."""
    machine = [numba.__version__, sys.version, binding.get_host_cpu_name(), numba.config.CPU_NAME]
    key = [asdict(what), machine, __version__, sources_digest()]
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    return folder / f"rehearsed-{digest[:16]}.json"


@cache
def sources_digest() -> str:
    """Return the SHA-256 of the sources of the kernels of builds: of another version these may be other ones."""
    digest = hashlib.sha256()
    for package in KERNEL_PACKAGES:
        for source in sorted(path for folder in package.__path__ for path in Path(folder).rglob("*.py")):
            digest.update(f"{package.__name__}/{source.name}\0".encode() + source.read_bytes())
    return digest.hexdigest()


def _is_compiled(note: Path) -> bool:
    try:
        return are_kept(json.loads(note.read_text()))
    except (OSError, ValueError):
        return False


def _rehearse(missing: dict[Path, Rehearsal], progress: Progress) -> None:
    """Run a process that makes rehearsals."""
    wanted = json.dumps({str(note): asdict(what) for note, what in missing.items()})
    environment = {name: value for name, value in os.environ.items() if name != "INDEXMILL_FAILPOINT"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    try:
        with subprocess.Popen(
            [sys.executable, "-P", "-m", "indexmill.pipeline.rehearsal.run", wanted],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        ) as child:
            try:
                said = _ended(child, progress)
            finally:
                child.kill()  # of a build that is interrupted; does nothing to one that has ended
    except OSError as error:  # no memory or no processes for another one
        _warn(str(error))
        return
    if child.returncode:
        _warn(said.strip().rpartition("\n")[2] or f"exit status {child.returncode}")


def _warn(reason: str) -> None:
    warnings.warn(
        f"kernels could not be compiled beforehand ({reason}): the build compiles them, and may exceed its memory "
        "by up to 0.5 GiB",
        stacklevel=2,
    )


def _ended(child: subprocess.Popen[str], progress: Progress) -> str:
    """Wait for the end of a process and return what it said."""
    try:
        return child.communicate(timeout=_QUIET_SECONDS)[1]
    except subprocess.TimeoutExpired:
        with stage_progress(progress, "compiling kernels (once)", 1, "tasks"):
            said = child.communicate()[1]
            progress.advance(1)
        return said
