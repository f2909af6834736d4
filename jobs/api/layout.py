"""Request and queries of a layout, shared by the command line and Python."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexmill.formats.errors import ConfigError
from indexmill.formats.location import local_path
from indexmill.jobs.choices import one_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from indexmill.pipeline.relayout.query_log import QueryLog
    from indexmill.pipeline.relayout.run import LayoutRequest
    from indexmill.pipeline.relayout.tuning import GivenQueries


def layout_request(
    order: str | None,
    order_file: str | os.PathLike[str] | None,
    effort: str | None,
    queries: GivenQueries | None,
    query_log: QueryLog | None,
    prune_edges: bool,
    certify: bool,
) -> LayoutRequest:
    """Check the request of a layout.

    Raises
    ------
    ConfigError
        Naming the option, and the nearest name that exists.
    """
    from indexmill.layout.portfolio import ORDERS
    from indexmill.pipeline.relayout.auto import EFFORTS
    from indexmill.pipeline.relayout.run import AUTO, LayoutRequest

    if order is not None:
        _check_order(order, (AUTO, *ORDERS))
    if effort is not None:
        one_of(effort, tuple(EFFORTS), "effort")
    _check_one_order(order, order_file)
    named = None if order_file is None else local_path(order_file, "order_file")
    return LayoutRequest(order or AUTO, named, effort, queries, query_log, prune_edges, certify)


def check_file_request(
    path: Path,
    order: str | None,
    order_file: str | os.PathLike[str] | None,
    of_an_index: Mapping[str, Any],
) -> None:
    """Check the request for another engine's file.

    Parameters
    ----------
    of_an_index : mapping
        Values of the options that apply to indexes of indexmill only; each must be None or False.

    Raises
    ------
    ConfigError
        Naming the option.
    """
    from indexmill.layout.portfolio import ORDERS

    for name, value in of_an_index.items():
        if value:
            raise ConfigError(f"{name}: for an index of indexmill, and {path} is a file; leave it out")
    if order is not None:
        _check_order(order, tuple(ORDERS))
    _check_one_order(order, order_file)


def _check_order(order: str, orders: Sequence[str]) -> None:
    from indexmill.pipeline.kinds.graph.parameters import REPLACED_ORDERS

    if order in REPLACED_ORDERS:
        raise ConfigError(
            f"order: earlier versions had {order!r}; did you mean {REPLACED_ORDERS[order]!r}, which took its place?"
        )
    one_of(order, orders, "order")


def _check_one_order(order: str | None, order_file: str | os.PathLike[str] | None) -> None:
    if order is not None and order_file is not None:
        raise ConfigError("order_file: order already names an order; keep one of them")


def given_queries(
    queries: str | None, truth: str | os.PathLike[str] | None, column: str | None = None
) -> GivenQueries | None:
    """Read tuning queries and their true neighbours from files.

    Raises
    ------
    ConfigError
        If there is a truth without queries.
    InputError
        If a file cannot be used, or the two do not belong together.
    """
    if queries is None:
        if truth is not None:
            raise ConfigError("truth: goes with queries; name the queries it belongs to")
        return None
    from indexmill.formats.sources.source import read_queries
    from indexmill.formats.sources.truth import read_truth
    from indexmill.pipeline.relayout.tuning import as_given

    vectors = read_queries(queries, column=column)
    return as_given(vectors, None if truth is None else read_truth(Path(truth)).ids)


def as_log(vectors: NDArray[Any] | None, name: str = "query_log") -> QueryLog | None:
    """Check the queries of a log, which was given as `name`.

    Raises
    ------
    InputError
        If there are too few, or one is not finite.
    """
    from indexmill.pipeline.relayout.query_log import QueryLog
    from indexmill.pipeline.relayout.tuning import checked

    return None if vectors is None else QueryLog(checked(vectors, name), name)


def given_log(path: str | None, column: str | None = None) -> QueryLog | None:
    """Read the queries of a log from a file.

    Raises
    ------
    InputError
        If the file holds no queries, or `as_log` refuses them.
    """
    from indexmill.formats.sources.source import read_queries

    return None if path is None else as_log(read_queries(path, column=column), f"query_log: {path}")
