"""Every order, by the name that job files and the command line use."""

from __future__ import annotations

from indexmill.layout.order import IdentityOrder, Order, RandomOrder
from indexmill.layout.star import StarOrder

ORDERS: dict[str, Order] = {
    "identity": IdentityOrder(),
    "random": RandomOrder(),
    "star": StarOrder(),
}
#: Orders that want the vectors beside the graph.
USES_POINTS: frozenset[str] = frozenset()
