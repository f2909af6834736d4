"""Commands of a child process that a failpoint or a timer may kill (tests/support/processes/kill.py).

A command has ``source``, ``out``, ``shard`` and optionally ``work``, ``force``, ``workers``, ``builder`` of a graph,
``room`` (bytes of a region of the partition builder), ``lists`` (an IVF index of so many), ``tables`` (an LSH index of
so many), ``join`` (arguments of a join in place of a build), ``exchange`` (false: the file system cannot swap two
names).
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from indexmill.formats.errors import IndexmillError
from indexmill.jobs.api.joining import JoinRequest, join_files
from indexmill.pipeline.build import run_build
from indexmill.pipeline.kinds.common import memory as common_memory
from indexmill.pipeline.kinds.graph import memory
from indexmill.pipeline.mill import publish
from indexmill.pipeline.spec import BuildSpec, IvfParameters, LshParameters, Parameters


def build(command: dict[str, Any]) -> None:
    parameters: Parameters | IvfParameters | LshParameters = Parameters(
        R=8,
        L=20,
        pq_bytes=4,
        shard_vectors=command["shard"] or None,
        builder=command.get("builder", "vamana"),
    )
    if "lists" in command:
        parameters = IvfParameters(lists=command["lists"], batch_vectors=command["shard"])
    if "tables" in command:
        parameters = LshParameters(n_tables=command["tables"], hash_bits=3, block_bytes=128)
    run_build(
        BuildSpec(
            input=[command["source"]],
            out=command["out"],
            work=command.get("work"),
            workers=command.get("workers", 1),
            force=command.get("force", False),
            parameters=parameters,
        )
    )


def cut_into_regions(room: int) -> None:
    common_memory.MOST_SORT_BUFFERS = 100 << 10
    memory.fitted_shape = lambda shape, *_: replace(shape, region_bytes=room)


def join(command: dict[str, Any]) -> None:
    join_files(
        command["source"],
        command["join"],
        command["out"],
        JoinRequest(k=5, nprobe=3, memory="1GiB", workers=1),
    )


def main(command: dict[str, Any]) -> None:
    """Do what `command` says; an error of ours is its message on standard error, and its exit code."""
    if not command.get("exchange", True):
        publish.exchange = lambda first, second: False
    if "room" in command:
        cut_into_regions(command["room"])
    try:
        join(command) if "join" in command else build(command)
    except IndexmillError as error:
        print(error, end="", file=sys.stderr)
        sys.exit(error.exit_code)
