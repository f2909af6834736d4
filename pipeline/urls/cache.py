"""Indexes at URLs, fetched whole into a cache on a local disk that is bounded in bytes.

A fetched index is a directory like any other, named by the digest of its manifest. It appears when all its files are
there with the bytes that the manifest states. What was used longest ago goes when another index needs its room
(`room`); searches that have an index open keep its files until they close it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from indexmill.formats.errors import (
    BudgetError,
    CorruptFile,
    FormatError,
    InputError,
    OtherKind,
    StorageError,
)
from indexmill.formats.index.manifest import Manifest, file_sha256, parse_manifest
from indexmill.formats.index.names import MANIFEST_NAME, RUN_NAME
from indexmill.formats.location import shown_url
from indexmill.formats.pagefile.atomic import exchange
from indexmill.pipeline.mill.disk import told_when_full
from indexmill.pipeline.urls.beside import Read, answer
from indexmill.pipeline.urls.output import data_folder
from indexmill.pipeline.urls.room import FRESH, REMOVED, make_room
from indexmill.pipeline.urls.storage import Storage

#: Name the directory of the cache, and the most bytes in it: of indexes and of `blocks`.
CACHE_VARIABLE, BYTES_VARIABLE = "INDEXMILL_CACHE", "INDEXMILL_CACHE_BYTES"
DEFAULT_BYTES = "64GiB"
#: Times that an index is fetched anew because another one took its place meanwhile.
_TRIES = 3
_LOCK_NAME = ".lock"
#: Seconds after which one that waits for another program says so, and between two looks until then.
QUIET_SECONDS, _LOOK_SECONDS = 2.0, 0.05


def fetched(url: str, most: int, anew: bool = False, text: bytes | None = None) -> Path:
    """Return the directory of an index at a URL, fetched unless the cache has it.

    Parameters
    ----------
    most : int
        Bytes that all of the cache may take.
    anew : bool
        Fetch it even if the cache has it, to check what is at the URL.
    text : bytes, optional
        The manifest there, if it was read just now.

    Raises
    ------
    InputError
        If there is no index.
    OtherKind
        If there is a set of indexes.
    FormatError
        If its manifest, or a file, is damaged.
    BudgetError
        If the index is larger than the cache may be, or the disk is full.
    StorageError
        If storage refuses, or another index took the place of this one again and again.
    """
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    if text is None:
        text = manifest_at(Storage(url, str(cache)))
    if not anew:
        with suppress(FileNotFoundError):  # it is not there, or has to make room just now
            return _opened(_kept(cache, text))
    with told_when_full(partial(told_of_cache, cache)), _locked(cache, url):
        _remove_leftovers(cache)
        fresh = Path(tempfile.mkdtemp(prefix=FRESH, dir=cache))
        try:
            return _fetched(url, fresh, cache, most, anew)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def remove_leftovers(cache: Path) -> None:
    """Remove what killed programs left of fetching and removing, unless one that fetches has the lock now."""
    if not _leftovers(cache):
        return
    with open(cache / _LOCK_NAME, "a+") as lock, suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove_leftovers(cache)


def _remove_leftovers(cache: Path) -> None:
    """Remove what killed programs left: the lock is ours."""
    for leftover in _leftovers(cache):
        shutil.rmtree(leftover, ignore_errors=True)


def _leftovers(cache: Path) -> list[Path]:
    return [*cache.glob(f"{FRESH}*"), *cache.glob(f"{REMOVED}*")]


def fits(url: str, most: int) -> tuple[bool, bytes]:
    """Return whether the cache has an index at a URL, or may have it: it takes at most `most` bytes; and its manifest.

    Raises
    ------
    InputError, FormatError, StorageError
        As `fetched`.
    """
    with tempfile.TemporaryDirectory() as folder:
        storage = Storage(url, folder)
        text = manifest_at(storage)
        (storage.mirror / MANIFEST_NAME).write_bytes(text)
        size = sum(entry.bytes for entry in read_manifest_at(storage).files)
        return _kept(cache_directory(), text).is_dir() or size <= most, text


def cache_directory() -> Path:
    """Return where indexes of URLs are kept on this machine."""
    if given := os.environ.get(CACHE_VARIABLE):
        return Path(given).absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "indexmill" / "indexes"


def _fetched(url: str, fresh: Path, cache: Path, most: int, anew: bool) -> Path:
    """Fetch an index into directories of `fresh`, one a try, and give it its place in the cache."""
    for number in range(_TRIES):
        storage = Storage(url, str(fresh / str(number)))
        text = manifest_at(storage)
        (storage.mirror / MANIFEST_NAME).write_bytes(text)
        manifest = read_manifest_at(storage)
        kept = _kept(cache, text)
        if kept.is_dir() and not anew:  # another program has fetched it meanwhile
            return _opened(kept)
        size = sum(entry.bytes for entry in manifest.files)
        if size > most:
            raise BudgetError(
                f"{storage.place}: takes {size:,} bytes, and what is read at URLs may take {most:,} in {cache}; set "
                f"{BYTES_VARIABLE} to more, or copy the index to a local directory"
            )
        make_room(cache, most, size, besides=(kept, fresh))
        damage = _fetch_files(storage, manifest)
        if damage is None:
            return _keep(storage, manifest, kept)
        if manifest_at(storage) == text:
            raise damage
    raise StorageError(
        f"{storage.place}: another index took its place {_TRIES} times while it was read; run again"
    )


def manifest_at(storage: Storage) -> bytes:
    """Return the bytes of the manifest at a URL.

    Raises
    ------
    InputError
        If there is none; if there is no bucket, and the client tells, the message names the bucket.
    StorageError
        If storage refuses.
    """
    text = answer(Read(lambda: storage.read(MANIFEST_NAME), 0, f"reading {storage.place}/{MANIFEST_NAME}"))
    if text is None:
        if (bucket := _missing_bucket(storage)) is not None:
            raise InputError(f"{storage.place}: no bucket called {bucket}; correct its name")
        raise InputError(
            f"{storage.place}: no manifest.json there, so it is not an index; build one with: "
            f"indexmill build --out {storage.place}; or correct the bucket or the path"
        )
    return text


def _missing_bucket(storage: Storage) -> str | None:
    """Return the bucket of a URL if S3 tells that there is none; a read finds nothing in either case."""
    if storage.filesystem.type_name != "s3":  # others may not show a bucket that is empty
        return None
    bucket = urlsplit(storage.place).netloc
    with suppress(OSError, pa.ArrowException):  # who may read objects need not be allowed to look for buckets
        if storage.filesystem.get_file_info(bucket).type == fs.FileType.NotFound:
            return bucket
    return None


def _kept(cache: Path, text: bytes) -> Path:
    """Return the directory that an index has, or would have, in the cache."""
    return cache / hashlib.sha256(text).hexdigest()[:32]


def _opened(kept: Path) -> Path:
    """Note that an index in the cache is opened now."""
    os.utime(kept)
    return kept


def read_manifest_at(storage: Storage) -> Manifest:
    """Return the manifest in the mirror of a URL, which errors name.

    Raises
    ------
    OtherKind
        If it is that of a set of indexes.
    FormatError
        If it is damaged.
    """
    try:
        return parse_manifest(storage.mirror)
    except OtherKind:
        raise OtherKind(
            f"{storage.place}: a set of indexes, whose parts are opened on this machine; copy it to a local directory, "
            "and name that"
        ) from None
    except FormatError as error:
        raise type(error)(str(error).replace(str(storage.mirror), storage.place)) from None


def _fetch_files(storage: Storage, manifest: Manifest) -> FormatError | None:
    """Fetch the files of an index beside its manifest; return what is wrong with one, if something is."""
    folder = storage.local(data_folder(manifest.build_id))
    there = storage.list()
    for entry in manifest.files:
        name = f"{folder.name}/{entry.name}"
        if name not in there and entry.name in there:  # copied from a local directory
            name = entry.name
        if there.get(name) != entry.bytes:
            return CorruptFile(
                f"{storage.place}/{name}: expected {entry.bytes:,} bytes, got {there.get(name, 'no such object')}; "
                "copy the index there again, or rebuild it"
            )
        try:
            found = file_sha256(storage.fetch(name))
        except (FileNotFoundError, StorageError) as error:
            if isinstance(error, StorageError) and storage.exists(name):
                raise
            return CorruptFile(f"{storage.place}/{name}: gone while it was read")
        if found != entry.sha256:
            return CorruptFile(
                f"{storage.place}/{name}: SHA-256: expected {entry.sha256}, got {found}; the object is damaged: copy "
                "the index there again, or rebuild it"
            )
    return None


def _keep(storage: Storage, manifest: Manifest, kept: Path) -> Path:
    """Give the fetched files one directory, which appears under its name at once."""
    whole = storage.mirror / kept.name
    whole.mkdir()
    folder = data_folder(manifest.build_id)
    for name in [entry.name for entry in manifest.files]:
        source = storage.local(f"{folder}/{name}")
        (source if source.exists() else storage.local(name)).rename(whole / name)
    run = storage.read(f"{folder}/{RUN_NAME}") or storage.read(RUN_NAME)
    if run is not None:
        (whole / RUN_NAME).write_bytes(run)
    (storage.mirror / MANIFEST_NAME).rename(whole / MANIFEST_NAME)
    if not (kept.exists() and exchange(whole, kept)):
        if kept.exists():
            kept.rename(storage.mirror / "replaced")
        whole.rename(kept)
    return _opened(kept)


def told_of_cache(cache: Path, path: str, reason: str) -> str:
    """Return the message of a full disk; see `indexmill.pipeline.mill.disk.told_when_full`."""
    return (
        f"{path or cache}: {reason}; free some space, or name a directory on another disk with {CACHE_VARIABLE}: "
        "what is read at URLs is kept there"
    )


@contextmanager
def _locked(cache: Path, url: str) -> Iterator[None]:
    """Hold the lock of the cache. The lock file names the process that has it."""
    with open(cache / _LOCK_NAME, "a+") as lock:
        _wait_for(lock, cache)
        lock.truncate(0)
        lock.write(f"process {os.getpid()}, which fetches {shown_url(url)}")
        lock.flush()
        yield


def _wait_for(lock: TextIO, cache: Path) -> None:
    """Take a lock; after `QUIET_SECONDS` say whom it is waited for."""
    end = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < end:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_LOOK_SECONDS)
    lock.seek(0)
    holder = lock.read() or "another program"
    print(f"waiting for {holder}; it has the lock of {cache}", file=sys.stderr, flush=True)
    fcntl.flock(lock, fcntl.LOCK_EX)
