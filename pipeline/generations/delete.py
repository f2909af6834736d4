"""Deletion: the next generation of an index names the slots that no search returns; nothing else is written anew."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.errors import ConfigError, InputError
from indexmill.formats.index.deleted import are_deleted, next_generation, read_deleted
from indexmill.formats.index.ids import By, IdBlocks
from indexmill.formats.index.manifest import read_manifest
from indexmill.formats.kinds import KINDS
from indexmill.formats.sources.ids import IdList
from indexmill.pipeline.generations.history import changing, following_number, publish_next
from indexmill.pipeline.generations.match import Matches

#: What may be done about ids that are not there.
Missing = Literal["error", "ignore"]
MISSING: tuple[Missing, ...] = get_args(Missing)
#: Ids that a message names.
_NAMED = 10


@dataclass(frozen=True)
class DeleteOptions:
    """Options of a deletion.

    Attributes
    ----------
    by : {"user", "vector"}
        What the ids are: user ids (vector ids if the index has none), or vector ids, the positions in the input.
    missing : {"error", "ignore"}
        What to do about ids that no vector ever had.
    """

    by: By = "user"
    missing: Missing = "error"

    def __post_init__(self) -> None:
        for name, value, choices in (("by", self.by, get_args(By)), ("missing", self.missing, MISSING)):
            if value not in choices:
                raise ConfigError(f"{name}: expected {' or '.join(choices)}, got {value!r}")


def run_delete(index: str | os.PathLike[str], ids: IdList, options: DeleteOptions) -> dict[str, Any]:
    """Delete vectors by their ids and publish the next generation; readers keep the one they opened.

    Time: one pass over ids.imx. Memory: as `Matches`, and 12 bytes a vector that is deleted.

    Parameters
    ----------
    ids : IdList
        All vectors with one of them are deleted.

    Returns
    -------
    dict
        ``generation`` (the present one; a new one unless all were deleted before), ``deleted`` (vectors deleted now),
        ``deleted_before`` (earlier), ``vectors`` (left); ``ids`` (different ones given) and of them ``missing`` (no
        vector has them), ``gone`` (their vectors were all deleted before) and ``shared`` (several vectors have them).

    Raises
    ------
    InputError
        If ids are of another type than the index's, or missing, unless that is to be ignored.
    ConfigError, BudgetError, FormatError
        As `changing` and `read_manifest`. The index is then as it was.
    """
    with changing(index) as directory:
        present = read_manifest(directory, KINDS)
        with IdBlocks(directory / "ids.imx", present.page_file_build_id) as blocks:
            before = read_deleted(directory, present, blocks.n)
            matches = Matches(blocks, ids, options.by)
        fresh = ~are_deleted(matches.slots, before)
        vectors, living = matches.count(np.ones_like(fresh)), matches.count(fresh)
        missing = vectors == 0
        if missing.any() and options.missing == "error":
            raise _not_there(index, matches.given, missing)
        now = matches.slots[fresh]
        report = {
            "generation": present.generation,
            "deleted": len(now),
            "deleted_before": len(before),
            "vectors": blocks.n - len(before) - len(now),
            "ids": len(missing),
            "missing": int(missing.sum()),
            "gone": int((~missing & (living == 0)).sum()),
            "shared": int((living > 1).sum()),
        }
        if not len(now):
            return report
        slots = np.sort(np.concatenate([before, now.astype(np.uint32)]))
        number = following_number(directory, present)
        following = next_generation(directory, present, number, blocks.n, slots)
        publish_next(directory, present, following)
        return {**report, "generation": following.generation}


def _not_there(index: str | os.PathLike[str], given: pa.Array, missing: NDArray[np.bool_]) -> InputError:
    named = given.filter(pa.array(missing)).slice(0, _NAMED).to_pylist()
    count, more = int(missing.sum()), ", ..." if missing.sum() > _NAMED else ""
    return InputError(
        f"{index}: {count:,} of {len(missing):,} ids are not there: {', '.join(map(repr, named))}{more}; nothing was "
        "deleted; check the ids, or delete the others with --missing ignore"
    )
