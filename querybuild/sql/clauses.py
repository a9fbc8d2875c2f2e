"""Compiles the clauses of SQL, with a function for each clause, and the criteria of conditions. What comes in: parts of
a plan. What goes out: PyPika terms and queries.

It must not know: values. `Binds` numbers the parameters $1, $2, ... No request can make it fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, assert_never

from pypika import PostgreSQLQuery, Table
from pypika import functions as sql_functions
from pypika.queries import QueryBuilder
from pypika.terms import Criterion, ExistsCriterion, Term

from querybuild.declarations.arrays import array
from querybuild.declarations.catalog import KeyAttribute
from querybuild.declarations.database_types.json_paths import JsonPath, inner_value
from querybuild.declarations.database_types.searches import search_terms
from querybuild.declarations.function import Returned
from querybuild.declarations.resource import Link, Resource, own_key_of
from querybuild.declarations.terms import Template, as_text, as_texts, ordered
from querybuild.declarations.types import OPAQUE
from querybuild.planning.plan import Node
from querybuild.planning.row_plan import (
    AmongFirst,
    ColumnRef,
    Condition,
    CustomTest,
    Distance,
    Exists,
    IdIs,
    InScope,
    LinkRows,
    Logic,
    OrderKey,
    Rank,
    RelatedScope,
    Rows,
    Slot,
    Test,
)
from querybuild.sql.arrays import compared_array, compared_value
from querybuild.sql.binds import Binds
from querybuild.sql.calls import is_returned
from querybuild.sql.keys import (
    column,
    columns_of,
    compared_key,
    equal_keys,
    is_key,
    key_is_not_null,
    key_value,
    key_values,
    shown_key,
)
from querybuild.sql.leaks import is_leaky, patterns
from querybuild.sql.terms import column_term, is_computed

PATH = Slot("path")


def table(resource: Resource, alias: str | None = None) -> Table:
    """Return the table of a resource."""
    return Table(resource.table, schema=resource.schema, alias=alias)


def link_table(link: Link, alias: str | None = None) -> Table:
    """Return a link table."""
    return Table(link.table, schema=link.schema, alias=alias)


def columns(node: Node, alias: str, binds: Binds) -> Iterator[Term]:
    """Yield the columns of a row, in the order that `plan.Node` describes: the id, the attributes, the keys."""
    of = columns_of(alias)
    yield shown_key(of, node.resource.id.key)
    for attribute in node.read:
        term = column_term(alias, attribute)
        yield term if attribute.type.sql.select is None else attribute.type.sql.select(term)
    for key, target in node.keys_and_targets:
        yield shown_key(of, key) if target is None else of_visible(alias, shown_key(of, key), target, binds)


def of_visible(alias: str, key: Term, target: Rows, binds: Binds) -> Term:
    """Return a key, or null if the row that it refers to is hidden. The real alias is longer than `"k"`:
    `CASE WHEN EXISTS (SELECT 1 FROM "groups" "k" WHERE "k"."id"="t0"."group_id" AND ...) THEN "t0"."group_id" END`"""
    assert target.pair is not None
    query = (
        from_rows(target, binds).select(1).where(equal_keys(columns_of(alias), columns_of(target.alias), target.pair))
    )
    return Template("CASE WHEN {} THEN {} END", ExistsCriterion(query), key)


def from_rows(rows: Rows, binds: Binds) -> QueryBuilder:
    """Return FROM and WHERE of rows that are not attached to other rows: `FROM "users" "t0"`, with their criteria and
    conditions."""
    query = PostgreSQLQuery.from_(table(rows.resource, rows.alias))
    return where(query, rows, binds)


def join(query: QueryBuilder, joins: tuple[Rows, ...], binds: Binds) -> QueryBuilder:
    """Add a LEFT JOIN for each set of rows. Only to-one relationships are joined, so no row is repeated.

    A path may return over the key that it came by (`bio.user`). Then the join also requires that the key is not null:
    if the id of the first row is a constant, PostgreSQL 18 concludes the value of the key, and joins the last row even
    if there is no row between.
    """
    pairs = [(rows, rows.pair) for rows in joins if rows.pair is not None and not rows.is_counted]
    reverse_keys = {(rows.alias, far.columns) for rows, (_, far) in pairs if far != rows.resource.id.key}
    for rows, (near, _) in pairs:
        criteria = [attached(rows)]
        if (rows.parent, near.columns) in reverse_keys:
            criteria.append(Template("{} IS NOT NULL", compared_key(columns_of(rows.parent), near)))
        criteria += _met(rows, binds, is_attached=True)
        query = query.left_join(table(rows.resource, rows.alias)).on(all_of(criteria))
    for rows in joins:
        if rows.is_counted:
            query = _join_count(query, rows, binds)
    return query


_COUNT = "the count"
"""The number of rows of each parent. No column has such a name."""


def _join_count(query: QueryBuilder, rows: Rows, binds: Binds) -> QueryBuilder:
    """Add the number of related rows of each parent. All are counted at once, which takes a quarter of the time of a
    subquery for each parent:

        LEFT JOIN (SELECT "t1"."owner_id",COUNT(*) AS "the count" FROM "computers" "t1"
        WHERE NOT "t1"."owner_id" IS NULL GROUP BY "t1"."owner_id") "t1" ON "t1"."owner_id"="t0"."id"
    """
    counted, through = PostgreSQLQuery.from_(table(rows.resource, rows.alias)), rows.through
    if through is None:
        assert rows.pair is not None
        alias, (_, key), on = rows.alias, rows.pair, attached(rows)
    else:
        counted = join_links(counted, rows, binds)
        alias, (_, key), on = through.alias, through.near, _attached_links(rows, through)
    keys = [column(alias, name) for name in key.columns]
    counted = where(counted, rows, binds, is_attached=True).where(key_is_not_null(columns_of(alias), key))
    counted = counted.select(*keys, Template(f'COUNT(*) AS "{_COUNT}"')).groupby(*keys)
    joined: Any = counted.as_(alias)
    return query.left_join(joined).on(on)


def attached(rows: Rows) -> Criterion:
    """Return `"t1"."id"="t0"."group_id"`, for rows without a link table."""
    assert rows.pair is not None
    return equal_keys(columns_of(rows.parent), columns_of(rows.alias), rows.pair)


def _attached_links(rows: Rows, through: LinkRows) -> Criterion:
    """Return `"l"."post_id"="t0"."id"`, for the rows of a link table."""
    return equal_keys(columns_of(rows.parent), columns_of(through.alias), through.near)


def where(query: QueryBuilder, rows: Rows, binds: Binds, *, is_attached: bool = False) -> QueryBuilder:
    """Add the criteria and the conditions of the rows to WHERE. is_attached: whether rows of the same statement refer
    to them."""
    for term in _met(rows, binds, is_attached=is_attached):
        query = query.where(term)
    return query


def _met(rows: Rows, binds: Binds, *, is_attached: bool) -> Iterator[Criterion]:
    """Yield the criteria and the conditions of the rows.

    PostgreSQL tests the cheapest condition first, also one of the request before the criteria that hide rows. If the
    condition can fail, or takes much longer for some values, it would tell what is in hidden rows. Such conditions are
    only tested for visible rows: `CASE WHEN EXISTS (...) THEN "t0"."name"~$1 ELSE FALSE END`. The criteria are also
    written outside of it, because PostgreSQL uses no index for what is in a CASE.

    Each pattern is tested first, on a constant, so that PostgreSQL refuses an invalid one whatever its plan is."""
    if not is_attached:
        for slot in dict.fromkeys(patterns(rows.conditions)):
            yield Template("(CAST('' AS TEXT)~{}) IS NOT NULL", binds(slot))
    yield from [criterion(condition, binds) for condition in rows.criteria]
    leaky = [condition for condition in rows.conditions if rows.criteria and is_leaky(condition)]
    yield from [criterion(condition, binds) for condition in rows.conditions if condition not in leaky]
    if leaky:
        yield if_visible(rows, all_of([criterion(condition, binds) for condition in leaky]), binds)


def if_visible(rows: Rows, wanted: Criterion, binds: Binds) -> Criterion:
    """Return a criterion that is only tested for visible rows."""
    visible = all_of([Template("({})", criterion(condition, binds)) for condition in rows.criteria])
    return Template("CASE WHEN {} THEN {} ELSE FALSE END", visible, wanted)


def all_of(criteria: Sequence[Criterion]) -> Criterion:
    """Return `"t0"."age"=$1 AND "t0"."name"=$2`."""
    return Template(" AND ".join(["{}"] * len(criteria)), *criteria)


def criterion(condition: Condition, binds: Binds) -> Criterion:
    """Compile a condition."""
    match condition:
        case Test():
            return _test(condition, binds)
        case CustomTest():
            return _custom(condition, binds)
        case Logic():
            return _logic(condition, binds)
        case Exists():
            return _exists(condition, binds)
        case AmongFirst():
            return _among_first(condition, binds)
        case InScope():
            return all_of(list(scope_criteria(condition.scope, binds)))
        case IdIs():
            return is_key(columns_of(condition.alias), condition.key, binds(PATH))
        case Returned():
            return is_returned(condition, binds)
        case _:
            assert_never(condition)


def operand(column: ColumnRef, binds: Binds) -> Term:
    """Return a column for a comparison. One of a type without operators is cast to a type that has them."""
    term, compared = column_value(column, binds), column.attribute.type.sql.compared
    return term if compared is None else compared(term)


def sorted_operand(column: ColumnRef, binds: Binds) -> Term:
    """Return a column for ORDER BY. It needs no cast, which would prevent that an index gives the order."""
    term, sorted_as = column_value(column, binds), column.attribute.type.sql.sorted_as
    return term if sorted_as is None else sorted_as(term)


def placed_operand(column: ColumnRef, binds: Binds) -> Term:
    """Return a sort key for a comparison with the value of a cursor."""
    term, kind = column_value(column, binds), column.attribute.type
    made = kind.sql.sorted_as or kind.sql.compared
    return term if made is None else made(term)


def column_value(column: ColumnRef, binds: Binds) -> Term:
    """Return the value of a column.

    A column of a related row that no join reads is `(SELECT "t1"."id" FROM "user_bio" "t1" WHERE
    "t1"."user_id"="t0"."id" LIMIT 1)`. LIMIT is there because a view may have two such rows. The number of related rows
    is `(SELECT COUNT(*) FROM "computers" "t1" WHERE "t1"."owner_id"="t0"."id")`, or
    `COALESCE("t1"."the count",0)` if it is joined.
    """
    if column.is_count and column.rows is None:
        return Template(f'COALESCE("{column.alias}"."{_COUNT}",0)')
    if column.rows is not None and column.is_count:
        return Template("{}", _attached_rows(column.rows, binds).select(sql_functions.Count("*")))
    if column.rows is not None:
        term = column_term(column.alias, column.attribute)
        return Template("{}", from_rows(column.rows, binds).select(term).where(attached(column.rows)).limit(1))
    match column.derived:
        case None:
            return _own_term(column)
        case Slot() as slot:
            return inner_value(_own_term(column), binds(slot))
        case JsonPath() as path:
            return path.of(_own_term(column))
        case Rank(slot=slot):
            return Template("ts_rank({},{})", *_search_terms(column, slot, binds))
        case Distance(slot=slot, measure=measure):
            return Template("({})", measure.distance(_own_term(column), measure.value(binds(slot))))


def _search_terms(column: ColumnRef, slot: Slot, binds: Binds) -> tuple[Term, Term]:
    return search_terms(column.attribute, partial(column_term, column.alias), binds(slot))


def _own_term(column: ColumnRef) -> Term:
    term = column_term(column.alias, column.attribute)
    # The term of an attribute computed in SQL may contain operators.
    return term if column.attribute.sql is None else Template("({})", term)


def order(query: QueryBuilder, keys: tuple[OrderKey, ...], binds: Binds) -> QueryBuilder:
    """Add keys to ORDER BY."""
    return query.orderby(*order_terms(keys, binds)) if keys else query


def order_terms(keys: tuple[OrderKey, ...], binds: Binds) -> list[Term]:
    """Return the terms of ORDER BY."""
    return [_ordered(key, binds) for key in keys]


def _ordered(key: OrderKey, binds: Binds) -> Term:
    return ordered(
        sorted_operand(key.column, binds),
        is_descending=key.is_descending,
        is_nullable=key.is_nullable,
        is_backwards=key.is_backwards,
    )


def _test(test: Test, binds: Binds) -> Criterion:
    row, attribute = test.operator, test.left.attribute
    if row.is_search:
        return row.criterion(*_search_terms(test.left, test.slots[0], binds))
    if test.form == "value" and isinstance(attribute, KeyAttribute) and _is_split(test, attribute):
        of, key, parameter = columns_of(test.left.alias), attribute.key, binds(test.slots[0])
        bound_key = key_values(parameter, key) if row.arity == "list" else key_value(parameter, key)
        return row.criterion(compared_key(of, key), bound_key)
    left = _as_text(test.left, binds) if row.is_text else operand(test.left, binds)
    if test.form == "null":
        assert row.on_null is not None
        # A composite value IS NULL if all of its fields are.
        return row.on_null(as_text(left) if attribute.type.fields else left)
    if test.right is not None:
        assert row.on_field is not None
        is_text = attribute.type.comparison.is_compared_as_text or attribute.type.sql.as_text
        right = operand(test.right, binds)
        if row.is_text or is_text or test.right.attribute.type.sql.as_text:
            left, right = _as_text(test.left, binds), _as_text(test.right, binds)
        if attribute.type.element is not None and row.arity == "one":
            left, right = [compared_array(attribute.type, term) for term in (left, right)]
        return row.on_field(left, right)
    value_type = row.value_type_of(attribute)
    column_type = array(value_type) if row.arity == "list" else value_type
    parameters: list[Term] = [binds(slot) for slot in test.slots]
    if not row.is_text:
        parameters = [column_type.bind(parameter) for parameter in parameters]
    if attribute.type.comparison.is_compared_as_text and row.value_type is None:
        left = as_texts(left) if attribute.type.element is not None else as_text(left)
        parameters = [as_texts(term) if column_type.element is not None else as_text(term) for term in parameters]
    if value_type.element is not None and row.arity == "one":
        left, parameters = compared_array(value_type, left), [compared_value(value_type, term) for term in parameters]
    return row.criterion(left, *parameters)


def _is_split(test: Test, attribute: KeyAttribute) -> bool:
    """Return whether each column of a key is compared, so that an index can be used."""
    return attribute.is_split and test.left.rows is None and test.operator.compares_columns


def _as_text(column: ColumnRef, binds: Binds) -> Term:
    term = operand(column, binds)
    column_type = column.attribute.type
    if not (column_type.sql.as_text or column_type.comparison.is_compared_as_text):
        return term
    return as_texts(term) if column_type.element is not None else as_text(term)


def _custom(test: CustomTest, binds: Binds) -> Criterion:
    """Return the criterion of a custom operator: an EXISTS over the joined tables, if it has joins."""
    operator = test.operator
    # The type of an OPAQUE attribute is only known to the tables.
    is_opaque = test.left.attribute.type.family == OPAQUE.family
    left = _as_text(test.left, binds) if is_opaque else operand(test.left, binds)
    term, joins = operator.criterion(test.left.attribute, left, binds(test.slot), operator.name)
    # The criterion may be an OR.
    term = Template("({})", term)
    if not joins:
        return term
    (first, joined_by), *others = joins
    query = PostgreSQLQuery.from_(first).select(1)
    for joined, on in others:
        query = query.join(joined).on(on)
    return ExistsCriterion(query.where(joined_by).where(term))


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
    """Return `EXISTS (SELECT 1 FROM "groups" "t1" WHERE "t1"."id"="t0"."group_id" AND ...)`. Under OR and NOT, this is
    the only form of such a condition whose cost does not grow with the table (docs/adr/0004-exists.md)."""
    exists_term = ExistsCriterion(_attached_rows(exists.rows, binds).select(1))
    # PostgreSQL's planner does not turn an EXISTS inside a CASE into a join.
    return Template("CASE WHEN {} THEN TRUE ELSE FALSE END", exists_term) if exists.is_separate else exists_term


def _attached_rows(rows: Rows, binds: Binds) -> QueryBuilder:
    """Return FROM and WHERE of rows that are attached to rows of the same statement."""
    query = PostgreSQLQuery.from_(table(rows.resource, rows.alias))
    if rows.through is None:
        query = query.where(attached(rows))
    else:
        query = join_links(query, rows, binds)
        query = query.where(_attached_links(rows, rows.through))
    return where(query, rows, binds, is_attached=True)


def _among_first(among: AmongFirst, binds: Binds) -> Criterion:
    """Return `"i0"."id" IN (SELECT unnest(ARRAY(SELECT "t1"."id" FROM "computers" "t1" WHERE "t1"."owner_id"="t0"."id"
    ORDER BY "t1"."name","t1"."id" LIMIT 3)) FROM "users" "t0" WHERE ...)`. It refers to no other rows, so it is
    computed once."""
    rows, key = among.rows, among.rows.resource.id.key
    limit: Any = Template(str(among.size))
    ids = _attached_rows(rows, binds).select(shown_key(columns_of(rows.alias), key))
    ids = order(join(ids, rows.joins, binds), rows.order, binds).limit(limit)
    query = from_rows(among.parents, binds).select(Template("unnest(ARRAY{})", ids))
    return Template("{} IN {}", shown_key(columns_of(among.alias), key), query)


def one_of(rows: Rows, wanted: Criterion, binds: Binds) -> Criterion:
    """Return a criterion combined with the criteria and conditions of the rows."""
    return _restricted(wanted, rows.all_conditions, binds)


def one_of_writable(rows: Rows, wanted: Criterion, binds: Binds) -> Criterion:
    """Return a criterion combined with all conditions that a row must meet to be written."""
    return _restricted(wanted, (*rows.all_conditions, *rows.rights), binds)


def is_writable(rows: Rows, binds: Binds) -> Iterator[Term]:
    """Yield a column that says whether a row may be written, if it depends on the row."""
    return are_met(rows.rights, binds)


def are_met(conditions: tuple[Condition, ...], binds: Binds) -> Iterator[Term]:
    """Yield a column that says whether a row meets all conditions, if there are any."""
    if conditions:
        criteria = [criterion(condition, binds) for condition in conditions]
        yield Template("(" + " AND ".join(["({})"] * len(criteria)) + ") IS TRUE", *criteria)


def _restricted(wanted: Criterion, conditions: tuple[Condition, ...], binds: Binds) -> Criterion:
    criteria = [criterion(condition, binds) for condition in conditions]
    return Template(" AND ".join(["({})"] * (1 + len(criteria))), wanted, *criteria) if criteria else wanted


def decides_again(rows: Rows) -> bool:
    """Return whether it depends on other rows which of the rows may be written."""
    return any(map(_reads_others, (*rows.all_conditions, *rows.rights)))


def _reads_others(condition: Condition) -> bool:
    match condition:
        case Test(left=left, right=right):
            columns = [left] if right is None else [left, right]
            return any(column_ref.rows is not None or is_computed(column_ref.attribute) for column_ref in columns)
        case Logic(items=items):
            return any(map(_reads_others, items))
        case IdIs():
            return False
        case _:
            return True


def join_links(query: QueryBuilder, rows: Rows, binds: Binds) -> QueryBuilder:
    """Add the link table, with the criteria of its rows: `JOIN "post_tags" "t1" ON "t1"."tag_id"="t0"."id"`."""
    through = rows.through
    assert through is not None
    far, near = through.far
    equal = equal_keys(columns_of(rows.alias), columns_of(through.alias), (near, far))
    on = all_of([equal, *[criterion(condition, binds) for condition in through.criteria]])
    return query.join(link_table(through.link, through.alias)).on(on)


def named_parent(scope: RelatedScope, binds: Binds) -> QueryBuilder:
    """Return FROM and WHERE of the row that the path names: `FROM "users" "p" WHERE "p"."id"=$1`."""
    rows = scope.rows
    assert rows is not None
    return from_rows(rows, binds).where(is_key(columns_of(rows.alias), scope.parent.id.key, binds(PATH)))


def scope_criteria(scope: RelatedScope, binds: Binds) -> Iterator[Criterion]:
    """Yield the criteria for the related rows of the resource that the path names.

    With the key in its own row: `"t0"."id"=(SELECT "p"."group_id" FROM "users" "p" WHERE "p"."id"=$1)`
    With the key in the related rows: `"t0"."owner_id"=$1`
    With a link table: `EXISTS (SELECT 1 FROM "post_tags" "lp" WHERE "lp"."tag_id"="t0"."id" AND "lp"."post_id"=$1)`

    The last two do not read the row of the resource. If it may be hidden, `EXISTS (SELECT 1 FROM "users" "p" ...)` is
    added.
    """
    rows = scope.rows
    assert rows is not None
    of = columns_of(rows.parent)
    if own_key_of(scope.relationship) is not None:
        assert rows.pair is not None
        near, far = rows.pair
        key = named_parent(scope, binds).select(*[column(rows.alias, name) for name in far.columns])
        yield Template("{}={}", compared_key(of, near), key)
        return
    parent_id, through = binds(PATH), rows.through
    if through is None:
        assert rows.pair is not None
        yield is_key(of, rows.pair[0], parent_id)
    else:
        query = PostgreSQLQuery.from_(link_table(through.link, through.alias)).select(1)
        query = query.where(_attached_links(rows, through))
        for condition in through.criteria:
            query = query.where(criterion(condition, binds))
        yield ExistsCriterion(query.where(is_key(columns_of(through.alias), through.far[0], parent_id)))
    if rows.all_conditions:
        yield ExistsCriterion(named_parent(scope, binds).select(1))
