"""Names of the files that indexes of every kind and exports have; importing this module loads nothing."""

from __future__ import annotations

import re

#: Description of an export, written last: a directory without it is not an export.
EXPORT_NAME = "export.json"
IDS_NAME = "ids.imx"
MANIFEST_NAME = "manifest.json"
METADATA_NAME = "metadata.parquet"
RUN_NAME = "run.json"
#: Folder of an index for the directories that it took the place of.
GENERATIONS_NAME = "generations"
#: A generation: six digits, or more without a zero in front.
_NUMBER = "([0-9]{6}|[1-9][0-9]{6,})"
_DELETED = re.compile(rf"deleted-{_NUMBER}\.imx")
_KEPT = re.compile(rf"manifest-{_NUMBER}\.json")


def deleted_name(generation: int) -> str:
    """Return the name of the file of deletions that a generation wrote."""
    return f"deleted-{generation:06}.imx"


def is_deleted_name(name: str) -> bool:
    """Return whether a file of deletions may have this name."""
    return _DELETED.fullmatch(name) is not None


def generation_folder(generation: int) -> str:
    """Return the path, in an index, of the folder of a generation that has other files than the present one."""
    return f"{GENERATIONS_NAME}/{generation:06}"


def kept_name(generation: int) -> str:
    """Return the name under which the manifest of a generation is kept once another one has taken its place."""
    return f"manifest-{generation:06}.json"


def is_manifest_name(name: str) -> bool:
    """Return whether the manifest of a generation, present or kept, may have this name."""
    return name == MANIFEST_NAME or kept_generation(name) is not None


def kept_generation(name: str) -> int | None:
    """Return the generation with a kept manifest of this name; None if it is the name of something else."""
    found = _KEPT.fullmatch(name)
    return None if found is None else int(found[1])
