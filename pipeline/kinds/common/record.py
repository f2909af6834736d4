"""From emitted files to a manifest: the files get their build id, and the manifest says what was built from what."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from indexmill.formats.index.manifest import FileEntry, Manifest, seal_files
from indexmill.formats.index.names import METADATA_NAME
from indexmill.formats.pagefile.atomic import copy_file
from indexmill.pipeline.kinds.common.compute import gpu_facts
from indexmill.pipeline.kinds.common.ingest import InputSummary
from indexmill.pipeline.kinds.common.parameters import KindParameters
from indexmill.pipeline.mill.store import software_versions

#: Facts that a stage *emit* keeps for the manifest; not part of the index.
_RECORD = "emit.json"
#: Sections of a manifest that may come from these facts: those that a manifest can do without.
_SECTIONS = [field.name for field in fields(Manifest) if field.default_factory is dict]


def seal(directory: Path, facts: dict[str, Any], ingest: Path | None = None) -> None:
    """Complete the files of an index: metadata from stage *ingest*, if there is any, and the build id in every file.

    Id, list of files and `facts` are kept for `emitted_manifest`.
    """
    if ingest is not None and (ingest / METADATA_NAME).exists():
        copy_file(ingest / METADATA_NAME, directory / METADATA_NAME)
    names = [p.name for p in directory.iterdir() if p.suffix in (".imx", ".parquet")]
    identity, files = seal_files(directory, names)
    record = {"build_id": identity, "files": [asdict(file) for file in files], **facts}
    (directory / _RECORD).write_text(json.dumps(record))


def emitted_manifest(p: KindParameters, summary: InputSummary, emitted: Path) -> Manifest:
    """Return the manifest of the files in directory `emitted`, which `seal` has sealed, without a certificate."""
    made = json.loads((emitted / _RECORD).read_text())
    return Manifest(
        kind=p.kind,
        build_id=made["build_id"],
        parameters=p.model_dump(),
        input={
            "n_vectors": summary.n_vectors,
            "dim": summary.dim,
            "dtype": summary.dtype,
            "fingerprint": summary.fingerprint,
            **({} if summary.codes is None else {"codes": summary.codes}),
        },
        software=software_versions() | gpu_facts(p)[1],
        certificate=None,
        files=tuple(FileEntry(**file) for file in made["files"]),
        **{key: made[key] for key in _SECTIONS if key in made},
    )
