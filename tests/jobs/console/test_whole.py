"""One line for a whole build: its stage, how far it is, the time left by the plan, and a summary at the end."""

from __future__ import annotations

import contextlib
import io

import pytest
from rich.console import Console

from indexmill.jobs.console.forecast import Forecast
from indexmill.jobs.console.whole import WholeBuild, clock_time

PLAN = {"ingest": 10.0, "build": 20.0, "emit": 30.0}


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def shown(bar: WholeBuild) -> str:
    """The line as a wide terminal shows it."""
    out = io.StringIO()
    Console(file=out, width=160).print(bar.line())
    return out.getvalue()


def test_at_first_the_time_left_is_that_of_the_plan() -> None:
    assert Forecast(PLAN).left("", 0.0, 0.0) == 60
    assert Forecast(PLAN).left("ingest", 0.0, 4.0) == 56


def test_a_slow_stage_makes_the_stages_to_come_slower() -> None:
    forecast = Forecast(PLAN)
    forecast.finish("ingest", 25.0, reused=False)
    assert forecast.left("", 0.0, 0.0) == pytest.approx(50 * (25 + 5) / (10 + 5))


def test_what_was_reused_or_not_planned_teaches_nothing() -> None:
    forecast = Forecast(PLAN)
    forecast.finish("ingest", 0.01, reused=True)
    forecast.finish("compile", 90.0, reused=False)
    assert forecast.left("", 0.0, 0.0) == 50


def test_a_stage_may_end_while_the_time_left_is_added_up() -> None:
    class Ending(float):
        """Seconds that end another stage when they are added: what a build does beside the thread that draws."""

        def __radd__(self, other: float) -> float:
            forecast.finish("emit", 30.0, reused=False)
            return other + float(self)

    forecast = Forecast({"ingest": Ending(10.0), "build": 20.0, "emit": 30.0})
    assert forecast.left("", 0.0, 0.0) == 60
    assert forecast.left("", 0.0, 0.0) == 30


def test_the_rate_of_a_stage_counts_the_more_the_farther_it_is() -> None:
    forecast = Forecast({"build": 20.0})
    # at its rate it takes 40 seconds; by the plan it would be through
    lefts = [forecast.left("build", share, 40 * share) for share in (0.25, 0.5, 0.75, 1.0)]
    assert lefts == pytest.approx([0.25 * 30 + 0.75 * 10, 0.5 * 20, 0.75 * 10, 0])


def test_the_line_names_the_stage_and_the_time_left() -> None:
    clock = Clock()
    bar = WholeBuild(Console(file=io.StringIO()), clock)
    bar.plan(PLAN)
    bar.start("ingest", 1000, "vectors")
    bar.finish()
    bar.start("build", 2000, "vertices")
    bar.advance(500)
    assert "build (2 of 3)" in shown(bar)
    assert "500 / 2,000 vertices" in shown(bar)
    assert "left" in shown(bar)


def test_a_stage_outside_the_plan_is_not_counted() -> None:
    bar = WholeBuild(Console(file=io.StringIO()), Clock())
    bar.plan(PLAN)
    for stage in ("compile", *PLAN, "publish"):
        bar.start(stage, 1, "tasks")
        line = shown(bar)
        bar.finish()
    assert "publish (3 of 3)" in line


def test_the_bar_does_not_go_back_when_the_build_turns_out_longer() -> None:
    clock = Clock()
    bar = WholeBuild(Console(file=io.StringIO()), clock)
    bar.plan(PLAN)
    lengths = []
    for stage, seconds in (("ingest", 10.0), ("build", 200.0)):
        bar.start(stage, 0, "")
        clock.now += seconds
        bar.finish()
        lengths.append(shown(bar).count("━"))
        lengths.append(shown(bar).count("━") - shown(bar).count("╺"))
    assert "left" in shown(bar)
    assert lengths == sorted(lengths)


def test_without_a_plan_the_line_shows_the_time_that_passed() -> None:
    clock = Clock()
    bar = WholeBuild(Console(file=io.StringIO()), clock)
    bar.start("ingest", 4, "vectors")
    clock.now += 75
    assert "1:15" in shown(bar)
    assert "left" not in shown(bar)


def test_a_terminal_is_left_with_one_line() -> None:
    out, clock = io.StringIO(), Clock()
    with WholeBuild(Console(file=out, force_terminal=True, width=120), clock) as bar:
        for stage, seconds in (("ingest", 1.0), ("build", 8.0), ("order", 3.0), ("emit", 2.0)):
            bar.start(stage, 10, "vectors")
            clock.now += seconds
            bar.finish("reused" if stage == "ingest" else "")
    [last] = [line for line in out.getvalue().splitlines() if "stages" in line]
    assert last.endswith(
        "4 stages in 14.0 s, 1 of them reused; longest: build 8.0 s, order 3.0 s, emit 2.0 s"
    )
    assert out.getvalue().rstrip().endswith(last)


def left_by(plan: dict[str, float] | None, stages: list[str], error: BaseException | None) -> str:
    """The last line of a terminal where each stage took 6 seconds; the last stage raised `error`, if there is one."""
    out, clock = io.StringIO(), Clock()
    with (
        contextlib.suppress(RuntimeError, KeyboardInterrupt),
        WholeBuild(Console(file=out, force_terminal=True, width=120), clock) as bar,
    ):
        bar.start("plan", 1, "trial")
        clock.now += 0.3
        bar.plan(plan)
        for stage in stages:
            bar.start(stage, 10, "vectors")
            clock.now += 6
            if stage == stages[-1] and error is not None:
                raise error
            bar.finish()
    lines = out.getvalue().splitlines()
    return lines[-1].rpartition("\x1b[2K")[2] if lines else ""


@pytest.mark.parametrize("error", [RuntimeError(), KeyboardInterrupt()])
def test_a_build_that_stops_says_where(error: BaseException) -> None:
    plan = {"ingest": 1.0, "build": 2.0}
    assert left_by(plan, ["ingest", "build"], error) == "stopped in build (2 of 2) after 12.3 s"
    assert left_by(None, ["ingest", "build"], error) == "stopped in build after 12.3 s"


def test_planning_is_no_stage_and_one_stage_is_singular() -> None:
    assert left_by({"ingest": 1.0}, ["ingest"], None) == "1 stage in 6.3 s; longest: ingest 6.0 s"
    assert left_by(None, ["ingest"], None) == "1 stage in 6.3 s; longest: ingest 6.0 s"


def test_what_stops_before_it_begins_leaves_no_line() -> None:
    out = io.StringIO()
    with (
        pytest.raises(ValueError, match="no job"),
        WholeBuild(Console(file=out, force_terminal=True, width=120), Clock()),
    ):
        raise ValueError("no job")
    assert "stopped" not in out.getvalue()


def test_durations_have_hours_only_where_there_are_some() -> None:
    assert [clock_time(s) for s in (7, 760, 11100)] == ["0:07", "12:40", "3:05:00"]
