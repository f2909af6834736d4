"""The demonstration: two layouts of the same words, what lies near a word, and what the layout saves.

Run it as ``python -m indexmill.jobs.demo ocean piano``.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from indexmill.formats.location import local_path
from indexmill.jobs.cli.failures import exit_codes

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from indexmill.jobs.compare.run import Comparison
    from indexmill.reader.index import Index

WORDS = Path(__file__).resolve().parents[1] / "data" / "words20k" / "words.parquet"
DEFAULT_WORDS = ("ocean", "piano", "physics", "friday", "coffee")
#: Neighbours shown for each word.
SHOWN = 8
#: Words searched for, each left out of its own results, to measure page reads.
QUERIES = 300
#: List sizes of the sweep: on both sides of the recalls compared, and few, since a demonstration is waited for.
SIZES = (11, 13, 16, 20, 26, 34, 44)
#: Bytes of a code. The default of 32 is nearly exact for 50 dimensions: every list size is above the recalls then.
PQ_BYTES = 16
RECALLS = (0.90, 0.95)
BEFORE, AFTER = "identity", "agglomerative"


def command(
    words: Annotated[list[str] | None, typer.Argument(metavar="WORD...", help="Words to look up.")] = None,
    table: Annotated[
        Path, typer.Option("--words", metavar="FILE", help="Parquet file with columns word and embedding.")
    ] = WORDS,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where indexes and report go.")] = Path("demo-out"),
) -> None:
    """Build the words in two page layouts, show neighbours and compare page reads."""
    with exit_codes():
        show(words or list(DEFAULT_WORDS), table, Path(local_path(out, "--out")))


def show(words: list[str], table: Path, out: Path) -> None:
    """Run the demonstration: build, look up, compare, report.

    Raises
    ------
    InputError
        If `table` is missing or does not have one of `words`.
    """
    import pyarrow.parquet as pq

    from indexmill.formats.errors import InputError
    from indexmill.jobs.console.tables import stdout_console
    from indexmill.jobs.kinds.opening import open_index
    from indexmill.jobs.report.write import write_report

    if not table.is_file():
        raise InputError(f"{table}: no such file; pass --words FILE with columns word and embedding")
    known = pq.read_table(table, columns=["word", "embedding"])
    rows = find_rows(known["word"].to_pylist(), words)
    console = stdout_console()
    indexes = {order: out / order for order in (BEFORE, AFTER)}
    _build(console, table, indexes[BEFORE], out / "work", BEFORE)
    print_neighbours(console, open_index(indexes[BEFORE]), known, rows)
    _build(console, table, indexes[AFTER], out / "work", AFTER)
    found = _compare(list(indexes.values()), table)
    print_before_after(console, found.result)
    page = write_report(found, out / "report")
    console.print(
        f"\nThe whole comparison, with the pages of single searches: {page}", markup=False, soft_wrap=True
    )


def find_rows(known: list[str], wanted: list[str]) -> dict[str, int]:
    """Row of each wanted word, in lower case if it is known only so.

    Raises
    ------
    InputError
        For the first word that is not known, with the nearest spellings.
    """
    from indexmill.formats.errors import InputError

    places = {word: row for row, word in enumerate(known)}
    rows = {}
    for word in wanted:
        spelled = word if word in places else word.lower()
        if spelled not in places:
            close = get_close_matches(spelled, known, n=3, cutoff=0.6)
            hint = (
                f"did you mean {', '.join(close)}?"
                if close
                else "it is not one of the frequent English words"
            )
            raise InputError(f"{word!r}: not among the {len(known):,} words; {hint}")
        rows[spelled] = places[spelled]
    return rows


def _build(console: Console, table: Path, out: Path, work: Path, order: str) -> None:
    """Build one layout; both share their finished stages through `work`."""
    from indexmill.jobs.console.progress import build_progress
    from indexmill.jobs.jobfile import make_spec
    from indexmill.pipeline.build import run_build

    console.print(f"[bold]Building the words, order {order}, {PQ_BYTES}-byte codes[/bold]")
    spec = make_spec(
        {
            "input": [str(table)],
            "column": "embedding",
            "id_column": "word",
            "out": str(out),
            "work": str(work),
            "force": True,
            "parameters": {
                "metric": "cosine",
                "order": order,
                "pq_bytes": PQ_BYTES,
                "pq_rotation": "none",
                "node_dtype": "same",
            },
        }
    )
    with build_progress() as progress:
        run_build(spec, progress=progress)


def print_neighbours(console: Console, index: Index, known: pa.Table, rows: dict[str, int]) -> None:
    """Print the words nearest to each chosen word, with their cosine."""
    import numpy as np

    vectors = np.array([known["embedding"][row].as_py() for row in rows.values()], dtype=np.float32)
    found = index.search(vectors, SHOWN + 1)
    console.print("\n[bold]Nearest words[/bold]")
    for place, word in enumerate(rows):
        pairs = zip(found.ids[place], found.scores[place], strict=True)
        near = [f"{other} {score:.2f}" for other, score in pairs if other is not None and other != word]
        console.print(f"  {word:<12} {', '.join(near[:SHOWN])}", markup=False, soft_wrap=True)


def _compare(indexes: list[Path], table: Path) -> Comparison:
    from indexmill.jobs.compare.contenders import open_contenders
    from indexmill.jobs.compare.run import run_comparison
    from indexmill.jobs.score.graph import Setting
    from indexmill.jobs.score.queries import sample_queries

    contenders = open_contenders(indexes)
    setting = Setting(threads=2)
    queries = sample_queries(contenders[0].index, [str(table)], QUERIES, setting.k, "embedding")
    return run_comparison(contenders, queries, ["beam", "pipeline"], SIZES, setting, repeat=1)


def print_before_after(console: Console, result: dict[str, Any]) -> None:
    """Print page reads a query of both layouts and policies at equal recall."""
    from indexmill.jobs.compare import costs
    from indexmill.jobs.console.tables import add_row, plain_table

    headings = ["recall@10", "search", BEFORE, AFTER, "change"]
    console.print(f"\n[bold]Page reads a query, before and after order {AFTER}[/bold]")
    table = plain_table("", headings)
    lines = result["at_recall"]
    for line in lines:
        if line["index"] != AFTER or line["recall"] not in RECALLS:
            continue
        same = (line["recall"], line["policy"], BEFORE)
        before = next(other for other in lines if (other["recall"], other["policy"], other["index"]) == same)
        ratio = line["pages_read_ratio"]
        reads = [costs.show(one["pages_read"], one["pages_read_bound"]) for one in (before, line)]
        saved = "-" if ratio is None else f"{ratio - 1:+.0%}"
        add_row(table, [f"{line['recall']:.2f}", line["policy"], *reads, saved])
    console.print(table)
