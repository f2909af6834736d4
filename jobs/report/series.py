"""Colour and line of each index and policy, the same in all charts of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from indexmill.jobs.report.markup import Markup, element

Spec = dict[str, Any]
#: Colours that page.css knows.
N_COLOURS = 6
#: Dots and lines of policies, and the line of the A/A run; lines are strokes and gaps.
_SHAPES = ["circle", "diamond", "square", "triangle-up"]
_DASHES: tuple[list[float], ...] = ([1, 0], [6, 5], [2, 4.5], [9, 4, 2, 4])
AGAIN: list[float] = [3, 4]


@dataclass(frozen=True)
class Series:
    """Names of the indexes, the reference first, and the policies measured; the best policy has a solid line."""

    names: tuple[str, ...]
    policies: tuple[str, ...]
    solid: str

    def style(self, name: str) -> str:
        """Class of an index, and its variable in page.css: ``s0`` .. ``s5``; ``s0`` for the A/A run."""
        return f"s{self.names.index(name) % N_COLOURS}" if name in self.names else "s0"

    def colour(self, name: str) -> str:
        """Colour of an index."""
        return f"var(--{self.style(name)})"

    def colours(self, *others: str) -> Spec:
        """Channel for the field ``index``; `others` are names of the A/A run."""
        names = list(dict.fromkeys((*self.names, *others)))
        return _channel("index", names, [self.colour(name) for name in names])

    def dashes(self) -> Spec:
        """Channel for lines of the field ``policy``."""
        return _channel("policy", self._ordered, [self._dash(policy) for policy in self._ordered])

    def shapes(self) -> Spec:
        """Channel for dots of the field ``policy``."""
        return _channel("policy", self._ordered, _SHAPES)

    @property
    def _ordered(self) -> list[str]:
        return [self.solid, *(p for p in self.policies if p != self.solid)]

    def _dash(self, policy: str) -> list[float]:
        return _DASHES[self._ordered.index(policy) % len(_DASHES)]

    def legend(self, policies: bool = False, again: str | None = None) -> Markup:
        """Name the colours, and where they matter the lines and the A/A run."""
        items = [_item(element("span", class_=f"swatch {self.style(name)}"), name) for name in self.names]
        if again is not None:
            items.append(_item(_stroke("var(--s0)", AGAIN), again))
        if policies and len(self.policies) > 1:
            items += [_item(_stroke("var(--ink)", self._dash(p)), f"{p} search") for p in self.policies]
        return element("ul", *items, class_="legend")


def _channel(field: str, domain: Sequence[str], values: Sequence[Any]) -> Spec:
    return {"field": field, "type": "nominal", "scale": {"domain": domain, "range": values}}


def _item(mark: Markup, text: str) -> Markup:
    return element("li", mark, element("span", text))


def _stroke(colour: str, dash: list[float]) -> Markup:
    style = {"stroke": colour, "stroke_width": 2.2, "stroke_dasharray": " ".join(map(str, dash))}
    line = element("line", x1=0, x2=26, y1=5, y2=5, **style)
    return element("svg", line, viewBox="0 0 26 10", width=26, height=10, aria_hidden="true")
