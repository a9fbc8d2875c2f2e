"""The clauses of SQL, one function a clause, and the criteria of conditions. What comes in: parts of a plan.
What goes out: PyPika terms and queries.

Nothing here can fail for a request's sake, and nothing knows a value: binds hands out $1, $2, ...
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import assert_never

from pypika import Field, PostgreSQLQuery, Table
from pypika import functions as sql_functions
from pypika.queries import QueryBuilder
from pypika.terms import Criterion, ExistsCriterion, Term

from querybuild.arrays import array
from querybuild.binds import Binds
from querybuild.plan import (
    FIRST_ALIAS,
    ColumnRef,
    Condition,
    CustomTest,
    Exists,
    IdIs,
    InScope,
    Logic,
    Node,
    OrderKey,
    Pair,
    Place,
    Rows,
    Scope,
    Slot,
    Test,
)
from querybuild.resource import Attribute, Link, Resource, own_key_of
from querybuild.terms import Template, ordered
from querybuild.types import OPAQUE

PATH = Slot("path")


def table(resource: Resource, alias: str | None = None) -> Table:
    return Table(resource.table, schema=resource.schema, alias=alias)


def link_table(link: Link, alias: str | None = None) -> Table:
    return Table(link.table, schema=link.schema, alias=alias)


def column(alias: str, name: str) -> Field:
    """`"t0"."age"`. PyPika writes a field's alias alone, so the table's own name need not be known."""
    return Field(name, table=Table("", alias=alias))


def column_term(alias: str, attribute: Attribute) -> Term:
    """The attribute's column, or its term where it is computed in SQL."""
    if attribute.sql is not None:
        return attribute.sql(lambda name: column(alias, name))
    return column(alias, attribute.column_name)


def columns(node: Node, alias: str, binds: Binds) -> Iterator[Term]:
    """id, what is read, keys: the row as `plan.Node` has it."""
    yield column(alias, node.resource.id.column)
    for attribute in node.read:
        term = column_term(alias, attribute)
        yield term if attribute.type.select is None else attribute.type.select(term)
    for key, target in node.keys_and_targets:
        yield column(alias, key) if target is None else _key_of_visible(column(alias, key), target, binds)


def _key_of_visible(key: Term, target: Rows, binds: Binds) -> Term:
    """A key, or null if the row that it refers to is hidden:
    `CASE WHEN EXISTS (SELECT 1 FROM "groups" "k" WHERE "k"."id"="t0"."group_id" AND ...) THEN "t0"."group_id" END`
    Its alias is longer than this `"k"`."""
    ((_, far),) = target.pairs
    found = from_rows(target, binds).select(1).where(Template("{}={}", column(target.alias, far), key))
    return Template("CASE WHEN {} THEN {} END", ExistsCriterion(found), key)


def from_rows(rows: Rows, binds: Binds) -> QueryBuilder:
    """FROM and WHERE of rows that stand alone: `FROM "users" "t0"`, with their criteria and conditions."""
    query = PostgreSQLQuery.from_(table(rows.resource, rows.alias))
    return where(where(query, rows.criteria, binds), rows.conditions, binds)


def reads_other_rows(node: Node) -> bool:
    """Whether an attribute computed in SQL may ask for more than its own row, as any function can that it calls:
    RETURNING sees other rows as they were."""
    terms = [column_term(FIRST_ALIAS, attribute) for attribute in node.read if attribute.sql is not None]
    return any(_CALL.search(term.get_sql(quote_char='"')) for term in terms)


_CALL = re.compile(r"\bSELECT\b|[\w\"]\s*\(", re.IGNORECASE)


def join(query: QueryBuilder, joins: tuple[Rows, ...], binds: Binds) -> QueryBuilder:
    """Rows of to-one relationships alone come here: a LEFT JOIN of one never multiplies rows.

    Rows that go back by the key that led there (`bio.user`) say that the key is not null: where the first row is given
    as a constant, PostgreSQL 18 concludes what the key is, and joins the last row even if there is none between.
    """
    came_by = {(rows.alias, far) for rows in joins for _, far in rows.pairs if far != rows.resource.id.column}
    for rows in joins:
        meets = [attached(rows)]
        meets += [
            Template("{} IS NOT NULL", column(rows.parent, near))
            for near, _ in rows.pairs
            if (rows.parent, near) in came_by
        ]
        meets += [criterion(condition, binds) for condition in rows.criteria]
        query = query.left_join(table(rows.resource, rows.alias)).on(_all(meets))
    return query


def attached(rows: Rows) -> Criterion:
    """`"t1"."id"="t0"."group_id"`, of rows without a link table."""
    return _paired(rows.parent, rows.alias, rows.pairs)


def _paired(near_alias: str, far_alias: str, pairs: tuple[Pair, ...]) -> Criterion:
    return _all([Template("{}={}", column(far_alias, far), column(near_alias, near)) for near, far in pairs])


def where(query: QueryBuilder, conditions: tuple[Condition, ...], binds: Binds) -> QueryBuilder:
    for condition in conditions:
        query = query.where(criterion(condition, binds))
    return query


def order(query: QueryBuilder, keys: tuple[OrderKey, ...], binds: Binds) -> QueryBuilder:
    for key in keys:
        query = query.orderby(_ordered(key, binds))
    return query


def order_terms(keys: tuple[OrderKey, ...], binds: Binds) -> list[Term]:
    return [_ordered(key, binds) for key in keys]


def _ordered(key: OrderKey, binds: Binds) -> Term:
    return ordered(
        operand(key.column, binds),
        is_descending=key.is_descending,
        is_nullable=key.is_nullable,
        is_backwards=key.is_backwards,
    )


def cursor_columns(keys: tuple[OrderKey, ...], binds: Binds) -> list[Term]:
    """The sort keys as the texts that a cursor holds: PostgreSQL reads back what it writes, whatever the type."""
    return [sql_functions.Cast(operand(key.column, binds), "TEXT") for key in keys]


def follows(place: Place, binds: Binds) -> list[Criterion]:
    """The rows after a place in the order, in parts that have no row in common. Each is one stretch of an index that
    has the keys in this order, so that PostgreSQL begins to read where it begins:

        ("t0"."last_name","t0"."id")>($1,$2)                 one part: a comparison of rows
        ("t0"."age","t0"."id")>($1,$2); "t0"."age" IS NULL   nulls come last, and are beyond no value
        "t0"."last_name">$1; ("t0"."last_name"=$1 AND ("t0"."age","t0"."id")<($2,$3)); ...   keys that go two ways
    """
    slots = [None if slot is None else binds.request(slot) for slot in place.slots]
    bounds = [None if slot is None else _bound(key, slot) for key, slot in zip(place.keys, slots, strict=True)]
    found: list[Criterion] = []
    same: list[Criterion] = []
    for sign, run in groupby(zip(place.keys, bounds, strict=True), _sign):
        keys = list(run)
        if sign is not None:
            found.append(_all([*same, _beyond(sign, keys, binds)]))
        for key, bound in keys:
            term = operand(key.column, binds)
            is_null = Template("{} IS NULL", term)
            if key.is_nullable and key.is_backwards == (bound is None):
                found.append(_all([*same, is_null if bound is not None else Template("{} IS NOT NULL", term)]))
            same.append(is_null if bound is None else Template("{}={}", term, bound))
    return found


def _sign(bounded: tuple[OrderKey, Term | None]) -> str | None:
    """How what follows compares with the bound; nothing compares with null."""
    key, bound = bounded
    if bound is None:
        return None
    return "<" if key.is_descending != key.is_backwards else ">"


def _beyond(sign: str, keys: list[tuple[OrderKey, Term | None]], binds: Binds) -> Criterion:
    """`("t0"."age","t0"."id")>($1,$2)`, of keys that go the same way."""
    terms = [operand(key.column, binds) for key, _ in keys]
    listed = ",".join(["{}"] * len(terms))
    return Template(f"({listed}){sign}({listed})", *terms, *[bound for _, bound in keys if bound is not None])


def _all(criteria: Sequence[Criterion]) -> Criterion:
    return Template(" AND ".join(["{}"] * len(criteria)), *criteria)


def _bound(key: OrderKey, parameter: Term) -> Term:
    """A text as the key's type; texts, and enums, which have types of their own, are compared as they are."""
    column_type = key.column.attribute.type
    if column_type.family == "text":
        return parameter
    if column_type.sql_type and column_type.bound is not None:
        return column_type.bound(parameter)
    return Template("CAST(CAST({} AS TEXT) AS " + column_type.sql_names[0] + ")", parameter)


def criterion(condition: Condition, binds: Binds) -> Criterion:
    match condition:
        case Test():
            return _test(condition, binds)
        case CustomTest():
            return _custom(condition, binds)
        case Logic():
            return _logic(condition, binds)
        case Exists():
            return _exists(condition, binds)
        case InScope():
            return _all(list(scope_criteria(condition.scope, binds)))
        case IdIs():
            return column(condition.alias, condition.column) == binds(PATH)
        case _:
            assert_never(condition)


def operand(column: ColumnRef, binds: Binds) -> Term:
    """A column as filters and sorts see it: a type that is unknown to us is its text.

    Of a row that only the column refers to, `(SELECT "t1"."id" FROM "user_bio" "t1" WHERE "t1"."user_id"="t0"."id"
    LIMIT 1)`: a view may have two, and the value is then that of one of them.
    """
    term = column_term(column.alias, column.attribute)
    if column.rows is not None:
        return Template("{}", from_rows(column.rows, binds).select(term).where(attached(column.rows)).limit(1))
    if column.attribute.sql is not None:
        # Whatever it is made of, it goes into a criterion as one.
        term = Template("({})", term)
    return OPAQUE.select(term) if column.attribute.type is OPAQUE and OPAQUE.select is not None else term


def _test(test: Test, binds: Binds) -> Criterion:
    row, attribute = test.operator, test.left.attribute
    left = _as_text(test.left, binds) if row.is_text else operand(test.left, binds)
    if test.form == "null":
        assert row.on_null is not None
        return row.on_null(left)
    if test.right is not None:
        assert row.on_field is not None
        if row.is_text or attribute.type.as_text or test.right.attribute.type.as_text:
            return row.on_field(_as_text(test.left, binds), _as_text(test.right, binds))
        return row.on_field(left, operand(test.right, binds))
    column_type = array(attribute.type) if row.arity == "list" and attribute.type.element is None else attribute.type
    bound = column_type.bound if not row.is_text else None
    parameters: list[Term] = [binds(slot) for slot in test.slots]
    if bound is not None:
        parameters = [bound(parameter) for parameter in parameters]
    return row.criterion(left, *parameters)


def _as_text(column: ColumnRef, binds: Binds) -> Term:
    term = operand(column, binds)
    column_type = column.attribute.type
    return sql_functions.Cast(term, "TEXT[]" if column_type.element else "TEXT") if column_type.as_text else term


def _custom(test: CustomTest, binds: Binds) -> Criterion:
    """A custom operator's criterion; with joins, an EXISTS over the joined tables."""
    operator = test.operator
    left = _as_text(test.left, binds) if test.left.attribute.type.sql_type else operand(test.left, binds)
    found, joins = operator.criterion(test.left.attribute, left, binds(test.slot), operator.name)
    # It may be an OR: nothing that it is put into may tear it apart.
    found = Template("({})", found)
    if not joins:
        return found
    (first, meets), *others = joins
    query = PostgreSQLQuery.from_(first).select(1)
    for joined, on in others:
        query = query.join(joined).on(on)
    return ExistsCriterion(query.where(meets).where(found))


def _logic(logic: Logic, binds: Binds) -> Criterion:
    items = [criterion(item, binds) for item in logic.items]
    match logic.op:
        case "and":
            return Template("(" + " AND ".join(["{}"] * len(items)) + ")", *items) if items else Template("TRUE")
        case "or":
            return Template("(" + " OR ".join(["{}"] * len(items)) + ")", *items) if items else Template("FALSE")
        case "not":
            return Template("NOT ({})", *items)


def _exists(exists: Exists, binds: Binds) -> Criterion:
    """`EXISTS (SELECT 1 FROM "groups" "t1" WHERE "t1"."id"="t0"."group_id" AND ...)`: of the forms that a
    condition over a relationship can take, the one whose cost does not grow with the table under OR and NOT
    (docs/adr/0004-exists.md)."""
    rows = exists.rows
    query = PostgreSQLQuery.from_(table(rows.resource, rows.alias)).select(1)
    if rows.through is None:
        query = query.where(attached(rows))
    else:
        query = join_links(query, rows)
        query = query.where(_paired(rows.parent, rows.through.alias, rows.through.near))
    found = ExistsCriterion(where(where(query, rows.criteria, binds), rows.conditions, binds))
    # A CASE is what the planner does not look into.
    return Template("CASE WHEN {} THEN TRUE ELSE FALSE END", found) if exists.is_apart else found


def one_of(rows: Rows, found: Criterion, binds: Binds) -> Criterion:
    """The criterion, and those that each of the rows meets."""
    criteria = [criterion(condition, binds) for condition in rows.criteria]
    return Template(" AND ".join(["({})"] * (1 + len(criteria))), found, *criteria) if criteria else found


def join_links(query: QueryBuilder, rows: Rows) -> QueryBuilder:
    """`JOIN "post_tags" "t1" ON "t1"."tag_id"="t0"."id"`"""
    through = rows.through
    assert through is not None
    meets = [Template("{}={}", column(through.alias, near), column(rows.alias, far)) for near, far in through.far]
    return query.join(link_table(through.link, through.alias)).on(_all(meets))


def named_parent(scope: Scope, binds: Binds) -> QueryBuilder:
    """`FROM "users" "p" WHERE "p"."id"=$1`: the row that the path names."""
    rows = scope.rows
    assert rows is not None
    return from_rows(rows, binds).where(column(rows.alias, scope.parent.id.column) == binds(PATH))


def scope_criteria(scope: Scope, binds: Binds) -> Iterator[Criterion]:
    """The rows that the resource of the path is related to.

    A key in its own row: `"t0"."id"=(SELECT "p"."group_id" FROM "users" "p" WHERE "p"."id"=$1)`
    A key in the target's rows: `"t0"."owner_id"=$1`
    A link table: `EXISTS (SELECT 1 FROM "post_tags" "lp" WHERE "lp"."tag_id"="t0"."id" AND "lp"."post_id"=$1)`

    The last two do not read the parent's row. If that may be hidden, `EXISTS (SELECT 1 FROM "users" "p" ...)` is one
    criterion more.
    """
    rows = scope.rows
    assert rows is not None
    if own_key_of(scope.relationship) is not None:
        ((near, far),) = rows.pairs
        key = named_parent(scope, binds).select(column(rows.alias, far))
        yield Template("{}={}", column(rows.parent, near), key)
        return
    parent_id, through = binds(PATH), rows.through
    if through is None:
        ((near, _),) = rows.pairs
        yield column(rows.parent, near) == parent_id
    else:
        ((far, _),) = through.far
        query = PostgreSQLQuery.from_(link_table(through.link, through.alias)).select(1)
        query = query.where(_paired(rows.parent, through.alias, through.near))
        yield ExistsCriterion(query.where(column(through.alias, far) == parent_id))
    if rows.criteria:
        yield ExistsCriterion(named_parent(scope, binds).select(1))
