"""Compiles the texts of cursors, and the criteria for the rows after a position in an order. What comes in: keys of the
order, and the position of a cursor. What goes out: PyPika terms and criteria.

It must not know: values.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from pypika import PostgreSQLQuery
from pypika import functions as sql_functions
from pypika.terms import Criterion, Term

from querybuild.cursors import MAX_VALUE_CHARACTERS
from querybuild.declarations.terms import Template, cast_from_text
from querybuild.planning.row_plan import KeysetPosition, OrderKey, Rows
from querybuild.sql.binds import Binds
from querybuild.sql.clauses import all_of, if_visible, join, placed_operand, table


def cursor_columns(keys: tuple[OrderKey, ...], binds: Binds) -> list[Term]:
    """Return the sort keys as texts for cursors. PostgreSQL can parse its own texts, for every type."""
    return [sql_functions.Cast(placed_operand(key.column, binds), "TEXT") for key in keys]


def rows_after(rows: Rows, keyset: KeysetPosition, binds: Binds) -> list[Criterion]:
    """Return criteria for the rows after a position in the order. No row matches two of them. The rows of each are one
    range of an index on the keys, so PostgreSQL only reads this range:

        ("t0"."last_name","t0"."id")>($1,$2)                 one criterion: a comparison of rows
        ("t0"."age","t0"."id")>($1,$2); "t0"."age" IS NULL   nulls come last, and no comparison matches them
        "t0"."last_name">$1; ("t0"."last_name"=$1 AND ("t0"."age","t0"."id")<($2,$3)); ...   keys of both directions
    """
    slots = [None if slot is None else binds(slot) for slot in keyset.slots]
    bounds = [None if slot is None else _bound(key, slot) for key, slot in zip(keyset.keys, slots, strict=True)]
    if keyset.is_cut:
        cut = zip(keyset.keys, bounds, keyset.is_cut, strict=True)
        bounds = [_looked_up(rows, keyset, key, bounds, binds) if is_cut else bound for key, bound, is_cut in cut]
    terms: list[Criterion] = []
    same: list[Criterion] = []
    for sign, run in groupby(zip(keyset.keys, bounds, strict=True), _sign):
        keys = list(run)
        if sign is not None:
            terms.append(all_of([*same, _beyond(sign, keys, binds)]))
        for key, bound in keys:
            term = placed_operand(key.column, binds)
            is_null = Template("{} IS NULL", term)
            if key.is_nullable and key.is_backwards == (bound is None):
                terms.append(all_of([*same, is_null if bound is not None else Template("{} IS NOT NULL", term)]))
            same.append(is_null if bound is None else Template("{}={}", term, bound))
    if rows.criteria and any(key.column.attribute.sql is not None for key in keyset.keys):
        # A key that SQL computes may fail for hidden rows.
        return [if_visible(rows, part, binds) for part in terms]
    return terms


def _looked_up(rows: Rows, keyset: KeysetPosition, key: OrderKey, bounds: Sequence[Term | None], binds: Binds) -> Term:
    """Return a value of which the cursor only has the beginning, from the row itself:

    `COALESCE((SELECT "t0"."body" FROM "docs" "t0" WHERE "t0"."id"=$2 AND left(CAST("t0"."body" AS TEXT),256)=$1),$1)`

    If the row is gone, or has another value now, the list goes on at the beginning of a text. So a row may be repeated,
    and none is skipped: in the other direction the beginning is followed by the last character.
    """
    slot, term = keyset.slots[keyset.keys.index(key)], placed_operand(key.column, binds)
    assert slot is not None
    beginning = Template("CAST({} AS TEXT)", binds(slot))
    of_row = [
        Template("{}={}", placed_operand(order_key.column, binds), bound)
        for order_key, bound in zip(keyset.keys, bounds, strict=True)
        if rows.is_part_of_id(order_key) and bound is not None
    ]
    is_same = Template(f"left(CAST({{}} AS TEXT),{MAX_VALUE_CHARACTERS})={{}}", term, beginning)
    query = join(PostgreSQLQuery.from_(table(rows.resource, rows.alias)).select(term), rows.joins, binds)
    query = query.where(all_of([*of_row, is_same])).limit(1)
    if key.column.attribute.type.family != "text":
        return Template("{}", query)
    last = "||chr(CASE current_setting('server_encoding') WHEN 'UTF8' THEN 1114111 ELSE 255 END)"
    other = Template("{}" + last, beginning) if key.is_descending != key.is_backwards else beginning
    return Template("COALESCE({},{})", query, other)


def _sign(bounded: tuple[OrderKey, Term | None]) -> str | None:
    """Return the operator between a following value and the bound. None if the bound is null."""
    key, bound = bounded
    if bound is None:
        return None
    return "<" if key.is_descending != key.is_backwards else ">"


def _beyond(sign: str, keys: list[tuple[OrderKey, Term | None]], binds: Binds) -> Criterion:
    """Return `("t0"."age","t0"."id")>($1,$2)`, for keys of the same direction."""
    terms = [placed_operand(key.column, binds) for key, _ in keys]
    listed = ",".join(["{}"] * len(terms))
    return Template(f"({listed}){sign}({listed})", *terms, *[bound for _, bound in keys if bound is not None])


def _bound(key: OrderKey, parameter: Term) -> Term:
    """Cast the text of a cursor to the type of the key. Texts and enums need no cast."""
    column_type = key.column.attribute.type
    if column_type.family == "text":
        return parameter
    is_text_of_id = column_type.id_type.to_column is not None
    if column_type.sql_type and column_type.sql.bound is not None and not is_text_of_id:
        return column_type.sql.bound(parameter)
    return cast_from_text(column_type.cast_name)(parameter)
