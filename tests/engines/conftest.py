"""A client that searches an export with the engine it was written for."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engines.environments import Search, python_of


@pytest.fixture
def client(tmp_path: Path) -> Search:
    """Search an export with its engine: ``client(engine, script, folder, queries, **options)``."""

    def search(engine: str, script: str, folder: Path, queries: np.ndarray, **options: Any) -> Any:
        asked, answer = tmp_path / "queries.npy", tmp_path / "answer.npz"
        np.save(asked, queries)
        command = [
            python_of(engine),
            Path(__file__).parent / "clients" / script,
            folder,
            asked,
            answer,
            json.dumps(options),
        ]
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return np.load(answer)

    return search
