"""Finds out whether foreign keys lead from the to-one relationships to the tables that they are declared to. Where none
does, a write has to look whether the related row is there, and a read too.

What comes in: a connection, resources, and what was read of their tables. What goes out: the resources with this. It
must not know: requests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import asyncpg
import msgspec

from querybuild.declarations.resource import Relationship, Resource, ToOne, own_key_of, referenced_key
from server.schema.comparing.keys import with_relationships
from server.schema.live_tables import FoundTables, LiveTable, QualifiedName
from server.schema.live_views import ShownColumns

# PostgreSQL 18 has foreign keys that are NOT ENFORCED. The key to a partitioned table also stands there for each of its
# partitions, and promises nothing about a single one.
_FOREIGN_KEYS = """
SELECT n.nspname AS schema, r.relname AS name, t.nspname AS of_schema, f.relname AS of_name,
       ARRAY(SELECT a.attname::text FROM unnest(c.conkey) WITH ORDINALITY k (number, place)
             JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.number ORDER BY k.place) AS columns,
       ARRAY(SELECT a.attname::text FROM unnest(c.confkey) WITH ORDINALITY k (number, place)
             JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.number ORDER BY k.place) AS of_columns,
       c.convalidated AS is_validated
FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid JOIN pg_namespace n ON n.oid = r.relnamespace
JOIN pg_class f ON f.oid = c.confrelid JOIN pg_namespace t ON t.oid = f.relnamespace
LEFT JOIN pg_constraint p ON p.oid = c.conparentid
WHERE c.contype = 'f' AND coalesce((to_jsonb(c) ->> 'conenforced')::bool, true)
AND p.conrelid IS DISTINCT FROM c.conrelid
"""


class _ForeignKey(msgspec.Struct, frozen=True):
    """A foreign key. pairs: its columns, and those that they refer to."""

    target: tuple[str, str]
    pairs: frozenset[tuple[str, str]]
    is_validated: bool


_ForeignKeys = Mapping[tuple[str, str], Sequence[_ForeignKey]]
"""(schema, name) of a table -> its foreign keys."""


async def with_foreign_keys(
    connection: asyncpg.Connection[Any],
    resources: Sequence[Resource],
    tables: FoundTables,
    views: Mapping[QualifiedName, ShownColumns],
) -> list[Resource]:
    """Return the resources with what foreign keys say about their to-one relationships. tables: all tables. views: the
    columns of tables that views show."""
    keys: defaultdict[tuple[str, str], list[_ForeignKey]] = defaultdict(list)
    for row in await connection.fetch(_FOREIGN_KEYS):
        pairs = frozenset(zip(row["columns"], row["of_columns"], strict=True))
        key = _ForeignKey((row["of_schema"], row["of_name"]), pairs, row["is_validated"])
        keys[row["schema"], row["name"]].append(key)
    by_type = {resource.type: resource for resource in resources}

    def with_facts(resource: Resource, relationship: Relationship) -> Relationship:
        own = own_key_of(relationship)
        table = tables[resource.schema, resource.table]
        if own is None or table is None:
            return relationship
        target = by_type[own.target]
        theirs = tables[target.schema, target.table]
        shown = views.get((resource.schema, resource.table), {})
        leading = [] if theirs is None else list(_leading(own, target, table, theirs, keys, shown))
        is_enforced = bool(leading) and table.is_table
        may_dangle = not any(foreign_key.is_validated for foreign_key in leading)
        if (own.is_enforced, own.may_dangle) == (is_enforced, may_dangle):
            return own
        return msgspec.structs.replace(own, is_enforced=is_enforced, may_dangle=may_dangle)

    return [
        with_relationships(resource, [with_facts(resource, relation) for relation in resource.relationships])
        for resource in resources
    ]


def _leading(
    own: ToOne, target: Resource, table: LiveTable, theirs: LiveTable, keys: _ForeignKeys, shown: ShownColumns
) -> Iterator[_ForeignKey]:
    """Yield the foreign keys that lead from a to-one to the table of its target. Those of a table say nothing about the
    rows of inheriting tables. shown: the columns of tables, if the resource is a view."""
    referenced = referenced_key(own, target).columns
    if not theirs.is_table or table.has_children:
        return
    if table.is_table:
        sources = [((table.schema, table.name), {name: name for name in own.own_columns})]
    else:
        sources = [
            (name, {shown_as: column for column, shown_as in columns.items()}) for name, columns in shown.items()
        ]
    for name, columns in sources:
        if not columns.keys() >= set(own.own_columns):
            continue
        pairs = {(columns[column], other) for column, other in zip(own.own_columns, referenced, strict=True)}
        for key in keys.get(name, ()):
            # A key with more columns is checked only while none of these is null.
            more = [column for column, _ in key.pairs - pairs]
            are_set = all(column in table.columns and table.columns[column].is_not_null for column in more)
            if key.target == (theirs.schema, theirs.name) and key.pairs >= pairs and are_set:
                yield key
