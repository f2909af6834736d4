"""A whole build as one line on a terminal: its stage, how far the build is, and the time left by its plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from indexmill.jobs.console.forecast import Forecast

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

#: Stages that the last line names.
_LONGEST = 3
_BAR_WIDTH = 28


@dataclass(frozen=True)
class _Made:
    name: str
    seconds: float
    reused: bool


class WholeBuild:
    """Draws one line while a build runs, and leaves one that says how long it took, or where it stopped.

    Use it as a context manager: an exception that leaves it stops the build.

    Parameters
    ----------
    console : Console
    clock : callable
        Seconds that only grow.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.live import Live

        self._clock = clock
        self._console = console
        self._forecast: Forecast | None = None
        self._made: list[_Made] = []
        self._stage, self._total, self._unit, self._done = "", 0, "", 0
        self._farthest = 0.0
        self._began = self._stage_began = clock()
        self._live = Live(get_renderable=self.line, console=console, transient=True, refresh_per_second=5)

    def __enter__(self) -> WholeBuild:
        self._began = self._clock()
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._live.stop()
        last = self.summary() if kind is None else self.stopped()
        if self._made or self._stage:
            self._console.print(last, highlight=False, markup=False, soft_wrap=True)

    def plan(self, seconds: Mapping[str, float] | None) -> None:
        """Take the seconds that each stage is predicted to take, None if there is no plan.

        What was started meanwhile was the planning, which is no stage of the build.
        """
        if seconds is not None:
            self._forecast = Forecast(seconds)
        self._end_stage()

    def start(self, stage: str, total: int, unit: str) -> None:
        """Begin `stage`."""
        self._stage, self._total, self._unit, self._done = stage, total, unit, 0
        self._stage_began = self._clock()

    def advance(self, steps: int) -> None:
        """Count `steps` of the current stage as done."""
        self._done += steps

    def finish(self, note: str = "") -> None:
        """End the current stage."""
        seconds, reused = self._clock() - self._stage_began, note == "reused"
        self._made.append(_Made(self._stage, seconds, reused))
        if self._forecast is not None:
            self._forecast.finish(self._stage, seconds, reused)
        self._end_stage()

    def _end_stage(self) -> None:
        self._stage, self._done, self._total = "", 0, 0
        self._stage_began = self._clock()

    def line(self) -> Table:
        """Return the line as it is now."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        now = self._clock()
        share = min(self._done / self._total, 1.0) if self._total else 0.0
        steps = f"{self._done:,} / {self._total:,} {self._unit}" if self._total > 1 else ""
        passed, left = now - self._began, None
        if self._forecast is not None:
            left = self._forecast.left(self._stage, share, now - self._stage_began)
            share = passed / (passed + left) if passed + left > 0 else 0.0
            # a build that turns out longer does not go back
            self._farthest = share = max(share, self._farthest)
        table = Table.grid(padding=(0, 2))
        table.add_row(
            Text(self._name(), no_wrap=True),
            ProgressBar(total=1.0, completed=share, width=_BAR_WIDTH),
            Text(steps, no_wrap=True),
            Text(clock_time(passed) if left is None else f"{clock_time(left)} left", no_wrap=True),
        )
        return table

    def _name(self) -> str:
        if self._forecast is None:
            return self._stage
        number, of = self._forecast.place(self._stage)
        return f"{self._stage} ({number} of {of})"

    def summary(self) -> str:
        """Return the line that is left: stages and seconds, and which stages took longest."""
        new = [one for one in self._made if not one.reused]
        longest = sorted(new, key=lambda one: -one.seconds)[:_LONGEST]
        stages = "1 stage" if len(self._made) == 1 else f"{len(self._made)} stages"
        said = f"{stages} in {self._clock() - self._began:.1f} s"
        if len(new) < len(self._made):
            said += f", {len(self._made) - len(new)} of them reused"
        return said + "".join(
            f"{'; longest: ' if i == 0 else ', '}{one.name} {one.seconds:.1f} s"
            for i, one in enumerate(longest)
        )

    def stopped(self) -> str:
        """Return the line that is left of a build that failed or was interrupted: where it was, and its seconds."""
        where = f"in {self._name()}" if self._stage else f"between stages, {len(self._made)} done,"
        return f"stopped {where} after {self._clock() - self._began:.1f} s"


def clock_time(seconds: float) -> str:
    """Print a duration as ``0:07``, ``12:40`` or ``3:05:00``, hours only where there are some."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
