"""The plan of a build that is about to begin, made by a process of its own, so that trials leave no memory behind.

Run as ``python -m indexmill.jobs.cli.foresight``, it reads a job as JSON from stdin and prints the seconds of each
stage.
"""

from __future__ import annotations

import json
import subprocess
import sys

from indexmill.jobs.console.progress import Lines
from indexmill.jobs.console.whole import WholeBuild
from indexmill.pipeline.spec import BuildSpec


def foresee(spec: BuildSpec, progress: WholeBuild | Lines) -> None:
    """Hand the plan of a large build to `progress`, if that shows the time left; a plan that fails is left out.

    An error that ends the plan ends the build, too, which reports it.
    """
    if not isinstance(progress, WholeBuild) or not _is_large(spec):
        return
    progress.start("plan", 1, "trial")
    command = [sys.executable, "-m", "indexmill.jobs.cli.foresight"]
    done = subprocess.run(command, input=spec.model_dump_json(), capture_output=True, text=True, check=False)
    progress.plan(json.loads(done.stdout) if done.returncode == 0 else None)


def _is_large(spec: BuildSpec) -> bool:
    from indexmill.formats.errors import IndexmillError
    from indexmill.pipeline.build import open_input
    from indexmill.pipeline.plan import PLANNED_FROM

    try:
        source = open_input(spec)
    except IndexmillError:
        return False
    return source.n_vectors * source.dim >= PLANNED_FROM


def main() -> None:
    """Plan the job on stdin."""
    from indexmill.pipeline.plan import make_plan

    plan = make_plan(BuildSpec.model_validate_json(sys.stdin.read()))
    print(json.dumps({name: stage.seconds for name, stage in plan.stages.items()}))


if __name__ == "__main__":
    main()
