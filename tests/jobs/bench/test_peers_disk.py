"""Programs of other projects: what they print is read by its columns."""

from __future__ import annotations

import pytest

from indexmill.jobs.bench.peers_disk.engines import last_row

COLUMNS = ("L", "qps", "recall")


def test_the_last_line_of_a_table_counts() -> None:
    text = (
        "loading 1 2\n  L  QPS  Recall@10\n====\n 20  1500.5  93.10\n 20  1717.53  95.20\nDone searching. 3\n"
    )
    assert last_row(text, COLUMNS) == {"L": 20, "qps": 1717.53, "recall": pytest.approx(0.952)}


def test_a_program_that_prints_no_table_is_an_error_that_shows_its_end() -> None:
    with pytest.raises(RuntimeError, match=r"3 columns L, qps, recall: .*cannot open"):
        last_row("cannot open the index 1 2", COLUMNS)
