"""Drift of hash tables: how far appends, merges and compactions took an index from a build of all its vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from indexmill.builders.lsh.solve import radii_to
from indexmill.pipeline.generations.built import BuiltVectors
from indexmill.pipeline.generations.tables.opened import OpenedTables
from indexmill.pipeline.generations.tables.written import Written

#: A rebuild is advised if the chain of an entry of the first radius has so many times the blocks of the build.
REBUILD_CHAIN = 1.5
#: A compaction is advised if searches read so many times what they read of the tables without added ones.
COMPACT_READS = 1.25
#: Share of added vectors from which a rebuild is advised: its m, S and first radius would be those of twice as many.
REBUILD_SHARE = 0.5


@dataclass(frozen=True)
class Origin:
    """The build that the hash functions of an index are from.

    Attributes
    ----------
    vectors : BuiltVectors
        Vectors of that build that are still there.
    removed : int
        Vectors that compactions removed since.
    chain_blocks : float or None
        Blocks of the chain that an entry of the first radius lay in, on average; None if nobody knows.
    chain_blocks_now : float or None
        The same of the tables as they are; None if they are those of the build, or nobody knows.
    extent, first_radius, ratio : float
        Upper bound of all distances then; the first radius, and the step between radii.
    """

    vectors: BuiltVectors
    removed: int
    chain_blocks: float | None
    chain_blocks_now: float | None
    extent: float
    first_radius: float
    ratio: float

    @staticmethod
    def of(
        index: OpenedTables, chain_blocks: float | None, vectors: BuiltVectors | None = None, removed: int = 0
    ) -> Origin:
        """Return the build behind `index`.

        Parameters
        ----------
        chain_blocks : float or None
            Of the index as it is.
        vectors : BuiltVectors, optional
            Vectors of the build that stay, by their new vector ids; by default all that are there.
        removed : int
            How many vectors go now.
        """
        drift, lsh = index.drift or {}, index.manifest.lsh
        return Origin(
            vectors=index.of_build if vectors is None else vectors,
            removed=removed + int(drift.get("removed_vectors", 0)),
            chain_blocks=drift.get("chain_blocks_built", chain_blocks),
            chain_blocks_now=drift.get("chain_blocks"),
            extent=float(drift.get("extent_built", lsh["extent"])),
            first_radius=float(lsh["radii"][0]),
            ratio=index.parameters.ratio,
        )


def drift_of(origin: Origin, written: Written, n: int) -> dict[str, Any]:
    """Return the drift of the `n` vectors of the tables that were `written` (docs/formats/lsh.md)."""
    first, ratio = origin.first_radius, origin.ratio
    missing = radii_to(written.facts["extent"], first, ratio) - radii_to(origin.extent, first, ratio)
    chains = _chains(origin, written)
    share = round((n - origin.vectors.n) / n, 6)
    rebuild, advice = advise(share, chains.get("chain_ratio", 1.0), missing)
    return {
        **origin.vectors.facts(n),
        "added_share": share,
        **({"removed_vectors": origin.removed} if origin.removed else {}),
        **chains,
        "extent_built": origin.extent,
        "radii_missing": max(missing, 0),
        "rebuild": rebuild,
        "advice": advice,
    }


@dataclass(frozen=True)
class Reads:
    """What searches for the same vectors read, on average.

    Attributes
    ----------
    vectors : int
        How many are searched for.
    of_tables, now : float
        Of the tables before there were added ones, and now.
    """

    vectors: int
    of_tables: float
    now: float


def with_reads(drift: dict[str, Any], reads: Reads) -> dict[str, Any]:
    """Return a drift with what searches read, and with the advice to compact if that is much."""
    ratio = round(reads.now / reads.of_tables, 6) if reads.of_tables else 1.0
    compact = ratio >= COMPACT_READS
    advice = drift["advice"]
    if compact and not drift["rebuild"]:
        advice = f"compact: searches read {ratio:.2f} times what they read of the tables without added ones"
    return {
        **drift,
        "advice": advice,
        "reads_vectors": reads.vectors,
        "reads_tables": round(reads.of_tables, 6),
        "reads": round(reads.now, 6),
        "reads_ratio": ratio,
        "compact": compact,
    }


def _chains(origin: Origin, written: Written) -> dict[str, float]:
    """Return what became of the chains of the tables, without added ones; nothing if they are those of the build."""
    now = origin.chain_blocks_now if written.chain_blocks is None else written.chain_blocks
    if now is None:
        return {}
    chain = round(now, 6)
    before = chain if origin.chain_blocks is None else round(origin.chain_blocks, 6)
    return {"chain_blocks_built": before, "chain_blocks": chain, "chain_ratio": round(chain / before, 6)}


def advise(share: float, chain: float, missing: int) -> tuple[bool, str]:
    """Return whether to rebuild, with the reason.

    Parameters
    ----------
    share : float
        Of added vectors.
    chain : float
        Blocks of the chain that an entry of the first radius lies in, over those at the build.
    missing : int
        Radii that a build of vectors so far apart would have in addition.
    """
    reasons = []
    if share >= REBUILD_SHARE:
        reasons.append(f"{share:.0%} of the vectors were added since the parameters were solved")
    if chain >= REBUILD_CHAIN:
        reasons.append(f"chains of the first radius are {chain:.2f} times as long as those of the build")
    if missing > 0:
        reasons.append(f"vectors lie so far apart that a build would have {missing} more radii")
    if reasons:
        return True, "rebuild: " + "; ".join(reasons)
    return False, "keep: the hash functions suit the added vectors"
