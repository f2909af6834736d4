"""Progress on stderr: bars, or one line for a whole build, on a terminal; a line for each finished stage elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from indexmill.jobs.console.whole import WholeBuild

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from indexmill.pipeline.mill.progress import Progress


class Bar:
    """Draws the running stage and leaves a line for each finished one; use it as a context manager."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.bars: Bars = Progress(
            TextColumn("{task.description:<10}"),
            BarColumn(bar_width=32),
            TextColumn("{task.completed:>11,.0f} / {task.total:,.0f} {task.fields[unit]}"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._clock = StageClock()

    def __enter__(self) -> Bar:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def start(self, stage: str, total: int, unit: str) -> None:
        """Begin a bar for `stage`."""
        self._clock.start(stage, unit)
        self._task = self.bars.add_task(stage, total=total, unit=unit, rate="")

    def advance(self, steps: int) -> None:
        """Move the bar by `steps`."""
        if self._task is not None:
            self._clock.advance(steps)
            self.bars.update(self._task, advance=steps, rate=self._clock.rate())

    def finish(self, note: str = "") -> None:
        """Replace the bar by a line."""
        if self._task is not None:
            self.bars.remove_task(self._task)
            self._task = None
        self.bars.console.print(self._clock.line(note), highlight=False, markup=False)


class Lines:
    """Writes one line per finished stage to stderr: what a log file wants."""

    def __init__(self) -> None:
        self._clock = StageClock()

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def start(self, stage: str, total: int, unit: str) -> None:
        """Remember when `stage` began."""
        self._clock.start(stage, unit)

    def advance(self, steps: int) -> None:
        """Count `steps`."""
        self._clock.advance(steps)

    def finish(self, note: str = "") -> None:
        """Write the stage's line."""
        print(self._clock.line(note), file=sys.stderr, flush=True)


class StageClock:
    """Counts the steps and the seconds of the current stage."""

    def __init__(self) -> None:
        self.start("", "")

    def start(self, stage: str, unit: str) -> None:
        """Begin to count for `stage`."""
        self._stage, self._unit = stage, unit
        self._done = 0
        self._began = time.monotonic()

    def advance(self, steps: int) -> None:
        """Count `steps` as done."""
        self._done += steps

    def rate(self) -> str:
        """Steps a second so far, such as ``"12,400/s"``; empty before the first step."""
        seconds = time.monotonic() - self._began
        return f"{self._done / seconds:,.0f}/s" if self._done and seconds > 0 else ""

    def line(self, note: str) -> str:
        """One line about the finished stage: what was done, then its note or else its seconds."""
        did = f"{self._done:,} {self._unit}" if self._done else ""
        return f"{self._stage:<10} {did:>18}  {note or f'{time.monotonic() - self._began:.1f} s'}"


def stderr_progress() -> Bar | Lines:
    """Bars where stderr is a terminal, lines elsewhere."""
    from rich.console import Console

    console = Console(stderr=True)
    return Bar(console) if console.is_terminal else Lines()


def shown_progress(is_shown: bool) -> AbstractContextManager[Progress | None]:
    """Return `stderr_progress` if progress is shown at all, else None, in a context."""
    return stderr_progress() if is_shown else nullcontext()


def build_progress() -> WholeBuild | Lines:
    """One line for the whole build where stderr is a terminal, a line for each stage elsewhere."""
    from rich.console import Console

    console = Console(stderr=True)
    return WholeBuild(console) if console.is_terminal else Lines()
