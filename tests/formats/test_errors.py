"""The line that messages take from an error of a library."""

from __future__ import annotations

import pytest

from indexmill.formats.errors import first_line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError("gone"), "gone"),
        (ValueError("\n  first\nsecond"), "first"),
        (KeyError(), "KeyError"),
        (TimeoutError("  \n"), "TimeoutError"),
    ],
)
def test_an_error_is_told_in_one_line_that_is_not_blank(error: Exception, line: str) -> None:
    assert first_line(error) == line
