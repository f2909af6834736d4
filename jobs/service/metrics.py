"""Figures of the service for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from indexmill.jobs.service.queue import RUNNING, Queue

#: Media type of the text that `Metrics.text` returns.
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Bounds of the seconds of a build.
_SECONDS = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000)


class Metrics:
    """Counters and gauges of one service.

    Parameters
    ----------
    queue : Queue
    """

    def __init__(self, queue: Queue) -> None:
        self._registry = CollectorRegistry()
        self._answers = Counter(
            "indexmill_answers", "Answers by path and status code", ["path", "code"], registry=self._registry
        )
        self._builds = Counter(
            "indexmill_builds", "Builds that ended, by result", ["result"], registry=self._registry
        )
        self._seconds = Histogram(
            "indexmill_build_seconds", "Seconds of a build, with its transfers", buckets=_SECONDS,
            registry=self._registry,
        )  # fmt: skip
        open_builds = Gauge("indexmill_builds_open", "Builds that wait or run", registry=self._registry)
        open_builds.set_function(lambda: queue.counts().get(RUNNING, 0))

    def answered(self, path: str, code: int) -> None:
        """Count an answer; `path` is one of few."""
        self._answers.labels(path, str(code)).inc()

    def ended(self, failed: bool, seconds: float) -> None:
        """Count a build that ended."""
        self._builds.labels("failed" if failed else "completed").inc()
        self._seconds.observe(seconds)

    def text(self) -> bytes:
        """Return all figures in the text format of Prometheus."""
        return generate_latest(self._registry)
