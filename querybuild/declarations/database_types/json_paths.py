"""The values inside a jsonb column: their names, the type of those without a declaration, and the terms of those whose
type is declared.

All terms are immutable, so that an index can be on them, and none fails, whatever the column has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from pypika.terms import Term

from querybuild.declarations.json_texts import JsonFault, load_json
from querybuild.declarations.terms import Template, escaped_braces
from querybuild.declarations.types import (
    BIGINT,
    BOOL,
    DATE,
    FLOAT,
    INT,
    NUMERIC,
    NUMERIC_NUMBER,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    ColumnType,
    JsonForm,
    SqlForm,
    raw_json,
)
from querybuild.declarations.values import ValueFault, json_of

# names

_SPLIT = {
    separator: re.compile(rf"(?:^|{re.escape(separator)})((?:[^\\{separator}]|\\.?)*)", re.DOTALL) for separator in ".,"
}
_ESCAPED = re.compile(r"\\([\\.,])")


def split_names(text: str, separator: str) -> list[str]:
    r"""Split a text at the separators that are not escaped. The names stay escaped. A name inside JSON may have
    separators in it: `\.` is a dot, `\,` a comma, `\\` a backslash.

    >>> split_names(r"words.a\.b.0", ".")
    ['words', 'a\\.b', '0']
    """
    return _SPLIT[separator].findall(text) if "\\" in text else text.split(separator)


def path_fault(text: str) -> str:
    """Return why a text is no path of names, or "" if it is one."""
    if "\0" in text:
        return "holds U+0000, which PostgreSQL cannot store"
    return "" if all(split_names(text, ".")) else "holds an empty name"


def unescaped(names: Sequence[str]) -> tuple[str, ...]:
    r"""Return names as they are in a JSON value.

    >>> unescaped(["a\\.b", "0"])
    ('a.b', '0')
    """
    return tuple([_ESCAPED.sub(r"\1", name) for name in names])


# values without a declaration

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)


def _scalar(value: Any) -> str:
    if isinstance(value, dict | list) or value is None:
        raise ValueFault("a text, a number, true or false: objects and arrays have only `is_` and `isnot` null")
    return json_of(value)


def _scalar_of_text(text: str) -> str:
    """Convert the value of a simple filter: a number, true, false or a text in quotation marks is that, and all else is
    a text."""
    is_json = text in ("true", "false") or (text[:1] == '"' and text[-1:] == '"') or _NUMBER.fullmatch(text)
    if not is_json:
        return json_of(text)
    try:
        return json_of(load_json(text))
    except JsonFault:
        return json_of(text)


def _sorted(value: Term) -> Term:
    """Return a value for ORDER BY. PostgreSQL sorts texts, numbers, booleans, arrays and objects in this order, but an
    empty array before all of them."""
    return Template("CASE {} WHEN '[]' THEN '[[]]' ELSE {} END", value, value)


JSON_VALUE = ColumnType(
    name="a value inside JSON",
    family="a value inside JSON",
    sql_names=("jsonb",),
    json=JsonForm(
        from_json=_scalar, from_text=_scalar_of_text, shown=raw_json, schema={"type": ["string", "number", "boolean"]}
    ),
    sql=SqlForm(sorted_as=_sorted),
)
"""What is inside a jsonb column, at a path that has no declared type. It has the type that each row has there."""


def inner_value(column: Term, path: Term) -> Term:
    """Return the value at a path, null if there is none or if it is JSON's null. path: an array of texts."""
    return Template("NULLIF({}#>{},'null')", column, path)


def path_literal(names: Sequence[str]) -> Term:
    """Return a path as SQL writes it, for names of a declaration or of an index."""
    listed = ",".join(['"' + re.sub(r'(["\\])', r"\\\1", name) + '"' for name in names])
    return Template("'{{" + escaped_braces(listed.replace("'", "''")) + "}}'")


# values with a declared type


class JsonPath(msgspec.Struct, frozen=True, eq=False):
    r"""The type of a value inside a jsonb attribute. Filters, sorts and groups take it as a value of this type. A value
    that does not fit the type is null.

    path: its names and positions, separated by dots: `size.cm`, `tags.0`. A dot in a name is written `\.`.
    """

    path: str
    type: ColumnType

    @property
    def names(self) -> tuple[str, ...]:
        """The names and positions of the path."""
        return unescaped(split_names(self.path, "."))

    def of(self, column: Term) -> Term:
        """Return the value in a column, null if it does not fit the type."""
        path = path_literal(self.names)
        return _TERMS[self.type](Template("({}#>{})", column, path), Template("({}#>>{})", column, path))


def has_inner_type(column_type: ColumnType) -> bool:
    """Return whether values inside JSON can have the type."""
    return column_type in _TERMS


def inner_type_names() -> list[str]:
    """Return the names of the types that values inside JSON can have."""
    return [column_type.name for column_type in _TERMS]


def _is(kind: str, then: str) -> Callable[[Term, Term], Term]:
    """Return the function for values of a JSON type. then: what they are, {0} the value and {1} its text."""
    text = f"CASE WHEN jsonb_typeof({{0}})='{kind}' THEN {then} END"
    return lambda value, as_text: Template(text, value, as_text)


def _matches(pattern: str, then: str) -> Callable[[Term, Term], Term]:
    """Return the function for texts that match a pattern. CASE tests the pattern before it converts the text."""
    return _is("string", f"CASE WHEN {{1}}~'{escaped_braces(pattern)}' THEN {then} END")


def _whole(column_type: ColumnType) -> Callable[[Term, Term], Term]:
    low, high = column_type.json.schema["minimum"], column_type.json.schema["maximum"]
    number, name = "CAST({0} AS numeric)", column_type.sql_names[0]
    is_whole = f"{number} BETWEEN {low} AND {high} AND {number}=trunc({number})"
    return _is("number", f"CASE WHEN {is_whole} THEN CAST({number} AS {name}) END")


def _numeric(value: Term, text: Term) -> Term:
    """Return a number, also one that is a text."""
    own = "CASE WHEN {1}~'^[-+]?[0-9]+([.][0-9]+)?$' AND length({1})<=400 THEN CAST({1} AS numeric) END"
    sql = f"CASE jsonb_typeof({{0}}) WHEN 'number' THEN CAST({{0}} AS numeric) WHEN 'string' THEN {own} END"
    return Template(sql, value, text)


_SIZE = "abs(CAST({0} AS numeric))"
_IS_DOUBLE = f"{_SIZE}=0 OR {_SIZE} BETWEEN 5e-324 AND 1.797e308"
_DAY = (
    "(?!0000)([0-9]{4}-(((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01]))|((0[469]|11)-(0[1-9]|[12][0-9]|30))"
    "|(02-(0[1-9]|1[0-9]|2[0-8])))|([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)"
)
_CLOCK = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,6})?"
_OFFSET = "([Zz]|[-+]([01][0-9]|2[0-3]):[0-5][0-9])"
_UUID = "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"


def _part(start: int, size: int) -> str:
    return f"CAST(substr({{1}},{start},{size}) AS int4)"


_DATE_PARTS = f"{_part(1, 4)},{_part(6, 2)},{_part(9, 2)}"
# The casts of texts to dates depend on the settings of the session, so no index could be on them.
_MOMENT = (
    f"make_timestamp({_DATE_PARTS},{_part(12, 2)},{_part(15, 2)},"
    "CAST(substring({1} from '^.{{17}}([0-9.]+)') AS float8))"
    "-make_interval(0,0,0,0,"
    "COALESCE(CAST(substring({1} from '([-+][0-9][0-9]):[0-9][0-9]$') AS int4),0),"
    "COALESCE(CAST(substring({1} from '([-+])[0-9][0-9]:[0-9][0-9]$')||right({1},2) AS int4),0))"
)

_TERMS: dict[ColumnType, Callable[[Term, Term], Term]] = {
    TEXT: _is("string", "{1}"),
    BOOL: _is("boolean", "CAST({0} AS bool)"),
    **{column_type: _whole(column_type) for column_type in (SMALLINT, INT, BIGINT)},
    NUMERIC: _numeric,
    NUMERIC_NUMBER: _numeric,
    FLOAT: _is("number", f"CASE WHEN {_IS_DOUBLE} THEN CAST({{0}} AS float8) END"),
    UUID: _matches(_UUID, "CAST({1} AS uuid)"),
    DATE: _matches(f"^{_DAY}$", f"make_date({_DATE_PARTS})"),
    TIMESTAMP: _matches(f"^{_DAY}[Tt ]{_CLOCK}{_OFFSET}$", _MOMENT),
    TIMESTAMPTZ: _matches(f"^{_DAY}[Tt ]{_CLOCK}{_OFFSET}$", f"timezone('UTC',{_MOMENT})"),
}
"""The types that values inside JSON can have -> the function of a value and its text."""
