"""The demonstration, on a few made-up words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.processes.forks import run_forked

from indexmill.formats.errors import InputError
from indexmill.jobs.demo import run


@pytest.fixture
def words(tmp_path: Path) -> Path:
    rng = np.random.default_rng(2)
    n, dim = 600, 32
    vectors = (rng.normal(size=(20, dim))[rng.integers(20, size=n)] + rng.normal(size=(n, dim)) / 2).astype(
        np.float32
    )
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    table = {
        "id": np.arange(n),
        "word": ["ocean", "piano", *(f"word{i}" for i in range(2, n))],
        "embedding": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), dim),
    }
    pq.write_table(pa.table(table), tmp_path / "words.parquet")
    return tmp_path / "words.parquet"


def test_the_demo_builds_looks_up_compares_and_can_run_again(
    words: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        run.show(["ocean", "Piano"], words, tmp_path / "out")
        said = capsys.readouterr()
        near = next(line for line in said.out.splitlines() if line.startswith("  ocean"))
        assert near.count(",") == run.SHOWN - 1
        assert "ocean " not in near.removeprefix("  ocean ")
        assert "before and after" in said.out
        assert said.out.rstrip().endswith("report/index.html")
    assert "reused" in said.err
    page = (tmp_path / "out" / "report" / "index.html").read_text(encoding="utf-8")
    assert "agglomerative against identity" in page


def test_an_unknown_word_is_refused_with_the_nearest_spellings() -> None:
    with pytest.raises(InputError, match="did you mean ocean"):
        run.find_rows(["ocean", "piano"], ["oceon"])
    assert run.find_rows(["ocean", "piano"], ["Piano"]) == {"piano": 1}


def test_a_missing_file_of_words_exits_with_3(tmp_path: Path) -> None:
    code = "import runpy; runpy.run_module('indexmill.jobs.demo', run_name='__main__', alter_sys=True)"
    done = run_forked(code, "--words", tmp_path / "none.parquet")
    assert done.returncode == 3
    assert "none.parquet: no such file" in done.stderr
