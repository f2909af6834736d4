"""The Python functions: keywords that they pass on."""

from __future__ import annotations

import re
from typing import Any

import pytest

import indexmill


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
