"""Which vectors of an index are of its last build, whatever appends, merges and compactions changed since."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from numpy.typing import NDArray


class BuiltVectors(NamedTuple):
    """Vector ids of the vectors of the last build that are still there: consecutive ones.

    A build numbers its vectors from 0. Appends number further ones behind them, compactions close up in the same order,
    and merges put the vectors of other indexes before and behind them.

    Attributes
    ----------
    first : int
        The smallest of these vector ids, if there is one.
    n : int
        How many there are.
    """

    first: int
    n: int

    @staticmethod
    def of(drift: Mapping[str, Any] | None, n: int) -> BuiltVectors:
        """Return those of an index of `n` vectors, by the drift in its manifest; all of them if there is none."""
        built = _count(drift, "built_vectors", n, n)
        return BuiltVectors(_count(drift, "first_built", n - built, 0), built)

    def without(self, gone: NDArray[Any]) -> BuiltVectors:
        """Return those that are left, under their new vector ids, once the vectors with the ids `gone` are removed."""
        before = int((gone < self.first).sum())
        up_to_last = int((gone < self.first + self.n).sum())
        return BuiltVectors(self.first - before, self.n - (up_to_last - before))

    def behind(self, n: int) -> BuiltVectors:
        """Return them behind `n` other vectors."""
        return BuiltVectors(self.first + n, self.n)

    def facts(self, n: int) -> dict[str, int]:
        """Return what the drift of an index of `n` vectors says of them."""
        at = {"first_built": self.first} if self.first else {}
        return {"built_vectors": self.n, **at, "added_vectors": n - self.n}


def _count(drift: Mapping[str, Any] | None, key: str, most: int, otherwise: int) -> int:
    recorded = (drift or {}).get(key)
    return recorded if isinstance(recorded, int) and 0 <= recorded <= most else otherwise
