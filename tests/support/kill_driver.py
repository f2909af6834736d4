"""Runs builds in forked children that a failpoint or a timer kills; compiled kernels are loaded once, before the forks.

Reads one JSON object a line: ``source``, ``out``, ``shard`` and optionally ``failpoint``, ``delay``, ``work``,
``force``, ``workers``, ``builder`` of a graph, ``room`` (bytes of a region of the partition builder), ``lists`` (an IVF
index of so many), ``tables`` (an LSH index of so many), ``join`` (arguments of a join in place of a build),
``exchange`` (false: the file system cannot swap two names); answers with the wait status of the child (negative: the
signal that ended it) and its error message.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from dataclasses import replace
from typing import Any

from indexmill.formats.errors import IndexmillError
from indexmill.jobs.api.joining import JoinRequest, join_files
from indexmill.pipeline.build import run_build
from indexmill.pipeline.execution import failpoint
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
    common_memory._MOST_MERGE = 100 << 10
    memory._fitted = lambda shape, *_: replace(shape, region_bytes=room)


def join(command: dict[str, Any]) -> None:
    join_files(
        command["source"],
        command["join"],
        command["out"],
        JoinRequest(k=5, nprobe=3, memory="1GiB", workers=1),
    )


def run(command: dict[str, Any]) -> tuple[int, str]:
    """Fork a child that builds; return how it ended."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        failpoint._armed = command.get("failpoint", "")
        if not command.get("exchange", True):
            publish.exchange = lambda first, second: False
        if "room" in command:
            cut_into_regions(command["room"])
        code = 0
        try:
            join(command) if "join" in command else build(command)
        except IndexmillError as error:
            code = error.exit_code
            os.write(write, str(error).encode())
        except BaseException:
            code = 70
            os.write(write, traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(code)
    os.close(write)
    timer = None
    if "delay" in command:
        timer = threading.Timer(command["delay"], os.kill, (child, signal.SIGKILL))
        timer.start()
    with os.fdopen(read, "rb") as pipe:
        message = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    if timer is not None:
        timer.cancel()
        timer.join()
    return os.waitstatus_to_exitcode(status), message


def main() -> None:
    for line in sys.stdin:
        status, message = run(json.loads(line))
        print(json.dumps([status, message]), flush=True)


if __name__ == "__main__":
    main()
