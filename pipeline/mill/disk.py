"""The error of a file system that takes no more, in the words of who writes."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from indexmill.formats.errors import BudgetError
from indexmill.formats.pagefile.atomic import NO_SPACE

#: What numpy says, without a number of the system, of a file that took a part of an array.
_CUT_SHORT = re.compile(r"\d+ requested and \d+ written")


def refusal(error: OSError) -> tuple[str, str] | None:
    """Return the file that could not be written, empty where the system names none, and why.

    None if the file system did not refuse because it is full, read-only or allows no larger file.
    """
    if error.errno is None and _CUT_SHORT.fullmatch(str(error)):
        return "", f"the disk took a part of an array ({error})"
    if error.errno not in NO_SPACE:
        return None
    said, reason = error.strerror or "", os.strerror(error.errno)
    if said.startswith(reason):  # else in the words of a library, which name no file either
        reason = said
    if error.errno == errno.EFBIG:
        reason += "; the file system or `ulimit -f` allows no larger file"
    return str(error.filename2 or error.filename or ""), reason  # of two names the second is written


@contextmanager
def told_when_full(tell: Callable[[str, str], str]) -> Iterator[None]:
    """Turn the error of a full or read-only file system into a BudgetError that names the remedy.

    Parameters
    ----------
    tell : callable
        ``tell(path, reason)``: the message; the path is empty where the system names none.

    Raises
    ------
    BudgetError
    """
    try:
        yield
    except OSError as error:
        refused = refusal(error)
        if refused is None:
            raise
        raise BudgetError(tell(*refused)) from error
