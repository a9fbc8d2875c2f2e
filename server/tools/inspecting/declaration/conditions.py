"""Reads the conditions of CHECK constraints that a declaration can state: bounds, lengths and lists of texts.

What comes in: an expression as pg_get_expr writes it, with the type of its column. What goes out: the arguments of an
Attribute, and whether they say all of it. It must not know: tables, names, files.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from querybuild.declarations.terms import quote_ident
from querybuild.declarations.types import BIGINT, DATE, FLOAT, INT, NUMERIC, NUMERIC_NUMBER, REAL, SMALLINT, ColumnType

_WHOLE = (SMALLINT, INT, BIGINT)
_CAST = r"(?:::[a-z_ ]+(?:\(\d+(?:,\d+)?\))?(?:\[\])?)?"
_TEXT = r"'(?:[^']|'')*'"
_NUMBER = re.compile(rf"\(?'?(-?\d+(?:\.\d+)?)'?\)?{_CAST}")
_DAY = re.compile(rf"'(\d{{4}}-\d\d-\d\d)'{_CAST}")
_LIST = re.compile(rf"= ANY \(+ARRAY\[((?:{_TEXT}{_CAST}(?:, )?)+)\]\)?{_CAST}\)?")
_LENGTH = re.compile(r"(?:char_length|length|character_length)\((.*)\)")
_COMPARISON = re.compile(r"(.+) (>=|<=|>|<|=) (.+)")
_SWAPPED = {">=": "<=", "<=": ">=", ">": "<", "<": ">", "=": "="}


class Stated(msgspec.Struct, frozen=True):
    """What an attribute can state of a condition. choices: the only texts. is_whole: whether this is all of it."""

    minimum: Any = None
    maximum: Any = None
    min_length: int | None = None
    max_length: int | None = None
    choices: tuple[str, ...] = ()
    is_whole: bool = True

    def arguments(self) -> dict[str, Any]:
        """Return what it states, by the names of the arguments."""
        given = msgspec.structs.asdict(self)
        return {name: value for name, value in given.items() if name != "is_whole" and value not in (None, ())}


_NOTHING = Stated(is_whole=False)


def stated(expression: str, column: str, column_type: ColumnType) -> Stated:
    """Return what an attribute can state of a condition on its column.

    >>> stated("((age >= 0) AND (age < 150))", "age", INT)
    Stated(minimum=0, maximum=149, min_length=None, max_length=None, choices=(), is_whole=True)
    """
    limits: dict[str, Any] = {}
    is_whole = True
    names = _names(column)
    for part in _conjuncts(expression, names):
        statement = _of_comparison(part, names, column_type)
        arguments = statement.arguments()
        if arguments.keys() & limits.keys():
            is_whole = False
            continue
        is_whole &= statement.is_whole
        limits |= arguments
    return Stated(**limits, is_whole=is_whole)


def _names(column: str) -> tuple[str, ...]:
    return column, quote_ident(column), "VALUE"


def _conjuncts(expression: str, names: tuple[str, ...]) -> list[str]:
    """Split a condition at each AND of its top level. `OR x IS NULL` is left out: for null the rest is null, and a
    CHECK accepts that."""
    text = _bare(expression)
    alternatives = [alternative for alternative in _split(text, " OR ") if not _is_null_test(alternative, names)]
    if len(alternatives) != 1:
        return [text]
    parts = _split(_bare(alternatives[0]), " AND ")
    return parts if len(parts) == 1 else [conjunct for part in parts for conjunct in _conjuncts(part, names)]


def _is_null_test(text: str, names: tuple[str, ...]) -> bool:
    subject, mark, rest = _bare(text).partition(" IS NULL")
    return bool(mark) and not rest and _is_column(subject, names)


def _split(text: str, word: str) -> list[str]:
    """Split a text at each such word that is in no text, no name and no parentheses."""
    parts, depth, start = [], 0, 0
    for match in re.finditer(rf"{_TEXT}|\"(?:[^\"]|\"\")*\"|[()]|{word}", text):
        if match[0] in "()":
            depth += 1 if match[0] == "(" else -1
        elif match[0] == word and depth == 0:
            parts.append(text[start : match.start()])
            start = match.end()
    return [*parts, text[start:]]


def _bare(text: str) -> str:
    """Remove the parentheses around a whole text."""
    text = text.strip()
    while text.startswith("(") and _closing(text) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def _closing(text: str) -> int:
    """Return the place of the parenthesis that closes the first one."""
    depth = 0
    for match in re.finditer(rf"{_TEXT}|\"(?:[^\"]|\"\")*\"|[()]", text):
        if match[0] == "(":
            depth += 1
        elif match[0] == ")":
            depth -= 1
            if depth == 0:
                return match.start()
    return -1


def _of_comparison(text: str, names: tuple[str, ...], column_type: ColumnType) -> Stated:
    subject, mark, rest = text.partition(" = ANY ")
    if mark and _is_column(subject, names):
        return _of_list(f"= ANY {rest}", column_type)
    match = _COMPARISON.fullmatch(text)
    if match is None:
        return _NOTHING
    left, operator, right = match.groups()
    if not (_is_column(left, names) or _is_length(left, names)):
        left, operator, right = right, _SWAPPED[operator], left
    if _is_length(left, names) and column_type.is_text:
        return _of_length(operator, right)
    if not _is_column(left, names):
        return _NOTHING
    if operator == "=" and column_type.is_text and (only := re.fullmatch(f"({_TEXT}){_CAST}", right)):
        return Stated(choices=(only[1][1:-1].replace("''", "'"),))
    return _of_bound(operator, right, column_type)


def _is_column(text: str, names: tuple[str, ...]) -> bool:
    """Return whether a text is the column, perhaps with a cast: `(code)::text`."""
    bare = re.sub(rf"{_CAST}$", "", _bare(text))
    return _bare(bare) in names


def _is_length(text: str, names: tuple[str, ...]) -> bool:
    match = _LENGTH.fullmatch(_bare(text))
    return match is not None and _is_column(match[1], names)


def _of_list(text: str, column_type: ColumnType) -> Stated:
    match = _LIST.fullmatch(text)
    if match is None or not column_type.is_text or column_type.choices:
        return _NOTHING
    return Stated(choices=tuple(literal[1:-1].replace("''", "'") for literal in re.findall(_TEXT, match[1])))


def _of_length(operator: str, right: str) -> Stated:
    match = _NUMBER.fullmatch(right)
    if match is None or not match[1].isdigit():
        return _NOTHING
    number = int(match[1])
    match operator:
        case ">=":
            return Stated(min_length=number)
        case ">":
            return Stated(min_length=number + 1)
        case "<=":
            return Stated(max_length=number)
        case "<" if number > 0:
            return Stated(max_length=number - 1)
        case "=":
            return Stated(min_length=number, max_length=number)
    return _NOTHING


def _of_bound(operator: str, right: str, column_type: ColumnType) -> Stated:
    value = _value(right, column_type)
    if value is None or operator == "=":
        return _NOTHING
    is_exclusive = operator in (">", "<")
    if is_exclusive and (column_type is DATE or column_type in _WHOLE):
        step = timedelta(days=1) if column_type is DATE else 1
        try:
            value = value + step if operator == ">" else value - step
        except OverflowError:
            return _NOTHING
        is_exclusive = False
    # The bounds of attributes are inclusive. If this one is not, PostgreSQL refuses the bound itself.
    if operator in (">", ">="):
        return Stated(minimum=value, is_whole=not is_exclusive)
    return Stated(maximum=value, is_whole=not is_exclusive)


def _value(text: str, column_type: ColumnType) -> Any:
    """Return a bound as a Python value of the type. None if it is none."""
    if column_type is DATE:
        match = _DAY.fullmatch(text)
        try:
            return None if match is None else date.fromisoformat(match[1])
        except ValueError:
            return None
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    number = Decimal(match[1])
    is_whole = number == number.to_integral_value()
    if column_type in _WHOLE:
        return int(number) if is_whole else None
    if column_type in (NUMERIC, NUMERIC_NUMBER):
        return int(number) if is_whole else number
    if column_type in (FLOAT, REAL):
        return int(number) if is_whole else float(number)
    return None
