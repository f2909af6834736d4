"""Stage *publish*: a finished index appears at its destination all at once, or not at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from indexmill.formats.atomic import fsync_dir, write_json_atomic
from indexmill.formats.errors import OutputExistsError
from indexmill.formats.manifest import MANIFEST_NAME, RUN_NAME, Manifest, write_manifest


def check_output(out: Path, force: bool) -> None:
    """Refuse to overwrite: an index without `force`, anything that is not an index at all.

    Raises
    ------
    OutputExistsError
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / MANIFEST_NAME).is_file():
        raise OutputExistsError(f"out: {out} exists and is not an index; name another directory")
    if not force:
        raise OutputExistsError(f"out: {out} exists; add --force to replace it, or name another directory")


def publish(emitted: Path, manifest: Manifest, run: dict[str, Any], out: Path, force: bool) -> None:
    """Copy the files of `emitted` beside `out`, write the manifest last, and rename the whole into place.

    An index that is replaced steps aside first, so that `out` is the old index, the new one, or for a moment
    nothing; readers that have it open keep the files they opened.
    """
    check_output(out, force)
    fresh = out.with_name(out.name + ".publishing")
    if fresh.exists():
        shutil.rmtree(fresh)
    fresh.mkdir(parents=True)
    for entry in manifest.files:
        target = fresh / entry.name
        shutil.copyfile(emitted / entry.name, target)
        with open(target, "rb") as file:
            os.fsync(file.fileno())
    write_json_atomic(fresh / RUN_NAME, run)
    write_manifest(fresh, manifest)
    fsync_dir(fresh)
    old = out.with_name(out.name + ".replaced")
    if old.exists():
        shutil.rmtree(old)
    if out.exists():
        out.rename(old)
    fresh.rename(out)
    fsync_dir(out.parent)
    if old.exists():
        shutil.rmtree(old)
