"""User ids of indexes of lists or tables that become one: no two of the vectors that are left may have the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.pipeline.append.addition import Extendable, check_new_ids


def check_ids_apart(indexes: Sequence[Extendable], left: Sequence[NDArray[np.int64]]) -> None:
    """Refuse a user id that two indexes have; deleted vectors do not count.

    Parameters
    ----------
    left : sequence of int64 array
        Slots of each index that stay, ascending; slots are the vector ids.

    Raises
    ------
    InputError
        Naming the first such id, and where both its vectors are.
    """
    for at, (index, slots) in enumerate(zip(indexes, left, strict=True)):
        if index.user_ids is None:
            continue
        users = index.user_ids.take(pa.array(slots))
        begins = np.flatnonzero(np.diff(slots, prepend=-2) != 1)
        origins = [(int(begin), str(index.name), int(slots[begin])) for begin in begins]
        own = np.arange(len(slots), dtype=np.uint32)
        for earlier in indexes[:at]:
            check_new_ids(earlier, users, origins, own)
