"""`indexmill build`: one index from a job file or from flags."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexmill.jobs.cli.job_options import job_command
from indexmill.jobs.cli.options import Json, examples

if TYPE_CHECKING:
    from rich.console import Console

    from indexmill.pipeline.spec import BuildSpec

NAME = "build"
EXAMPLES = examples(
    "indexmill build job.toml --workers 4",
    "indexmill build --input words.parquet --id-column word --metric cosine --out words.index",
    "indexmill build --input base.u8bin --kind lsh --success 0.9 --out base.lsh",
    "indexmill build --input base.u8bin --kind lsh -c 2 -w 4 -m 15 --n-tables 25 -S 500 --out base.lsh",
    "indexmill build --kind ivf --input base.u8bin --lists 4096 --out base.ivf",
)


@job_command
def command(spec: BuildSpec, json_: Json = False) -> None:
    """Build an index. Killed or failed builds go on where they stopped when run again."""
    from indexmill.jobs.console.progress import stderr_progress
    from indexmill.jobs.search.opening import load_manifest
    from indexmill.pipeline.build import run_build
    from indexmill.pipeline.spec import KINDS

    with stderr_progress() as progress:
        run_build(spec, progress=progress)
    manifest = load_manifest(Path(spec.out), KINDS)
    if json_:
        print(json.dumps(manifest, indent=2))
    else:
        from indexmill.jobs.console.tables import stdout_console

        print_summary(stdout_console(), Path(spec.out), manifest)


def print_summary(console: Console, out: Path, manifest: dict[str, Any]) -> None:
    """Print what a build made, in a dozen lines."""
    from rich.markup import escape

    from indexmill.jobs.console.tables import facts, file_table, human_bytes, read_run

    source = manifest["input"]
    run = read_run(out)
    console.print(f"[bold]{escape(str(out))}[/bold]  build {manifest['build_id'][:16]}")
    rows = {
        "vectors": f"{source['n_vectors']:,} x {source['dim']} {source['dtype']}",
        **_ROWS[manifest["kind"]](manifest),
        **({"generation": generation_line(manifest)} if manifest.get("drift") else {}),
        "seconds": facts(run.get("seconds", {})),
        "peak memory": human_bytes(run["peak_memory_bytes"]) if "peak_memory_bytes" in run else "unknown",
    }
    for name, value in rows.items():
        console.print(f"  {name:<12} {escape(value)}", soft_wrap=True)
    console.print(file_table(manifest["files"]))


def _graph_rows(manifest: dict[str, Any]) -> dict[str, str]:
    """What a graph index is, by name."""
    from indexmill.jobs.console.tables import facts

    graph, layout = manifest["graph"], manifest["layout"]
    return {
        "degree": f"mean {graph['mean_degree']:.1f}, {graph['least_degree']} to {graph['greatest_degree']}",
        "shards": shards_line(graph),
        "layout": facts({key: value for key, value in layout.items() if not isinstance(value, dict)}),
        "certificate": certificate_line(manifest["certificate"]),
    }


def _lsh_rows(manifest: dict[str, Any]) -> dict[str, str]:
    """What an LSH index is, by name: the parameters as they were solved for, radii, chains."""
    p, found = manifest["parameters"], manifest["lsh"]
    radii = found["radii"]
    longest = max(found["longest_chain"])
    return {
        "hash": f"c={p['ratio']:g} w={p['width']:g} m={p['n_functions']} L={p['n_tables']} S={p['candidates']} "
        f"u={p['hash_bits']}, p1={found['p1']:.4f} p2={found['p2']:.4f} rho={found['rho']:.3f}",
        "success": f"{found['success']:.3f} of the vectors within a radius share a bucket with the query",
        "certificate": ratio_line(manifest["certificate"]),
        "radii": f"{len(radii)}, from {radii[0]:.6g} to {radii[-1]:.6g}",
        "buckets": f"{found['n_buckets']:,} in {found['n_blocks']:,} blocks of {p['block_bytes']} bytes, at most "
        f"{longest:,} in one; bitmap of {found['bitmap_bytes']:,} bytes in memory",
    }


def _ivf_rows(manifest: dict[str, Any]) -> dict[str, str]:
    """What an index of inverted lists is, by name."""
    ivf, c, copies = manifest["ivf"], manifest["certificate"], manifest["parameters"].get("copies", 1)
    batches = ivf["batches"]
    recalls = "none: too few vectors"
    if c is not None:
        pairs = zip(c["nprobe"], c["recall"], strict=True)
        recalls = f"list recall@{c['k']} " + ", ".join(f"{r:.4f} at nprobe {p}" for p, r in pairs)
    return {
        "lists": f"{ivf['lists']:,}, {ivf['codec']}, {ivf['row_bytes']} bytes a vector"
        + (f", each in up to {copies}" if copies > 1 else ""),
        "batches": f"{len(batches)} of at most {max(batches):,} vectors",
        "certificate": recalls,
    }


#: What an index of each kind is, by name.
_ROWS: dict[str, Callable[[dict[str, Any]], dict[str, str]]] = {
    "graph": _graph_rows,
    "lsh": _lsh_rows,
    "ivf": _ivf_rows,
}


def shards_line(graph: dict[str, Any]) -> str:
    """One line about how the graph was cut; an index that was extended, or is older, does not say."""
    if "shards" not in graph:
        return "unknown"
    n = len(graph["shards"])
    cut = "1" if n == 1 else f"{n} of {min(graph['shards']):,} to {max(graph['shards']):,} vectors"
    return f"{cut}, mean fanout {graph['mean_fanout']:.2f}, {graph['edges_added']:,} edges added to connect"


def certificate_line(certificate: dict[str, Any] | None) -> str:
    """One line about a certificate."""
    if certificate is None:
        return "none: its layout was not measured, or too few vectors"
    c = certificate
    return (
        f"recall@{c['k']} {c['recall']:.4f} [{c['recall_low']:.4f}, {c['recall_high']:.4f}]"
        f" at L={c['search_list_size']}, {c['pages_read_mean']:.1f} page reads a query"
        f" (P99 {c['pages_read_p99']:.0f})"
    )


def ratio_line(certificate: dict[str, Any] | None) -> str:
    """One line about the certificate of an LSH index."""
    if certificate is None:
        return "none: too few vectors"
    c = certificate
    if c["ratio"] is None:
        return f"nothing found within the radii of {c['queries']}"
    return (
        f"overall ratio {c['ratio']:.4f} [{c['ratio_low']:.4f}, {c['ratio_high']:.4f}], recall {c['recall']:.4f} "
        f"at k={c['k']}, {c['reads_mean']:.1f} reads a query (P99 {c['reads_p99']:.0f}), "
        f"{c['distances_mean']:.0f} distances"
    )


def generation_line(manifest: dict[str, Any]) -> str:
    """One line about what was added since the last build."""
    drift = manifest["drift"]
    return f"{manifest['generation']}, {drift['added_share']:.1%} of the vectors added since a build; {drift['advice']}"
