"""Indexes that the tests of generations copy and change."""

from __future__ import annotations

import pytest
from tests.support.indexes.deleted import Built, build_all


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """An index of each kind, not to be changed."""
    return build_all(tmp_path_factory.mktemp("deleted"))
