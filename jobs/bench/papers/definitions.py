"""Rows of the pages of papers: what a paper reports, where our figure stands in the records, and how both compare."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Verdict = Literal[
    "reproduced",
    "shape reproduced",
    "not reproduced",
    "no statement",
    "implemented",
    "fitted, not measured",
    "not possible here",
]
#: What verdicts mean, in the order in which they are counted.
VERDICTS: dict[Verdict, str] = {
    "reproduced": "the paper's statement holds here, and our figure is at least as good as its own or within 15% of it",
    "shape reproduced": "the statement holds here in direction and order; sizes differ, for the reason given",
    "not reproduced": "our figure contradicts the statement, or falls short of it, for the reason given",
    "no statement": "the paper tells nothing to compare with; our figure stands alone",
    "implemented": "a drawing or a listing: code does what it shows, and the row names its file",
    "fitted, not measured": "a simulation whose rates were fitted to figures of the paper",
    "not possible here": "hardware or data that we lack, named",
}
#: Verdicts that must say why.
_WITH_REASON = {"not reproduced", "not possible here"}
#: Verdicts on a figure of the records.
_ON_FIGURES = {"reproduced", "shape reproduced", "not reproduced"}
#: Verdicts that need a figure.
_WITH_FIGURE = {"no statement", "fitted, not measured"}
_FOLDER = Path(__file__).parent

Text = Annotated[str, Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Row(_Strict):
    """A figure of a paper, or a few that belong together.

    Attributes
    ----------
    what : str
    paper : str
        What the paper reports, with its units.
    ours : str
        A template whose holes name places of records, as in `common.tables`; empty where nothing was measured.
    on : str
        Data and setting of ours.
    verdict : Verdict
    because : str
        A template of the reason for the verdict.
    holds : str
        A condition on places of records without which the verdict is wrong.
    code : str
        For "implemented": the file that does what the drawing or listing shows.
    """

    what: Text
    paper: Text
    ours: str = ""
    on: str = ""
    verdict: Verdict
    because: str = ""
    holds: str = ""
    code: str = ""

    @model_validator(mode="after")
    def _says_what_its_verdict_needs(self) -> Row:
        if any(hole in text for hole in ("{{", "{%") for text in (self.what, self.paper, self.on)):
            raise ValueError(f"{self.what}: only `ours` and `because` are templates")
        if self.verdict in _WITH_REASON and not self.because:
            raise ValueError(f"{self.what}: {self.verdict} needs `because`")
        if self.verdict in _ON_FIGURES and not (self.ours and self.on and self.holds):
            raise ValueError(f"{self.what}: {self.verdict} needs `ours`, `on` and `holds`")
        if (self.verdict == "implemented") != bool(self.code):
            raise ValueError(
                f"{self.what}: {self.verdict}: `code` goes with implemented, and with no other verdict"
            )
        if self.verdict in _WITH_FIGURE and not self.ours:
            raise ValueError(f"{self.what}: {self.verdict} needs `ours`")
        return self


class Exhibit(_Strict):
    """A table, a figure or a section of a paper, with its rows.

    Attributes
    ----------
    name : str
        As the paper has it: ``Table 4``, ``Section 6.5``; ``Figures 2 to 6`` that are one to us.
    title : str
    note : str
        A template of the text above the rows.
    rows : tuple of Row
    """

    name: Annotated[
        str,
        Field(
            pattern=r"^(Table|Figure|Section|Equation|Theorem|Algorithm) [\dIVX]+(\.\d+)?$|^Figures \d+ to \d+$"
        ),
    ]
    title: Text
    note: str = ""
    rows: Annotated[tuple[Row, ...], Field(min_length=1)]

    @property
    def covers(self) -> list[str]:
        """Its name; each name of several figures."""
        if not self.name.startswith("Figures "):
            return [self.name]
        _, first, _, last = self.name.split()
        return [f"Figure {number}" for number in range(int(first), int(last) + 1)]


class Departure(_Strict):
    """A place where our algorithm is another than the paper's, and why; ours and why are templates."""

    paper: Text
    ours: Text
    why: Text


class Paper(_Strict):
    """A page.

    Attributes
    ----------
    title, source : str
        Heading of the page, and authors, title and place of the paper.
    about : str
        A template of what the page's reader should know first.
    names : dict of str to str
        Short names of places of records, which templates may use.
    departures : tuple of Departure
    exhibits : tuple of Exhibit
    """

    title: Text
    source: Text
    about: Text
    names: dict[str, str] = Field(default_factory=dict)
    departures: Annotated[tuple[Departure, ...], Field(min_length=1)]
    exhibits: Annotated[tuple[Exhibit, ...], Field(min_length=1)]

    @property
    def rows(self) -> list[Row]:
        """All rows."""
        return [row for exhibit in self.exhibits for row in exhibit.rows]

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many rows have each verdict, in the order of `VERDICTS`."""
        verdicts = [row.verdict for row in self.rows]
        return {verdict: verdicts.count(verdict) for verdict in VERDICTS}


def load_paper(path: Path) -> Paper:
    """Read the definition of a page.

    Raises
    ------
    ValueError
        If the file does not say what a page needs; pydantic names the place.
    """
    return Paper.model_validate(tomllib.loads(path.read_text()))


def load_papers(folder: Path = _FOLDER) -> dict[str, Paper]:
    """Return the pages by the names of their files, in the order of these."""
    return {path.stem: load_paper(path) for path in sorted(folder.glob("*.toml"))}
