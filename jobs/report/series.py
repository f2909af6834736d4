"""Colour and line of each index and policy, the same in all plots of a report."""

from __future__ import annotations

from dataclasses import dataclass

from indexmill.jobs.report.markup import Markup, element

#: Colours that page.css knows, and lines.
N_COLOURS, N_DASHES = 6, 4


@dataclass(frozen=True)
class Series:
    """Names of the indexes, the reference first, and the policies measured; the best policy has a solid line."""

    names: tuple[str, ...]
    policies: tuple[str, ...]
    solid: str

    def style(self, name: str) -> str:
        """Class of an index: ``s0`` .. ``s5``; ``again`` for the A/A run."""
        return f"s{self.names.index(name) % N_COLOURS}" if name in self.names else "again"

    def dash(self, policy: str) -> str:
        """Class of a policy's line: ``d0`` is solid."""
        others = [self.solid, *(p for p in self.policies if p != self.solid)]
        return f"d{others.index(policy) % N_DASHES}"

    def legend(self, policies: bool = False, again: str | None = None) -> Markup:
        """Name the colours, and where they matter the lines and the A/A run."""
        items = [_item("swatch", self.style(name), name) for name in self.names]
        if again is not None:
            items.append(_item("stroke d1", "again", again))
        if policies and len(self.policies) > 1:
            items += [_item(f"stroke {self.dash(p)}", "ink", f"{p} search") for p in self.policies]
        return element("ul", *items, class_="legend")


def _item(kind: str, style: str, text: str) -> Markup:
    if kind == "swatch":
        mark = element("span", class_=f"swatch {style}")
    else:
        line = element("line", x1=0.0, x2=26.0, y1=5.0, y2=5.0, class_=f"line {style} {kind.split()[1]}")
        mark = element("svg", line, viewBox="0 0 26 10", width=26, height=10, aria_hidden="true")
    return element("li", mark, element("span", text))
