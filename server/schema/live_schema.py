"""Compares the declarations with the live tables. What comes in: a connection and the Catalog. What goes out: a message
for each declaration that the tables do not match, and the constraints, which show the field that a refused write is
about.

Columns, keys and indexes are looked up. SQL expressions are prepared, and so is the read of each resource.
It must not know: requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import asyncpg
import msgspec

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.database_types.names import declared_as
from querybuild.declarations.resource import Attribute, Relationship, Resource, ToOne, link_of, own_key_of
from querybuild.declarations.terms import quote_ident
from querybuild.declarations.types import OPAQUE, ColumnType
from querybuild.errors import listed, quoted
from querybuild.planning.context import Context
from querybuild.planning.counting import Reference, References
from querybuild.planning.plan import FIRST_ALIAS, ReadPlan, node_of
from querybuild.planning.rowsets import open_rows
from querybuild.sql.select import compile_read
from server.schema.live_constants import constant_faults
from server.schema.live_functions import read_functions
from server.schema.live_ids import UnenforcedKeys, find_unenforced_keys, format_warnings
from server.schema.live_keys import (
    columns_of_others,
    id_faults,
    missing,
    nullability_faults,
    reference_faults,
    type_faults,
    with_key_types,
)
from server.schema.live_limits import Limits, read_limits, rule_faults
from server.schema.live_relations import with_relations
from server.schema.live_roles import find_role_faults, policy_warnings
from server.schema.live_tables import (
    CONSTRAINTS,
    PARTITIONS,
    TYPE_NAME,
    Column,
    Columns,
    FoundTables,
    QualifiedName,
    find_oids,
    read_table,
    with_privileges,
)
from server.schema.live_types import with_live_enums, with_live_types
from server.schema.live_values import value_faults
from server.schema.live_views import ShownColumns, read_shown_columns
from server.schema.live_writes import (
    key_faults,
    key_privileges,
    link_faults,
    lock_privileges,
    read_privileges,
    write_faults,
    write_privileges,
)

_TYPE = f"SELECT {TYPE_NAME} FROM pg_type b LEFT JOIN pg_type e ON e.oid = b.typelem WHERE b.oid = $1::oid"

MIN_REFERENCE_BYTES, MAX_SIZE_RATIO = 2**18, 10
"""Rows are counted by their keys if the referenced table has at least MIN_REFERENCE_BYTES, and the referring table is
at most MAX_SIZE_RATIO times as large. For a smaller table, PostgreSQL looks up the rows of each key in an index, and
reads less."""

# A foreign key says nothing about rows that the role may not see, and about rows of inheriting tables. In the system
# catalog, a foreign key to a partitioned table also refers to each of its partitions. With another type or collation,
# two different keys may refer to one row.
_FOREIGN_KEYS = """
SELECT c.conrelid, keys.own, c.confrelid, keys.theirs
FROM pg_constraint c
CROSS JOIN LATERAL (
    SELECT array_agg(a.attname::text ORDER BY k.place) AS own, array_agg(t.attname::text ORDER BY k.place) AS theirs,
           bool_and((a.atttypid, a.attcollation) = (t.atttypid, t.attcollation)) AS are_same
    FROM unnest(c.conkey, c.confkey) WITH ORDINALITY k (own, theirs, place)
    JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.own
    JOIN pg_attribute t ON t.attrelid = c.confrelid AND t.attnum = k.theirs
) keys
WHERE c.contype = 'f' AND c.convalidated AND keys.are_same AND c.conrelid = ANY($1::oid[])
AND pg_relation_size(c.confrelid) >= $2 AND pg_relation_size(c.conrelid) <= $3 * pg_relation_size(c.confrelid)
AND NOT EXISTS (
    SELECT FROM pg_class r
    WHERE r.oid IN (c.conrelid, c.confrelid) AND (r.relrowsecurity OR r.relhassubclass OR r.relispartition))
"""


Constraints = dict[tuple[str, str, str], tuple[str, ...]]
"""(schema, table, name) -> the columns of the constraint, in its order, without those of expressions."""


class LiveSchema(msgspec.Struct, frozen=True):
    """The result of reading the live tables.

    faults: messages about declarations that do not match.
    warnings: messages about problems that rows may cause later.
    unenforced_keys: columns that must be unique, without a constraint.
    catalog: the declarations, with the types that only the tables know. None if there are faults.
    constraints: the columns of each constraint.
    partitions: (schema, name) of a partition -> those of its table.
    views: schema and name of a view, as declared -> the columns of tables that it shows.
    references: foreign keys of declared relationships by which counting is faster.
    limits: the limits in the types of columns.
    quiet: schema and name of the tables, as declared, where an UPDATE of no rows does nothing.
    """

    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    unenforced_keys: UnenforcedKeys = {}
    catalog: Catalog | None = None
    constraints: Constraints = {}
    partitions: dict[tuple[str, str], tuple[str, str]] = {}
    views: Mapping[QualifiedName, ShownColumns] = {}
    references: References = frozenset()
    limits: Limits = {}
    quiet: frozenset[QualifiedName] = frozenset()


async def read_live_schema(
    connection: asyncpg.Connection[Any], catalog: Catalog, *, is_read_only: bool = False, roles: Sequence[str] = ()
) -> LiveSchema:
    """Read the live tables, and compare them with the declarations. is_read_only: whether the server refuses all
    writes, so that nothing has to be writable. roles: those of the requests, if it is not the server's own. Then one of
    them must be able to read each resource, and no other privileges are checked."""
    if role_faults := await find_role_faults(connection, roles):
        return LiveSchema(faults=role_faults)
    reader = _Reader(connection, roles)
    oids = await find_oids(connection, _tables(catalog))
    known_oids = [oid for oid in oids.values() if oid is not None]
    shown, base_oids = await read_shown_columns(connection, known_oids)
    partitions = await connection.fetch(PARTITIONS, [*known_oids, *base_oids])
    constraints = await connection.fetch(CONSTRAINTS, [*known_oids, *base_oids, *(row["oid"] for row in partitions)])
    foreign_keys = {
        (table, frozenset(zip(own, theirs, strict=True)), target)
        for table, own, target, theirs in await connection.fetch(
            _FOREIGN_KEYS, known_oids, MIN_REFERENCE_BYTES, MAX_SIZE_RATIO
        )
    }
    tables = {oid: await read_table(connection, oid, constraints) for oid in dict.fromkeys(known_oids)}
    if roles:
        tables = {oid: with_privileges(table) for oid, table in tables.items()}
    found = {name: None if oid is None else tables[oid] for name, oid in oids.items()}
    faults: list[str] = []
    for resource in catalog:
        own = list(_faults(catalog, resource, found))
        if not is_read_only:
            own += _write_faults(catalog, resource, found)
        table = found[resource.schema, resource.table]
        if table is not None and table.columns.keys() >= set(resource.id.key.columns):
            own += await _term_faults(reader, resource)
            own += await value_faults(connection, resource, table)
        # A faulty column would also make the read fail, and its own message is better.
        faults += own or await _read_faults(reader, resource)
    functions, wrong = await read_functions(
        connection, catalog, lambda sql: reader.prepare(sql, is_explained=False), has_roles=bool(roles)
    )
    faults += wrong
    if not faults:
        catalog = await with_live_types(connection, catalog, lambda *which: _type_of(reader, *which))
        catalog = await with_live_enums(connection, catalog, found)
        catalog = await with_relations(connection, with_key_types(catalog, found), found)
        if functions:
            catalog = catalog.with_resources(catalog, functions)
    limits = await read_limits(connection, catalog, found)
    faults = faults or rule_faults(catalog, limits) or await constant_faults(connection, catalog)
    unenforced_keys = await find_unenforced_keys(connection, catalog, found)
    return LiveSchema(
        faults=tuple(faults),
        warnings=(*format_warnings(unenforced_keys), *await policy_warnings(connection, known_oids, roles)),
        unenforced_keys=unenforced_keys,
        limits=limits,
        catalog=None if faults else catalog,
        constraints={(row["schema"], row["table"], row["name"]): tuple(row["columns"]) for row in constraints},
        views={name: shown[oid] for name, oid in oids.items() if oid is not None and oid in shown},
        quiet=frozenset(name for name, table in found.items() if table is not None and table.is_quiet),
        partitions={(row["schema"], row["name"]): (row["of_schema"], row["of_name"]) for row in partitions},
        references=frozenset(one for one in _declared_references(catalog) if _ends(oids, one) in foreign_keys),
    )


def _declared_references(catalog: Catalog) -> Iterator[Reference]:
    """Return the relationships whose keys are in the target's rows."""
    for resource in catalog:
        for relationship in resource.relationships:
            if relationship.foreign_key and not relationship.references:
                yield Reference(catalog.target(relationship), relationship.foreign_columns, resource)


def _ends(
    oids: dict[QualifiedName, int | None], reference: Reference
) -> tuple[int | None, frozenset[tuple[str, str]], int | None]:
    """Return a reference as a row of _FOREIGN_KEYS: the tables, and the pairs of columns."""
    resource, target = reference.resource, reference.target
    table, target_table = oids[resource.schema, resource.table], oids[target.schema, target.table]
    return table, frozenset(zip(reference.columns, target.id.key.columns, strict=True)), target_table


def _tables(catalog: Catalog) -> Iterator[QualifiedName]:
    for resource in catalog:
        yield resource.schema, resource.table
        for relationship in resource.relationships:
            link = link_of(relationship)
            if link is not None:
                yield link.schema, link.table


def _label(resource: Resource) -> str:
    return f"resource {quoted(resource.type)}: "


def _faults(catalog: Catalog, resource: Resource, found: FoundTables) -> Iterator[str]:
    where = _label(resource)
    table = found[resource.schema, resource.table]
    if table is None:
        yield f"{where}there is no table {quoted(resource.table)} in the database"
        return
    read = (*resource.id.key.columns, *_read_columns_of(resource))
    for fault in (
        *id_faults(resource, table),
        *_attribute_faults(resource, table.columns),
        *read_privileges(table, read),
    ):
        yield where + fault
    for relationship in resource.relationships:
        for fault in _relationship_faults(resource, relationship, catalog.target(relationship), found):
            yield f"{where}relationship {quoted(relationship.name)}: {fault}"


def _write_faults(catalog: Catalog, resource: Resource, found: FoundTables) -> Iterator[str]:
    """Return what the methods of a resource and its relationships need, but the tables or the role do not allow."""
    where = _label(resource)
    table = found[resource.schema, resource.table]
    if table is None:
        return
    for fault in (*write_faults(resource, table), *write_privileges(resource, table)):
        yield where + fault
    for relationship in resource.relationships:
        for fault in _relationship_write_faults(resource, relationship, catalog.target(relationship), found):
            yield f"{where}relationship {quoted(relationship.name)}: {fault}"


def _relationship_write_faults(
    resource: Resource, relationship: Relationship, target: Resource, found: FoundTables
) -> Iterator[str]:
    link = link_of(relationship)
    own, theirs = found[resource.schema, resource.table], found[target.schema, target.table]
    if link is not None:
        links = found[link.schema, link.table]
        if links is not None:
            yield from link_faults(resource, relationship, link, links)
    elif isinstance(relationship, ToOne) and relationship.is_own_key:
        if own is not None:
            yield from key_faults(resource, relationship, own, relationship.own_columns)
    elif theirs is not None:
        yield from key_faults(target, relationship, theirs, relationship.foreign_columns)
        yield from key_privileges(resource, relationship, target, theirs)
    if own is not None and theirs is not None and own_key_of(relationship) is None:
        yield from lock_privileges(resource, relationship, target, own, theirs)


def _relationship_faults(
    resource: Resource, relationship: Relationship, target: Resource, found: FoundTables
) -> Iterator[str]:
    link = link_of(relationship)
    if link is not None:
        links = found[link.schema, link.table]
        if links is None:
            yield f"there is no table {quoted(link.table)} in the database"
            return
        yield from type_faults(link.source_columns, link.table, links, resource)
        yield from type_faults(link.target_columns, link.table, links, target)
        columns = tuple(dict.fromkeys((*link.source_columns, *link.target_columns)))
        yield from read_privileges(links, columns)
        if links.may_repeat(*columns):
            yield f"the table {quoted(link.table)} has no unique index on {listed(columns)}"
    elif isinstance(relationship, ToOne) and relationship.is_own_key:
        own = found[resource.schema, resource.table]
        if own is not None:
            if relationship.references:
                theirs = found[target.schema, target.table]
                yield from reference_faults(relationship.own_columns, own, theirs, relationship.referenced_columns)
            else:
                yield from type_faults(relationship.own_columns, resource.table, own, target)
            yield from nullability_faults(relationship, own.columns)
    else:
        theirs = found[target.schema, target.table]
        if theirs is not None:
            columns = relationship.foreign_columns
            if relationship.references:
                own = found[resource.schema, resource.table]
                yield from reference_faults(columns, theirs, own, relationship.referenced_columns)
            else:
                yield from type_faults(columns, target.table, theirs, resource)
            if theirs.may_use_schema:
                yield from read_privileges(theirs, columns)
            if not relationship.is_to_many and theirs.may_repeat(*columns):
                yield f"the table {quoted(target.table)} has no unique index on {listed(columns)}"


def _read_columns_of(resource: Resource) -> Iterator[str]:
    """Return the columns of its own table that reads of a resource use."""
    for attribute in resource.attributes:
        if attribute.is_stored:
            yield attribute.column_name
    for relationship in resource.relationships:
        if (own := own_key_of(relationship)) is not None:
            yield from own.own_columns


def _attribute_faults(resource: Resource, columns: Columns) -> Iterator[str]:
    for attribute in resource.attributes:
        if not attribute.is_stored:
            continue
        label = f"attribute {quoted(attribute.name)}: "
        column = columns.get(attribute.column_name)
        if column is None:
            yield from (label + fault for fault in missing(attribute.column_name, resource.table, columns))
            continue
        is_filled = resource.hooks.before_create is not None or "create" not in resource.methods
        is_filled = is_filled or attribute.filled or attribute.column_name in columns_of_others(resource)
        for fault in _column_faults(attribute, column, is_filled=is_filled):
            yield label + fault


def _column_faults(attribute: Attribute, column: Column, *, is_filled: bool) -> Iterator[str]:
    """Return the faults of a column. is_filled: whether clients do not create such resources, or custom code or a
    trigger may set the attributes that a client leaves out."""
    names = attribute.type.sql_names
    if attribute.type is not OPAQUE and column.type not in names:
        yield _type_fault(attribute.type, "column", column.type)
    elif column.hidden_schema and attribute.type.is_of_extension:
        yield (
            f"its type {column.type} is in the schema {quoted(column.hidden_schema)}, which is not in the search path: "
            "PostgreSQL would not find the operators of the type. Add the schema to the role's search_path, or declare "
            f"it as {'TEXT' if column.type == 'citext' else 'OPAQUE'}"
        )
    if attribute.nullable and column.is_not_null:
        yield "it is declared nullable, and its column is NOT NULL"
    if not attribute.nullable and not column.is_not_null:
        yield "it is not declared nullable, and its column is"
    must_be_sent = column.is_not_null and not column.has_default and not is_filled
    if must_be_sent and not attribute.required and attribute.is_writable(on_create=True):
        yield (
            "it is not required on create, and its column is NOT NULL without a default: declare required=True, or "
            "filled=True if a trigger fills it"
        )


def _type_fault(declared: ColumnType, what: str, sql_name: str) -> str:
    return f"it is declared as {declared.name}, and its {what} is {sql_name}: declare it as {declared_as(sql_name)}"


_GONE = (asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError, asyncpg.InsufficientResourcesError)


class _Refused(Exception):
    """A statement of a declaration is wrong. The message says why."""


class _Reader(msgspec.Struct, frozen=True):
    """Prepares statements on a connection. roles: which of them to try; without any, the server's own."""

    connection: asyncpg.Connection[Any]
    roles: Sequence[str]

    async def prepare(self, sql: str, *, is_explained: bool) -> tuple[asyncpg.Attribute, ...]:
        """Return the columns of a statement. Raises asyncpg's errors."""
        if not self.roles:
            return await _prepare(self.connection, sql, is_explained=is_explained)
        for role in self.roles:
            try:
                async with self.connection.transaction():
                    await self.connection.execute(f"SET LOCAL ROLE {quote_ident(role)}")
                    return await _prepare(self.connection, sql, is_explained=is_explained)
            except asyncpg.InsufficientPrivilegeError as error:
                refused = error
        raise refused


async def _prepare(
    connection: asyncpg.Connection[Any], sql: str, *, is_explained: bool
) -> tuple[asyncpg.Attribute, ...]:
    prepared = await connection.prepare(sql)
    if is_explained:
        await _explain(connection, sql)
    return prepared.get_attributes()


async def _read_columns(
    reader: _Reader,
    resource: Resource,
    attributes: Sequence[Attribute],
    *,
    is_explained: bool = False,
) -> tuple[asyncpg.Attribute, ...]:
    """Prepare the list of a resource, with its id and the attributes, and return its columns. is_explained: whether
    privileges are checked too, also those on functions and on tables that computed attributes read.

    Raises _Refused, and asyncpg's errors if the connection is lost.
    """
    plan = ReadPlan(node=node_of(open_rows(resource, FIRST_ALIAS, Context()), tuple(attributes)), is_collection=True)
    try:
        sql = compile_read(plan).primary.sql
    except Exception as error:  # of a declaration's own function
        raise _Refused(f"it raises {type(error).__name__}: {error}") from error
    try:
        return await reader.prepare(sql, is_explained=is_explained)
    except _GONE:
        raise
    except asyncpg.PostgresError as error:
        raise _Refused(error.args[0]) from error


async def _explain(connection: asyncpg.Connection[Any], sql: str) -> None:
    """Check the privileges of a statement. Raises InsufficientPrivilegeError. Other errors of EXPLAIN are ignored: a
    request would raise them only for some rows."""
    try:
        await connection.execute(f"EXPLAIN {sql}")
    except asyncpg.InsufficientPrivilegeError:
        raise
    except asyncpg.PostgresError as error:
        if isinstance(error, _GONE):
            raise


async def _read_faults(reader: _Reader, resource: Resource) -> list[str]:
    """Return the fault of the list of a resource without query parameters, if there is one."""
    try:
        await _read_columns(reader, resource, resource.readable_attributes, is_explained=True)
    except _Refused as error:
        return [f"{_label(resource)}it cannot be read: {error}"]
    return []


async def _term_faults(reader: _Reader, resource: Resource) -> list[str]:
    """Return the faults of the attributes that are computed in SQL."""
    computed = [attribute for attribute in resource.attributes if attribute.sql is not None]
    faults = [(attribute, await _term_fault(reader, resource, attribute)) for attribute in computed]
    where = _label(resource)
    return [f"{where}attribute {quoted(attribute.name)}: {fault}" for attribute, fault in faults if fault]


async def _type_of(reader: _Reader, resource: Resource, attribute: Attribute) -> int:
    """Return the oid of the type of the attribute's column or expression. For a domain it is that of its base type."""
    _, term = await _read_columns(reader, resource, (_without_select(attribute),))
    return term.type.oid


def _without_select(attribute: Attribute) -> Attribute:
    """Return the attribute without the expression that its type puts around the column."""
    return msgspec.structs.replace(attribute, type=msgspec.structs.replace(attribute.type, select=None))


async def _term_fault(reader: _Reader, resource: Resource, attribute: Attribute) -> str:
    """Return the fault of an attribute that is computed in SQL. Empty if there is none."""
    try:
        _, term = await _read_columns(reader, resource, (_without_select(attribute),))
    except _Refused as error:
        return f"its term cannot be read: {error}"
    name = await reader.connection.fetchval(_TYPE, term.type.oid)
    if attribute.type is OPAQUE or name in _compatible_types(attribute.type):
        return ""
    return _type_fault(attribute.type, "term", name)


_WHOLE = ("int2", "int4", "int8")
_FLOATS = ("float4", "float8", *_WHOLE)
_TEXTS = ("text", "varchar", "citext", "name", "bpchar")
_COMPATIBLE_TYPES = {
    **dict.fromkeys(_WHOLE, _WHOLE),
    **dict.fromkeys(("float4", "float8"), _FLOATS),
    "numeric": ("numeric", *_FLOATS),
    **dict.fromkeys(_TEXTS, _TEXTS),
}
"""The name of a type -> the types that an expression may have instead. Numeric is no substitute, because it would be
shown as a string."""


def _compatible_types(declared: ColumnType) -> frozenset[str]:
    """Return the types of expressions whose values are shown and filtered like those of the declared type."""
    array = "_" if declared.element is not None else ""
    names = [name.removeprefix(array) for name in declared.sql_names]
    return frozenset(f"{array}{alike}" for name in names for alike in _COMPATIBLE_TYPES.get(name, (name,)))
