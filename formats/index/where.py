"""Conditions on metadata columns, such as ``price < 20 and lang = 'de'``, as expressions of Arrow.

The language is what SQL and Python share: comparisons (``=``, ``!=`` or ``<>``, ``<``, ``<=``, ``>``, ``>=``),
``in (...)``, ``is null``, ``and``, ``or``, ``not`` and parentheses. Text stands in single or double quotes, a quote
within twice. A column whose name is no plain word stands in backquotes, a field of a struct after a dot. Words may
be of either case. As in SQL, a comparison with a missing value is neither true nor false.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexmill.formats.errors import InputError

#: Words of the language, in any case, and Python's for them.
_WORDS = {
    "and": "and", "or": "or", "not": "not", "in": "in", "is": "is", "null": "None", "true": "True", "false": "False",
}  # fmt: skip
#: Text, a column in backquotes, a word, and what Python reads otherwise: numbers stay, lines are joined.
_TOKEN = re.compile(
    r"'((?:[^']|'')*)'"
    r'|"((?:[^"]|"")*)"'
    r"|`([^`]+)`|([^\W\d]\w*)|(\d[\w.]*|(?<![=!<>])=(?!=)|<>|[\r\n]+|#)"
)
#: Signs, and Python's for them; a question mark is none.
_SIGNS = {"=": "==", "<>": "!=", "#": "?"}
#: What stands for the i-th name in the text that Python parses.
_NAME = "__{}__"
#: By the names of Python's grammar.
_COMPARISONS = {"Eq": eq, "NotEq": ne, "Lt": lt, "LtE": le, "Gt": gt, "GtE": ge}
#: Arrow walks an expression by calls as deep as it is.
_MOST_NAMES = 1_000
_EXAMPLE = "price < 20 and lang = 'de'"
_QUOTES = "text stands in quotes, a column whose name is no plain word in backquotes"


@dataclass(frozen=True)
class Condition:
    """An expression, and the columns that it reads."""

    expression: pc.Expression
    columns: frozenset[str]


def parse_condition(text: str, schema: pa.Schema) -> Condition:
    """Return a condition on the columns of `schema`.

    Raises
    ------
    InputError
        If the text is no condition, names no column of `schema`, or compares a column with text that its type cannot
        be read from.
    """
    names: list[str] = []

    def python(token: re.Match[str]) -> str:
        single, double, name, word, other = token.groups()
        if single is not None:
            return _text(single, "'")
        if double is not None:
            return _text(double, '"')
        if other is not None:
            return " " if other.isspace() else _SIGNS.get(other, other)
        if word is not None and word.lower() in _WORDS:
            return _WORDS[word.lower()]
        names.append(word or name)
        return _NAME.format(len(names) - 1)

    source = _Source.of(text, python)
    try:
        tree = ast.parse(source.python, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        offset = getattr(error, "offset", None)  # 0 at the end
        where = "" if offset is None else f"{source.place(offset - 1 if offset else len(source.python))}: "
        raise _wrong(text, f"{where}expected a condition such as {_EXAMPLE}; {_QUOTES}") from None
    if len(names) > _MOST_NAMES:
        raise _wrong(
            f"{text[:40]}...", f"names columns more than {_MOST_NAMES:,} times; list values with `in (...)`"
        )
    translation = _Translation(text, source, schema, names)
    try:
        expression = translation.condition(tree.body)
    except RecursionError:
        raise _wrong(
            text, "nested too deeply; list values with `in (...)`, and leave parentheses out"
        ) from None
    except (pa.ArrowException, OverflowError) as error:
        raise not_comparable(text, schema, translation.columns) from error
    return Condition(expression, frozenset(translation.columns))


@dataclass(frozen=True)
class _Source:
    """What Python parses in place of a condition, and the character of the condition where each of its own is from."""

    text: str
    python: str
    places: list[int]

    @staticmethod
    def of(text: str, python: Callable[[re.Match[str]], str]) -> _Source:
        parts: list[str] = []
        places: list[int] = []
        end = 0
        for token in _TOKEN.finditer(text):
            made = python(token)
            parts += [text[end : token.start()], made]
            places += [*range(end, token.start()), *[token.start()] * len(made)]
            end = token.end()
        whole = "".join([*parts, text[end:]])
        begin = len(whole) - len(whole.lstrip())
        return _Source(text, whole.strip(), [*places, *range(end, len(text) + 1)][begin:])

    def place(self, offset: int) -> str:
        """Say where a character of what Python parses is from."""
        at = self.places[min(max(offset, 0), len(self.places) - 1)]
        return f"at character {at + 1}" if at < len(self.text.rstrip()) else "at the end"


def not_comparable(text: str, schema: pa.Schema, columns: Iterable[str]) -> InputError:
    """Return the error of a condition whose columns and values Arrow does not compare."""
    types = ", ".join(f"{name}: {schema.field(name).type}" for name in sorted(columns))
    return _wrong(
        text, f"these types cannot be compared; the columns are {types}; compare columns of one type"
    )


def _text(between: str, quote: str) -> str:
    """Return a literal of Python; its parentheses keep it apart from another, which Python would append."""
    return f"({between.replace(2 * quote, quote)!r})"


def _wrong(text: str, what: str) -> InputError:
    return InputError(f"where: {text}: {what}")


@dataclass
class _Translation:
    """The walk over one condition."""

    text: str
    source: _Source
    schema: pa.Schema
    names: list[str]
    columns: set[str] = field(default_factory=set)

    def condition(self, node: ast.expr) -> pc.Expression:
        match node:
            case ast.BoolOp():
                return _joined(
                    and_ if isinstance(node.op, ast.And) else or_, list(map(self.condition, node.values))
                )
            case ast.UnaryOp(op=ast.Not()):
                return ~self.condition(node.operand)
            case ast.Compare():
                return _joined(and_, list(self._comparisons(node)))
            case ast.Name() | ast.Attribute():
                expression, type_ = self._column(node)
                if pa.types.is_boolean(type_):
                    return expression
        raise self._refused(node)

    def _comparisons(self, node: ast.Compare) -> Iterator[pc.Expression]:
        for (left, right), op in zip(pairwise([node.left, *node.comparators]), node.ops, strict=True):
            match op:
                case ast.Is() | ast.IsNot():
                    yield self._is_null(left, right, isinstance(op, ast.Is))
                case ast.In() | ast.NotIn():
                    yield self._is_in(left, right, isinstance(op, ast.In))
                case _:
                    yield self._compared(left, op, right)

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> pc.Expression:
        if _is_column(left) and _is_column(right):
            a, b = self._column(left)[0], self._column(right)[0]
        elif _is_column(left):
            a, b = self._beside_literal(left, right)
        elif _is_column(right):
            b, a = self._beside_literal(right, left)
        else:
            raise self._refused(left)
        compared: pc.Expression = _COMPARISONS[op.__class__.__name__](a, b)
        return compared

    def _is_in(self, left: ast.expr, right: ast.expr, wanted: bool) -> pc.Expression:
        expression, type_ = self._column(left)
        listed = right.elts if isinstance(right, ast.Tuple | ast.List) else [right]
        values = [_held(self._value(one, type_), type_) for one in listed]
        listed_there = expression.isin(pa.array([one for one in values if one is not None], type_))
        unknown = pc.scalar(pa.scalar(None, pa.bool_()))  # as of a comparison with a missing value
        within: pc.Expression = pc.if_else(expression.is_valid(), listed_there, unknown)
        return within if wanted else ~within

    def _is_null(self, left: ast.expr, right: ast.expr, wanted: bool) -> pc.Expression:
        if not (isinstance(right, ast.Constant) and right.value is None):
            raise self._refused(right)
        expression, _ = self._column(left)
        return expression.is_null() if wanted else expression.is_valid()

    def _column(self, node: ast.expr) -> tuple[pc.Expression, pa.DataType]:
        path: list[str] = []
        while isinstance(node, ast.Attribute):
            path.insert(0, self._name(node.attr))
            node = node.value
        if not isinstance(node, ast.Name):
            raise self._refused(node)
        path.insert(0, self._name(node.id))
        if path[0] not in self.schema.names:
            known = ", ".join(self.schema.names)
            raise _wrong(self.text, f"no metadata column {path[0]!r}; there are {known}")
        self.columns.add(path[0])
        type_ = self.schema.field(path[0]).type
        for name in path[1:]:
            if not pa.types.is_struct(type_) or type_.get_field_index(name) < 0:
                raise _wrong(self.text, f"{'.'.join(path)}: no such field; {name!r} is looked for in {type_}")
            type_ = type_.field(name).type
        return pc.field(*path), type_.value_type if pa.types.is_dictionary(type_) else type_

    def _name(self, placeholder: str) -> str:
        return self.names[int(placeholder.strip("_"))]

    def _beside_literal(self, column: ast.expr, literal: ast.expr) -> tuple[pc.Expression, pc.Expression]:
        """Return a column and a literal as they are compared: whole numbers beside others as float64."""
        expression, type_ = self._column(column)
        value = self._value(literal, type_)
        if pa.types.is_integer(type_) and pa.types.is_floating(value.type):
            expression = expression.cast(pa.float64(), safe=False)
        return expression, pc.scalar(value)

    def _value(self, node: ast.expr, type_: pa.DataType) -> pa.Scalar:
        """Return a literal, of the type of the column that it is compared with where that holds it."""
        try:
            value: Any = ast.literal_eval(node)
        except (ValueError, TypeError):
            raise self._refused(node) from None
        if value is None:
            raise _wrong(self.text, "nothing equals null; write `is null` or `is not null`")
        if isinstance(value, str):
            try:
                return pa.scalar(value).cast(type_)
            except pa.ArrowException:
                raise _wrong(
                    self.text,
                    f"{self._at(node)}: {value!r} cannot be read as {type_}, the type of the column; give a "
                    "value as the column has them",
                ) from None
        if not isinstance(value, bool | int | float):
            raise self._refused(node)
        is_number = pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
        if not (pa.types.is_boolean(type_) if isinstance(value, bool) else is_number):
            raise _wrong(
                self.text, f"{value!r} is compared with a column of {type_}; write text and times in quotes"
            )
        if isinstance(value, float) and pa.types.is_integer(type_):  # which would be cut
            return pa.scalar(value)
        for wanted in (type_, None):  # a number that the column cannot hold is compared as it is
            with suppress(pa.ArrowException, OverflowError, TypeError, ValueError):
                return pa.scalar(value, wanted)
        raise _wrong(self.text, f"{self._at(node)}: {value} does not fit 64 bits; give a smaller number")

    def _at(self, node: ast.expr) -> str:
        """Say where a node stands in the condition; Python counts the bytes before it."""
        return self.source.place(len(self.source.python.encode()[: node.col_offset].decode()))

    def _refused(self, node: ast.expr) -> InputError:
        where = self._at(node)
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                part.id = _shown(self._name(part.id))
            elif isinstance(part, ast.Attribute):
                part.attr = _shown(self._name(part.attr))
        return _wrong(
            self.text, f"{where}: {ast.unparse(node)}: expected a comparison of a column, such as {_EXAMPLE}"
        )


def _joined(join: Callable[[Any, Any], Any], parts: list[pc.Expression]) -> pc.Expression:
    """Join expressions pair by pair, so that they are not as deep as many."""
    while len(parts) > 1:
        pairs = [join(*parts[i : i + 2]) for i in range(0, len(parts) - 1, 2)]
        parts = pairs + parts[2 * len(pairs) :]
    return parts[0]


def _held(value: pa.Scalar, type_: pa.DataType) -> pa.Scalar | None:
    """Return a value as one of a type, or None where that holds no such value."""
    try:
        return value.cast(type_)
    except pa.ArrowInvalid:
        return None


def _shown(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"


def _is_column(node: ast.expr) -> bool:
    return isinstance(node, ast.Name | ast.Attribute)
