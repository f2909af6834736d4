"""The error of a file system that takes no more, in the words of who writes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from indexmill.formats.errors import BudgetError

#: A full disk, a full share of it, and a file system that can only be read.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


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
        if error.errno not in NO_SPACE:
            raise
        raise BudgetError(tell(error.filename or "", os.strerror(error.errno))) from error
