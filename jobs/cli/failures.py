"""Reports of errors: one message on stderr, and an exit code that a script can tell apart."""

from __future__ import annotations

import errno
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from indexmill.formats.errors import BudgetError, IndexmillError

#: Exit codes that a shell reports for a process that SIGINT or SIGTERM ended: 128 + 2, 128 + 15.
EXIT_INTERRUPTED, EXIT_TERMINATED = 130, 143

EXIT_CODES = (
    "Exit codes: 0 done; 1 the system refused (permission, storage); 2 wrong flag or job file; 3 unusable input"
    " or queries; 4 does not fit the memory or the disk; 5 the output exists (--force replaces it); 6 damaged, foreign,"
    " too old or too new index; 7 a gate of `compare` failed; 8 no layout can help (`layout --order auto`),"
    " or no setting reaches what was asked (`tune`); 130 interrupted;"
    " 143 terminated."
)


class Terminated(KeyboardInterrupt):
    """SIGTERM, which stops a command as cleanly as Ctrl-C does."""


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turn errors that a user can act on into a message and `SystemExit`; bugs keep their traceback."""
    try:
        with _sigterm_raises():
            yield
    except IndexmillError as error:
        _leave(str(error), error.exit_code)
    except Terminated:
        _leave("terminated; run it again to resume it where it stopped", EXIT_TERMINATED)
    except KeyboardInterrupt:
        _leave("interrupted; run it again to resume it where it stopped", EXIT_INTERRUPTED)
    except MemoryError as error:
        _leave(
            f"out of memory: {error}; use less data, a smaller --memory or fewer workers",
            BudgetError.exit_code,
        )
    except BrokenPipeError:
        raise  # the reader of our output, such as `head`, is gone; the caller ends quietly
    except OSError as error:
        from indexmill.pipeline.mill.disk import refusal

        refused = refusal(error)
        if refused is not None and error.errno != errno.EROFS:
            what = ": ".join(filter(None, refused))
            _leave(f"{what}; free some space or write elsewhere, and run again", BudgetError.exit_code)
        where = f"{error.filename}: " if error.filename else ""
        _leave(f"{where}{error.strerror or error}", IndexmillError.exit_code)


def _leave(message: str, code: int) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(code)
