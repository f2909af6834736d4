"""The Python functions: keywords that they pass on, and the names in their errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.cli import run

import indexmill
from indexmill.formats.errors import ConfigError, OutputExistsError


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("lay_out", ["i"]), ("import_index", ["i", "o"]), ("join", ["q", "i", "o.parquet"])],
)
def test_an_unknown_keyword_is_refused_by_the_name_of_the_function_that_was_called(
    name: str, arguments: list[Any]
) -> None:
    said = re.escape(f"{name}() got an unexpected keyword argument 'memry'")
    with pytest.raises(TypeError, match=f"^{said}$"):
        getattr(indexmill, name)(*arguments, memry="1GiB")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda rows: indexmill.lay_out("x", order="stra"), "order: expected one of auto"),
        (lambda rows: indexmill.lay_out("x", effort="much"), "effort: expected one of low"),
        (lambda rows: indexmill.tune(rows, effort="much"), "effort: expected one of low"),
        (
            lambda rows: indexmill.join(rows, "x", "o.csv"),
            "out: o.csv: expected a name that ends in .parquet",
        ),
        (
            lambda rows: indexmill.join(rows, "x", "o.parquet", executor="dask"),
            "executor: expected one of local",
        ),
        (lambda rows: indexmill.truth("base.npy", rows, metric="l3"), "metric: expected one of l2"),
    ],
)
def test_errors_begin_with_the_name_of_the_keyword(
    call: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = np.ones((20, 4), np.float32)
    np.save("base.npy", rows)
    with pytest.raises(ConfigError, match=f"^{re.escape(said)}"):
        call(rows)


def test_errors_of_a_command_begin_with_the_flag_that_was_given(tmp_path: Path) -> None:
    np.save(tmp_path / "q.npy", np.ones((20, 4), np.float32))
    join = ("join", tmp_path / "q.npy", "x", "--out")
    for arguments, said in (
        (("layout", "x", "--order", "stra"), "--order: expected one of auto"),
        (("layout", "x", "--effort", "much"), "--effort: expected one of low"),
        (
            ("layout", "x", "--order", "star", "--order-file", "o.npy"),
            "--order-file: order already names an order",
        ),
        (("layout", "x", "--truth", "t.gt"), "--truth: goes with queries"),
        (("layout", "x", "--memory", "much"), "--memory: "),
        (("tune", tmp_path / "q.npy", "--effort", "much"), "--effort: expected one of low"),
        ((*join, "o.csv"), "--out: o.csv: expected"),
        ((*join, tmp_path / "o.parquet", "--executor", "dask"), "--executor: expected one of local"),
        (("join", "q", "x"), "--out: missing"),
    ):
        assert f"error: {said}" in run(*arguments).stderr, arguments


def test_an_output_that_exists_is_named_as_its_caller_named_it(tmp_path: Path) -> None:
    result = tmp_path / "o.parquet"
    result.touch()
    with pytest.raises(OutputExistsError, match=f"^out: {result} exists"):
        indexmill.join(np.ones((2, 4), np.float32), "x", result)
    said = run("join", "q.npy", "x", "--out", result)
    assert said.exit_code == OutputExistsError.exit_code
    assert f"error: --out: {result} exists" in said.stderr
