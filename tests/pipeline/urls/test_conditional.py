"""Which answers of S3 pass, and what mends the others."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from indexmill.formats.errors import StorageError
from indexmill.formats.urls.retry import TRIES, retried
from indexmill.pipeline.urls.conditional import raised_as_os_errors


def tries_of(status: int, code: str) -> tuple[int, str]:
    """Return how often a call that is answered so is made, and its error."""
    calls = []

    def call() -> None:
        calls.append(1)
        with raised_as_os_errors():
            answer = {
                "Error": {"Code": code, "Message": "no"},
                "ResponseMetadata": {"HTTPStatusCode": status},
            }
            raise ClientError(answer, "PutObject")

    with pytest.raises(StorageError) as caught:
        retried(call, "writing s3://b/x", lambda seconds: None)
    return len(calls), str(caught.value)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "RequestTimeout"), (408, "RequestTimeout"), (409, "ConditionalRequestConflict"),
        (412, "PreconditionFailed"), (425, "TooEarly"), (429, "TooManyRequests"), (400, "Throttling"),
        (503, "SlowDown"), (500, "InternalError"),
    ],
)  # fmt: skip
def test_answers_that_pass_are_asked_for_again(status: int, code: str) -> None:
    assert tries_of(status, code)[0] == TRIES


@pytest.mark.parametrize(
    ("status", "code", "remedy"),
    [
        (400, "ExpiredToken", "get new temporary credentials"),
        (403, "RequestTimeTooSkewed", "set the clock of this machine"),
        (403, "AccessDenied", "allow listing, reading, writing"),
        (400, "InvalidRequest", "check path, rights and credentials"),
    ],
)
def test_answers_that_do_not_pass_are_told_with_what_mends_them(status: int, code: str, remedy: str) -> None:
    tries, message = tries_of(status, code)
    assert tries == 1
    assert remedy in message
