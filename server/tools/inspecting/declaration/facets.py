"""Chooses the attributes whose values pages offer to filter by, because they have few.

What comes in: the attributes of a table, and what the statistics of PostgreSQL say of its columns. It must not know:
other tables.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from querybuild.declarations.resource import Attribute
from querybuild.errors import nearest, quoted
from server.tools.inspecting.catalog.model import InspectedTable
from server.tools.inspecting.declaration.names_taken import Names
from server.tools.inspecting.inspected import InspectedField

_COUNTED = frozenset({"text", "number", "numeric"})
"""The families of types whose values are offered. Those of enums and booleans always are. A day or a moment of which
there are few tells when rows were loaded."""


def with_facets(fields: Sequence[InspectedField], table: InspectedTable, names: Names) -> list[InspectedField]:
    """Return the attributes of a table, with the facets that the hints name, or else with the chosen ones. A hint that
    names no attribute becomes a remark."""
    hinted = names.hints.facets
    known = [field.declaration.name for field in fields]
    for name in hinted or ():
        if name not in known:
            detail = f"the hint about facets: {quoted(name)} is no attribute of it.{nearest(name, known)}"
            names.remarks.append(f"{table.full_name}: {detail}")
    return [_with_facet(field, table, hinted) for field in fields]


def _with_facet(field: InspectedField, table: InspectedTable, hinted: tuple[str, ...] | None) -> InspectedField:
    attribute = field.declaration
    assert isinstance(attribute, Attribute)
    is_facet = _has_few_values(attribute, table) if hinted is None else attribute.name in hinted
    if not is_facet:
        return field
    return msgspec.structs.replace(field, declaration=msgspec.structs.replace(attribute, facet=True))


def _has_few_values(attribute: Attribute, table: InspectedTable) -> bool:
    kind = attribute.type
    is_offered = kind.family in _COUNTED and kind.element is None and not kind.choices
    return is_offered and table.column(attribute.column_name).has_few_values
