"""`indexmill import`, a command for each program whose indexes are read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from indexmill.jobs.options.declare import Commands
from indexmill.jobs.options.shared import Force, Json, Workers, examples

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
HELP = "Turn an index of another program into an index of indexmill, with its graph, vectors and codes."
OwnBytes = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Train codes of this many bytes. (default: keep the codes of the index; 32 where it has none)",
    ),
]
TrainedBytes = Annotated[
    int | None, typer.Option(metavar="N", help="Bytes of a code, trained here. (default 32)")
]


@dataclass(frozen=True, kw_only=True)
class Imported:
    """The options that all programs share."""

    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The index directory to write.")] = None
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="l2, ip or cosine. (default: what the files say, l2 where they do not)"
        ),
    ] = None
    ids: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Ids, one a vector: .npy, .parquet, .arrow, .tags. (default: the index's, or row numbers)",
        ),
    ] = None
    id_column: Annotated[
        str | None, typer.Option(help="Column of a Parquet or Arrow file of ids; default: the only one.")
    ] = None
    order: Annotated[
        str, typer.Option(metavar="NAME", help="Page order, as of a build; identity keeps that of the index.")
    ] = "identity"
    repair: Annotated[
        bool,
        typer.Option(
            "--repair/--no-repair",
            help="Add edges to vertices that no path leads to; otherwise they are only counted.",
        ),
    ] = True
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Memory budget beside the page cache. (default: the least that works)"
        ),
    ] = None
    workers: Workers = 2
    force: Force = False
    json_: Json = False

    def run(self, program: str, path: str | Path, pq_bytes: int | None, dtype: str | None = None) -> None:
        """Import the index of `program` at `path` and print what was published."""
        from indexmill.formats.errors import ConfigError
        from indexmill.jobs.api.importing import import_options, open_imported, run_imported
        from indexmill.jobs.console.progress import stderr_progress

        if self.out is None:
            raise ConfigError("--out: missing; name the directory to write")
        how = import_options(
            self.out, self.ids, self.id_column, self.memory, metric=self.metric, pq_bytes=pq_bytes, order=self.order,
            repair=self.repair, workers=self.workers, force=self.force,
        )  # fmt: skip
        index = open_imported(program, path, dtype, pq_bytes)
        with stderr_progress() as progress:
            manifest = run_imported(index, how, progress)
        _show(self.out, manifest, self.json_)


@dataclass(frozen=True, kw_only=True)
class Diskann:
    """The options of `import diskann`."""

    prefix: Annotated[
        str,
        typer.Argument(
            metavar="PREFIX",
            help="What all file names begin with: PREFIX_disk.index, or PREFIX and PREFIX.data of one in memory.",
        ),
    ]
    dtype: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Type of the components: float32, uint8 or int8. (default: what PREFIX_metadata.bin says)",
        ),
    ] = None
    pq_bytes: OwnBytes = None
    imported: Imported


def diskann(options: Diskann) -> None:
    """Import an index of DiskANN: C++, Rust, diskannpy or PipeANN.

    Vectors keep their order on the pages unless --order says another.
    """
    options.imported.run("diskann", options.prefix, options.pq_bytes, options.dtype)


@dataclass(frozen=True, kw_only=True)
class Faiss:
    """The options of `import faiss`."""

    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="What faiss.write_index wrote of an IndexHNSWFlat, an IndexNSGFlat or an index of inverted lists.",
        ),
    ]
    pq_bytes: TrainedBytes = None
    imported: Imported


def faiss(options: Faiss) -> None:
    """Import an index of faiss.

    A graph: IndexHNSWFlat (its lowest level) or IndexNSGFlat, also within an IndexIDMap. Inverted lists: IndexIVFFlat,
    IndexIVFScalarQuantizer or IndexIVFPQ over centroids that are compared by l2; --order and --pq-bytes are for graphs.
    """
    options.imported.run("faiss", options.file, options.pq_bytes)


@dataclass(frozen=True, kw_only=True)
class Svs:
    """The options of `import svs`."""

    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Directory with config, graph and data, which svs.Vamana.save wrote."
        ),
    ]
    pq_bytes: TrainedBytes = None
    imported: Imported


def svs(options: Svs) -> None:
    """Import a Vamana index of Intel SVS: float32, float16, uint8 or int8 vectors without compression."""
    options.imported.run("svs", options.folder, options.pq_bytes)


@dataclass(frozen=True, kw_only=True)
class Jvector:
    """The options of `import jvector`."""

    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A graph of version 3 whose nodes hold their vectors; codes are read from the file of the same name "
            "with .pqv.",
        ),
    ]
    pq_bytes: OwnBytes = None
    imported: Imported


def jvector(options: Jvector) -> None:
    """Import an on-disk graph of JVector, and the codes beside it."""
    options.imported.run("jvector", options.file, options.pq_bytes)


COMMANDS: Commands = (
    ("diskann", diskann, DISKANN_EXAMPLES),
    ("faiss", faiss, FAISS_EXAMPLES),
    ("svs", svs, SVS_EXAMPLES),
    ("jvector", jvector, JVECTOR_EXAMPLES),
)


def _show(out: Path, manifest: dict[str, Any], as_json: bool) -> None:
    """Print what was published, and which parts of the other index were kept."""
    from indexmill.jobs.cli.summary import show_result

    show_result(out, manifest, as_json)
    if not as_json:
        print(f"  {_imported_line(manifest['input']['imported'])}")


def _imported_line(imported: dict[str, Any]) -> str:
    """Say in one line where an index comes from."""
    names = ", ".join(file["name"] for file in imported["files"])
    if "unreachable" not in imported:
        return f"imported from {imported['from']} ({names}): lists, centroids and rows as they were"
    unreachable = f"{imported['unreachable']:,} vertices could not be reached"
    if imported["unreachable"]:
        unreachable += " and were linked" if imported["repaired"] else " and were not linked"
    return (
        f"imported from {imported['from']} ({names}): codes {imported['codes']}, entry vertices {imported['entries']},"
        f" {unreachable}, {imported['dropped_neighbours']:,} repeated neighbours left out"
    )
