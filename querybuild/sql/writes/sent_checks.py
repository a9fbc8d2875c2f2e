"""Compiles the test whether the values that a write sends can meet the rules at all, before the row is written.

It is for a write that a constraint has refused: the refusal tells of another row, and nobody may learn of it by values
that they may not write. It must not know: values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from pypika import PostgreSQLQuery

from querybuild.declarations.terms import Template, sql_of
from querybuild.planning.row_plan import ColumnRef, Condition, CustomTest, Exists, Logic, Rows, Test
from querybuild.planning.writes.write_plan import WritePlan
from querybuild.sql.binds import Binds
from querybuild.sql.clauses import are_met, table
from querybuild.sql.statement import Statement
from querybuild.sql.writes.modify import assigned


def compile_sent_check(plan: WritePlan) -> Statement | None:
    """Compile the statement whose one value says whether the values of a write can meet the rules. None if the rules
    do not depend on these values alone. The empty SELECT gives the values the types of their columns.

    SELECT ("posts"."author_id"=$2) IS TRUE FROM (SELECT "author_id" FROM "posts" WHERE FALSE UNION ALL SELECT $1)
    AS "posts"
    """
    if plan.checked is None:
        return None
    columns, alias = [assignment.column for assignment in plan.assignments], plan.checked.alias
    conditions = tuple(_decided(plan.checked.rights, alias, columns))
    if not conditions:
        return None
    binds, rows = Binds(), table(plan.resource)
    typed = PostgreSQLQuery.from_(rows).select(*[rows.field(name) for name in columns]).where(Template("FALSE"))
    values = ",".join([sql_of(assigned(assignment, binds.request(assignment.slot))) for assignment in plan.assignments])
    (is_met,) = are_met(conditions, binds)
    text = f'SELECT {sql_of(is_met)} FROM ({typed.get_sql()} UNION ALL SELECT {values}) AS "{alias}"'
    return Statement(text, binds.slots)


def _decided(conditions: Sequence[Condition], alias: str, columns: Sequence[str]) -> Iterator[Condition]:
    """Yield what a row with these columns must meet, whatever its other columns have. alias: that of the row."""
    for condition in conditions:
        match condition:
            case Logic(op="and", items=items):
                yield from _decided(items, alias, columns)
            case Logic(op="or", items=items):
                parts = [tuple(_decided([item], alias, columns)) for item in items]
                if all(parts):
                    yield Logic("or", tuple([Logic("and", part) for part in parts]))
            case _ if _is_decided(condition, alias, columns):
                yield condition


def _is_decided(condition: Condition, alias: str, columns: Sequence[str]) -> bool:
    """Return whether these columns of the row alone decide a condition."""
    has_value = partial(_has_value, alias=alias, columns=columns)
    match condition:
        case Test(left=left, right=right):
            return has_value(left) and (right is None or has_value(right))
        case CustomTest(left=left):
            return has_value(left)
        case Logic(items=items):
            return all(_is_decided(item, alias, columns) for item in items)
        case Exists(rows=rows):
            return _has_key(rows, alias, columns) and all(_is_decided(item, alias, columns) for item in rows.conditions)
        case _:
            return False


def _has_key(rows: Rows, alias: str, columns: Sequence[str]) -> bool:
    """Return whether it is known which related rows these are: of other rows, or by a key that the columns have."""
    return rows.parent != alias or (rows.pair is not None and set(rows.pair[0].columns) <= set(columns))


def _has_value(column: ColumnRef, alias: str, columns: Sequence[str]) -> bool:
    if column.rows is not None:
        return _has_key(column.rows, alias, columns)
    attribute = column.attribute
    return column.alias != alias or (attribute.sql is None and attribute.column_name in columns)
