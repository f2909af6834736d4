"""The page of a report, put together from its sections."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from indexmill.jobs.compare.noise import noise_warning
from indexmill.jobs.report import sections, text
from indexmill.jobs.report.blocks import folded
from indexmill.jobs.report.explorer import explorer
from indexmill.jobs.report.frontier import frontier
from indexmill.jobs.report.markup import Markup, element, join
from indexmill.jobs.report.provenance import origin
from indexmill.jobs.report.series import Series

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]
_FOLDER = Path(__file__).parent
_LIBRARIES = ("vega/vega.min.js", "vega/vega-lite.min.js", "vega/vega-interpreter.js")
#: Names a file that does not come along.
_SOURCE_MAP = re.compile(r"^//# sourceMappingURL=.*$", re.MULTILINE)


def render(result: Row, paths: pa.Table) -> str:
    """Make the page for the summaries and the paths of a comparison.

    Every string of theirs is escaped; the page allows no script and no style but its own, by their hashes, and nothing
    from elsewhere.
    """
    detail = result["detail"]
    own = [row for row in result["sweep"] if not row["again"]]
    names = tuple(dict.fromkeys(row["index"] for row in own))
    policies = tuple(dict.fromkeys(row["policy"] for row in own))
    series = Series(names, policies, detail["policy"])
    style = _FOLDER.joinpath("page.css").read_text(encoding="utf-8")
    code = scripts()
    licences = _FOLDER.joinpath("vega/LICENSE").read_text(encoding="utf-8")
    nodes = {line["index"]: line["nodes_per_page"] for line in result["layout"]}
    parts = [
        sections.gate(result.get("gate")),
        sections.curves(own, series),
        sections.equal_recall(result, series),
        sections.units(result),
        explorer(paths, nodes, series, detail["policy"], result["setting"]["k"]),
        sections.queries(result, series),
        sections.layout(result, series),
        frontier(result, series),
        sections.build(result["build"]),
        sections.noise(result["noise"], names[0]),
        origin(result["provenance"]),
        sections.sweep(result["sweep"]),
    ]
    return Template(_FOLDER.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        title=join(title(names)),
        style=style,
        scripts=join(*(element("script", Markup(one)) for one in code)),
        style_hash=_hash(style),
        script_hashes=" ".join(f"'sha256-{_hash(one)}'" for one in code),
        facts=join(*(element("li", one) for one in text.fact_list(result["setting"], result["provenance"]))),
        headline=join(
            text.headline(result["at_recall"], result["setting"]["k"], detail["policy"], detail["recall"])
        ),
        cards=_cards(result),
        warning=_warning(result["noise"]["floor"]),
        sections=join(*parts),
        licences=folded("Licences of the library that draws the charts", element("pre", licences)),
    )


def title(names: tuple[str, ...]) -> str:
    """Name all indexes, the reference last."""
    return f"{', '.join(names[1:])} against {names[0]}" if len(names) > 1 else names[0]


def scripts() -> list[str]:
    """Scripts of a page: Vega-Lite, which draws the charts, and the page's own.

    Vega makes functions of the text of expressions, which a page without ``unsafe-eval`` forbids, so its interpreter
    comes along. That is a module; here it is a function that returns what the module exports.
    """
    texts = [_FOLDER.joinpath(name).read_text(encoding="utf-8") for name in (*_LIBRARIES, "page.js")]
    module = re.sub(r"^import (\{.*\}) from 'vega-util';$", r"const \1 = vega;", texts[2], flags=re.MULTILINE)
    module = re.sub(r"^export \{ (\w+) as (\w+) \};$", r"return { \2: \1 };", module, flags=re.MULTILINE)
    texts[2] = f"const vegaInterpreter = (() => {{\n{module}\n}})();"
    return [_SOURCE_MAP.sub("", one) for one in texts]


def _hash(code: str) -> str:
    return base64.b64encode(hashlib.sha256(code.encode("utf-8")).digest()).decode("ascii")


def _cards(result: Row) -> Markup:
    detail = result["detail"]
    found = text.cards(result["at_recall"], result["noise"]["floor"], detail["policy"], detail["recall"])
    cards = []
    for value, what, sure in found:
        small = element("small", sure) if sure else None
        cards.append(element("div", element("b", value), element("span", what), small, class_="card"))
    return join(*cards)


def _warning(floor: Row) -> Markup:
    said = noise_warning(floor)
    return Markup() if said is None else element("p", said, class_="warning")
