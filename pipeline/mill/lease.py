"""A lease on a work folder on storage, renewed while a build runs, so that only one build runs there.

A build keeps an empty object ``building/<host>-<token>``, which it writes anew every few seconds. The token is the
mirror's, so that a build that was killed finds its own object again and resumes at once. A build that arrives writes
its own object first and then looks for others: of two that arrive together, at least one sees the other. Ages are
differences of times that storage gave, so clocks of machines do not matter.
"""

from __future__ import annotations

import re
import secrets
import socket
import threading
from contextlib import suppress
from pathlib import Path

from indexmill.formats.errors import ConfigError, StorageError
from indexmill.pipeline.mill.storage import Storage

FOLDER = "building"
_LEASE = re.compile(FOLDER + r"/[A-Za-z0-9._-]+-[0-9a-f]{16}")
#: Seconds after which a build that no longer writes its object counts as dead.
LEASE_SECONDS = 60
_RENEW_SECONDS = 10.0
_TOKEN_NAME = ".token"


class Lease:
    """Held from `take` to `release`.

    A build that storage does not hear of for `LEASE_SECONDS`, because its machine slept or its network was gone, may
    lose the folder to another; it ends at its next `check`. Tasks that it has in flight then still write their files,
    which have the bytes that the other's would have.

    Parameters
    ----------
    storage : Storage
        Its mirror must be this build's alone.
    renew_seconds : float
        Time between two notes that the build lives.
    option : {"work", "out"}
        What named the folder, for errors.
    """

    def __init__(self, storage: Storage, renew_seconds: float = _RENEW_SECONDS, option: str = "work") -> None:
        self._storage, self._renew_seconds, self._option = storage, renew_seconds, option
        host = re.sub(r"[^A-Za-z0-9.-]", "_", socket.gethostname())
        self.name = f"{FOLDER}/{host}-{_token(storage.mirror)}"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def take(self) -> None:
        """Begin to hold the folder.

        Raises
        ------
        ConfigError
            If another build holds it.
        """
        self._storage.touch(self.name)
        try:
            self._refuse_others(forget=True)
        except BaseException:
            self.release()
            raise
        self._thread.start()

    def check(self) -> None:
        """Make sure that the folder is still this build's.

        Raises
        ------
        ConfigError
            If it is not.
        """
        self._refuse_others()

    def release(self) -> None:
        """Give the folder up; should storage fail now, the object expires."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        with suppress(StorageError):
            self._storage.delete(self.name)

    def _refuse_others(self, forget: bool = False) -> None:
        times = {name: then for name, then in self._storage.times(FOLDER).items() if is_lease(name)}
        if self.name not in times:
            raise ConfigError(
                f"{self._option}: {self._storage.place}: this build was not heard of for {LEASE_SECONDS} s and another "
                "one took the folder; wait for that and run again"
            )
        now = times.pop(self.name)
        for name, then in times.items():
            if now is not None and then is not None and now - then > LEASE_SECONDS * 10**9:
                if forget:
                    self._storage.delete(name)
                continue
            raise ConfigError(
                f"{self._option}: {self._storage.place} is in use by another build, on {name[len(FOLDER) + 1 :]}; "
                f"wait for it or name another --{self._option}; if it was killed, wait {LEASE_SECONDS} s or "
                f"delete {name} there"
            )

    def _renew(self) -> None:
        while not self._ended.wait(self._renew_seconds):
            with suppress(StorageError):  # tried again; whether it was too late is for `check` to see
                if not self._storage.exists(self.name):
                    return  # taken over
                self._storage.touch(self.name)


def is_lease(name: str) -> bool:
    """Return whether an object is called as leases are."""
    return _LEASE.fullmatch(name) is not None


def _token(mirror: Path) -> str:
    """Return the random name of a mirror, made when it is first used; its lock is held."""
    path = mirror / _TOKEN_NAME
    with suppress(FileNotFoundError):
        if token := path.read_text():
            return token
    token = secrets.token_hex(8)
    path.write_text(token)
    return token
