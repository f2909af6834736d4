"""A task on any node: its inputs are fetched before it runs, its outputs are pushed after."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from indexmill.formats.errors import FormatError
from indexmill.pipeline.urls.storage import Storage, open_storage


def run_localised(
    url: str, task: Callable[..., Any], packed: Any, target: str, directory: bool = False, **keywords: Any
) -> Any:
    """Run ``task(*arguments, target)`` on whichever node this is, between fetch and push.

    Parameters
    ----------
    url : str
        Of the work folder.
    task : callable
        Takes local paths.
    packed : tuple
        From `Storage.pack`.
    target : str
        Name of what the task writes, as its last argument.
    directory : bool
        Whether that is a directory, which the task finds empty, rather than a file.
    keywords
        For the task, such as its threads.
    """
    storage = open_storage(url)
    arguments = storage.unpack(packed)
    local = storage.local(target)
    partial_path = local.with_name(f"{local.name}.{secrets.token_hex(8)}.partial")
    local.parent.mkdir(parents=True, exist_ok=True)
    try:
        if directory:
            partial_path.mkdir()
        with _damage_forgotten(storage):
            result = task(*arguments, str(partial_path), **keywords)
        if local.is_dir():
            shutil.rmtree(local)
        os.replace(partial_path, local)
    finally:
        if directory:
            shutil.rmtree(partial_path, ignore_errors=True)
        else:
            partial_path.unlink(missing_ok=True)
    storage.push(target)
    if not directory:
        storage.confirm(target)
    return result


def run_localised_directory(
    url: str, task: Callable[..., Any], packed: Any, target: str, **keywords: Any
) -> Any:
    """See `run_localised`; the task writes a directory."""
    return run_localised(url, task, packed, target, directory=True, **keywords)


@contextmanager
def _damage_forgotten(storage: Storage) -> Iterator[None]:
    """Delete a damaged file from this node's mirror, so that the next task fetches it again."""
    try:
        yield
    except FormatError as error:
        if error.path is not None and Path(error.path).is_relative_to(storage.mirror):
            Path(error.path).unlink(missing_ok=True)
        raise
