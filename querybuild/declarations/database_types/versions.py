"""Says how the version of a row is read: as a text, so that it can be compared with what a client sends.

What comes in: a declaration and the type of its column. What goes out: a `RowVersion`. It must not know: tables.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from pypika.terms import Term

from querybuild.declarations.keys import Version
from querybuild.declarations.resource import Attribute, RowVersion
from querybuild.declarations.terms import Template, as_text
from querybuild.declarations.types import ColumnType, JsonForm, SqlForm
from querybuild.declarations.values import str_of

_WHOLE_NUMBERS = ("int2", "int4", "int8")
_MOMENT = """to_char({},'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
_SELECTED: dict[str, Callable[[Term], Term]] = {
    **dict.fromkeys((*_WHOLE_NUMBERS, "uuid", "xid"), as_text),
    "timestamp": lambda column: Template(_MOMENT, column),
    "timestamptz": lambda column: Template(_MOMENT.replace("{}", "timezone('UTC',{})"), column),
}
"""How each type is read. Only these have texts that a header can contain."""

VERSION_TYPES = "a whole number, a timestamp or a uuid"
"""What a version may be, for messages."""


def has_versions(sql_name: str) -> bool:
    """Return whether a column of this type can be a version. sql_name: its name in pg_type."""
    return sql_name in _SELECTED


def can_be_counted(sql_name: str) -> bool:
    """Return whether the server can add 1 to a column of this type."""
    return sql_name in _WHOLE_NUMBERS


def is_counted(declared: Version, sql_name: str) -> bool:
    """Return whether the server counts the column of this type."""
    return declared.by == "server" or (not declared.by and can_be_counted(sql_name))


def row_version(declared: Version, sql_name: str, *, is_generated: bool) -> RowVersion:
    """Return the version that a declaration names. sql_name: the type of its column. is_generated: whether nothing can
    set the column."""
    counted = is_counted(declared, sql_name)
    is_set = not (counted or is_generated)
    return RowVersion(_attribute(declared.column, sql_name), declared.column, counted, is_set)


def system_version(*, is_returned: bool) -> RowVersion:
    """Return the version of rows that have no column for it: the transaction that has written the row."""
    return RowVersion(_attribute("xmin", "xid"), is_returned=is_returned)


@cache
def _attribute(column: str, sql_name: str) -> Attribute:
    """Return the attribute that selects a version. A null counts as 0, to which the server adds 1."""
    select = _SELECTED[sql_name]
    text = select if sql_name == "xid" else lambda term: Template("COALESCE({},'0')", select(term))
    selected = ColumnType(
        name="version",
        family="text",
        sql_names=("text",),
        json=JsonForm(from_json=str_of, from_text=str_of),
        sql=SqlForm(select=text),
    )
    return Attribute(column, selected, column=column, creatable=False, updatable=False)
