"""What several test modules share."""

from __future__ import annotations

import pytest
from tests.support.clusters import Clustered, make_clustered


@pytest.fixture(scope="session")
def clustered(tmp_path_factory: pytest.TempPathFactory) -> Clustered:
    return make_clustered(tmp_path_factory.mktemp("clustered"))
