"""Compiles groups: a SELECT with GROUP BY, whose rows are those of the groups in a plan.

    SELECT 1 AS "id","t0"."status" AS "b0",COUNT(*) AS "a0",AVG("t0"."age") AS "a1" FROM "users" "t0"
    WHERE "t0"."age">$1 GROUP BY 2

It must not know: values. No request can make it fail.
"""

from __future__ import annotations

from collections.abc import Callable

from pypika import PostgreSQLQuery
from pypika.queries import QueryBuilder
from pypika.terms import Term

from querybuild.declarations.terms import Template
from querybuild.declarations.types import REAL, ColumnType
from querybuild.planning.row_plan import GroupColumn, Grouping
from querybuild.sql.binds import Binds
from querybuild.sql.clauses import column_value, join, scope_criteria, table, where


def grouped(grouping: Grouping, binds: Binds) -> QueryBuilder:
    """Return the groups. The constant `id` stands for the id that each row of a plan has."""
    rows = grouping.rows
    query = PostgreSQLQuery.from_(table(rows.resource, rows.alias))
    for criterion in scope_criteria(grouping.scope, binds) if grouping.scope is not None else ():
        query = query.where(criterion)
    query = join(where(query, rows, binds), rows.joins, binds)
    keys = [_key(column, binds) for column in grouping.by]
    texts = [_text(column, key, binds) for column, key in zip(grouping.by, keys, strict=True) if column.function]
    numbers = [Template(f'{{}} AS "{column.name}"', _number(column, binds)) for column in grouping.aggregates]
    named = [Template(f'{{}} AS "{column.name}"', key) for column, key in zip(grouping.by, keys, strict=True)]
    query = query.select(Template('1 AS "id"'), *named, *texts, *numbers)
    return query.groupby(*[Template(str(position)) for position in range(2, 2 + len(keys))]) if keys else query


# keys

_FIRST, _LAST = "0001-01-01", "9999-12-31"
_FORMATS = {"year": "YYYY", "month": "YYYY-MM", "day": "YYYY-MM-DD", "hour": 'YYYY-MM-DD"T"HH24:MI:SS'}


def _key(column: GroupColumn, binds: Binds) -> Term:
    """Return what rows are grouped by. A date that answers do not show has no period:

    CASE WHEN "t0"."day">='0001-01-01' AND "t0"."day"<='9999-12-31' THEN date_trunc('month',...) END
    """
    assert column.of is not None
    term = column_value(column.of, binds)
    return _cut(column, term, binds) if column.function else term


def _cut(column: GroupColumn, term: Term, binds: Binds) -> Term:
    assert column.of is not None
    unit, kind = column.function, column.of.attribute.type.name
    zone: Term = Template("'UTC'") if column.zone is None else _zone(column, binds)
    if unit == "hour":
        # A timestamp without time zone contains UTC.
        instant = Template("timezone('UTC',CAST({} AS timestamp))", term) if kind == "timestamp" else term
        cut = Template("date_trunc('hour',{},{})", instant, zone)
    elif kind == "timestamptz":
        cut = Template(f"date_trunc('{unit}',timezone({{}},{{}}))", zone, term)
    else:
        cut = Template(f"date_trunc('{unit}',CAST({{}} AS timestamp))", term)
    return Template(f"CASE WHEN {{}}>='{_FIRST}' AND {{}}<='{_LAST}' THEN {{}} END", term, term, cut)


def _text(column: GroupColumn, cut: Term, binds: Binds) -> Term:
    """Return a period as it is shown. It is computed once for each group, because it has the key in it."""
    return Template(f'{{}} AS "{column.text_name}"', _shown(column, cut, binds))


def _shown(column: GroupColumn, cut: Term, binds: Binds) -> Term:
    """An hour has the offset from UTC, which tells the two hours of an autumn night apart."""
    shown = f"to_char({{}},'{_FORMATS[column.function]}')"
    if column.function != "hour":
        return Template(shown, cut)
    if column.zone is None:
        return Template(f"{shown}||'Z'", Template("timezone('UTC',{})", cut))
    local = Template("timezone({},{})", _zone(column, binds), cut)
    offset = Template("({}-timezone('UTC',{}))", local, cut)
    sign = Template("CASE WHEN {}<'0' THEN '-' ELSE '+' END", offset)
    size = Template("to_char(GREATEST({},-{}),'HH24:MI')", offset, offset)
    return Template(f"{shown}||{{}}||{{}}", local, sign, size)


def _zone(column: GroupColumn, binds: Binds) -> Term:
    assert column.zone is not None
    return Template("CAST({} AS TEXT)", binds(column.zone))


# numbers


def _number(column: GroupColumn, binds: Binds) -> Term:
    if column.of is None:
        return Template("COUNT(*)")
    term, column_type = column_value(column.of, binds), column.of.attribute.type
    match column.function:
        case "count":
            return Template("COUNT(DISTINCT {})" if column.is_distinct else "COUNT({})", term)
        case "min" | "max":
            return _extreme(column.function, column_type)(term)
        case _:
            if column_type.name == REAL.name and column_type.sql.select is not None:
                term = column_type.sql.select(term)
            # The sum of bigint, and every mean, is numeric. The zeros at the end of a mean say nothing.
            is_mean = column.function == "avg" and column_type.family == "number" and not _is_float(column_type)
            term_of_group = Template(f"{column.function}({{}})", term)
            return Template("trim_scale({})", term_of_group) if is_mean else term_of_group


def _is_float(column_type: ColumnType) -> bool:
    return column_type.sql_names[:1] in (("float8",), ("float4",))


_HAS_EXTREMES = frozenset({"number", "text", "date", "time", "interval"})
"""The families of types for which PostgreSQL has `min` and `max`. It has them for arrays of any type with an order."""


def _extreme(function: str, column_type: ColumnType) -> Callable[[Term], Term]:
    if column_type.element is not None or column_type.family in _HAS_EXTREMES:
        return lambda term: Template(f"{function}({{}})", term)
    direction = " DESC" if function == "max" else ""
    text = f"(array_agg({{}} ORDER BY {{}}{direction}) FILTER (WHERE {{}} IS NOT NULL))[1]"
    return lambda term: Template(text, term, term, term)
