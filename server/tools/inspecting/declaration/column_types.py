"""Chooses the type of the declaration for the type of a column.

What comes in: a Type of the system catalog. What goes out: a ColumnType; OPAQUE if the declarations have none for it.
It must not know: tables, names, files.
"""

from __future__ import annotations

from functools import cache

import waterspout
from querybuild.declarations.arrays import MAX_DIMENSIONS, array
from querybuild.declarations.database_types.composites import composite
from querybuild.declarations.database_types.names import BY_SQL_NAME
from querybuild.declarations.types import OPAQUE, ColumnType, enum
from server.tools.inspecting.catalog.model import UNSUPPORTED, Type


@cache
def constants() -> dict[str, ColumnType]:
    """Return the types that declarations import by name: `{"INT": INT, ...}`."""
    return {name: column_type for name, column_type in vars(waterspout).items() if isinstance(column_type, ColumnType)}


def column_type_of(live_type: Type, dimensions: int = 0) -> ColumnType:
    """Return the type of the declaration. dimensions: those of an array."""
    if live_type.labels:
        return enum(*live_type.labels)
    if live_type.fields:
        return _composite(live_type)
    if live_type.element is not None:
        # PostgreSQL does not compare a domain over an enum.
        element = (
            OPAQUE if live_type.element.domains and live_type.element.labels else column_type_of(live_type.element)
        )
        if element is OPAQUE or (element.fields and dimensions > 1):
            return OPAQUE
        # A column takes values with other dimensions than those that it declares, which may be more than a value has.
        return array(element, dimensions=dimensions if 1 < dimensions <= MAX_DIMENSIONS else None)
    return OPAQUE if live_type.kind == UNSUPPORTED else BY_SQL_NAME.get(live_type.name, OPAQUE)


def _composite(live_type: Type) -> ColumnType:
    fields = {name: column_type_of(field_type) for name, field_type in live_type.fields}
    if OPAQUE in fields.values():
        return OPAQUE
    return composite(live_type.name, live_type.schema or None, **fields)
