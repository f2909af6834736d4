"""Conditions on metadata: what they select, beside Python's own evaluation, and what is refused."""

from __future__ import annotations

import datetime as dt
import hashlib
import operator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.formats.errors import CorruptFile, InputError
from indexmill.formats.index.metadata import chosen_rows, rows_where

TABLE = pa.table(
    {
        "price": pa.array([5, 20, None, 35], pa.int32()),
        "lang": pa.array(["de", "en", "de", None]),
        "made": pa.array([dt.datetime(2020, 1, day) for day in (1, 2, 3, 4)], pa.timestamp("ns")),
        "new": [True, False, None, True],
        "shop": [
            {"city": "Bonn", "stars": 3},
            {"city": "Köln", "stars": 5},
            {"city": None, "stars": 1},
            None,
        ],
        "in-stock": [1.5, 2.5, 3.5, 4.5],
        "kind": pa.array(["a", "b", "a", "c"]).dictionary_encode(),
        "row": [7, 7, 8, 8],
        "from": [1, 2, 3, 4],
        "__0__": [1, 2, 3, 4],
        "large": pa.array([2**63 + 5, 20_000_000, 0, 1], pa.uint64()),
        "share": pa.array([0.1, 0.2, None, 0.5], pa.float32()),
    }
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("where") / "metadata.parquet"
    pq.write_table(TABLE, path)
    return path


def rows(path: Path, condition: str) -> list[int]:
    with path.open("rb") as file:
        mask = rows_where(file, path, hashlib.sha256(path.read_bytes()).hexdigest(), condition)
    assert (mask.dtype, mask.shape) == (bool, (pq.read_metadata(path).num_rows,))
    return np.flatnonzero(mask).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("price < 20", [0]),
        ("price <= 20 and lang = 'en'", [1]),
        ('lang == "de"', [0, 2]),
        ("not lang = 'de'", [1]),
        ("NOT (price > 10) OR lang = 'en'", [0, 1]),
        ("price is null", [2]),
        ("price IS NOT NULL", [0, 1, 3]),
        ("lang in ('de', 'fr')", [0, 2]),
        ("lang in ('de')", [0, 2]),
        ("lang not in ('de', 'fr')", [1]),
        ("price in [5, 35]", [0, 3]),
        ("price not in (5)", [1, 3]),
        ("price in (5, 1.5)", [0]),
        ("price in (20.0, 3000000000)", [1]),
        ("price not in (1.5)", [0, 1, 3]),
        ("10 < price <= 35", [1, 3]),
        ("20 = price", [1]),
        ("price < 20.5", [0, 1]),
        ("price > -1", [0, 1, 3]),
        ("made >= '2020-01-03'", [2, 3]),
        ("made in ('2020-01-04')", [3]),
        ("new", [0, 3]),
        ("not new", [1]),
        ("new = false", [1]),
        ("shop.city = 'Köln' or shop.stars < 2", [1, 2]),
        ("`in-stock` > 2 and `price` > 1", [1, 3]),
        ("kind = 'a'", [0, 2]),
        ("kind in ('a', 'c')", [0, 2, 3]),
        ("price != row and row = 7", [0, 1]),
        ("price < `in-stock`", []),
        ("price <> 20", [0, 3]),
        ("price < 1e1\n  or price > 3e+1", [0, 3]),
        ("`from` = 1 or from > 2", [0, 2, 3]),
        ("__0__ = 2", [1]),
        ("not lang in ('de')", [1]),
        ("not (lang not in ('de', 'en'))", [0, 1, 2]),
        ("large > 0.5", [0, 1, 3]),
        ("large >= 1 and large < 9223372036854775810", [1, 3]),
        ("large > 9223372036854775807", [0]),
        ("share = 0.1", [0]),
        ("share in (0.1, 0.5)", [0, 3]),
        (" or ".join(f"price = {i}" for i in range(1_000)), [0, 1, 3]),
        ("lang = 'it''s = `x`'", []),
    ],
)
def test_a_condition_selects_rows(path: Path, condition: str, expected: list[int]) -> None:
    assert rows(path, condition) == expected


@pytest.mark.parametrize(
    ("condition", "column"),
    [
        ("lang = 'de'", "lang"),
        ("lang in ('de', 'fr')", "lang"),
        ("not lang = 'de'", "lang"),
        ("kind = 'a'", "kind"),
        ("kind in ('a')", "kind"),
        ("row = 7", "row"),
        ("new", "new"),
        ("not new", "new"),
        ("large = 1", "large"),
    ],
)
def test_rows_of_one_value_of_the_column_of_labels_are_a_label(
    path: Path, condition: str, column: str
) -> None:
    assert are_label(path, condition, column)
    assert not are_label(path, condition, "share")
    assert not are_label(path, condition, None)
    assert not are_label(path, f"{condition} and `in-stock` > 0", column)


@pytest.mark.parametrize(
    ("condition", "column"),
    [
        ("lang in ('de', 'en')", "lang"),
        ("kind in ('a', 'c')", "kind"),
        ("kind != 'b'", "kind"),
        ("row > 0", "row"),
        ("row > 8", "row"),
        ("lang is null", "lang"),
        ("lang is null or lang = 'en'", "lang"),
        ("price is null or price = 5", "price"),
        ("price < `in-stock`", "price"),
    ],
)
def test_rows_of_several_values_of_none_and_of_no_row_are_no_label(
    path: Path, condition: str, column: str
) -> None:
    assert not are_label(path, condition, column)


def are_label(path: Path, condition: str, column: str | None) -> bool:
    with path.open("rb") as file:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        chosen = chosen_rows(file, path, digest, condition, column)
    assert np.flatnonzero(chosen.mask).tolist() == rows(path, condition)
    return chosen.are_label


@pytest.mark.parametrize("values", [["a", "b", "a"], ["a", None, "a"]])
def test_rows_that_begin_and_end_with_one_value_may_have_others(tmp_path: Path, values: list[Any]) -> None:
    path = tmp_path / "metadata.parquet"
    pq.write_table(pa.table({"label": values}), path)
    assert not are_label(path, "label in ('a', 'b') or label is null", "label")
    assert are_label(path, "label = 'a'", "label")


def test_quotes_within_text_stand_twice(tmp_path: Path) -> None:
    path = tmp_path / "metadata.parquet"
    pq.write_table(pa.table({"a": ["it's", 'so "far"', "a\\n", "x = 1"]}), path)
    assert rows(path, "a = 'it''s'") == [0]
    assert rows(path, 'a = "so ""far"""') == [1]
    assert rows(path, r"a = 'a\n'") == [2]
    assert rows(path, "a = 'x = 1'") == [3]


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("", "at the end: expected a condition such as price < 20"),
        ("  price <  ", "at the end: expected a condition"),
        ("price < 20 # and nothing", "at character 12: expected a condition"),
        ("  price < 20; import os", "at character 13: expected a condition"),
        ("lang = 'ü' and\n`in-stock` < > 2", "at character 29: expected a condition"),
        ("price == `lang", "at character 10: expected a condition .*; text stands in quotes, a column whose"),
        ("price < 20 and (new", "at character 16: expected a condition"),
        ("lang = 'ü' and 1 = 1", "at character 16: 1: expected a comparison"),
        ("(" * 500 + "new" + ")" * 500, "expected a condition"),
        ("__import__('os')", "expected a comparison of a column"),
        ("price + 1 < 3", "expected a comparison of a column"),
        ("f'{price}' = lang", "expected a comparison of a column"),
        ("1 = 1", "1: expected a comparison of a column"),
        ("price", "price: expected a comparison"),
        ("`in-stock`", "`in-stock`: expected a comparison"),
        ("price = null", "write `is null`"),
        ("price is 3", "3: expected a comparison"),
        ("shop.street = 'x'", "shop.street: no such field"),
        ("price.x = 1", "price.x: no such field"),
        ("nothing = 1", "no metadata column 'nothing'; there are price, lang, made"),
        (
            "made > 'soon'",
            r"at character 8: 'soon' cannot be read as timestamp\[ns\], the type of the column; give",
        ),
        ("price in (5, 'soon')", "at character 14: 'soon' cannot be read as int32"),
        ("made > 5", "write text and times in quotes"),
        ("new = 1", "compared with a column of bool"),
        ("lang = 'd' 'e'", "expected a comparison"),
        (r"lang = r'de'", "expected a comparison"),
        (" or ".join(["new"] * 1_001), "names columns more than 1,000 times"),
        ("price = {[1]}", "expected a comparison"),
        (
            " or ".join(f"price = {i}" for i in range(1_001)),
            "names columns more than 1,000 times; list values with `in",
        ),
        (
            "lang < price",
            "these types cannot be compared; the columns are lang: string, price: int32; compare",
        ),
        ("lang < 3", "3 is compared with a column of string; write text and times in quotes"),
        ("price = 99999999999999999999999", "at character 9: 99999999999999999999999 does not fit 64 bits"),
    ],
)
def test_what_is_no_condition_on_the_columns_is_refused(path: Path, condition: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        rows(path, condition)
    assert str(error.value).startswith("where: ")


def test_each_of_a_million_labels_finds_its_row(tmp_path: Path) -> None:
    n, path = 1_000_000, tmp_path / "metadata.parquet"
    labels = pc.binary_join_element_wise("label", pa.array(range(n)).cast(pa.string()), " ")
    pq.write_table(pa.table({"own": labels}), path, compression="zstd")
    for row in (0, 77, n - 1):
        assert rows(path, f"own = 'label {row}'") == [row]
    assert rows(path, f"own in ('label {n}', 'label 3', 'label 3')") == [3]
    assert rows(path, "own is null") == []


def test_a_file_that_changed_is_damaged(path: Path) -> None:
    with path.open("rb") as file, pytest.raises(CorruptFile, match="SHA-256"):
        rows_where(file, path, "0" * 64, "new")


_SIGNS: dict[str, Any] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_OPERATORS: dict[str, Any] = _SIGNS | {
    "in": lambda value, of: value in of,
    "not in": lambda value, of: value not in of,
}
_comparison = st.tuples(
    st.sampled_from(["a", "b"]), st.sampled_from(sorted(_SIGNS)), st.integers(-3, 3)
) | st.tuples(
    st.sampled_from(["a", "b"]),
    st.sampled_from(["in", "not in"]),
    st.tuples(st.integers(-3, 3), st.integers(-3, 3)),
)
_condition = st.recursive(
    _comparison,
    lambda one: st.tuples(st.just("not"), one) | st.tuples(one, st.sampled_from(["and", "or"]), one),
    max_leaves=6,
)


def _text(one: Any) -> str:
    if one[0] == "not":
        return f"not ({_text(one[1])})"
    return (
        f"{one[0]} {one[1]} {one[2]}"
        if isinstance(one[0], str)
        else f"({_text(one[0])}) {one[1]} ({_text(one[2])})"
    )


def _holds(one: Any, row: dict[str, int | None]) -> bool | None:
    """By the rules of SQL, where None is neither true nor false."""
    if one[0] == "not":
        inner = _holds(one[1], row)
        return None if inner is None else not inner
    if isinstance(one[0], str):
        value = row[one[0]]
        return None if value is None else _OPERATORS[one[1]](value, one[2])
    both = {_holds(one[0], row), _holds(one[2], row)}
    decisive = one[1] == "or"
    return decisive if decisive in both else None if None in both else not decisive


_values = st.lists(st.none() | st.integers(-3, 3), min_size=8, max_size=8)


@given(condition=_condition, a=_values, b=_values)
def test_conditions_hold_by_the_rules_of_sql(
    tmp_path_factory: pytest.TempPathFactory, condition: Any, a: list[int | None], b: list[int | None]
) -> None:
    path = tmp_path_factory.getbasetemp() / "sql.parquet"
    pq.write_table(pa.table({"a": pa.array(a, pa.int64()), "b": pa.array(b, pa.int64())}), path)
    expected = [i for i, (x, y) in enumerate(zip(a, b, strict=True)) if _holds(condition, {"a": x, "b": y})]
    assert rows(path, _text(condition)) == expected


@pytest.mark.parametrize("text", ["'__99__'", "'__0__' and price < 2", "not '__1__'"])
def test_a_text_that_looks_like_a_name_is_shown_as_it_is(path: Path, text: str) -> None:
    literal = text.split("'")[1]
    with pytest.raises(InputError, match=f"'{literal}': expected a comparison of a column"):
        rows(path, text)
