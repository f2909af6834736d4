"""What several test modules share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.support.clusters import Clustered, make_clustered

from indexmill.pipeline.execution import failpoint


@pytest.fixture(scope="session")
def clustered(tmp_path_factory: pytest.TempPathFactory) -> Clustered:
    return make_clustered(tmp_path_factory.mktemp("clustered"))


@pytest.fixture
def arm() -> Iterator[Callable[[str], None]]:
    """Set a failpoint of this process for the rest of a test."""
    yield failpoint.arm
    failpoint.arm("")
