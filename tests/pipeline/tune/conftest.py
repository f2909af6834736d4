"""Vectors to tune for, and plans that measure the machine briefly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.support.indexes.append import points
from tests.support.tune import N

from indexmill.pipeline.kinds.graph import seconds


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tune") / "base.npy"
    np.save(path, points(N, 1))
    return path


@pytest.fixture(scope="module", autouse=True)
def short_probe() -> Iterator[None]:
    """Plans that try the machine for half a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seconds, "TRIAL_SECONDS", 0.5)
        patch.setattr(seconds, "GRAPH_SECONDS", 0.2)
        yield
