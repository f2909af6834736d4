"""The Java exporter that writes Lucene's files: its place, and its process."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from indexmill.formats.errors import ConfigError, ToolError

#: Environment variable with the path of the jar, if it is not where Maven builds it.
JAR_VARIABLE = "INDEXMILL_LUCENE_JAR"
_PROJECT = Path(__file__).resolve().parent / "lucene"
_BUILT = _PROJECT / "target" / "indexmill-lucene.jar"
#: Characters of its output that an error repeats.
_TAIL = 2000


def jar() -> Path:
    """Return the path of the jar."""
    named = os.environ.get(JAR_VARIABLE)
    return Path(named) if named else _BUILT


def check_tools(target: str) -> None:
    """Check that Java and the jar exist.

    Raises
    ------
    ConfigError
        If one is missing; the message has the command that installs or builds it.
    """
    if shutil.which("java") is None:
        raise ConfigError(
            f"to: {target}: Lucene's files are written by Java, and there is no java on PATH; "
            "install Java 11 or newer (apt-get install openjdk-17-jre-headless)"
        )
    if not jar().is_file():
        raise ConfigError(
            f"to: {target}: {jar()}: missing; build it (JDK and Maven): mvn -q -f {_PROJECT / 'pom.xml'} package; "
            f"or name one that is built: {JAR_VARIABLE}=PATH"
        )


@contextmanager
def exporter(out: Path, seed: str, heap_bytes: int) -> Iterator[IO[bytes]]:
    """Yield the exporter's standard input; the stream written to it becomes a Lucene index in `out`.

    Parameters
    ----------
    out : path
        Directory to create.
    seed : str
        Hexadecimal digits used instead of random numbers in the files.
    heap_bytes : int
        Java's heap; the virtual machine takes 80 MiB more.

    Raises
    ------
    ToolError
        If it fails; the message has its output.
    """
    command = ["java", f"-Xmx{heap_bytes >> 20}m", "-XX:+UseSerialGC", "-jar", str(jar()), str(out), seed]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said)
        assert process.stdin is not None
        ended_early = True
        try:
            with suppress(BrokenPipeError):  # the exporter's output has the error
                yield process.stdin
                process.stdin.close()
                ended_early = False
            code = process.wait()
        finally:
            process.kill()
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.wait()
        if code or ended_early:
            said.seek(0)
            text = said.read().decode(errors="replace").strip()[-_TAIL:]
            raise ToolError(f"{out}: java -jar {jar()}: exit status {code}: {text}")
