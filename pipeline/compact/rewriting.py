"""The stages behind lists or tables that a compaction or a merge writes anew: their files, their seal, a certificate.

A killed run resumes with the stages that it finished, and in the one that writes the files with those that are whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from indexmill.formats.index.manifest import FileEntry, Manifest, seal_files
from indexmill.pipeline.generations.outputs import Output
from indexmill.pipeline.generations.scratch import emptied
from indexmill.pipeline.mill.stages import Mill, Stage

VERSION = 1
#: What the last two stages found.
_SEALED, _CERTIFICATE = "sealed.json", "certificate.json"
#: How names of files of an index end; other files in the folder of a stage are notes.
_SUFFIXES = (".imx", ".parquet")


@dataclass(frozen=True)
class Sealed:
    """What a manifest says of finished files.

    Attributes
    ----------
    build_id : str
    files : tuple of FileEntry
    facts : dict
        Of the kind of index.
    """

    build_id: str
    files: tuple[FileEntry, ...]
    facts: dict[str, Any]


class Rewriting:
    """The web of these stages.

    Parameters
    ----------
    mill : Mill
    name : str
        Of the stage that writes the files.
    counts : tuple of int and str
        Steps of that stage, and their unit.
    origins : sequence of Manifest
        Of the indexes that the files are made from; together with `inputs` they decide all bytes.
    outputs : callable
        Returns the files, given the folder where they will lie, and one for files that are gone in the end.
    facts : callable
        Returns the facts of `Sealed`, given the folder where the files lie.
    inputs : sequence of Stage
        Stages whose files are read, too.

    Attributes
    ----------
    last : Stage
        The one to make.
    """

    def __init__(
        self, mill: Mill, name: str, counts: tuple[int, str], origins: Sequence[Manifest],
        outputs: Callable[[Path, Path], Sequence[Output]], facts: Callable[[Path], dict[str, Any]],
        inputs: Sequence[Stage] = (),
    ) -> None:  # fmt: skip
        self._mill, self._outputs, self._facts = mill, outputs, facts
        key = stage_key(mill, name, origins, inputs)
        steps, unit = counts
        self._written = Stage(
            name, key, mill.store.path(name, key), inputs, self._write,
            steps=steps, unit=unit, resumable=True, pinned=True,
        )  # fmt: skip
        self._sealed = self.last = self._after("seal", [self._written, *inputs], self._seal)

    def certify(self, measure: Callable[[Path], dict[str, Any] | None]) -> None:
        """Add a stage that certifies the sealed files; `measure` does, given a folder for files that are gone then."""

        def run(directory: Path) -> None:
            with emptied(directory / "scratch"):
                certificate = measure(directory / "scratch")
            (directory / _CERTIFICATE).write_text(json.dumps(certificate))

        self.last = self._after("certify", [self._written, self._sealed], run)

    @property
    def directory(self) -> Path:
        """The files of the index, once they are sealed."""
        return self._written.path

    @property
    def sealed(self) -> Sealed:
        """What stage *seal* found."""
        found = json.loads((self._sealed.path / _SEALED).read_text())
        return Sealed(
            found["build_id"], tuple(FileEntry(**entry) for entry in found["files"]), found["facts"]
        )

    @property
    def certificate(self) -> dict[str, Any] | None:
        """What stage *certify* found."""
        found: dict[str, Any] | None = json.loads((self.last.path / _CERTIFICATE).read_text())
        return found

    def _after(self, name: str, inputs: Sequence[Stage], run: Callable[[Path], None]) -> Stage:
        store = self._mill.store
        key = store.key(name, VERSION, {}, [stage.key for stage in inputs])
        return Stage(name, key, store.path(name, key), inputs, run, pinned=True)

    def _write(self, directory: Path) -> None:
        for stage in (self._sealed, self.last):  # it was made of files that had to be written again
            if stage.path.exists():
                self._mill.store.drop(stage.path)
        with emptied(directory / "scratch"):
            outputs = self._outputs(directory, directory / "scratch")
            for output in outputs:
                if not all((directory / name).exists() for name in output.beside):
                    (directory / output.name).unlink(missing_ok=True)
            self._mill.files(
                directory, _written, [(output,) for output in outputs], [output.name for output in outputs],
                wide=True, weights=[output.steps for output in outputs],
            )  # fmt: skip

    def _seal(self, directory: Path) -> None:
        """Give the files their build id, where they lie: a run that is killed meanwhile does it again."""
        names = [path.name for path in self.directory.iterdir() if path.suffix in _SUFFIXES]
        build_id, files = seal_files(self.directory, names)
        found = {
            "build_id": build_id,
            "files": [asdict(entry) for entry in files],
            "facts": self._facts(self.directory),
        }
        (directory / _SEALED).write_text(json.dumps(found))


def stage_key(
    mill: Mill, name: str, origins: Sequence[Manifest], inputs: Sequence[Stage] = (), **parameters: Any
) -> str:
    """Return the key of a stage that reads the indexes `origins` without their deleted vectors."""
    read = [[one.state, one.generation] for one in origins]
    return mill.store.key(name, VERSION, {"indexes": read, **parameters}, [stage.key for stage in inputs])


def _written(output: Output, path: str, threads: int, advance: Callable[[int], None]) -> None:
    """Write one file; the number of threads is its own matter."""
    output.write(Path(path), advance)
