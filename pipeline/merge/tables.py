"""Merge of hash tables with equal functions: bucket by bucket, without a hash, and without deleted vectors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import numpy as np

from indexmill.formats.errors import InputError
from indexmill.formats.index.manifest import seal_files
from indexmill.pipeline.append.addition import check_alike
from indexmill.pipeline.append.tables.drift import Origin, drift_of
from indexmill.pipeline.generations.run import GenerationRun
from indexmill.pipeline.generations.tables.memory import check_memory, needed_bytes
from indexmill.pipeline.generations.tables.opened import OpenedTables
from indexmill.pipeline.generations.tables.scratch import scratch_bytes
from indexmill.pipeline.generations.tables.written import NewTables
from indexmill.pipeline.merge.addition import AGAIN, input_facts
from indexmill.pipeline.merge.record import checked_left, largest_build, manifest_of
from indexmill.pipeline.mill.disk_space import check_free


def merge_tables(
    run: GenerationRun, indexes: Sequence[str | os.PathLike[str]], scratch: Path
) -> dict[str, Any]:
    """Publish the vectors of all `indexes` that are left, one index after the other; see `run_merge`."""
    with ExitStack() as stack:
        given = [stack.enter_context(OpenedTables(index)) for index in indexes]
        left = checked_left(given, run.options.force, _check_mergeable)
        numbers = [len(slots) for slots in left]
        following = NewTables(given, left, None)
        check_memory(following.shape, needed_bytes(given, numbers, 0), run.options.memory)
        check_free(scratch, scratch_bytes(given, numbers), "merge")
        directory = scratch / "index"
        directory.mkdir()
        with run.stage("tables", following.shape.n_entries, "entries") as advance:
            written = following.write(directory, scratch, advance)
        with run.task("seal"):
            build_id, files = seal_files(directory, [path.name for path in directory.iterdir()])
        base, built = largest_build(given, left)
        origin = Origin.of(given[base], written.chain_blocks_before[base], built, len(given[base].deleted))
        lsh = written.lsh(given[0].manifest.lsh, drift_of(origin, written, following.shape.n_vectors))
        manifest = replaced(manifest_of(given, left, build_id, files), lsh=lsh)
        return run.publish(directory, manifest, given[0].manifest.build_id, {})


def _check_mergeable(first: OpenedTables, index: OpenedTables) -> None:
    """Refuse an index of another form than `first`, or with other hash functions.

    Raises
    ------
    InputError
        Naming the index and the first difference.
    """
    parameters = (
        "build one of them again with the -m, --n-tables, --n-radii, --first-radius, --hash-bits, --width and --seed "
        "of the other (`indexmill inspect` names them), or append the vectors of one to the other"
    )
    a, b = first.files, index.files
    facts: list[tuple[str, object, object, str]] = [
        ("metric", first.metric, index.metric, AGAIN),
        *input_facts(first, index),
        ("largest norm", a.vectors.max_norm, b.vectors.max_norm, "build one index of both inputs"),
        ("hash functions in a table", a.functions.n_functions, b.functions.n_functions, parameters),
        ("tables", a.shape.n_tables, b.shape.n_tables, parameters),
        ("radii", a.functions.radii.tolist(), b.functions.radii.tolist(), parameters),
        ("bucket width", a.functions.width, b.functions.width, parameters),
        ("hash bits", a.shape.hash_bits, b.shape.hash_bits, parameters),
    ]
    check_alike(first, str(index.name), facts)
    for name in ("projections", "offsets", "multipliers"):
        if not np.array_equal(getattr(a.functions, name), getattr(b.functions, name)):
            raise InputError(f"{index.name}: other {name} of hash functions than {first.name}; {parameters}")
