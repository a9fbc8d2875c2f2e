"""Chooses the type of the declaration for the type of a column.

What comes in: a Type of the system catalog. What goes out: a ColumnType; OPAQUE if the declarations have none for it.
It must not know: tables, names, files.
"""

from __future__ import annotations

from functools import cache

import waterspout
from querybuild.declarations.arrays import array
from querybuild.declarations.database_types.composites import composite
from querybuild.declarations.types import INT, NUMERIC, OPAQUE, TEXT, ColumnType, enum
from server.inspecting.catalog.model import UNSUPPORTED, Type

_PREFERRED = (TEXT, INT, NUMERIC)
"""Types that are chosen where several have columns of one type."""


@cache
def constants() -> dict[str, ColumnType]:
    """Return the types that declarations import by name: `{"INT": INT, ...}`."""
    return {name: one for name, one in vars(waterspout).items() if isinstance(one, ColumnType)}


@cache
def _by_sql_name() -> dict[str, ColumnType]:
    known = [one for one in constants().values() if one is not OPAQUE]
    return {name: one for one in sorted(known, key=lambda one: one in _PREFERRED) for name in one.sql_names}


def column_type_of(found: Type, dimensions: int = 0) -> ColumnType:
    """Return the type of the declaration. dimensions: those of an array."""
    if found.labels:
        return enum(*found.labels)
    if found.fields:
        return _composite(found)
    if found.element is not None:
        # PostgreSQL calls the elements by the name of their domain.
        element = OPAQUE if found.element.domains else column_type_of(found.element)
        # A column with one dimension takes values with several.
        return OPAQUE if element is OPAQUE else array(element, dimensions=dimensions if dimensions > 1 else None)
    return OPAQUE if found.kind == UNSUPPORTED else _by_sql_name().get(found.name, OPAQUE)


def _composite(found: Type) -> ColumnType:
    fields = {name: column_type_of(one) for name, one in found.fields}
    if OPAQUE in fields.values():
        return OPAQUE
    return composite(found.name, found.schema or None, **fields)
