"""The values that `tune` tries for hash tables: gamma, width and probes that a job leaves open."""

from __future__ import annotations

from typing import NamedTuple

from indexmill.pipeline.kinds.lsh.parameters import LshParameters

#: Scales of the functions of a compound hash, on both sides of the default.
GAMMAS = (0.35, 0.45, 0.55, 0.7)
#: Widths, in radii, on both sides of that with the least rho.
WIDTHS = (2.8, 4.0, 5.6)
#: Further buckets of a table: none, and some, with fewer tables.
PROBES = (0, 4, 16)


class TableCandidate(NamedTuple):
    """The index that one trial builds."""

    gamma: float
    width: float
    probes: int

    def applied(self, p: LshParameters) -> LshParameters:
        """Return `p` with these values."""
        return p.model_copy(update=self._asdict())

    def __str__(self) -> str:
        return f"gamma={self.gamma:g}, w={self.width:g}, {self.probes} probes"


def space_of(p: LshParameters) -> list[TableCandidate]:
    """Return the settings to try; parameters that were given stay as they are."""
    given = p.model_fields_set
    gammas = (
        (p.gamma,) if given & {"gamma", "n_functions"} else GAMMAS
    )  # functions that are given have no scale
    widths = (p.width,) if "width" in given else WIDTHS
    probes = (p.probes,) if "probes" in given else PROBES
    return [TableCandidate(gamma, width, more) for gamma in gammas for width in widths for more in probes]
