"""`python -m indexmill.jobs.demo`."""

import typer

from indexmill.jobs.demo.run import command

typer.run(command)
