"""Request and queries of a layout, shared by the command line and Python."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from indexmill.formats.errors import ConfigError
from indexmill.jobs.choices import one_of

if TYPE_CHECKING:
    from indexmill.pipeline.relayout.run import LayoutRequest
    from indexmill.pipeline.relayout.tuning import GivenQueries


def layout_request(
    order: str | None,
    order_file: str | os.PathLike[str] | None,
    effort: str | None,
    queries: GivenQueries | None,
    prune_edges: bool,
    certify: bool,
) -> LayoutRequest:
    """Check what is asked for.

    Raises
    ------
    ConfigError
        Naming the option, and the nearest name that exists.
    """
    from indexmill.layout.portfolio import ORDERS
    from indexmill.pipeline.relayout.auto import EFFORTS
    from indexmill.pipeline.relayout.run import AUTO, LayoutRequest

    if order is not None:
        one_of(order, (AUTO, *ORDERS), "order")
    if effort is not None:
        one_of(effort, tuple(EFFORTS), "effort")
    if order is not None and order_file is not None:
        raise ConfigError("order_file: the order is given by order already; keep one of them")
    return LayoutRequest(order or AUTO, order_file, effort, queries, prune_edges, certify)


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
