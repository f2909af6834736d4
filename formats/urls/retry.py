"""Retries of calls to storage that may fail for a moment, after longer and longer waits."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from indexmill.formats.errors import StorageError, first_line

T = TypeVar("T")

#: Calls in all. At one failure in ten, one call in a hundred million fails for good.
TRIES = 8
#: Longest wait before the second call; it doubles up to the greatest: at most 22.6 s in all.
FIRST_SECONDS = 0.2
_MOST_SECONDS = 10.0
#: Errors that no wait mends, and words of such errors of AWS, which pyarrow raises as OSError, with what mends them.
#: pyarrow writes ``NO_SUCH_BUCKET`` and boto3 ``NoSuchBucket``.
_FINAL = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)
_CREDENTIALS = (
    "give credentials that are valid there, by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or the machine's "
    "role"
)
_FINAL_WORDS = {
    "nosuchbucket": "create the bucket, or correct its name",
    "accessdenied": f"allow listing, reading, writing and deleting there, or {_CREDENTIALS}",
    "invalidaccesskeyid": _CREDENTIALS,
    "signaturedoesnotmatch": _CREDENTIALS,
    "unable to locate credentials": _CREDENTIALS,
    "partial credentials": _CREDENTIALS,
    "expiredtoken": "get new temporary credentials: these are past their time",
    "requesttimetooskewed": "set the clock of this machine: it differs from that of the storage by minutes",
}


class Unanswered(OSError):
    """A call that writes or deletes has no answer: it may still take effect, so no other try is made beside it."""


def retried(call: Callable[[], T], what: str, wait: Callable[[float], None] = time.sleep) -> T:
    """Return ``call()``, made up to `TRIES` times while it raises what may pass.

    The wait before each is drawn evenly from zero to a bound that doubles, so that many workers that failed
    together do not come back together.

    Parameters
    ----------
    call : callable
        Safe to repeat.
    what : str
        For the error, such as ``"reading s3://bucket/file"``.
    wait : callable
        Gets seconds.

    Raises
    ------
    FileNotFoundError
        If `call` does.
    StorageError
        If it failed every time, or in a way that waiting does not mend.
    """
    for tried in range(1, TRIES + 1):
        try:
            return call()
        except FileNotFoundError:
            raise
        except (OSError, EOFError, pa.ArrowException) as error:
            if (final := final_error(error, what)) is not None:
                raise final from error
            if tried == TRIES:
                raise failed(what, TRIES, first_line(error)) from error
            wait(random.uniform(0, min(_MOST_SECONDS, FIRST_SECONDS * 2 ** (tried - 1))))
    raise AssertionError("unreachable")


def failed(what: str, tries: int, reason: str) -> StorageError:
    """Return what to raise for a call that failed every time; `what` is as for `retried`."""
    return StorageError(
        f"{what}: failed {tries} times ({reason}); check that the storage answers and run again: finished work is kept"
    )


def final_error(error: Exception, what: str) -> StorageError | None:
    """Return what to raise for an error that no wait mends; None for one that may pass.

    Parameters
    ----------
    what : str
        As for `retried`.
    """
    reason = first_line(error)
    if isinstance(error, Unanswered):
        return StorageError(
            f"{what}: {reason}; it may still take effect, so it was not tried again; check that the storage answers "
            "and run again"
        )
    said = reason.lower().replace("_", "")
    remedies = [remedy for words, remedy in _FINAL_WORDS.items() if words in said]
    if not isinstance(error, _FINAL) and not remedies:
        return None
    remedy = remedies[0] if remedies else "check path, rights and credentials"
    return StorageError(f"{what}: refused ({reason}); {remedy}")
