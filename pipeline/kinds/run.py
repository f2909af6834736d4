"""From vectors to a published index: the part that builds and imports share."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from indexmill.formats.index.manifest import Manifest
from indexmill.formats.index.names import MANIFEST_NAME
from indexmill.formats.sources.source import VectorSource
from indexmill.pipeline.kinds.common import ingest
from indexmill.pipeline.kinds.common.compute import gpu_facts
from indexmill.pipeline.kinds.common.ingest import InputSummary
from indexmill.pipeline.kinds.common.shared import Shared
from indexmill.pipeline.kinds.recipe import Recipe
from indexmill.pipeline.mill.disk import told_when_full
from indexmill.pipeline.mill.peak import PeakMemory
from indexmill.pipeline.mill.progress import Progress
from indexmill.pipeline.mill.publish import publish
from indexmill.pipeline.mill.record import run_record
from indexmill.pipeline.mill.stages import Mill, Stage

#: Publishes the files of a directory under a manifest, with run.json; is told whether the files are kept, and tells how
#: many are done; returns the manifest as published.
Publish: TypeAlias = Callable[[Path, Manifest, dict[str, Any], bool, Callable[[int], None]], dict[str, Any]]


def ingest_stage(
    mill: Mill, source: VectorSource, metric: str, facts: dict[str, Any], signature: list[str],
    checked: Callable[[], None] = lambda: None, unit_slack: float = 0.0, shared: Shared | None = None,
) -> Stage:  # fmt: skip
    """Return stage *ingest*.

    Parameters
    ----------
    facts : dict
        Further parameters that decide its files.
    signature : list of str
        Text that tells the input from another.
    checked : callable
        Called when the input was read; raises if the input was changed meanwhile.
    unit_slack, shared
        See `ingest.ingest`.
    """
    common = {} if shared is None else {"shared": shared.digest}
    key = mill.store.key("ingest", ingest.VERSION, {"metric": metric, **facts, **common}, signature)

    def write(directory: Path) -> None:
        ingest.ingest(source, metric, directory, mill.progress, unit_slack, shared)
        checked()

    path = mill.store.path("ingest", key)
    return Stage("ingest", key, path, (), write, steps=source.n_vectors, unit="vectors")


def make_ingest(mill: Mill, first: Stage) -> InputSummary:
    """Make stage *ingest* and return its facts; later stages depend on the vectors, not on where they came from."""
    mill.make(first)
    summary = ingest.read_summary(mill.read(first))
    first.key = summary.fingerprint + (summary.codes or "")
    return summary


def publish_made(
    recipe: Recipe, started: str, memory: PeakMemory, executor: str, to: Publish, progress: Progress
) -> dict[str, Any]:  # fmt: skip
    """Publish an index whose last stage is made; return the manifest as published.

    Parameters
    ----------
    started, memory, executor
        For run.json: when the run began, its memory, and the name of its executor.
    to : Publish
        Publishes at the output.
    """
    manifest = replace(recipe.manifest(), certificate=recipe.certificate())
    mill, emitted = recipe.mill, recipe.mill.read(recipe.emit)
    record = run_record(
        started, mill.seconds, mill.executor.workers, executor, gpu_facts(recipe.p)[0], recipe.memory, memory.bytes,
        peak_scratch_bytes=mill.store.peak_bytes, **recipe.run_facts(),
    )  # fmt: skip
    begun = time.perf_counter()
    progress.start("publish", len(manifest.files), "files")
    published = to(emitted, manifest, record, mill.keep, progress.advance)
    progress.finish(f"{time.perf_counter() - begun:.1f} s")
    return published


def local_publish(out: Path, force: bool) -> Publish:
    """Return what publishes in a directory of this machine."""

    def to(
        emitted: Path, manifest: Manifest, run: dict[str, Any], keep: bool, advance: Callable[[int], None]
    ) -> dict[str, Any]:
        with told_when_full(partial(_disk_full_message, out)):
            publish(emitted, manifest, run, out, force, keep)
        advance(len(manifest.files))
        published: dict[str, Any] = json.loads((out / MANIFEST_NAME).read_text())
        return published

    return to


def _disk_full_message(out: Path, path: str, reason: str) -> str:
    """Say that there is no room for the index, and what to do."""
    remedy = "free some space or name another --out, and run again"
    return f"out: {path or out}: {reason}; nothing was published; {remedy}"
