"""Compiles a `StreamPlan`. Each of its parts becomes a statement for a cursor, and a statement for each linkage.

The included rows of a type:

    SELECT "i0"."id","i0"."name",... FROM "computers" "i0"
    WHERE EXISTS (SELECT 1 FROM "users" "t0" WHERE "t0"."age">$1 AND "t0"."id"="i0"."owner_id") ORDER BY "i0"."id"

It must not know: values. No request can make it fail.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from pypika import PostgreSQLQuery
from pypika import functions as sql_functions
from pypika.queries import QueryBuilder

from querybuild.declarations.resource import Resource
from querybuild.declarations.terms import Template, sql_of
from querybuild.planning.plan import Node
from querybuild.planning.reads.stream_plan import StreamPart, StreamPlan
from querybuild.planning.row_plan import MAX_ROWS, Rows
from querybuild.sql.binds import Binds
from querybuild.sql.branches import KEYS
from querybuild.sql.clauses import from_rows, join, table
from querybuild.sql.keys import columns_of, is_any_key, shown_key
from querybuild.sql.select import compile_read, matching
from querybuild.sql.statement import Statement

FAST_START = "LIMIT (SELECT NULL::bigint)"
ROW_BYTES = 28
"""The minimal size of a row in PostgreSQL: its header and the pointer to it."""


class Part(msgspec.Struct, frozen=True, eq=False):
    """The statements for resources of one type that are together in the document.

    node: how they are shown. Its branches only have linkage.
    linkage: for each branch the statement of its linkage. None if the rows contain the keys.
    linked: for each branch the statement that finds which of some ids are those of resources that show this linkage.
        None if all of them do.
    count: counts the rows, up to a limit.
    ambiguous: finds an id that is null or that two rows have.
    """

    node: Node
    rows: Statement
    linkage: tuple[Statement | None, ...]
    linked: tuple[Statement | None, ...]
    count: Statement
    ambiguous: Statement


class StreamStatements(msgspec.Struct, frozen=True, eq=False):
    """The statements of a stream. included: one part for each type. bounds: the maximal number of rows of each table of
    `included`, null if they have to be counted. None if nothing is included."""

    data: Part
    included: tuple[Part, ...]
    bounds: Statement | None

    @property
    def parts(self) -> tuple[Part, ...]:
        """All parts, `data` first."""
        return (self.data, *self.included)


def compile_stream(plan: StreamPlan) -> StreamStatements:
    """Return the statements of a stream."""
    included = tuple([_part(part) for part in plan.included])
    bounds = row_bounds([part.node.resource for part in included]) if included else None
    return StreamStatements(_part(plan.data), included, bounds)


def _part(part: StreamPart) -> Part:
    read = part.read
    statements, counted, binds = compile_read(read), Binds(), Binds()
    rows = join(matching(read, binds), read.rows.joins, binds)
    return Part(
        read.node,
        _fast_start(statements.primary),
        statements.branches,
        tuple([None if linked is None else _linked(linked) for linked in part.linked]),
        _count(matching(read, counted), counted),
        _ambiguous(read.node.rows, rows, binds),
    )


def _fast_start(statement: Statement) -> Statement:
    """Return the statement with the limit null, which means no limit. PostgreSQL does not know the limit when it plans,
    and assumes a tenth of the rows, as for a cursor of DECLARE. Otherwise it may sort a whole table before it returns
    the first row."""
    return msgspec.structs.replace(statement, sql=f"{statement.sql} {FAST_START}")


def _linked(linked: Rows) -> Statement:
    """Compile `SELECT "i0"."id" FROM "users" "i0" WHERE EXISTS (SELECT 1 FROM "groups" "i1" ...) AND
    "i0"."id"=ANY($2)`"""
    binds, of, key = Binds(), columns_of(linked.alias), linked.resource.id.key
    rows = from_rows(linked, binds).where(is_any_key(of, key, binds(KEYS)))
    return Statement(rows.select(shown_key(of, key)).get_sql(), binds.slots)


def _ambiguous(shown: Rows, rows: QueryBuilder, binds: Binds) -> Statement:
    """Compile `SELECT "t0"."id" FROM ... GROUP BY "t0"."id" HAVING COUNT(*)>1 OR "t0"."id" IS NULL LIMIT 1`"""
    shown_id = shown_key(columns_of(shown.alias), shown.resource.id.key)
    query = rows.select(shown_id).groupby(shown_id).having(Template("COUNT(*)>1 OR {} IS NULL", shown_id)).limit(1)
    return Statement(query.get_sql(), binds.slots)


def _count(rows: QueryBuilder, binds: Binds) -> Statement:
    """Compile `SELECT COUNT(*) FROM (SELECT 1 FROM ... LIMIT $1) "c"`"""
    limited = rows.select(1).limit(binds(MAX_ROWS))  # type: ignore[arg-type]  # PyPika declares int, but takes any term
    counted = PostgreSQLQuery.from_(limited.as_("c")).select(sql_functions.Count("*"))
    return Statement(counted.get_sql(), binds.slots)


def row_bounds(resources: Sequence[Resource]) -> Statement:
    """Return the statement for the maximal number of rows of each table, which follows from its size. This is fast,
    while counting the rows would delay the first byte. It is null for views, for partitioned and foreign tables, and
    for tables with another access method than heap."""
    tables = [sql_of(table(resource)).replace("'", "''") for resource in resources]
    names = ",".join([f"'{name}'" for name in tables])
    is_plain = (
        """"relkind"='r' AND NOT "relhassubclass" AND "relam"=(SELECT "oid" FROM "pg_am" WHERE "amname"='heap')"""
    )
    sql = (
        f'SELECT CASE WHEN {is_plain} THEN NULLIF(pg_relation_size("oid")/{ROW_BYTES},0) END '
        f'FROM "pg_class" JOIN unnest(ARRAY[{names}]::regclass[]) "n" ON "oid"="n"'
    )
    return Statement(sql, ())
