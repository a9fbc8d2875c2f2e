r"""Defines the columns that identify a row or its version, and the text of an id that has several parts.

The text is that of the parts, joined by commas: `10248,11`. In a part, `\,` is a comma and `\\` a backslash. It is also
the value of such an id everywhere in Python. Only SQL splits it (`querybuild/sql/keys.py`).

It must not know: resources, requests.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import msgspec
from pypika.terms import Term

from querybuild.declarations.id_types import IdType
from querybuild.declarations.terms import Template, escaped_braces
from querybuild.declarations.types import ColumnType, JsonForm
from querybuild.declarations.values import ValueFault

_PARTS = re.compile(r"(?:^|,)((?:[^\\,]|\\[\\,])*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


Names = str | tuple[str, ...]
"""The name of a column, or the names of several columns, in the order of the parts of an id."""


def named_columns(names: Names) -> tuple[str, ...]:
    """Return the names as a tuple: a declaration has either form, and everything else has only this one."""
    return ((names,) if names else ()) if isinstance(names, str) else tuple(names)


class Referenced(msgspec.Struct, frozen=True):
    """The unique columns of another table that a key refers to instead of the id. id: the id of that table."""

    table: str
    schema: str | None
    id: Key
    columns: tuple[str, ...]


class UniqueKey(msgspec.Struct, frozen=True):
    """The columns of a unique index that ON CONFLICT may name. has_equal_nulls: whether two nulls are equal there."""

    columns: tuple[str, ...]
    has_equal_nulls: bool = False


class Version(msgspec.Struct, frozen=True):
    """The column that tells whether a row has changed. by: "server" if the server adds 1 with each of its writes,
    "database" if a trigger changes it. Without it, the server counts whole numbers and the database sets timestamps."""

    column: str
    by: str = ""


class Key(msgspec.Struct, frozen=True):
    """The columns of an id, or those that refer to a row, in the order of its id. Its value is always an id.

    types: those of the parts of the id. referenced: set if the columns do not have the id, but other unique values of
    the row. Then the types are not known. is_mixed: whether the columns and the id are integers of different types.
    """

    columns: tuple[str, ...]
    types: tuple[ColumnType, ...]
    referenced: Referenced | None = None
    is_mixed: bool = False

    @property
    def is_composite(self) -> bool:
        """Whether it has more than one column."""
        return len(self.columns) > 1

    @property
    def holds_id(self) -> bool:
        """Whether it is one column, with the id itself."""
        return len(self.columns) == 1 and self.referenced is None

    @property
    def is_text(self) -> bool:
        """Whether its value in Python is a text, which SQL converts."""
        return len(self.columns) > 1 or (self.referenced is None and self.types[0].id_type.id_text is not None)


def referring(columns: tuple[str, ...], referenced: Key, own_types: tuple[ColumnType, ...] = ()) -> Key:
    """Return the key of the columns that refer to another key. own_types: those of the columns, if they are other
    integers."""
    return Key(columns, referenced.types, is_mixed=bool(own_types))


def split_id(text: str) -> list[str] | None:
    r"""Return the parts of an id, or None if the text is not written as an id is.

    >>> split_id(r"10248,a\,b")
    ['10248', 'a,b']
    """
    parts: list[str] = _PARTS.findall(text)
    return [_ESCAPED.sub(r"\1", part) for part in parts] if ",".join(parts) == text else None


def id_parts(value: Any, key: Key) -> list[str]:
    """Return the texts of the parts of an id. value: a valid id; that of a key with one column is any value."""
    return (split_id(value) or []) if key.is_composite else [str(value)]


def composite_type(types: tuple[ColumnType, ...]) -> ColumnType:
    """Return the type of ids with these parts."""
    read, part = _reader(types), r"([^\\,]|\\[\\,])*"
    exact = ",".join([column_type.id_type.pattern for column_type in types])
    return ColumnType(
        name=",".join([column_type.name for column_type in types]),
        family=",".join([column_type.family for column_type in types]),
        sql_names=(),
        json=JsonForm(from_json=read, from_text=read, schema={"type": "string", "pattern": f"^{exact}$"}),
        id_type=IdType(read, {"type": "string", "pattern": f"^{part}(,{part}){{{len(types) - 1}}}$"}),
        parts=types,
    )


def _reader(types: tuple[ColumnType, ...]) -> Any:
    names = ",".join([column_type.name for column_type in types])
    expected = rf"{len(types)} values joined by commas, {names} (\, is a comma in a value, and \\ a backslash)"

    def read(text: Any) -> str:
        parts = split_id(text) if isinstance(text, str) else None
        if parts is None or len(parts) != len(types):
            raise ValueFault(expected)
        for part, column_type in zip(parts, types, strict=True):
            (column_type.id_type.read_part or column_type.id_type.read)(part)
        return str(text)

    return read


def id_value(value: Any, column_type: ColumnType) -> Any:
    """Return the value of an id, from the JSON number that a filter may have instead of its text."""
    native, id_type = column_type.json.from_json(value), column_type.id_type
    if id_type.id_text is None or not isinstance(native, Decimal):
        return native
    return id_type.read(id_type.text_of(native))


def bound_id(column_type: ColumnType, parameter: Term, array: str = "") -> Term:
    """Return the value of an id of which a parameter has the text: `CAST(CAST($1 AS TEXT) AS date)`. array: `[]` for an
    array of values."""
    to_column, text = column_type.id_type.to_column, Template(f"CAST({{}} AS TEXT{array})", parameter)
    if to_column is None:
        return Template(f"CAST({{}} AS {escaped_braces(column_type.cast_name)}{array})", text)
    return (
        Template('ARRAY(SELECT {} FROM unnest({}) "k")', to_column(Template('"k"')), text) if array else to_column(text)
    )
