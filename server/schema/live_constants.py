"""Asks PostgreSQL whether the constants in declarations are valid that only PostgreSQL can check: the configurations of
searches, and in rules the patterns, and values of types such as inet. Those of a filter are not asked about, because
their request is answered with PostgreSQL's error."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import asyncpg
import msgspec

from querybuild.declarations.access import audience_name
from querybuild.declarations.catalog import Catalog
from querybuild.declarations.database_types.json_paths import split_names
from querybuild.declarations.operators import OperatorRow, find_operator
from querybuild.declarations.resource import Attribute, Resource, inner_attribute
from querybuild.declarations.terms import sql_of
from querybuild.declarations.types import ColumnType
from querybuild.errors import quoted
from querybuild.filters import COUNT, RELATION_OPERATORS
from querybuild.planning.criteria import comes_from_principal
from querybuild.sql.binds import Binds
from server.schema.fault import Fault

_ERRORS = (
    asyncpg.DataError,
    # A pattern that is too complex, and an invalid value of the extensions ltree and hstore.
    asyncpg.InternalServerError,
    asyncpg.PostgresSyntaxError,
)


class _Constant(msgspec.Struct, frozen=True):
    """A constant. sql: an expression that fails if $1 is invalid. what: the value, in words."""

    sql: str
    value: Any
    what: str


async def constant_faults(connection: asyncpg.Connection[Any], catalog: Catalog) -> list[Fault]:
    """Return a Fault for each constant that PostgreSQL refuses. Without it, every request that uses it would fail."""
    faults = [fault async for fault in _search_faults(connection, catalog)]
    for resource, where, constant in _all_constants(catalog):
        try:
            await connection.fetchval(f"SELECT {constant.sql}", constant.value)
        except _ERRORS as error:
            faults.append(Fault(f"{where}: {constant.what} is refused: {error}", resource.type))
    return faults


async def _search_faults(connection: asyncpg.Connection[Any], catalog: Catalog) -> AsyncIterator[Fault]:
    """Yield a Fault for each attribute whose text search configuration the database does not have."""
    searchable = [
        (resource, attribute) for resource in catalog for attribute in resource.attributes if attribute.searchable
    ]
    rows = (
        await connection.fetch(_CONFIGURATIONS, [attribute.searchable for _, attribute in searchable])
        if searchable
        else []
    )
    for (resource, attribute), (is_there,) in zip(searchable, rows, strict=True):
        if not is_there:
            detail = f"the database has no text search configuration {quoted(attribute.searchable)}"
            yield Fault(detail, resource.type, attribute=attribute.name)


_CONFIGURATIONS = """
SELECT EXISTS (
    SELECT FROM pg_ts_config c JOIN pg_namespace n ON n.oid = c.cfgnamespace
    WHERE name IN (n.nspname || '.' || cfgname, CASE WHEN pg_ts_config_is_visible(c.oid) THEN cfgname END))
FROM unnest($1::text[]) WITH ORDINALITY wanted (name, position) ORDER BY position
"""


def _all_constants(catalog: Catalog) -> Iterator[tuple[Resource, str, _Constant]]:
    """Yield the resource of each constant, where it is there, and the constant."""
    for resource in catalog:
        for number, allow in enumerate(resource.access, 1):
            where = f"rule {number} ({audience_name(allow.to)}): "
            for name in ("rows", "check"):
                for constant in _constants(getattr(allow, name), resource, catalog):
                    yield resource, f"{where}`{name}`", constant


def _constants(rows: object, resource: Resource, catalog: Catalog) -> Iterator[_Constant]:
    """Yield the constants of a filter, at any depth."""
    if isinstance(rows, list | tuple):
        for item in rows:
            yield from _constants(item, resource, catalog)
    elif isinstance(rows, Mapping) and rows.get("op") is None:
        for item in rows.values():
            yield from _constants(item, resource, catalog)
    elif isinstance(rows, Mapping):
        target, left = _target(resource, split_names(str(rows.get("name")), "."), catalog)
        op, val = str(rows.get("op")), rows.get("val")
        if op in (*RELATION_OPERATORS, COUNT):
            yield from _constants(rows.get("of") if op == COUNT else val, target, catalog)
        elif left and val is not None and not comes_from_principal(val):
            yield from _compared(target.attribute(left[0]), left[1:], op, val)


def _target(resource: Resource, path: list[str], catalog: Catalog) -> tuple[Resource, list[str]]:
    """Return the resource to which the relationships of a path lead, and the names that are left."""
    for position, name in enumerate(path):
        relationship = resource.relationship(name)
        if relationship is None:
            return resource, path[position:]
        resource = catalog.target(relationship)
    return resource, []


def _compared(attribute: Attribute | None, inside: list[str], op: str, val: Any) -> Iterator[_Constant]:
    """Yield the constant that an attribute is compared with. Its form was checked with the rule. inside: the path, if
    the value is inside JSON."""
    if attribute is not None and inside:
        attribute, _ = inner_attribute(attribute, tuple(inside))
    row = None if attribute is None else find_operator(attribute, op)
    if attribute is None or not isinstance(row, OperatorRow):
        return
    if row.is_pattern:
        yield _Constant("'' ~ $1", val, f"the pattern {quoted(val)}")
        return
    value_type: ColumnType = row.value_type_of(attribute)
    if row.is_text or not value_type.is_checked_by_database:
        return
    for item in val if row.arity != "one" and isinstance(val, list | tuple) else (val,):
        bound = value_type.sql.bound
        assert bound is not None
        sql = sql_of(bound(Binds().request(0)))
        yield _Constant(sql, value_type.json.from_json(item), f"the value {quoted(str(item))}")
