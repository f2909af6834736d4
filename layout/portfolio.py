"""All orders by the names that job files and the command line use."""

from __future__ import annotations

from indexmill.layout.agglomerative.order import AgglomerativeOrder
from indexmill.layout.bnp import BnpOrder
from indexmill.layout.breadth_first import BreadthFirstOrder
from indexmill.layout.districts.order import InDistricts
from indexmill.layout.gorder import Gorder
from indexmill.layout.gorder_windowed import GorderWindowed
from indexmill.layout.graph_bisection import GraphBisectionOrder
from indexmill.layout.kmeans_pages import KmeansPagesOrder
from indexmill.layout.margo import MargoOrder
from indexmill.layout.order import IdentityOrder, Order, RandomOrder
from indexmill.layout.restream import RestreamOrder
from indexmill.layout.star import StarOrder
from indexmill.layout.units.order import InUnits

ORDERS: dict[str, Order] = {
    "identity": IdentityOrder(),
    "random": RandomOrder(),
    "breadth-first": BreadthFirstOrder(),
    "star": InDistricts(StarOrder()),
    "bnp": InUnits(BnpOrder()),
    "bnf": InUnits(RestreamOrder(start=BnpOrder(), balance=False, both_directions=False)),
    "kmeans-pages": KmeansPagesOrder(),
    "gorder": InUnits(Gorder()),
    "gorder-windowed": InUnits(GorderWindowed()),
    "margo": InUnits(MargoOrder()),
    "graph-bisection": GraphBisectionOrder(),
    "restream": InUnits(RestreamOrder()),
    "agglomerative": InUnits(AgglomerativeOrder()),
}
#: Orders that use the vectors besides the graph, where there are some; and those that cannot be made without.
USES_POINTS = frozenset(name for name, order in ORDERS.items() if order.uses_points)
NEEDS_POINTS = frozenset(name for name, order in ORDERS.items() if order.needs_points)


def in_districts(name: str, n: int) -> InDistricts | None:
    """Return the order called `name` if it makes districts of `n` vertices with vectors; None for any other."""
    order = ORDERS.get(name)
    return order if isinstance(order, InDistricts) and order.districts(n) > 1 else None
