"""`indexmill serve-builds`: builds that an OpenSearch cluster asks for over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from indexmill.jobs.options.shared import Memory, examples

NAME = "serve-builds"
EXAMPLES = examples(
    "indexmill serve-builds --work /var/lib/indexmill --storage 's3://{container}?region=eu-west-1'",
    "INDEXMILL_SERVICE_TOKEN=... indexmill serve-builds --work builds --host 0.0.0.0 --memory 16GiB",
    "indexmill serve-builds --work builds --storage 'file:///srv/blobs/{container}' --port 8080",
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `serve-builds`."""

    work: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory of the queue and of builds in progress; a restart goes on with it (required).",
        ),
    ] = None
    storage: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Object storage, with {container} where the name of a request's container belongs, and options as in "
            "other URLs.",
        ),
    ] = "s3://{container}"
    host: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Address to listen on; one that others reach needs a token."),
    ] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any.")] = 1025
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File with the token that clients send; default: the environment variable INDEXMILL_SERVICE_TOKEN.",
        ),
    ] = None
    memory: Memory = "8GiB"
    workers: Annotated[int, typer.Option(min=1, max=1024, help="Threads of a build.")] = 2


def command(options: Options) -> None:
    """Build indexes for OpenSearch: answer its requests of remote index builds until stopped.

    Vectors are read from object storage, and a faiss HNSW file is written beside them. One build runs at a time, in a
    process of its own; the others wait. A build that was killed is resumed when the service starts again.
    """
    from indexmill.formats.errors import ConfigError
    from indexmill.formats.extras import require
    from indexmill.jobs.choices import size_of

    if options.work is None:
        raise ConfigError("--work: missing; name a directory for the queue and for builds in progress")
    for package in ("starlette", "uvicorn", "prometheus_client"):
        require(package, NAME)
    from indexmill.jobs.service.runner import Settings
    from indexmill.jobs.service.serve import read_token, serve

    token = read_token(options.token_file)
    settings = Settings(
        options.storage, options.work.absolute(), size_of(options.memory, "--memory"), options.workers
    )
    serve(settings, options.host, options.port, token)
