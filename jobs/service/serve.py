"""Runs the service on an address until it is stopped."""

from __future__ import annotations

import fcntl
import ipaddress
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from indexmill.formats.errors import ConfigError, InputError
from indexmill.jobs.service.app import Service
from indexmill.jobs.service.connections import MOST_CONNECTIONS, PunctualProtocol
from indexmill.jobs.service.queue import is_own_file
from indexmill.jobs.service.runner import Settings, is_own_folder

#: Environment variable of the token.
TOKEN_VARIABLE = "INDEXMILL_SERVICE_TOKEN"
#: Fewest characters of a token.
LEAST_TOKEN = 16
#: Place of the container's name in the URL of object storage.
CONTAINER = "{container}"
#: Locked file in the work directory, by which a service knows the directory as its own.
_MARK = "service.lock"
#: Opens the URL of standard input: in a process of its own, because Arrow's client of S3 may crash where one ends. All
#: other errors than those of a URL, and a crash, are left to the first job.
_LOCATE = """
import sys
from indexmill.formats.errors import InputError
from indexmill.formats.sources.filesystem import locate
try:
    locate(sys.stdin.read())
except InputError as error:
    print(error)
    sys.exit(error.exit_code)
"""
#: Seconds that opening the URL may take.
LOCATE_SECONDS = 30.0
#: Schemes whose clients connect when they are made. With the stand-in for a container that would fail, or take minutes.
_CONNECTING = ("hdfs", "viewfs", "ftp", "sftp", "ssh", "smb")


def serve(settings: Settings, host: str, port: int, token: str | None) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises
    ------
    ConfigError
        If the address is open to others and there is no token; if the URL of storage has no place for a container, or
        cannot be opened; if the work directory is not the service's own, or another service uses it.
    CorruptFile
        If the queue is damaged.
    """
    if CONTAINER not in settings.storage:
        raise ConfigError(
            f"--storage: has no {CONTAINER}; expected a URL with {CONTAINER} where its name belongs, such as "
            f"s3://{CONTAINER}"
        )
    if token is None and not _is_loopback(host):
        raise ConfigError(
            f"--host: {host} is reached from other machines; set {TOKEN_VARIABLE}, or name a --token-file, or listen "
            "on 127.0.0.1"
        )
    _check_storage(settings.storage)
    with _held(settings), _listening(host, port) as listener:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
        config = configured(Service(settings, token).app)
        shown = f"[{host}]" if ":" in host else host
        print(f"listening on http://{shown}:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
        uvicorn.Server(config).run(sockets=[listener])


def configured(app: ASGIApp, **settings: Any) -> uvicorn.Config:
    """Return how uvicorn serves the service, with further settings of it."""
    return uvicorn.Config(
        app,
        http=PunctualProtocol,
        ws="none",  # else a request to open a WebSocket would pass by the token and the metrics
        log_level="error",  # not a line for each request that is refused
        limit_concurrency=MOST_CONNECTIONS + 1,  # it refuses at so many, that of the request included
        server_header=False,
        **settings,
    )


def read_token(file: Path | None) -> str | None:
    """Return the token of a file, else that of the environment; None without either.

    Raises
    ------
    ConfigError
        If it is too short to be a secret, or the file cannot be read.
    """
    where = TOKEN_VARIABLE if file is None else str(file)
    try:
        token = os.environ.get(TOKEN_VARIABLE) if file is None else file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--token-file: {file} cannot be read ({error}); name a file with the token"
        ) from None
    if token is not None and not token.isascii():
        raise ConfigError(f"{where}: the token has characters that HTTP does not carry; expected ASCII alone")
    if token is not None and len(token) < LEAST_TOKEN:
        raise ConfigError(f"{where}: a token of {len(token)} characters; expected at least {LEAST_TOKEN}")
    return token


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that accepts connections."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=MOST_CONNECTIONS)
    except (OSError, UnicodeError) as error:  # the latter of a name that no host may have
        said = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            f"--host, --port: cannot listen on {host}:{port} ({said}); name another address or port"
        ) from None


def _check_storage(storage: str) -> None:
    """Refuse a URL of which no build could be read; containers are not looked for."""
    url = storage.replace(CONTAINER, "container")
    # of simplecache::sftp://host both
    schemes = {part.partition("://")[0].lower() for part in url.split("::")}
    if not schemes.isdisjoint(_CONNECTING):
        return
    if url.startswith("s3://") and "region=" not in url:
        url += f"{'&' if '?' in url else '?'}region=us-east-1"  # else S3 is asked for that of a container
    command = [sys.executable, "-c", _LOCATE]
    try:
        found = subprocess.run(
            command, input=url, capture_output=True, text=True, check=False, timeout=LOCATE_SECONDS
        )
    except subprocess.TimeoutExpired:
        return
    if found.returncode == InputError.exit_code:
        raise ConfigError(f"--storage: {found.stdout.strip()}")


@contextmanager
def _held(settings: Settings) -> Iterator[None]:
    """Keep other services away from a work directory, whose folders are made; refuse one of somebody else."""
    folder = work = settings.work
    try:
        _check_own(settings)
        for folder in (work, settings.jobs, settings.builds):
            folder.mkdir(parents=True, exist_ok=True)
        lock = open(work / _MARK, "w")  # noqa: SIM115 - held until the end
    except OSError as error:
        raise ConfigError(
            f"--work: {folder} cannot be written ({error.strerror}); name another directory"
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"--work: {work} is in use by another service; stop it or name another directory"
            ) from None
        yield


def _check_own(settings: Settings) -> None:
    """Refuse a directory that no service made its own, and whose `jobs` or `builds` hold something else already."""
    if (settings.work / _MARK).exists():
        return
    for folder, is_own in ((settings.jobs, is_own_file), (settings.builds, is_own_folder)):
        for other in sorted(folder.iterdir()) if folder.is_dir() else ():
            if not is_own(other.name):
                raise ConfigError(
                    f"--work: {other} is not of this service, which keeps its files in {folder}; name a directory of "
                    "its own"
                )
