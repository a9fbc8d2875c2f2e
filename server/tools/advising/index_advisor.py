"""Suggests the indexes that the declarations need and the database does not have.

What comes in: a connection and the Catalog. What goes out: a `Suggestion` for each missing index, with the statement
that creates it.

`missing` is an index that an include, a related collection, a containment filter or a key needs: without it PostgreSQL
reads the whole table. `consider` is an index that would speed up a filter or a sort, if clients use them. Each index
has a cost with every write. In a table of fewer than SMALL_TABLE_ROWS rows an index gains little: `missing` becomes
`consider` there, and `consider` is left out.

Attributes that are computed in SQL are skipped: only PostgreSQL knows whether two expressions are the same.
It must not know: requests, settings.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import asyncpg
import msgspec

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.database_types.searches import searchable_parts
from querybuild.declarations.database_types.texts import (
    CIDR,
    HSTORE,
    INET,
    LTREE,
    OVERLAPPING,
    POINT,
    SPATIAL,
    TSVECTOR,
    VECTOR,
)
from querybuild.declarations.resource import Attribute, Relationship, Resource, ToOne, link_of
from querybuild.declarations.terms import quote_ident
from querybuild.declarations.types import BOOL, BYTEA, JSON, JSONB, OPAQUE, ColumnType
from querybuild.errors import quoted
from querybuild.parse import NEAR_TO, SEARCH_TEXT
from querybuild.sql.expressions import search_expression
from server.schema.live_tables import can_be_unique
from server.tools.advising.indexed_tables import SMALL_TABLE_ROWS, Index, IndexedTable, indexed_tables

NAME_BYTES = 63
LONG_TEXT = 600
"""Characters: a btree refuses values of more than about 2,700 bytes."""

Rank = Literal["missing", "consider"]
Method = Literal["btree", "hash", "gin", "gist", "hnsw"]

_OF_VECTORS = {"l2": "vector_l2_ops", "cosine": "vector_cosine_ops", "inner_product": "vector_ip_ops"}
"""Distance -> the operator class of an index that finds the nearest vectors."""

_OWN_OPERATORS: dict[ColumnType, tuple[Method, str]] = {
    **dict.fromkeys((*OVERLAPPING, *SPATIAL, POINT, LTREE), ("gist", "")),
    **dict.fromkeys((INET, CIDR), ("gist", "inet_ops")),
    **dict.fromkeys((HSTORE, TSVECTOR), ("gin", "")),
}
"""Type -> the method of an index for its own operators, and the operator class if it is not the default."""

_TAKEN = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname LIKE ANY($1::text[])
"""


class Wanted(msgspec.Struct, frozen=True):
    """An index that a declaration needs. Most existing indexes that begin with its first `key_size` columns, in any
    order, are good enough. expression: the SQL of the first column, if it is none of the table. probe: the clause of a
    statement that would use an index on it."""

    rank: Rank
    reason: str
    table: tuple[str | None, str]
    columns: tuple[str, ...]
    method: Method = "btree"
    operator_class: str = ""
    is_unique: bool = False
    descends: bool = False
    is_for_pages: bool = False
    """Whether the rows of one key are read in the order of the further columns."""
    key_size: int = 1
    expression: str = ""
    probe: str = ""
    is_of_text: bool = False
    """Whether the operator class is only for `text` and `varchar`."""

    @property
    def key(self) -> frozenset[str]:
        """The columns with which the index has to begin."""
        return frozenset(self.columns[: self.key_size])


class Suggestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A suggested index. reason: which field needs it, and for what. sql: one statement that creates it. descends:
    whether it is only for descending sorts."""

    rank: Rank
    table: str
    columns: tuple[str, ...]
    reason: str
    sql: str
    descends: bool = False


async def suggest(connection: asyncpg.Connection[Any], catalog: Catalog) -> tuple[Suggestion, ...]:
    """Return the suggestions, `missing` before `consider`, and those of large tables first. It only reads."""
    return await missing(connection, [want for resource in catalog for want in _wanted_indexes(catalog, resource)])


async def missing(connection: asyncpg.Connection[Any], wanted: Sequence[Wanted]) -> tuple[Suggestion, ...]:
    """Return those of the indexes that the tables do not have, in the same order."""
    tables = await indexed_tables(connection, list(dict.fromkeys(want.table for want in wanted)))
    ranked: list[tuple[Wanted, IndexedTable]] = []
    for want in sorted(wanted, key=lambda want: want.rank == "consider"):
        table = tables.get(want.table)
        gap = None if table is None else _rank_missing(want, table)
        if table is not None and gap is not None and not (want.probe and await _has_index(connection, want, table)):
            ranked.append((gap, table))
    by_table: defaultdict[tuple[str | None, str], list[Wanted]] = defaultdict(list)
    for want, _ in ranked:
        by_table[want.table].append(want)
    chosen: dict[tuple[object, ...], tuple[Wanted, IndexedTable]] = {}
    for want, table in ranked:
        if not any(_includes(other, want) for other in by_table[want.table]):
            chosen.setdefault((table.schema, table.name, want.columns, want.method, want.descends), (want, table))
    pairs = sorted(chosen.values(), key=lambda pair: (pair[0].rank == "consider", -pair[1].rows))
    taken = await _taken(connection, [_name(table.name, want) for want, table in pairs])
    return tuple(_suggestion(want, table, taken) for want, table in pairs)


def _wanted_indexes(catalog: Catalog, resource: Resource) -> Iterator[Wanted]:
    where = resource.type
    yield Wanted("missing", f"{where}: the id", _table_of(resource), resource.id.key.columns, is_unique=True)
    for relationship in resource.relationships:
        reason = f"{where}.{relationship.name}"
        yield from _relationship_indexes(resource, relationship, catalog.target(relationship), reason)
    yield from _rule_indexes(catalog, resource)
    yield from _search_indexes(resource)
    for attribute in resource.attributes:
        if attribute.is_stored and (attribute.column_name,) != resource.id.key.columns:
            yield from _attribute_indexes(resource, attribute, f"{where}.{attribute.name}")


def _table_of(resource: Resource) -> tuple[str | None, str]:
    return resource.schema, resource.table


def _relationship_indexes(
    resource: Resource, relationship: Relationship, target: Resource, reason: str
) -> Iterator[Wanted]:
    link = link_of(relationship)
    if isinstance(relationship, ToOne) and relationship.is_own_key:
        if relationship.filterable:
            own = relationship.own_columns
            columns = _distinct(*own, *resource.id.key.columns)
            yield Wanted("consider", f"{reason}: filters over it", _table_of(resource), columns, key_size=len(own))
        return
    if link is not None:
        table, columns = (link.schema, link.table), _distinct(*link.source_columns, *link.target_columns)
        yield Wanted("missing", f"{reason}: one row for each pair", table, columns, is_unique=True)
        if _is_read(relationship):
            yield _index_to_related(relationship, target, f"{reason}: includes, related resources")
    elif isinstance(relationship, ToOne):
        key = relationship.foreign_columns
        yield Wanted("missing", f"{reason}: at most one", _table_of(target), key, is_unique=True)
    elif _is_read(relationship):
        wanted = _index_to_related(relationship, target, f"{reason}: includes, related resources")
        yield wanted
        pages = f"{reason}: pages of related resources"
        yield msgspec.structs.replace(wanted, rank="consider", reason=pages, is_for_pages=True)


def _index_to_related(relationship: Relationship, target: Resource, reason: str) -> Wanted:
    """Return the index that finds the related rows of a row that does not have their key itself."""
    link = link_of(relationship)
    if link is not None:
        columns = _distinct(*link.source_columns, *link.target_columns)
        return Wanted("missing", reason, (link.schema, link.table), columns, key_size=len(link.source_columns))
    foreign = relationship.foreign_columns
    columns = _distinct(*foreign, *target.id.key.columns)
    return Wanted("missing", reason, _table_of(target), columns, key_size=len(foreign))


def _rule_indexes(catalog: Catalog, resource: Resource) -> Iterator[Wanted]:
    """Yield the indexes for the rows that rules look for. Without one, a hidden row takes longer than one that is not
    there, which shows that it exists."""
    filters = [rule for allow in resource.access for rule in (allow.rows, allow.check) if rule is not None]
    for path in dict.fromkeys(path for sent_filter in filters for path in rule_paths(sent_filter)):
        source, reason = resource, f"{resource.type}: the rule over {'.'.join(path)}"
        for name in path:
            relationship = source.relationship(name)
            if relationship is None:
                break
            target = catalog.target(relationship)
            if not (isinstance(relationship, ToOne) and relationship.is_own_key):
                yield _index_to_related(relationship, target, reason)
            source = target


_INNER = {"any": "val", "has": "val", "count": "of"}
"""Operator -> the member with a filter on related rows."""


def rule_paths(node: object, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the names that lead to each comparison in the filter of a rule.

    >>> list(rule_paths({"or": [{"name": "team.members.id"}, {"name": "team", "op": "has", "val": {"name": "id"}}]}))
    [('team', 'members', 'id'), ('team', 'id')]
    """
    if isinstance(node, list | tuple):
        for item in node:
            yield from rule_paths(item, before)
    elif isinstance(node, Mapping) and "name" in node:
        path = (*before, *str(node["name"]).split("."))
        inner = node.get(_INNER.get(str(node.get("op")), ""))
        inner_paths = list(rule_paths(inner, path)) if inner else []
        yield from inner_paths or [path]
    elif isinstance(node, Mapping):
        for item in node.values():
            yield from rule_paths(item, before)


def _distinct(*names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _is_read(relationship: Relationship) -> bool:
    return "read" in relationship.methods or relationship.includable or relationship.filterable


def _has_gin(element: ColumnType | None) -> bool:
    """Return whether PostgreSQL has a GIN index for arrays of these elements: only if their type has an order."""
    return element is JSONB or (element is not None and element.comparison.has_order)


def _search_indexes(resource: Resource) -> Iterator[Wanted]:
    """Yield the index on the words of all searchable attributes, if they are not those of one column."""
    parts = searchable_parts(resource)
    if parts and [attribute.type for attribute in parts] != [TSVECTOR]:
        sql = search_expression(parts)
        probe = f"WHERE {sql}@@'a'::tsquery"
        where, reason = _table_of(resource), f"{resource.type}: {SEARCH_TEXT}"
        yield Wanted("missing", reason, where, (SEARCH_TEXT,), method="gin", expression=sql, probe=probe)


def _attribute_indexes(resource: Resource, attribute: Attribute, reason: str) -> Iterator[Wanted]:
    table, column, kind = _table_of(resource), attribute.column_name, attribute.type
    filters = f"{reason}: filters"
    if kind is JSONB or kind.element is not None:
        if attribute.is_filterable and (kind is JSONB or _has_gin(kind.element)):
            operators = "jsonb_path_ops" if kind is JSONB else ""
            yield Wanted("missing", filters, table, (column,), method="gin", operator_class=operators)
    elif kind in _OWN_OPERATORS:
        method, operators = _OWN_OPERATORS[kind]
        rank: Rank = "missing" if attribute.searchable else "consider"
        if attribute.is_filterable:
            yield Wanted(rank, filters, table, (column,), method=method, operator_class=operators)
    elif kind is VECTOR:
        if attribute.is_filterable:
            operators = _OF_VECTORS[attribute.distance or "l2"]
            yield Wanted("consider", f"{reason}: {NEAR_TO}", table, (column,), method="hnsw", operator_class=operators)
    elif kind in (BOOL, BYTEA, JSON, OPAQUE) or not (kind.comparison.has_order and kind.comparison.has_equality):
        return
    elif kind.is_text and not kind.choices and not 0 < (attribute.max_length or 0) <= LONG_TEXT:
        if attribute.is_filterable:
            yield Wanted("consider", filters, table, (column,), method="hash")
    elif attribute.is_sortable:
        columns = _distinct(column, *resource.id.key.columns)
        yield Wanted("consider", f"{reason}: filters and sorts", table, columns)
        if attribute.nullable:
            yield Wanted("consider", f"{reason}: descending sorts", table, columns, descends=True)
    elif attribute.is_filterable:
        yield Wanted("consider", filters, table, _distinct(column, *resource.id.key.columns))


def _rank_missing(want: Wanted, table: IndexedTable) -> Wanted | None:
    """Return the index with its final rank. Return None if the table has such an index, does not need it, or lacks the
    column. A missing column is reported elsewhere."""
    if not (want.expression or (table.texts if want.is_of_text else table.columns).issuperset(want.columns)):
        return None
    if want.is_unique and not can_be_unique(table.partition_key, want.columns):
        reason = f"{want.reason} (PostgreSQL has no unique index without the partition key)"
        want = msgspec.structs.replace(want, is_unique=False, reason=reason)
    if not want.probe and any(index.is_valid and _serves(index, want) for index in table.indexes):
        return None
    if table.rows >= SMALL_TABLE_ROWS or want.is_unique:
        return want
    if want.rank == "consider":
        return None
    return msgspec.structs.replace(want, rank="consider", reason=f"{want.reason} (the table has {table.rows} rows)")


async def _has_index(connection: asyncpg.Connection[Any], want: Wanted, table: IndexedTable) -> bool:
    """Return whether the table has an index on an expression. Only PostgreSQL knows whether two expressions are the
    same, so it is asked for a plan that uses an index if there is one."""
    full_name = f"{quote_ident(table.schema)}.{quote_ident(table.name)}"
    transaction = connection.transaction(readonly=True)
    await transaction.start()
    try:
        await connection.execute("SET LOCAL enable_seqscan=off; SET LOCAL enable_sort=off")
        plan = str(await connection.fetchval(f"EXPLAIN (FORMAT JSON) SELECT 1 FROM {full_name} {want.probe}"))
    finally:
        await transaction.rollback()
    return '"Sort Key"' not in plan if want.probe.startswith("ORDER BY") else '"Index Cond"' in plan


def _serves(index: Index, want: Wanted) -> bool:
    if want.is_unique:
        return index.is_unique and index.is_total and set(index.columns) <= set(want.columns)
    if want.method == "hnsw":
        return index.method in ("hnsw", "ivfflat") and index.columns == want.columns
    if want.method in ("gin", "gist"):
        methods = ("gin", "gist") if want.method == "gin" else ("gist", "spgist")
        return index.method in methods and index.covers_not_null and want.columns[0] in index.columns
    if want.key_size > 1 and index.is_unique and index.is_total and want.key.issuperset(index.columns):
        return True
    if want.key != frozenset(index.columns[: want.key_size]) or not index.covers_not_null:
        return False
    if want.descends:
        return index.method == "btree" and index.descends
    if want.is_for_pages:
        is_unique = index.is_unique and want.key.issuperset(index.columns)
        further = slice(want.key_size, len(want.columns))
        return index.method == "btree" and (is_unique or index.columns[further] == want.columns[further])
    return index.method in ("btree", "hash")


def _includes(other: Wanted, want: Wanted) -> bool:
    """Return whether the index for a key of more columns begins with those of this one, so that it is enough."""
    if other.key_size <= want.key_size or (other.rank, want.rank) == ("consider", "missing"):
        return False
    is_plain = want.method == other.method == "btree" and not (want.is_unique or want.descends or want.is_for_pages)
    return is_plain and want.key == frozenset(other.columns[: want.key_size])


def _suggestion(want: Wanted, table: IndexedTable, taken: set[tuple[str, str]]) -> Suggestion:
    invalid = [index for index in table.indexes if not index.is_valid and _serves(index, want)]
    # The index of a partitioned table is invalid while a partition lacks it. REINDEX does not create that one.
    if invalid and not table.is_partitioned:
        sql = f"REINDEX INDEX CONCURRENTLY {quote_ident(invalid[0].schema)}.{quote_ident(invalid[0].name)};"
        reason = f"{want.reason}; {quoted(invalid[0].name)} is invalid: its creation was interrupted"
    else:
        sql, reason = _create(want, table, taken), want.reason
    return Suggestion(want.rank, f"{table.schema}.{table.name}", want.columns, reason, sql, want.descends)


def _create(want: Wanted, table: IndexedTable, taken: set[tuple[str, str]]) -> str:
    name = free = _name(table.name, want)
    number = 0
    while (table.schema, free) in taken:
        number += 1
        free = f"{name}{number}"
    taken.add((table.schema, free))
    first, others = (" DESC NULLS LAST", " DESC") if want.descends else (f" {want.operator_class}".rstrip(), "")
    ends = [first, *[others] * (len(want.columns) - 1)]
    keys = [quote_ident(column) for column in want.columns]
    if want.expression:
        keys[0] = f"({want.expression})"
    columns = ", ".join(key + end for key, end in zip(keys, ends, strict=True))
    unique = "UNIQUE " if want.is_unique else ""
    # PostgreSQL cannot create an index concurrently on a partitioned table.
    concurrently = "" if table.is_partitioned else "CONCURRENTLY "
    using = "" if want.method == "btree" else f" USING {want.method}"
    full_name = f"{quote_ident(table.schema)}.{quote_ident(table.name)}"
    return f"CREATE {unique}INDEX {concurrently}{quote_ident(free)} ON {full_name}{using} ({columns});"


def _name(table: str, want: Wanted) -> str:
    """Return the name of the index, in the style of PostgreSQL, short enough for a number after it."""
    end = "key" if want.is_unique else "idx"
    kind = "_desc" if want.descends else ""
    if want.is_of_text:
        kind = f"_{want.operator_class.removesuffix('_ops')}"
    name = "_".join((table, *(column + kind for column in want.columns)))
    room = NAME_BYTES - len(end) - 3
    return f"{name.encode()[:room].decode(errors='ignore')}_{end}"


async def _taken(connection: asyncpg.Connection[Any], names: list[str]) -> set[tuple[str, str]]:
    patterns = [re.sub(r"([\\%_])", r"\\\1", name) + "%" for name in names]
    return {(row[0], row[1]) for row in await connection.fetch(_TAKEN, patterns)}
