"""Putting an object only if nothing else was put there meanwhile: by the store's own condition, where it has one.

S3 has it (``If-Match``, ``If-None-Match``), but pyarrow does not ask for it: boto3 does, where it is installed. File
systems of fsspec can create an object that is not there. Elsewhere the object is compared and then put: what another
process puts between these two is lost, and a lease (`indexmill.pipeline.urls.lease`) has to keep others away.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from pyarrow import fs

from indexmill.formats.errors import StorageError
from indexmill.formats.location import shown_url
from indexmill.formats.urls.client import ClientFiles, reached
from indexmill.formats.urls.retry import retried

#: Answers that pass: the server waited too long, two puts came at once, the condition of a put does not hold (what is
#: there is read again), it is too early, or there are too many requests.
_PASSING = (408, 409, 412, 425, 429)
#: Codes that pass, though S3 gives some of them with status 400.
_PASSING_CODES = ("RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequests")
#: The answer of servers that know no conditions.
_UNKNOWN = 501
#: The least answer that blames the server.
_SERVER = 500
#: Type of a file system, as pyarrow has it, that raises FileNotFoundError for what is not there, and for nothing else.
_S3 = "s3"
#: Seconds that S3 has to take a connection, and to send the next bytes.
CONNECT_SECONDS, READ_SECONDS = 10.0, 60.0


class Replaced(Exception):
    """The object is another one than was expected."""


class Conditional(Protocol):
    """An object that is put only in place of what is known to be there."""

    def read(self) -> bytes | None:
        """Return the bytes of the object, or None where there is none.

        Raises
        ------
        StorageError
            If storage refuses, or does not answer.
        """

    def put_if_same(self, seen: bytes | None, data: bytes) -> None:
        """Put `data` in place of the bytes `seen`; None: where there is no object.

        A put whose answer was lost on its way is found by reading again.

        Raises
        ------
        Replaced
            If another object is there.
        StorageError
            If storage refuses, or does not answer.
        """


def conditional(url: str, filesystem: Any, path: str) -> Conditional:
    """Return an object that the store's own condition guards, where it has one.

    Parameters
    ----------
    url : str
        One whose options and credentials reach `path`.
    filesystem : pyarrow.fs.FileSystem, or TimedFiles or ClientFiles
    path : str
        Of the object inside `filesystem`.

    Raises
    ------
    StorageError
        If there can be no client, such as for a profile that is not configured.
    """
    what = shown_url(url)
    if filesystem.type_name == _S3:
        with suppress(ImportError):
            import boto3

            return _S3Object(boto3, url, path, what)
    return _Compared(filesystem, path, what)


class _Compared:
    """An object that is compared and then put."""

    def __init__(self, filesystem: Any, path: str, url: str) -> None:
        self._filesystem, self._path, self._url = reached(filesystem), path, url

    def read(self) -> bytes | None:
        """See `Conditional.read`."""
        return retried(lambda: read_if_there(self._filesystem, self._path), f"reading {self._url}")

    def put_if_same(self, seen: bytes | None, data: bytes) -> None:
        """See `Conditional.put_if_same`."""
        filesystem, path, what = self._filesystem, self._path, f"writing {self._url}"
        there = self.read()
        if there == data:
            return
        if there != seen:
            raise Replaced
        if seen is None and isinstance(filesystem, ClientFiles):
            retried(lambda: filesystem.create(path, data), what)
            if self.read() != data:
                raise Replaced
        else:
            retried(lambda: _put(filesystem, path, data), what)


def _put(filesystem: Any, path: str, data: bytes) -> None:
    with filesystem.open_output_stream(path) as out:
        out.write(data)


def read_if_there(filesystem: Any, path: str) -> bytes | None:
    """Return the bytes of an object, or None; one that is there is asked for without a look first, where that is safe.

    Raises
    ------
    OSError
        If storage fails, or is of two minds.
    """
    has_looked = isinstance(filesystem, ClientFiles)
    is_sure = has_looked or filesystem.type_name == _S3
    if not is_sure and filesystem.get_file_info(path).type == fs.FileType.NotFound:
        return None
    try:
        with filesystem.open_input_stream(path) as file:
            return bytes(file.read())
    except FileNotFoundError:
        if has_looked or filesystem.get_file_info(path).type == fs.FileType.NotFound:
            return None
        raise OSError(f"{path}: found by a look, but not by a read") from None


class _S3Object:
    """An object that boto3 reaches at the address of a URL as pyarrow takes it."""

    def __init__(self, boto3: Any, url: str, path: str, shown: str) -> None:
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        parts = urlsplit(url)
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        host = options.get("endpoint_override")
        known = {"region_name": options.get("region")}
        if host is not None:
            known["endpoint_url"] = f"{options.get('scheme', 'https')}://{host}"
        if parts.username is not None:
            known["aws_access_key_id"] = unquote(parts.username)
            known["aws_secret_access_key"] = unquote(parts.password or "")
        config = Config(
            s3={"addressing_style": "auto" if host is None else "path"},
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"total_max_attempts": 1},  # `retried` counts
        )
        try:
            self._client = boto3.session.Session().client("s3", config=config, **known)
        except (BotoCoreError, ValueError) as error:
            raise StorageError(
                f"{shown}: no client for S3 ({error}); correct the options of the URL, and AWS_PROFILE and the other "
                "settings of AWS in the environment"
            ) from error
        bucket, _, key = path.partition("/")
        self._place = {"Bucket": bucket, "Key": key}
        self._url = shown

    def read(self) -> bytes | None:
        """See `Conditional.read`."""
        return retried(self._read, f"reading {self._url}")[0]

    def put_if_same(self, seen: bytes | None, data: bytes) -> None:
        """See `Conditional.put_if_same`."""
        retried(lambda: self._try_to_put(seen, data), f"writing {self._url}")

    def _try_to_put(self, seen: bytes | None, data: bytes) -> None:
        there, tag = self._read()
        if there == data:
            return
        if there != seen:
            raise Replaced
        try:
            self._put(data, _condition(tag))
        except _Unconditional:  # compared it was: the lease has to do
            self._put(data, {})

    def _put(self, data: bytes, condition: dict[str, str]) -> None:
        with raised_as_os_errors():
            self._client.put_object(Body=data, **self._place, **condition)

    def _read(self) -> tuple[bytes | None, str | None]:
        """Return the bytes of the object and its tag; None and None where there is none."""
        with raised_as_os_errors():
            try:
                answer = self._client.get_object(**self._place)
            except self._client.exceptions.NoSuchKey:
                return None, None
            return answer["Body"].read(), answer["ETag"]


class _Unconditional(OSError):
    """The server knows no conditions."""


@contextmanager
def raised_as_os_errors() -> Iterator[None]:
    """Raise OSError for what another try may mend, and PermissionError for what none will."""
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        ConnectionError,
        HTTPClientError,
        IncompleteReadError,
    )

    try:
        yield
    except (ConnectionError, HTTPClientError, IncompleteReadError) as error:
        raise OSError(str(error)) from error
    except BotoCoreError as error:
        raise PermissionError(str(error)) from error
    except ClientError as error:
        answer = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", _SERVER)
        told = {"Code": answer, "Message": error} | error.response.get("Error", {})
        reason = "{Code}: {Message}".format_map(told)
        if answer == _UNKNOWN:
            raise _Unconditional(reason) from error
        passes = answer in _PASSING or told["Code"] in _PASSING_CODES or answer >= _SERVER
        raise (OSError if passes else PermissionError)(reason) from error


def _condition(tag: str | None) -> dict[str, str]:
    return {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
