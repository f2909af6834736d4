"""No command and no function makes a local folder of a URL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.cli import run

import indexmill
from indexmill.formats.errors import ConfigError

URL = "s3://bucket/x"


@pytest.mark.parametrize(
    "arguments",
    [
        ("append", URL, "more.npy"),
        ("append", "index", "more.npy", "--out", URL),
        ("merge", "a", URL),
        ("merge", "a", "b", "--out", URL),
        ("delete", URL, "--ids", "ids.npy"),
        ("delete", "a", "--ids", URL),
        ("rollback", URL),
        ("gc", URL),
        ("compact", URL),
        ("compact", "a", "--out", URL),
        ("upgrade", URL),
        ("layout", URL),
        ("layout", "a", "--out", URL),
        ("layout", "a", "--work", URL),
        ("explain", URL),
        ("score", URL, "--queries", "q.npy"),
        ("plan", URL),
        ("join", "q.npy", URL, "--out", "x.parquet"),
        ("join", "q.npy", "a", "--out", "s3://bucket/x.parquet"),
        ("truth", "a.npy", "q.npy", "--out", URL),
        ("search", "a", "--queries", "q.npy", "--out", "s3://bucket/x.parquet"),
        ("compare", "a", URL, "--queries", "q.npy"),
        ("compare", "a", "b", "--queries", "q.npy", "--out", URL),
        ("export", "a", "--to", "faiss", "--out", URL),
        ("import", "faiss", "a", "--out", URL),
        ("import", "diskann", URL, "--out", "a"),
        ("tune", "a.npy", "--out", "s3://bucket/x.toml"),
        ("tune", "a.npy", "--work", URL),
        ("device", URL),
        ("device", "a", "--out", URL),
        ("bench", "assign", "a.npy", "--out", URL),
        ("bench", "assign", "a.npy", "--scratch", URL),
        ("build", URL),
    ],
)
def test_a_command_refuses_a_url_before_any_work(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2, result.stderr
    assert "is a URL; expected a path of this machine" in result.stderr
    assert list(tmp_path.iterdir()) == []


VECTORS = np.zeros((4, 2), np.float32)


@pytest.mark.parametrize(
    "call",
    [
        lambda url: indexmill.append(url, VECTORS),
        lambda url: indexmill.append("index", VECTORS, out=url),
        lambda url: indexmill.merge("index", url),
        lambda url: indexmill.merge("index", "index", out=url),
        lambda url: indexmill.delete(url, [1]),
        lambda url: indexmill.delete("index", url),
        lambda url: indexmill.rollback(url),
        lambda url: indexmill.gc(url),
        lambda url: indexmill.upgrade(url),
        lambda url: indexmill.lay_out(url),
        lambda url: indexmill.lay_out("index", out=url),
        lambda url: indexmill.lay_out("index", work=url),
        lambda url: indexmill.lay_out("index", order_file=url),
        lambda url: indexmill.import_index(url, "index", program="faiss"),
        lambda url: indexmill.import_index("x.faiss", url, program="faiss"),
        lambda url: indexmill.import_index("x.faiss", "index", program="faiss", ids=url),
        lambda url: indexmill.export(url, "faiss", "out"),
        lambda url: indexmill.export("index", "faiss", url),
        lambda url: indexmill.join(VECTORS, url, "x.parquet"),
        lambda url: indexmill.join(VECTORS, "index", url),
        lambda url: indexmill.tune(VECTORS, work=url),
    ],
)
@pytest.mark.parametrize("as_path", [str, Path])
def test_a_function_refuses_a_url_before_any_work(
    call: Callable[[Any], Any], as_path: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"is a URL; expected a path of this machine"):
        call(as_path(URL))
    assert list(tmp_path.iterdir()) == []
