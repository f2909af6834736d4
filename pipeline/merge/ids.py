"""User ids of indexes that become one: no two indexes may have one of the vectors that are left."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from indexmill.pipeline.append.addition import Extendable, check_new_ids


def check_ids_apart(indexes: Sequence[Extendable]) -> None:
    """Refuse a user id that two indexes have; deleted vectors do not count, nor do ids that were never unique in one.

    Memory: the ids of one index again, and those of one hashed.

    Raises
    ------
    InputError
        Naming the first such id, and where both its vectors are; a vector is named by its vector id.
    """
    for at, index in enumerate(indexes[1:], 1):
        users, vector_ids = index.user_ids, index.vector_ids
        if users is None:
            continue
        if len(index.deleted):
            left = np.delete(np.arange(index.n), index.deleted)
            users, vector_ids = users.take(pa.array(left)), vector_ids[left]
        for earlier in indexes[:at]:
            check_new_ids(earlier, users, [(0, str(index.name), 0)], vector_ids)
