"""Tell URLs from paths of this machine."""

from __future__ import annotations

import os
import re
from typing import TypeGuard
from urllib.parse import parse_qsl, quote, unquote

from indexmill.formats.errors import ConfigError

#: A scheme and a slash. `pathlib.Path` makes one slash of two, so ``s3:/bucket`` was a URL, too.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.:-]*):/")
_LOCAL_SCHEME = "file"
_HERE = ("", "localhost")
#: Options of URLs whose values are secrets, the shortest text that is taken for one, and what stands in its place.
_SECRET, _LEAST_SECRET, _HIDDEN = re.compile("key|secret|token|password|sas", re.IGNORECASE), 4, "***"


def has_scheme(path: str | os.PathLike[str]) -> bool:
    """Return whether a path begins as a URL does, ``file://`` among them."""
    return _URL.match(os.fspath(path)) is not None


def is_url(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a URL of another place than this machine; ``file://`` is this machine."""
    found = _URL.match(os.fspath(path))
    return found is not None and found[1].lower() != _LOCAL_SCHEME


def local_path(path: str | os.PathLike[str], name: str) -> str:
    """Return a path of this machine as the operating system has it; one that begins with ``file://`` is decoded.

    Parameters
    ----------
    name : str
        The option or argument, for the error.

    Raises
    ------
    ConfigError
        If it is a URL of another place.
    """
    text = os.fspath(path)
    if is_url(text):
        raise ConfigError(
            f"{name}: {shown_url(text)} is a URL; expected a path of this machine; name a local directory or "
            f"file, and copy it; a local folder of that name is written ./{text.partition('/')[0]}/"
        )
    if not has_scheme(text):
        return text
    rest = text.partition(":")[2]
    host, slash, below = rest[2:].partition("/") if rest.startswith("//") else ("", "/", rest[1:])
    if host.lower() not in _HERE or not slash:
        raise ConfigError(
            f"{name}: {text} names the machine {host!r}; expected file:///PATH, of this machine"
        )
    return "/" + unquote(below)


def path_or_url(path: str | os.PathLike[str], name: str) -> str:
    """Return a path of this machine as `local_path` does, and a URL as one writes it: with two slashes at least."""
    text = os.fspath(path)
    if not is_url(text):
        return local_path(text, name)
    return _with_slashes(text)


def is_mirrored(work: str | None) -> TypeGuard[str]:
    """Return whether a work folder is at a URL, also at ``file://``: nodes reach it through a mirror of their own."""
    return work is not None and has_scheme(work) and "://" in work


def work_folder(path: str | os.PathLike[str]) -> str:
    """Return a work folder as `path_or_url` does, except that one at ``file://`` stays a URL: see `is_mirrored`."""
    text = os.fspath(path)
    return text if is_mirrored(text) else path_or_url(text, "work")


def local_name(path: str | os.PathLike[str]) -> str:
    """Return what files of this machine that belong to a path or URL are named after: of a URL its last part."""
    text = os.fspath(path)
    return shown_url(text).rstrip("/").rpartition("/")[2] if is_url(text) else text


def shown_path(path: str | os.PathLike[str]) -> str:
    """Return a path as it was given, and a URL as `shown_url` does, for messages."""
    return shown_url(os.fspath(path)) if is_url(path) else str(path)


def shown_url(url: str) -> str:
    """Return a URL without options and credentials, for messages."""
    scheme, _, rest = _with_slashes(url).partition("://")
    return f"{scheme.lower()}://{_split(rest)[1]}"


def without_credentials(text: str, url: str) -> str:
    """Return what a library said of a URL, without the URL's options and credentials."""
    _, _, rest = _with_slashes(url).partition("://")
    pair, _ = _split(rest)
    password = pair.partition(":")[2]
    options = parse_qsl(rest.partition("?")[2])
    secrets = [password, *(value for name, value in options if _SECRET.search(name))]
    text = text.replace(url, shown_url(url))
    for hidden in (pair, *(form for one in secrets for form in (one, unquote(one), quote(one, safe="")))):
        if len(hidden) >= _LEAST_SECRET:
            text = text.replace(hidden, _HIDDEN)
    return text


def _with_slashes(url: str) -> str:
    return url if "://" in url else url.replace(":/", "://", 1)


def _split(rest: str) -> tuple[str, str]:
    """Return credentials and place of what follows the two slashes of a URL.

    A secret may contain slashes, so credentials end at the last ``@`` before the options if they contain a colon.
    """
    place = re.split("[?#]", rest, maxsplit=1)[0]
    pair, at, after = place.rpartition("@")
    if at and ":" in pair:
        return pair, after
    host, slash, below = place.partition("/")
    user, _, host = host.rpartition("@")
    return user, host + slash + below
