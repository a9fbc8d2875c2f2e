"""Compiles SQL that finds a free id. What comes in: a resource whose ids have a default, and may also be chosen by
clients. What goes out: statements.

A client may choose any number, so the default may return one that is taken. Then the next numbers of the sequence are
looked up in the index of the ids until one is free. No other session gets these numbers. The sequence is never set, so
it never moves backwards.
"""

from __future__ import annotations

import msgspec
from pypika import Table

from querybuild.declarations.resource import Resource
from querybuild.declarations.terms import sql_of
from querybuild.sql.clauses import table
from querybuild.sql.statement import Statement


class FreeIdStatements(msgspec.Struct, frozen=True):
    """The statements for one resource.

    sequence: takes table and column. Returns the sequence of the default, its start, increment, minimum and maximum,
        and whether the role may use it. No row if the default is something else.
    draw: takes the sequence, how many numbers to take from it at most, and how many free ones are needed. Returns free
        numbers.
    choose: takes a start, an increment, the number of steps, and how many of the first steps to try. Returns a free
        number.
    is_taken: takes an id. Returns a row if it is taken.
    insert: inserts the new row with the id in Slot("row").
    """

    table: str
    column: str
    sequence: str
    draw: str
    choose: str
    is_taken: str
    insert: Statement


def compile_free_ids(resource: Resource, insert: Statement) -> FreeIdStatements:
    """Compile the statements for one resource. insert: the statement that inserts a row with an id."""
    rows = table(resource)
    name, column = sql_of(rows), resource.id.key.columns[0]
    return FreeIdStatements(
        table=name,
        column=column,
        sequence=_SEQUENCE,
        draw=_DRAW.format(is_free=_is_free(rows, column)),
        choose=_CHOOSE.format(is_free=_is_free(rows, column)),
        is_taken=f"SELECT 1 FROM {name} WHERE {_id_of(rows, column)}=$1",
        insert=insert,
    )


def _is_free(rows: Table, column: str) -> str:
    """Return a subquery that runs once for each number, so that it uses the index with any statistics of the table."""
    name, own = sql_of(rows), f'"t".{_id_of(rows, column)}'
    return f'(SELECT {own} FROM {name} "t" WHERE {own}="numbers"."n" LIMIT 1) IS NULL'


def _id_of(rows: Table, column: str) -> str:
    return sql_of(rows.field(column))


# Only plain defaults: with nextval('s') * 10 the number of the sequence is not the id.
_SEQUENCE = r"""
SELECT s.seqrelid::int8, s.seqstart, s.seqincrement, s.seqmin, s.seqmax,
       has_sequence_privilege(s.seqrelid, 'USAGE, UPDATE')
FROM pg_attribute a
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
JOIN pg_sequence s ON s.seqrelid = CASE
    WHEN a.attidentity <> '' THEN pg_get_serial_sequence($1::text, $2::text)::regclass
    WHEN pg_get_expr(d.adbin, d.adrelid) ~ '^nextval\(''[^'']*''::regclass\)$' THEN (
        SELECT p.refobjid FROM pg_depend p JOIN pg_class c ON c.oid = p.refobjid AND c.relkind = 'S'
        WHERE p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid AND p.refclassid = 'pg_class'::regclass)
    END
WHERE a.attrelid = $1::text::regclass AND a.attname = $2::text
"""

# LIMIT stops the query when enough numbers are free, so it takes no more from the sequence.
_DRAW = """
SELECT "n" FROM (SELECT nextval($1::int8::oid::regclass) AS "n" FROM generate_series(1, $2::int8) OFFSET 0) "numbers"
WHERE {is_free} LIMIT $3::int8
"""

# First the lowest numbers, then random ones in increasing ranges. Some range is mostly free, however many ids are
# taken, and concurrent requests find different numbers.
_CHOOSE = """
SELECT "n" FROM (
    SELECT $1::int8 + $2::int8 * "k" AS "n" FROM (
        SELECT generate_series(0, least($4::int8 - 1, $3::int8)) AS "k"
        UNION ALL
        SELECT least(floor(random() * least(2.0 ^ "width", $3::float8))::numeric, $3::numeric)::int8
        FROM generate_series(8, 63) "width", generate_series(1, 8)
        UNION ALL
        SELECT least(floor(random() * $3::float8)::numeric, $3::numeric)::int8 FROM generate_series(1, 1000)
    ) "steps" OFFSET 0
) "numbers"
WHERE {is_free} LIMIT 1
"""
