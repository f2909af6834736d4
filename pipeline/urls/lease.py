"""A lease on a work folder on storage, renewed while a build runs, so that only one build runs there.

A build keeps an empty object ``building/<host>-<token>``, which it writes anew every few seconds. The token is the
mirror's, so that a build that was killed finds its own object again and resumes at once. A build that arrives asks
first: it writes ``building/<host>-<token>.asking`` and then looks for others: of two that ask together, at least one
sees the other. The build that holds the folder looks only for others that hold it, so one that asks, and is refused,
does not disturb it. Ages are differences of times that storage gave, so clocks of machines do not matter.
"""

from __future__ import annotations

import re
import secrets
import socket
import threading
from contextlib import suppress
from pathlib import Path

from indexmill.formats.errors import ConfigError, StorageError
from indexmill.formats.urls.client import answer_seconds
from indexmill.pipeline.urls.storage import Storage

FOLDER = "building"
_ASKING = ".asking"
_LEASE = re.compile(FOLDER + r"/[A-Za-z0-9._-]+-[0-9a-f]{16}(\.asking)?")
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
        self._question = self.name + _ASKING
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def take(self) -> None:
        """Begin to hold the folder.

        Raises
        ------
        ConfigError
            If another build holds it.
        """
        try:
            self._storage.touch(self._question)
            self._refuse_others(self._question, self._leases(), forget=True)
            self._storage.touch(self.name)
            leases = self._leases()
            if self._question not in leases:
                raise self._lost()  # writing took so long that another build took this one for dead
            self._refuse_others(self.name, _held(leases))
            self._storage.delete(self._question)
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
        self._refuse_others(self.name, _held(self._leases()))

    def release(self) -> None:
        """Give the folder up; should storage fail now, or a note arrive later, the object expires."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(answer_seconds(0))
        with suppress(StorageError):  # where one cannot be deleted, the other would only wait as long again
            for name in (self.name, self._question):
                self._storage.delete(name)

    def _leases(self) -> dict[str, int | None]:
        """Return the objects of all builds and when they were written."""
        return {name: then for name, then in self._storage.times(FOLDER).items() if is_lease(name)}

    def _refuse_others(self, own: str, times: dict[str, int | None], forget: bool = False) -> None:
        """Raise ConfigError if an object that is not too old is another build's, or `own` is gone."""
        if own not in times:
            raise self._lost()
        now = times[own]
        for name in (self.name, self._question):
            times.pop(name, None)
        for name, then in times.items():
            if now is not None and then is not None and now - then > LEASE_SECONDS * 10**9:
                if forget:
                    self._storage.delete(name)
                continue
            host = name[len(FOLDER) + 1 :].removesuffix(_ASKING)
            raise ConfigError(
                f"{self._option}: {self._storage.place} is in use by another build, on {host}; "
                f"wait for it or name another --{self._option}; if it was killed, wait {LEASE_SECONDS} s or "
                f"delete {name} there"
            )

    def _lost(self) -> ConfigError:
        return ConfigError(
            f"{self._option}: {self._storage.place}: this build was not heard of for {LEASE_SECONDS} s and another "
            "one took the folder; wait for that and run again"
        )

    def _renew(self) -> None:
        while not self._ended.wait(self._renew_seconds):
            with suppress(StorageError):  # tried again; whether it was too late is for `check` to see
                if not self._storage.exists(self.name):
                    return  # taken over
                if not self._ended.is_set():
                    self._storage.touch(self.name)


def _held(leases: dict[str, int | None]) -> dict[str, int | None]:
    """Return those of builds that hold the folder, without those that ask for it."""
    return {name: then for name, then in leases.items() if not name.endswith(_ASKING)}


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
