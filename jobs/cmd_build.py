"""`indexmill build`: one index from a job file or from flags."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from indexmill.jobs.options import Force, Json, examples, split_names

if TYPE_CHECKING:
    from rich.console import Console

NAME = "build"
EXAMPLES = examples(
    "indexmill build job.toml --workers 4",
    "indexmill build --input words.parquet --id-column word --metric cosine --out words.index",
)


def command(
    job: Annotated[
        Path | None, typer.Argument(metavar="JOB", help="Job file (TOML). Flags beat what it says.")
    ] = None,
    input: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="FILE",
            help="Vectors: Parquet, Arrow, npy, fvecs, bvecs, fbin, u8bin, i8bin, HDF5; a path, glob or URL."
            " May repeat.",
        ),
    ] = None,
    out: Annotated[str | None, typer.Option(metavar="DIR", help="The index to write.")] = None,
    column: Annotated[
        str | None, typer.Option(help="Vector column; default: the only one that fits.")
    ] = None,
    id_column: Annotated[str | None, typer.Option(help="Column of user ids.")] = None,
    metadata_columns: Annotated[
        str | None, typer.Option(metavar="A,B", help="Columns to keep beside the vectors.")
    ] = None,
    kind: Annotated[str | None, typer.Option(metavar="graph", help="Kind of index. (default graph)")] = None,
    builder: Annotated[
        str | None, typer.Option(metavar="vamana", help="How the graph is built. (default vamana)")
    ] = None,
    max_degree: Annotated[
        int | None, typer.Option("-R", "--max-degree", help="Neighbours a vertex keeps. (default 32)")
    ] = None,
    build_list_size: Annotated[
        int | None,
        typer.Option("-L", "--build-list-size", help="Candidates kept while building. (default 75)"),
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="Pruning slack. (default 1.2)")] = None,
    pq_bytes: Annotated[int | None, typer.Option(help="Bytes of a code in memory. (default 32)")] = None,
    order: Annotated[
        str | None, typer.Option(metavar="star|identity|random", help="Page layout. (default star)")
    ] = None,
    node_dtype: Annotated[
        str | None,
        typer.Option(
            metavar="same|float16|sq16|sq8", help="Vector type on the page. (default same as the input)"
        ),
    ] = None,
    metric: Annotated[str | None, typer.Option(metavar="l2|ip|cosine", help="(default l2)")] = None,
    entries: Annotated[
        int | None, typer.Option(help="Entry vertices to choose a start from. (default 1024)")
    ] = None,
    navigation: Annotated[
        float | None,
        typer.Option(help="Share of the vectors in the navigation graph; 0 for none. (default 0.01)"),
    ] = None,
    sample_vectors: Annotated[
        int | None, typer.Option(help="Vectors that codes and centroids are trained on. (default 100000)")
    ] = None,
    shard_vectors: Annotated[
        int | None, typer.Option(help="Vectors of a shard; default: as many as the memory allows.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Same input, parameters and seed: same bytes. (default 1)")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory budget, such as 500MB. (default 8GiB)")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="(default 2)")] = None,
    executor: Annotated[
        str | None, typer.Option(metavar="local|ray", help="Where tasks run. (default local)")
    ] = None,
    work: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Keep finished stages here, for builds that share them; default: dropped at the end.",
        ),
    ] = None,
    force: Force = False,
    json_: Json = False,
) -> None:
    """Build an index. Killed or failed builds go on where they stopped when run again."""
    from indexmill.jobs.jobfile import resolve
    from indexmill.jobs.opening import load_manifest
    from indexmill.jobs.progress import stderr_progress
    from indexmill.pipeline.build import run_build

    flags = {
        "input": input,
        "out": out,
        "column": column,
        "id_column": id_column,
        "metadata_columns": split_names(metadata_columns),
        "memory": memory,
        "workers": workers,
        "executor": executor,
        "work": work,
        "force": force or None,
    }
    parameters = {
        "kind": kind,
        "builder": builder,
        "max_degree": max_degree,
        "build_list_size": build_list_size,
        "alpha": alpha,
        "pq_bytes": pq_bytes,
        "order": order,
        "node_dtype": node_dtype,
        "metric": metric,
        "entries": entries,
        "navigation": navigation,
        "sample_vectors": sample_vectors,
        "shard_vectors": shard_vectors,
        "seed": seed,
    }
    spec = resolve(job, flags, parameters)
    with stderr_progress() as progress:
        run_build(spec, progress=progress)
    manifest = load_manifest(Path(spec.out))
    if json_:
        print(json.dumps(manifest, indent=2))
    else:
        from indexmill.jobs.tables import stdout_console

        print_summary(stdout_console(), Path(spec.out), manifest)


def print_summary(console: Console, out: Path, manifest: dict[str, Any]) -> None:
    """Print what a build made, in a dozen lines."""
    from rich.markup import escape

    from indexmill.jobs.tables import facts, file_table, human_bytes, read_run

    source, graph, layout = manifest["input"], manifest["graph"], manifest["layout"]
    run = read_run(out)
    console.print(f"[bold]{escape(str(out))}[/bold]  build {manifest['build_id'][:16]}")
    rows = {
        "vectors": f"{source['n_vectors']:,} x {source['dim']} {source['dtype']}",
        "degree": f"mean {graph['mean_degree']:.1f}, {graph['least_degree']} to {graph['greatest_degree']}",
        "layout": facts(layout),
        "certificate": certificate_line(manifest["certificate"]),
        **({"generation": generation_line(manifest)} if manifest.get("drift") else {}),
        "seconds": facts(run.get("seconds", {})),
        "peak memory": human_bytes(run["peak_memory_bytes"]) if "peak_memory_bytes" in run else "unknown",
    }
    for name, value in rows.items():
        console.print(f"  {name:<12} {escape(value)}", soft_wrap=True)
    console.print(file_table(manifest["files"]))


def certificate_line(certificate: dict[str, Any] | None) -> str:
    """One line about a certificate."""
    if certificate is None:
        return "none: too few vectors"
    c = certificate
    return (
        f"recall@{c['k']} {c['recall']:.4f} [{c['recall_low']:.4f}, {c['recall_high']:.4f}]"
        f" at L={c['search_list_size']}, {c['pages_read_mean']:.1f} page reads a query"
        f" (P99 {c['pages_read_p99']:.0f})"
    )


def generation_line(manifest: dict[str, Any]) -> str:
    """One line about what was added since the last build."""
    drift = manifest["drift"]
    return f"{manifest['generation']}, {drift['added_share']:.1%} of the vectors added since a build; {drift['advice']}"
