"""Room for many open files in this process."""

from __future__ import annotations

import resource

#: Files that a process has open besides those it asks room for.
_OTHER_FILES = 100


def allow_open(files: int) -> None:
    """Raise this process's limit of open files as far as it may, where `files` more need more than it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < files + _OTHER_FILES and soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
