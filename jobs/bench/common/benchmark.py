"""A benchmark: parts that measure, the figures that are held to targets, and the pages that show them.

Parts run in their order and can be repeated alone; what a part returns is added to ``OUT/NAME.json`` at once. A part
that fails is reported in the end and stops no other.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from jinja2 import UndefinedError

from indexmill.jobs.bench.common import record, tables
from indexmill.jobs.bench.common.dataset import Dataset, facts, first_rows, text_set
from indexmill.jobs.devices.machine import REPOSITORY

PAGE = "docs/benchmarks.md"
IMAGES = REPOSITORY / "docs" / "images"
#: Sets that benchmarks are given a folder of, and what is in it.
SETS = {
    "sift1m": "base.u8bin, query.u8bin and truth.gt",
    "text40k": "base.parquet, query.parquet (column `embedding`) and truth.gt",
    "embed768": "base.fbin, query.fbin and truth.gt",
}

#: The argument of benchmarks whose rounds may be fewer, or more.
ROUNDS_OPTION = {"--rounds": {"type": int, "metavar": "N", "help": "measure everything so often"}}

Space = TypeVar("Space")
Part = Callable[[Space], dict[str, Any]]


@dataclass
class Run:
    """Arguments of a run, and the place of its results.

    Attributes
    ----------
    name : str
        Of the benchmark; ``NAME-ROWS`` when it is only tried.
    sets : dict of str to Dataset
        Those that the benchmark asks for; their first vectors when it is only tried.
    out : Path
        Holds everything that the benchmark writes.
    rows : int or None
        Vectors of each set when it is only tried.
    options : argparse.Namespace
        Arguments of this benchmark alone.
    """

    name: str
    sets: dict[str, Dataset]
    out: Path
    rows: int | None = None
    options: argparse.Namespace = field(default_factory=argparse.Namespace)

    @property
    def results(self) -> Path:
        """The record that parts are added to."""
        return self.out / f"{self.name}.json"

    def earlier(self, part: str) -> dict[str, Any]:
        """Return what an earlier part measured.

        Raises
        ------
        FileNotFoundError
            If it has not run.
        """
        found: dict[str, Any] | None = record.load(self.results).get("parts", {}).get(part)
        if found is None:
            raise FileNotFoundError(
                f"{self.results}: nothing of the part {part!r}; run it first (--parts {part})"
            )
        return found


@dataclass(frozen=True)
class Target:
    """A figure of a record and what it is held to.

    Attributes
    ----------
    what : str
    figure : str
        Its place in the record, or a formula of places of one part; see `tables`.
    relation : {"<=", "<", ">=", ">"}
    limit : float
    unit : str
    """

    what: str
    figure: str
    relation: str
    limit: float
    unit: str = ""

    @property
    def part(self) -> str:
        """Name of the part that the figure is of, with ``_`` for ``-``."""
        return tables.part_of(self.figure)

    def measured(self, context: Mapping[str, Any]) -> dict[str, float | None] | None:
        """Return the figure: {"value", "low", "high"}; None where it was not reached."""
        found = tables.evaluate(self.figure, context)
        return (
            found if found is None or isinstance(found, dict) else {"value": found, "low": None, "high": None}
        )

    def met(self, value: float) -> bool:
        """Whether `value` satisfies the target."""
        met = {
            "<=": value <= self.limit, "<": value < self.limit,
            ">=": value >= self.limit, ">": value > self.limit,
        }  # fmt: skip
        return met[self.relation]

    def row(self, context: Mapping[str, Any]) -> list[str]:
        """Return the cells of the table of targets."""
        found = self.measured(context)
        value = None if found is None else found["value"]
        met = value is not None and self.met(value)
        cells = (tables.figure(found, 3), f"{self.relation} {self.limit:g}", self.unit)
        return [self.what, *cells, "yes" if met else "**no**"]


@dataclass(frozen=True)
class Page:
    """Place of a template of a benchmark's folder: between the comments ``mark: begin`` and ``mark: end`` of a file."""

    template: str
    path: str
    mark: str


def _identity(run: Run) -> Any:
    return run


@dataclass(frozen=True)
class Benchmark(Generic[Space]):
    """Parts, targets and pages of one folder of `bench`.

    Attributes
    ----------
    name : str
        Of the folder.
    parts : mapping of str to function
        Each measures something in a space and returns what the record keeps of it.
    targets : sequence of Target
    sets : sequence of str
        Those of `SETS` that it needs.
    space : function
        Makes what the parts work on of a `Run`; by default that itself.
    data : function
        Returns what the record says of the data of a space; by default of the sets.
    parameters : dict
        What the record says beside the parameters that all share.
    peers : tuple of str
        Packages that are measured beside indexmill.
    pages : sequence of Page
        By default ``tables.jinja`` in the page of benchmarks, marked by `name`.
    options : mapping of str to dict
        Arguments of the command line beside those that all have.
    draw : function
        Writes pictures of a record into a folder.
    """

    name: str
    parts: Mapping[str, Part[Space]]
    targets: Sequence[Target] = ()
    sets: Sequence[str] = ("sift1m",)
    space: Callable[[Run], Space] = _identity
    data: Callable[[Space], list[dict[str, Any]]] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    peers: tuple[str, ...] = ()
    pages: Sequence[Page] | None = None
    options: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    draw: Callable[[dict[str, Any], Path], None] | None = None

    @property
    def shown(self) -> Sequence[Page]:
        """Pages that show its record."""
        return (Page("tables", PAGE, self.name),) if self.pages is None else self.pages

    def render(
        self, found: dict[str, Any], source: str, template: str = "tables", images: str = "images"
    ) -> str:
        """Return a template of this benchmark, filled in from the record `found`, which is kept in `source`.

        Raises
        ------
        ValueError
            If that is no record of this benchmark, or of another format.
        """
        kind = found.get("benchmark", self.name).split("-")[0], found.get("format", record.FORMAT)
        if kind != (self.name, record.FORMAT):
            raise ValueError(f"{source}: no record of this benchmark's format; measure again")
        parts = {name.replace("-", "_"): found["parts"].get(name) for name in (*self.parts, *found["parts"])}
        sets = found["data"] if isinstance(found["data"], list) else [found["data"]]
        targets = [one.row(parts) for one in self.targets if parts.get(one.part)]
        seen = {name: part or tables.Missing(name=name) for name, part in parts.items()}
        context = {**seen, "record": found, "parts": found["parts"], "sets": sets, "targets": targets}
        return tables.render(f"{self.name}/{template}.jinja", {**context, "source": source, "images": images})

    def run(self, run: Run, chosen: Sequence[str] | None = None) -> list[str]:
        """Measure the `chosen` parts, by default those that the record lacks; return those that failed."""
        found = record.load(run.results)
        space = self.space(run)
        data = [facts(name, one) for name, one in run.sets.items()] if self.data is None else self.data(space)
        rounds = getattr(run.options, "rounds", None)
        parameters = {**self.parameters, **({"rounds": rounds} if rounds else {})}
        record.begin(found, run.results, run.name, data, parameters, self.peers)
        names = [
            name for name in self.parts if (name not in found["parts"] if chosen is None else name in chosen)
        ]
        return [name for name in names if not self._measure(name, space, found, run.results)]

    def _measure(self, name: str, space: Space, found: dict[str, Any], results: Path) -> bool:
        began = time.perf_counter()
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            found["parts"][name] = record.start_part() | self.parts[name](space)
        except Exception:
            traceback.print_exc()
            return False
        seconds = found["parts"][name]["part_s"] = round(time.perf_counter() - began, 1)
        record.save(found, results)
        print(f"{name}: {seconds} s", file=sys.stderr, flush=True)
        return True

    def keep(self, found: dict[str, Any]) -> None:
        """Store a record in the repository, and write pages and pictures from it.

        Raises
        ------
        jinja2.UndefinedError
            If a part is missing that a page shows; nothing is written then.
        """
        kept = record.kept_as(found)
        source = str(kept.relative_to(REPOSITORY))
        texts = [self.render(found, source, page.template) for page in self.shown]
        kept.parent.mkdir(exist_ok=True)
        record.save(found, kept)
        for page, text in zip(self.shown, texts, strict=True):
            tables.write_into(REPOSITORY / page.path, text, page.mark)
        if self.draw:
            self.draw(found, IMAGES)
        print(kept)

    def main(self, arguments: Sequence[str] | None = None) -> None:
        """Run from the command line."""
        given = self._parse(arguments)
        out: Path = given.out.resolve()
        out.mkdir(parents=True, exist_ok=True)
        sets = {
            name: _set(name, getattr(given, name).resolve(), out / "data", given.rows) for name in self.sets
        }
        name = f"{self.name}-{given.rows}" if given.rows else self.name
        run = Run(name, sets, out, given.rows, given)
        failed = self.run(run, given.parts)
        found = record.load(run.results)
        if not found.get("parts"):
            sys.exit(f"error: {run.results}: nothing was measured yet; name some --parts")
        if given.keep and not failed:
            try:
                self.keep(found)
            except UndefinedError as error:
                sys.exit(f"error: --keep: a page shows what was not measured yet: {error}")
        else:
            print(self.render(found, str(run.results), images=str(out / "images")), end="")
            if self.draw:
                self.draw(found, out / "images")
        if failed:
            again = ",".join(failed)
            sys.exit(f"error: {', '.join(failed)}: failed, see above; repeat with --parts {again}")

    def _parse(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        parser = argparse.ArgumentParser(
            prog=f"python -m indexmill.jobs.bench.{self.name}",
            description="Measure the parts that OUT/NAME.json lacks, and print the tables.",
        )
        for name in self.sets:
            parser.add_argument(
                f"--{name}", type=Path, required=True, metavar="DIR", help=f"folder with {SETS[name]}"
            )
        parser.add_argument(
            "--out", type=Path, required=True, metavar="DIR", help="folder for indexes, logs and the record"
        )
        for flag, how in self.options.items():
            parser.add_argument(flag, **how)
        parser.add_argument(
            "--parts",
            type=self._names,
            metavar="A,B",
            help=f"measure these, again if need be: {','.join(self.parts)}".replace(
                "%", "%%"
            ),  # argparse formats it
        )
        parser.add_argument("--rows", type=int, metavar="N", help="try it: N vectors of each set; never kept")
        parser.add_argument(
            "--keep", action="store_true", help="store the record in the repository, write the pages"
        )
        given = parser.parse_args(arguments)
        if given.rows and given.keep:
            parser.error("--keep stores whole runs only; leave out --rows")
        return given

    def _names(self, text: str) -> list[str]:
        wanted = [part for part in text.split(",") if part]
        unknown = ", ".join(sorted(set(wanted) - set(self.parts)))
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown part {unknown}; choose from {', '.join(self.parts)}")
        return wanted


def _set(name: str, source: Path, folder: Path, rows: int | None) -> Dataset:
    """Find a set; what is written of it, the text vectors and trials in part, is written below `folder` once."""
    data = text_set(source, folder / name) if name == "text40k" else Dataset(source)
    return data if rows is None else first_rows(data, rows, folder / f"{name}-{rows}")
