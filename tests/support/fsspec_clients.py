"""Clients of fsspec that fail, are slow, or lack what others have."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem


class ClientError(Exception):
    """An error of a client's own, as most clients have."""

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class FlakyClient(MemoryFileSystem):
    """Files in memory, whose calls fail as `failing` says: it gets the name of the call, and returns the error.

    It may also wait, as a call that hangs.
    """

    protocol = "flaky"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    cachable = False
    failing: ClassVar[Callable[[str], Exception | None]] = staticmethod(lambda call: None)
    calls: ClassVar[list[str]] = []

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return str(MemoryFileSystem._strip_protocol(str(path).replace("flaky://", "memory://")))

    def _fail(self, call: str) -> None:
        FlakyClient.calls.append(call)
        error = FlakyClient.failing(call)
        if error is not None:
            raise error

    def info(self, path: str, **options: Any) -> Any:
        self._fail("info")
        return super().info(path, **options)

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        self._fail("ls")
        return super().ls(path, detail, **options)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        self._fail("cat_file")
        return bytes(super().cat_file(path, start, end, **options))

    def _open(self, path: str, mode: str = "rb", *how: Any, **options: Any) -> Any:
        if "w" in mode:
            self._fail("open")
        return super()._open(path, mode, *how, **options)

    def isfile(self, path: str) -> bool:  # as clients of object stores have it
        return bool(AbstractFileSystem.isfile(self, path))


class TaggingClient(MemoryFileSystem):
    """Files in memory, of which `told` is said besides what is true of all files in memory."""

    protocol = "tagging"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    cachable = False
    told: ClassVar[dict[str, Any]] = {}

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return str(MemoryFileSystem._strip_protocol(str(path).replace("tagging://", "memory://")))

    def info(self, path: str, **options: Any) -> Any:
        return super().info(path, **options) | TaggingClient.told


class SlowClient(AbstractFileSystem):
    """Files of zeros, that answer a range after a while; `ranges` has those that were asked for."""

    protocol = "slow"
    cachable = False
    ranges: ClassVar[list[tuple[int, int]]] = []
    seconds: ClassVar[float] = 0.05
    at_once: ClassVar[list[int]] = [0, 0]
    _counting = threading.Lock()

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return str(path).split("://", 1)[-1]

    def info(self, path: str, **options: Any) -> Any:
        return {"name": path, "size": 100 << 20, "type": "file"}

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, **options: Any) -> Any:
        return _SlowFile(
            self, path, mode, block_size or "default", cache_type=options.get("cache_type", "readahead")
        )


class _SlowFile(AbstractBufferedFile):
    def _fetch_range(self, start: int, end: int) -> bytes:
        with SlowClient._counting:
            SlowClient.at_once[0] += 1
            SlowClient.at_once[1] = max(SlowClient.at_once)
            SlowClient.ranges.append((start, end))
        time.sleep(SlowClient.seconds)
        with SlowClient._counting:
            SlowClient.at_once[0] -= 1
        return bytes(end - start)


class WithoutModes(MemoryFileSystem):
    """Files in memory, put without a condition: the call knows no ``mode``."""

    protocol = "withoutmodes"
    store: ClassVar[dict[str, Any]] = {}

    def pipe_file(self, path: str, value: bytes) -> None:  # type: ignore[override]
        super().pipe_file(path, value)


class WithoutCreation(MemoryFileSystem):
    """Files in memory, put without a condition: creation is refused."""

    protocol = "withoutcreation"
    store: ClassVar[dict[str, Any]] = {}

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        if mode == "create":
            raise NotImplementedError("exclusive creation")
        super().pipe_file(path, value)


class WithoutRanges(MemoryFileSystem):
    """Files in memory, of which a request for a range gets the whole."""

    protocol = "withoutranges"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return str(MemoryFileSystem._strip_protocol(str(path).replace("withoutranges://", "memory://")))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        return bytes(super().cat_file(path, **options))


for client in (FlakyClient, TaggingClient, SlowClient, WithoutModes, WithoutCreation, WithoutRanges):
    fsspec.register_implementation(client.protocol, client, clobber=True)
