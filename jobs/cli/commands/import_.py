"""`indexmill import`, a command for each program: an index of another program becomes one of ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from indexmill.jobs.cli.options import Force, Json, Workers, examples

NAME = "import"
DISKANN_EXAMPLES = examples(
    "indexmill import diskann /data/ann --out ann.index",
    "indexmill import diskann /data/ann --order star --ids ids.npy --out ann.index --json",
)
FAISS_EXAMPLES = examples(
    "indexmill import faiss hnsw.faiss --out hnsw.index",
    "indexmill import faiss nsg.faiss --metric cosine --pq-bytes 64 --out nsg.index",
)
SVS_EXAMPLES = examples("indexmill import svs saved --out saved.index")
JVECTOR_EXAMPLES = examples("indexmill import jvector graph.jvector --metric cosine --out graph.index")

Out = Annotated[Path | None, typer.Option(metavar="DIR", help="The index directory to write.")]
Metric = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="l2, ip or cosine. (default: what the files say, l2 where they do not)"
    ),
]
Ids = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="User ids, one a vector: .npy, .parquet or .tags. (default: those of the index, else row numbers)",
    ),
]
IdColumn = Annotated[str | None, typer.Option(help="Column of a Parquet file of ids; default: the only one.")]
Order = Annotated[
    str, typer.Option(metavar="NAME", help="Page order, as of a build; identity keeps that of the index.")
]
Repair = Annotated[
    bool,
    typer.Option(
        "--repair/--no-repair",
        help="Add edges to vertices that no path leads to; else they are only counted.",
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Memory budget beside the page cache. (default: the least that works)"),
]
OwnBytes = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Train codes of so many bytes. (default: keep the codes of the index; 32 where it has none)",
    ),
]
TrainedBytes = Annotated[
    int | None, typer.Option(metavar="N", help="Bytes of a code, trained here. (default 32)")
]

app = typer.Typer(
    no_args_is_help=True,
    help="Turn an index of another program into one of ours, with its graph, vectors and codes.",
)


@app.command("diskann", epilog=DISKANN_EXAMPLES)
def diskann(
    prefix: Annotated[
        str,
        typer.Argument(
            metavar="PREFIX",
            help="What all file names begin with: PREFIX_disk.index, or PREFIX and PREFIX.data of one in memory.",
        ),
    ],
    out: Out = None,
    metric: Metric = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Type of the components: float32, uint8 or int8. (default: what PREFIX_metadata.bin says)",
        ),
    ] = None,
    ids: Ids = None,
    id_column: IdColumn = None,
    pq_bytes: OwnBytes = None,
    order: Order = "identity",
    repair: Repair = True,
    memory: Memory = None,
    workers: Workers = 2,
    force: Force = False,
    json_: Json = False,
) -> None:
    """Import an index of DiskANN: C++, Rust, diskannpy or PipeANN.

    Vectors keep their order on the pages unless --order says another.
    """
    how = {"metric": metric, "pq_bytes": pq_bytes, "order": order, "repair": repair, "workers": workers}
    _run("diskann", prefix, dtype, out, ids, id_column, memory, {**how, "force": force}, json_)


@app.command("faiss", epilog=FAISS_EXAMPLES)
def faiss(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="What faiss.write_index wrote of an IndexHNSWFlat, an IndexNSGFlat or an index of inverted lists.",
        ),
    ],
    out: Out = None,
    metric: Metric = None,
    ids: Ids = None,
    id_column: IdColumn = None,
    pq_bytes: TrainedBytes = None,
    order: Order = "identity",
    repair: Repair = True,
    memory: Memory = None,
    workers: Workers = 2,
    force: Force = False,
    json_: Json = False,
) -> None:
    """Import an index of faiss.

    A graph: IndexHNSWFlat (its lowest level) or IndexNSGFlat, also within an IndexIDMap. Inverted lists: IndexIVFFlat,
    IndexIVFScalarQuantizer or IndexIVFPQ over centroids that are compared by l2; --order and --pq-bytes are for graphs.
    """
    how = {"metric": metric, "pq_bytes": pq_bytes, "order": order, "repair": repair, "workers": workers}
    _run("faiss", file, None, out, ids, id_column, memory, {**how, "force": force}, json_)


@app.command("svs", epilog=SVS_EXAMPLES)
def svs(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Directory with config, graph and data, which svs.Vamana.save wrote."
        ),
    ],
    out: Out = None,
    metric: Metric = None,
    ids: Ids = None,
    id_column: IdColumn = None,
    pq_bytes: TrainedBytes = None,
    order: Order = "identity",
    repair: Repair = True,
    memory: Memory = None,
    workers: Workers = 2,
    force: Force = False,
    json_: Json = False,
) -> None:
    """Import a Vamana index of Intel SVS: float32, float16, uint8 or int8 vectors without compression."""
    how = {"metric": metric, "pq_bytes": pq_bytes, "order": order, "repair": repair, "workers": workers}
    _run("svs", folder, None, out, ids, id_column, memory, {**how, "force": force}, json_)


@app.command("jvector", epilog=JVECTOR_EXAMPLES)
def jvector(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A graph of version 3 whose nodes hold their vectors; codes are read from the file of the same name "
            "with .pqv.",
        ),
    ],
    out: Out = None,
    metric: Metric = None,
    ids: Ids = None,
    id_column: IdColumn = None,
    pq_bytes: OwnBytes = None,
    order: Order = "identity",
    repair: Repair = True,
    memory: Memory = None,
    workers: Workers = 2,
    force: Force = False,
    json_: Json = False,
) -> None:
    """Import an on-disk graph of JVector, and the codes beside it."""
    how = {"metric": metric, "pq_bytes": pq_bytes, "order": order, "repair": repair, "workers": workers}
    _run("jvector", file, None, out, ids, id_column, memory, {**how, "force": force}, json_)


def _run(
    program: str,
    path: str | Path,
    dtype: str | None,
    out: Path | None,
    ids: Path | None,
    id_column: str | None,
    memory: str | None,
    how: Mapping[str, object],
    as_json: bool,
) -> None:
    from indexmill.formats.errors import ConfigError
    from indexmill.jobs.api.importing import import_options, open_foreign, run_imported, show_import
    from indexmill.jobs.console.progress import stderr_progress

    if out is None:
        raise ConfigError("--out: missing; name the directory to write")
    options = import_options(out, ids, id_column, memory, **how)
    index = open_foreign(program, path, dtype, options.pq_bytes)
    with stderr_progress() as progress:
        manifest = run_imported(index, options, progress)
    show_import(out, manifest, as_json)
