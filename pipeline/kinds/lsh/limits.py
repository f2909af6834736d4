"""Limits of an LSH index, and what to change where one would be exceeded."""

from __future__ import annotations

from indexmill.formats.errors import ConfigError
from indexmill.formats.lsh.shape import MOST_TARGETS, most_probes

#: Probes of the mode for smaller indexes: as accurate, with about an eighth of the tables.
SMALLER_PROBES = 16

_REMEDIES = {
    "n_tables": "lower --success or --gamma, or give --n-tables",
    "hash_bits": "give fewer --hash-bits",
}


def advice(refusal: str) -> str:
    """Return what to change where an index would have too many of the things that `refusal` begins with."""
    return _REMEDIES.get(refusal.partition(":")[0], "build fewer vectors")


def check_probes(probes: int, n_tables: int) -> None:
    """Refuse more probes than a search can look at.

    Raises
    ------
    ConfigError
        Naming the most that it can.
    """
    most = most_probes(n_tables)
    if probes > most:
        raise ConfigError(
            f"probes: {n_tables:,} tables and {probes:,} more buckets of each are more than the {MOST_TARGETS:,} a "
            f"search looks at in a radius; give {most} or fewer --probes, or fewer --n-tables"
        )
