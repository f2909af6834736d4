"""Publishing at a URL: data first, the manifest last, so that readers find the index before or the one after.

::

    <url>/manifest.json                    what readers begin with; put last, only if it is still the one that was found
    <url>/data-<build id>/graph.imx ...    the files that it names, and run.json
    <url>/building/<host>-<token>          the lease of a build at work

Files of another build have other names, so a publish changes nothing that a reader of the index before it reads. What a
killed publish left, and the files of indexes replaced earlier, go when the next publish is done.
"""

from __future__ import annotations

import fcntl
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from indexmill.formats.errors import ConfigError, OutputExistsError, StorageError
from indexmill.formats.index.manifest import Manifest, file_sha256, write_manifest
from indexmill.formats.index.names import MANIFEST_NAME, RUN_NAME, kept_generation
from indexmill.formats.pagefile.atomic import write_json_atomic
from indexmill.pipeline.execution.failpoint import failpoint
from indexmill.pipeline.urls.conditional import Conditional, Replaced
from indexmill.pipeline.urls.lease import Lease, is_lease
from indexmill.pipeline.urls.storage import Storage, mirror_of

_DATA = re.compile(r"data-[0-9a-f]{32}")
_BUILD_ID = re.compile(rb'"build_id": "([0-9a-f]{64})"')
#: Objects of others that an error names.
_NAMED = 3
_LOCK_NAME = ".output.lock"


def data_folder(build_id: str) -> str:
    """Return the name of the folder of an index's files; headers of its page files have the same digits."""
    return f"data-{build_id[:32]}"


def read_run_at(url: str, build_id: str) -> dict[str, Any]:
    """Return how an index that this machine published at a URL was made; empty if that is not kept.

    It is read from the mirror: an index that was published needs no more answers of its storage.
    """
    try:
        run: dict[str, Any] = json.loads((mirror_of(url) / data_folder(build_id) / RUN_NAME).read_text())
    except (OSError, ValueError):
        return {}
    return run


@contextmanager
def url_output(url: str, force: bool) -> Iterator[UrlOutput]:
    """Keep other builds away from a URL for the length of a block, by a lease there.

    Raises
    ------
    ConfigError
        If another build is at work on the URL.
    OutputExistsError
        Without `force` if there is an index; if there are other objects, always.
    StorageError
        If storage refuses.
    """
    storage = Storage(url)
    with open(storage.mirror / _LOCK_NAME, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # builds of this machine share the lease
        except BlockingIOError:
            raise ConfigError(
                f"out: another job is writing {storage.place}; wait for it or name another --out"
            ) from None
        lease = Lease(storage, option="out")
        try:
            manifest = storage.conditional(MANIFEST_NAME)
            _refuse_others(storage, manifest)
            lease.take()
        except FileNotFoundError as error:
            raise StorageError(
                f"out: {storage.place}: no such bucket or container ({error}); create it, or correct its name"
            ) from error
        try:
            yield UrlOutput(storage, manifest, lease, force)
        finally:
            lease.release()


class UrlOutput:
    """An index that is to appear at a URL; made before the build, which need not begin if the URL is refused."""

    def __init__(self, storage: Storage, manifest: Conditional, lease: Lease, force: bool) -> None:
        self._storage, self._manifest, self._lease = storage, manifest, lease
        self._seen = manifest.read()
        if self._seen is not None and not force:
            raise OutputExistsError(
                f"out: {storage.place} exists; add --force to replace it, or name another URL"
            )

    def publish(
        self, emitted: Path, manifest: Manifest, run: dict[str, Any], advance: Callable[[int], None]
    ) -> dict[str, Any]:
        """Put the files of `emitted` and then the manifest; return the manifest as it is there.

        Parameters
        ----------
        advance : callable
            Is told of each file.

        Raises
        ------
        ConfigError
            If another build was published there meanwhile.
        StorageError
            If storage refuses, or has another number of bytes than was put.
        """
        storage, folder = self._storage, data_folder(manifest.build_id)
        self._lease.check()
        there = storage.list(folder)
        for entry in manifest.files:
            name = f"{folder}/{entry.name}"
            if there.get(name) != entry.bytes or _sha256(storage, name) != entry.sha256:
                storage.put(emitted / entry.name, name)
            advance(1)
        storage.local(folder).mkdir(exist_ok=True)
        write_json_atomic(storage.local(folder) / RUN_NAME, run)
        storage.push(f"{folder}/{RUN_NAME}")
        there = storage.list(folder)
        for entry in manifest.files:
            if there.get(f"{folder}/{entry.name}") != entry.bytes:
                raise StorageError(
                    f"{storage.place}/{folder}/{entry.name}: expected {entry.bytes:,} bytes, got "
                    f"{there.get(f'{folder}/{entry.name}', 'none')}; nothing was published; run again"
                )
        failpoint("publish-copied")
        write_manifest(storage.mirror, manifest)
        text = (storage.mirror / MANIFEST_NAME).read_bytes()
        self._lease.check()
        try:
            self._manifest.put_if_same(self._seen, text)
        except Replaced:
            raise ConfigError(
                f"out: {storage.place}: another build was published there meanwhile, and stays; name another --out, or "
                "replace it with --force"
            ) from None
        failpoint("publish-done")
        with suppress(StorageError):  # what stays goes with the next publish
            self._drop_others(folder)
        published: dict[str, Any] = json.loads(text)
        return published

    def _drop_others(self, folder: str) -> None:
        """Delete the files of all builds but this one and the one before it, which readers may be at.

        Only now: a build at work, which took this one for dead, finds another manifest than it began with and fails.
        """
        keep = {folder}
        if self._seen is not None:
            found = _BUILD_ID.search(self._seen)
            keep |= {data_folder(found[1].decode())} if found else set()
        for other in {name.partition("/")[0] for name in self._storage.list()} - keep:
            if _DATA.fullmatch(other):
                self._storage.delete(other)


def _refuse_others(storage: Storage, manifest: Conditional) -> None:
    """Raise OutputExistsError if there is anything that no build has put there.

    What refuses to read the manifest would refuse to put it when the build is done.
    """
    others = sorted(name for name in storage.list() if not _is_ours(name))
    text = manifest.read()
    if text is not None and _BUILD_ID.search(text) is None:
        others.append(MANIFEST_NAME)
    if others:
        raise OutputExistsError(
            f"out: {storage.place} holds other objects ({', '.join(others[:_NAMED])}); name another URL, or delete "
            "them"
        )


def _sha256(storage: Storage, name: str) -> str:
    """Return the digest of an object that a reader may be at, so that it is not put again as it is.

    Until a put is done its object may be gone.
    """
    local = storage.fetch(name)
    try:
        return file_sha256(local)
    finally:
        local.unlink()


def _is_ours(name: str) -> bool:
    folder, slash, _ = name.partition("/")
    if not slash:
        return name == MANIFEST_NAME or kept_generation(name) is not None
    return is_lease(name) or _DATA.fullmatch(folder) is not None
