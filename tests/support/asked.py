"""Parameters of hash tables as a job gives them to the solver."""

from __future__ import annotations

import math

from indexmill.builders.lsh.solve import Asked


def asked(**changes: object) -> Asked:
    """The parameters of the paper, with `changes`."""
    values: dict[str, object] = {
        "ratio": 2.0, "width": 4.0, "gamma": 1.0, "success": 1 - 1 / math.e, "n_functions": None, "n_tables": None,
        "n_radii": None, "candidates": None, "hash_bits": None, "probes": 0, "first_radius": None,
        "block_entries": 99,
    }  # fmt: skip
    return Asked(**{**values, **changes})  # type: ignore[arg-type]
