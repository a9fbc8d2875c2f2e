"""Says how a column of a PostgreSQL type is declared. What comes in: a name in pg_type. What goes out: Python."""

from __future__ import annotations

from querybuild.declarations import types
from querybuild.declarations.database_types.texts import TEXT_TYPES
from querybuild.declarations.id_types import NO_IDS
from querybuild.declarations.types import ColumnType

_PREFERRED = (types.TEXT, types.INT, types.NUMERIC)
"""Chosen where several types have columns of one type of PostgreSQL. The types of `TEXT_TYPES` come before them."""
_PLAIN = [column_type for column_type in vars(types).values() if isinstance(column_type, ColumnType)]
BY_SQL_NAME: dict[str, ColumnType] = {
    name: column_type for column_type in (*_PLAIN, *_PREFERRED, *TEXT_TYPES) for name in column_type.sql_names
}
"""Name in pg_type -> the type that a column is usually declared with."""
ID_TYPES = tuple(
    dict.fromkeys([column_type for column_type in BY_SQL_NAME.values() if column_type.id_type is not NO_IDS])
)
"""The types of ids, besides enums."""


def declared_as(sql_name: str) -> str:
    """Return how a column is declared. sql_name: as `live_tables.TYPE_NAME` gives it.

    >>> declared_as("int4range"), declared_as("_int4"), declared_as("enum"), declared_as("tid")
    ('INT4RANGE', 'array(INT)', 'enum(...)', 'OPAQUE')
    """
    name = sql_name.removeprefix("_")
    column_type = BY_SQL_NAME.get(name)
    declared = column_type.name.upper() if column_type is not None else "enum(...)" if name == "enum" else ""
    if not declared:
        return "OPAQUE"
    return f"array({declared})" if sql_name.startswith("_") else declared
