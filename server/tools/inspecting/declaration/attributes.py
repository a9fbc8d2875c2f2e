"""Declares the columns of a table as attributes.

What comes in: a table, a column, its name. What goes out: an Attribute with what differs from the defaults, and
comments about what it cannot state. It must not know: other tables, files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from querybuild.declarations.resource import Attribute
from querybuild.declarations.types import OPAQUE, ColumnType, enum
from server.tools.inspecting.catalog.model import InspectedColumn, InspectedTable, Type
from server.tools.inspecting.declaration.column_types import column_type_of
from server.tools.inspecting.declaration.conditions import Stated, stated
from server.tools.inspecting.inspected import InspectedField

LONGEST_EXPRESSION = 200


def must_be_sent(table: InspectedTable, column: InspectedColumn) -> bool:
    """Return whether a new row needs a value for the column from the client."""
    has_value = column.has_default or column.is_fixed or is_filled(table, column)
    return column.is_not_null and not has_value


def is_filled(table: InspectedTable, column: InspectedColumn) -> bool:
    """Return whether something besides its own default sets the column: a trigger, or the table of a view."""
    return column.has_default_below or table.is_set_by_trigger(column.name)


def attribute_field(
    table: InspectedTable, column: InspectedColumn, name: str, methods: frozenset[str], *, is_part: bool = False
) -> InspectedField:
    """Return the attribute of a column. methods: those of its resource. is_part: whether it is part of the id."""
    column_type = column_type_of(column.type, column.dimensions)
    notes: list[str] = []
    arguments: dict[str, Any] = {}
    if column.name != name:
        arguments["column"] = column.name
    if column_type is OPAQUE:
        notes.append(f"{column.type.shown} has no type of its own: it is shown as text, and read-only")
    expressions = [check.expression for check in table.checks if check.columns == (column.name,)]
    is_exact = column.is_deterministic and column.type.name != "citext"
    column_type, limits = limited(column.type, column.name, column_type, notes, expressions, is_exact=is_exact)
    is_sent = must_be_sent(table, column) and not column_type.is_read_only
    if is_sent and column.may_insert and "create" in methods:
        arguments["required"] = True
    if not column.is_not_null:
        arguments["nullable"] = True
    has_default = column.has_default or column.has_default_below
    if column.is_not_null and not has_default and is_filled(table, column):
        arguments["filled"] = True
    arguments |= limits | _rights(column, column_type, methods, is_part)
    if column.comment:
        arguments["description"] = column.comment
    return InspectedField(Attribute(name, column_type, **arguments), tuple(notes))


def _rights(column: InspectedColumn, column_type: ColumnType, methods: frozenset[str], is_part: bool) -> dict[str, Any]:
    if column_type.is_read_only:
        return {}
    is_closed = {
        "creatable": "create" in methods and (column.is_fixed or not column.may_insert),
        "updatable": "update" in methods and (is_part or column.is_fixed or not column.may_update),
    }
    return {name: False for name, closed in is_closed.items() if closed}


def limited(
    given: Type,
    name: str,
    column_type: ColumnType,
    notes: list[str],
    expressions: Sequence[str] = (),
    *,
    is_exact: bool = True,
) -> tuple[ColumnType, dict[str, Any]]:
    """Return the type and the limits of values. given, name: the type and the name in the database. expressions: of
    CHECK constraints. is_exact: whether texts that differ are never equal. Else only PostgreSQL knows which texts are
    those of a list. Adds to the notes what they do not say."""
    limits: dict[str, Any] = {}
    if column_type.is_text and not column_type.choices and given.modifier >= 4 and given.element is None:
        limits["max_length"] = given.modifier - 4
    for expression in (*given.checks, *expressions):
        stated_limits = stated(expression, name, column_type)
        if not stated_limits.is_whole or (stated_limits.choices and not is_exact):
            notes.append(f"CHECK {one_line(expression)}")
        if stated_limits.choices and is_exact:
            column_type = _chosen(given, column_type, stated_limits, limits)
        for limit in ("minimum", "maximum", "min_length", "max_length"):
            if (bound := getattr(stated_limits, limit)) is not None:
                limits[limit] = _tighter(limit, limits.get(limit), bound)
    for least, most in (("min_length", "max_length"), ("minimum", "maximum")):
        if least in limits and most in limits and limits[least] > limits[most]:
            # No value fits, which is no declaration. PostgreSQL refuses each.
            notes.append(f"its CHECK constraints allow no value: {limits.pop(least)} is above {limits.pop(most)}")
    order = ("min_length", "max_length", "minimum", "maximum", "pattern")
    return column_type, {limit: limits[limit] for limit in order if limit in limits}


def _chosen(given: Type, column_type: ColumnType, stated_limits: Stated, limits: dict[str, Any]) -> ColumnType:
    """Return the type of values that are one of few texts. Only these types of PostgreSQL can be an enum."""
    if given.name not in ("text", "varchar"):
        limits["pattern"] = "|".join(re.escape(choice.rstrip(" ")) for choice in stated_limits.choices)
        return column_type
    limits.clear()
    return enum(*stated_limits.choices)


def _tighter(name: str, known: Any, bound: Any) -> Any:
    if known is None:
        return bound
    return max(known, bound) if name.startswith("min") else min(known, bound)


def one_line(expression: str) -> str:
    """Return an expression for a comment."""
    text = " ".join(expression.split())
    return text if len(text) <= LONGEST_EXPRESSION else f"{text[:LONGEST_EXPRESSION]} ..."
