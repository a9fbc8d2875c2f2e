"""Compares the declarations with the live tables. What comes in: a connection and the Catalog. What goes out: a Fault
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
from querybuild.declarations.function import Function
from querybuild.declarations.resource import Resource, link_of
from querybuild.planning.reads.counting import References
from server.schema.abilities.foreign_keys import with_foreign_keys
from server.schema.abilities.tables import with_abilities
from server.schema.comparing.keys import with_key_types
from server.schema.comparing.resources import resource_faults
from server.schema.fault import Fault
from server.schema.live_constants import constant_faults
from server.schema.live_functions import read_functions
from server.schema.live_ids import UnenforcedKeys, find_unenforced_keys, format_warnings
from server.schema.live_limits import ColumnLimits, Limits, limits_of, read_column_limits, rule_faults
from server.schema.live_references import read_references
from server.schema.live_roles import find_role_faults, plans_depend_on_role, policy_warnings
from server.schema.live_statements import TermTypes, Trial, read_refusals, read_terms
from server.schema.live_tables import (
    CONSTRAINTS,
    PARTITIONS,
    FoundTables,
    LiveTable,
    QualifiedName,
    find_oids,
    read_tables,
    with_privileges,
    with_shown_not_null,
)
from server.schema.live_types import with_live_enums, with_live_types
from server.schema.live_values import value_faults
from server.schema.live_views import ShownColumns, read_views

Constraints = dict[tuple[str, str, str], tuple[str, ...]]
"""(schema, table, name) -> the columns of the constraint, in its order, without those of expressions."""


class LiveSchema(msgspec.Struct, frozen=True):
    """The result of reading the live tables.

    faults: the declarations that do not match.
    warnings: messages about problems that rows may cause later.
    unenforced_keys: columns that must be unique, without a constraint.
    catalog: the declarations, with the types that only the tables know. None if there are faults.
    constraints: the columns of each constraint.
    referenced: the schema and table that each foreign key refers to, by its names as in `constraints`.
    partitions: (schema, name) of a partition -> those of its table.
    views: schema and name of a view, as declared -> the columns of tables that it shows.
    references: foreign keys of declared relationships by which counting is faster.
    limits, column_limits: the limits in the types of columns, by attribute and by column.
    plans_depend_on_role: whether the plan for a statement of one role must not be used for another one.
    time_zones: the names of the time zones that PostgreSQL knows.
    has_trigrams: whether it has the distance of texts, of the extension pg_trgm.
    """

    faults: tuple[Fault, ...] = ()
    warnings: tuple[str, ...] = ()
    unenforced_keys: UnenforcedKeys = {}
    catalog: Catalog | None = None
    constraints: Constraints = {}
    referenced: dict[tuple[str, str, str], tuple[str, str]] = {}
    partitions: dict[tuple[str, str], tuple[str, str]] = {}
    views: Mapping[QualifiedName, ShownColumns] = {}
    references: References = frozenset()
    limits: Limits = {}
    column_limits: ColumnLimits = {}
    plans_depend_on_role: bool = False
    time_zones: frozenset[str] = frozenset()
    has_trigrams: bool = False


class _Found(msgspec.Struct, frozen=True):
    """What the system catalog says about the tables of declarations. oids, tables: by name, as declared; None for those
    that do not exist. The others are members of LiveSchema."""

    oids: dict[QualifiedName, int | None]
    tables: FoundTables
    constraints: Constraints
    referenced: dict[tuple[str, str, str], tuple[str, str]]
    partitions: dict[tuple[str, str], tuple[str, str]]
    views: Mapping[QualifiedName, ShownColumns]

    @property
    def known_oids(self) -> list[int]:
        """The oids of the tables that exist."""
        return [oid for oid in self.oids.values() if oid is not None]


async def read_live_schema(
    connection: asyncpg.Connection[Any], catalog: Catalog, *, is_read_only: bool = False, roles: Sequence[str] = ()
) -> LiveSchema:
    """Read the live tables, and compare them with the declarations. is_read_only: whether the server refuses all
    writes, so that nothing has to be writable. roles: those of the requests, if it is not the server's own. Then one of
    them must be able to read each resource, and no other privileges are checked."""
    if role_faults := await find_role_faults(connection, roles):
        return LiveSchema(faults=role_faults)
    trial = Trial(connection, roles)
    live = await _read_found(connection, catalog, has_roles=bool(roles))
    terms, faults = await _find_faults(trial, catalog, live.tables, is_read_only=is_read_only)
    functions, wrong = await read_functions(
        connection, catalog, lambda sql: trial.prepare(sql, is_explained=False), has_roles=bool(roles)
    )
    faults += wrong
    unenforced_keys = await find_unenforced_keys(connection, catalog, live.tables)
    if not faults:
        catalog = await _with_live_facts(connection, catalog, live, functions, terms, unenforced_keys, roles)
    column_limits = await read_column_limits(connection, live.tables)
    limits = limits_of(catalog, column_limits)
    faults = faults or rule_faults(catalog, limits) or await constant_faults(connection, catalog)
    return LiveSchema(
        faults=tuple(faults),
        warnings=(*format_warnings(unenforced_keys), *await policy_warnings(connection, live.known_oids, roles)),
        unenforced_keys=unenforced_keys,
        limits=limits,
        column_limits=column_limits,
        catalog=None if faults else catalog,
        constraints=live.constraints,
        referenced=live.referenced,
        views=live.views,
        partitions=live.partitions,
        references=await read_references(connection, catalog, live.oids),
        plans_depend_on_role=await plans_depend_on_role(connection, roles),
        time_zones=frozenset(await connection.fetchval("SELECT array_agg(name) FROM pg_timezone_names")),
        has_trigrams=await connection.fetchval("SELECT to_regoperator('<->(text,text)') IS NOT NULL"),
    )


async def _read_found(connection: asyncpg.Connection[Any], catalog: Catalog, *, has_roles: bool) -> _Found:
    """Read the system catalog. has_roles: whether requests run with other roles, so that the privileges of this one do
    not matter."""
    oids = await find_oids(connection, _table_names(catalog))
    known_oids = list({oid for oid in oids.values() if oid is not None})
    views, base_oids = await read_views(connection, known_oids)
    partitions = await connection.fetch(PARTITIONS, [*known_oids, *base_oids])
    constraints = await connection.fetch(CONSTRAINTS, [*known_oids, *base_oids, *(row["oid"] for row in partitions)])
    tables = await read_tables(connection, known_oids, constraints)
    tables |= {oid: with_shown_not_null(tables[oid], view.nullable) for oid, view in views.items() if view.is_plain}
    if has_roles:
        tables = {oid: with_privileges(table) for oid, table in tables.items()}
    return _Found(
        oids=oids,
        tables={name: None if oid is None else tables[oid] for name, oid in oids.items()},
        constraints={(row["schema"], row["table"], row["name"]): tuple(row["columns"]) for row in constraints},
        referenced={
            (row["schema"], row["table"], row["name"]): (row["of_schema"], row["of_table"])
            for row in constraints
            if row["of_table"] is not None
        },
        partitions={(row["schema"], row["name"]): (row["of_schema"], row["of_name"]) for row in partitions},
        views={name: views[oid].columns for name, oid in oids.items() if oid is not None and oid in views},
    )


async def _find_faults(
    trial: Trial, catalog: Catalog, tables: FoundTables, *, is_read_only: bool
) -> tuple[TermTypes, list[Fault]]:
    """Return the types of terms, and the faults of the resources, in the order of the declarations."""
    faults = {
        resource.type: list(resource_faults(catalog, resource, tables, is_read_only=is_read_only))
        for resource in catalog
    }
    with_ids = [resource for resource in catalog if _has_id(resource, tables[resource.schema, resource.table])]
    terms, term_faults = await read_terms(trial, with_ids)
    for fault in (*term_faults, *await value_faults(trial.connection, with_ids, tables)):
        faults[fault.resource].append(fault)
    # A faulty column would also make the read fail, and its own message is better.
    for fault in await read_refusals(trial, [resource for resource in catalog if not faults[resource.type]]):
        faults[fault.resource].append(fault)
    return terms, [fault for own in faults.values() for fault in own]


def _has_id(resource: Resource, table: LiveTable | None) -> bool:
    return table is not None and table.columns.keys() >= set(resource.id.key.columns)


async def _with_live_facts(
    connection: asyncpg.Connection[Any],
    catalog: Catalog,
    live: _Found,
    functions: Sequence[Function],
    terms: TermTypes,
    unenforced_keys: UnenforcedKeys,
    roles: Sequence[str],
) -> Catalog:
    """Return the Catalog with what only the database knows: types, what can be done with tables, signatures."""
    tables = live.tables
    resources = await with_live_types(connection, catalog.resources, tables, terms)
    resources = await with_live_enums(connection, resources, tables)
    resources = with_key_types(resources, tables)
    resources = await with_foreign_keys(connection, resources, tables, live.views)
    resources = await with_abilities(connection, resources, tables, unenforced_keys, roles)
    return catalog.with_resources(resources, functions or None)


def _table_names(catalog: Catalog) -> Iterator[QualifiedName]:
    for resource in catalog:
        yield resource.schema, resource.table
        for relationship in resource.relationships:
            link = link_of(relationship)
            if link is not None:
                yield link.schema, link.table
