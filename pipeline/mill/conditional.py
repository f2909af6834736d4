"""Putting an object only if nothing else was put there meanwhile: by the store's own condition, where it has one.

S3 has it (``If-Match``, ``If-None-Match``), but pyarrow does not ask for it: boto3 does, where it is installed. File
systems of fsspec can create an object that is not there. Elsewhere the object is compared and then put: what another
process puts between these two is lost, and a lease (`indexmill.pipeline.mill.lease`) has to keep others away.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from pyarrow import fs

from indexmill.formats.location import shown_url
from indexmill.pipeline.mill.retry import retried

#: Answers to two puts at once, and to a put whose condition does not hold.
_LOST = (409, 412)
#: The answer of servers that know no conditions.
_UNKNOWN = 501
#: The least answer that blames the server.
_SERVER = 500


class Replaced(Exception):
    """The object is another one than was expected."""


def put_if_same(url: str, filesystem: Any, path: str, seen: bytes | None, data: bytes) -> None:
    """Put an object in place of the one with the bytes `seen`; None: where there is none.

    Parameters
    ----------
    url : str
        One whose options and credentials reach `path`.
    filesystem : pyarrow.fs.FileSystem
    path : str
        Of the object inside `filesystem`.

    Raises
    ------
    Replaced
        If another object is there.
    StorageError
        If storage refuses, or does not answer.
    """
    if isinstance(filesystem, fs.S3FileSystem):
        with suppress(ImportError):
            _S3Object(url, path).put_if_same(seen, data)
            return
    what = f"writing {shown_url(url)}"
    there = retried(lambda: read_if_there(filesystem, path), what)
    if there == data:
        return
    if there != seen:
        raise Replaced
    if seen is None and isinstance(filesystem, fs.PyFileSystem):
        retried(lambda: _create(filesystem.handler.fs, path, data), what)
        if retried(lambda: read_if_there(filesystem, path), what) != data:
            raise Replaced
    else:
        retried(lambda: _put(filesystem, path, data), what)


def _create(filesystem: Any, path: str, data: bytes) -> None:
    with suppress(FileExistsError):  # another process was first, or an earlier try whose answer was lost
        filesystem.pipe_file(path, data, mode="create")


def _put(filesystem: Any, path: str, data: bytes) -> None:
    with filesystem.open_output_stream(path) as out:
        out.write(data)


def read_if_there(filesystem: Any, path: str) -> bytes | None:
    """Return the bytes of an object, or None."""
    if filesystem.get_file_info(path).type == fs.FileType.NotFound:
        return None
    with filesystem.open_input_stream(path) as file:
        return bytes(file.read())


class _S3Object:
    """An object that boto3 reaches at the address of a URL as pyarrow takes it."""

    def __init__(self, url: str, path: str) -> None:
        import boto3
        from botocore.config import Config

        parts = urlsplit(url)
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        host = options.get("endpoint_override")
        known = {"region_name": options.get("region")}
        if host is not None:
            known["endpoint_url"] = f"{options.get('scheme', 'https')}://{host}"
        if parts.username is not None:
            known["aws_access_key_id"] = unquote(parts.username)
            known["aws_secret_access_key"] = unquote(parts.password or "")
        addressing = {"addressing_style": "auto" if host is None else "path"}
        self._client = boto3.client("s3", config=Config(s3=addressing), **known)
        bucket, _, key = path.partition("/")
        self._place = {"Bucket": bucket, "Key": key}
        self._what = f"writing {shown_url(url)}"

    def put_if_same(self, seen: bytes | None, data: bytes) -> None:
        """See `put_if_same`; a put whose answer was lost on its way is found by reading again."""
        retried(lambda: self._try_to_put(seen, data), self._what)

    def _try_to_put(self, seen: bytes | None, data: bytes) -> None:
        """Put the object; raise OSError if another try may succeed, and PermissionError if none will."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            there, tag = self._read()
            if there == data:
                return
            if there != seen:
                raise Replaced
            self._client.put_object(Body=data, **self._place, **_condition(tag))
        except BotoCoreError as error:
            raise OSError(str(error)) from error
        except ClientError as error:
            answer = error.response["ResponseMetadata"]["HTTPStatusCode"]
            if answer == _UNKNOWN:  # compared it was: the lease has to do
                self._client.put_object(Body=data, **self._place)
                return
            passes = answer in _LOST or answer >= _SERVER
            raise (OSError if passes else PermissionError)(str(error)) from error

    def _read(self) -> tuple[bytes | None, str | None]:
        """Return the bytes of the object and its tag; None and None where there is none."""
        try:
            answer = self._client.get_object(**self._place)
        except self._client.exceptions.NoSuchKey:
            return None, None
        return answer["Body"].read(), answer["ETag"]


def _condition(tag: str | None) -> dict[str, str]:
    return {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
