"""ReadPlan -> SELECT statements. What comes in: a plan. What goes out: statements, one function a clause,
called in the order in which SQL is read.

Nothing here can fail for a request's sake, and nothing knows a value. For `GET
/users?filter=[{"name":"group.name","op":"eq","val":"x"}]&sort=-age`:

    SELECT "t0"."id","t0"."first_name",... FROM "users" "t0"
    WHERE EXISTS (SELECT 1 FROM "groups" "t1" WHERE "t1"."id"="t0"."group_id" AND "t1"."name"=$1)
    ORDER BY "t0"."age" DESC NULLS LAST,"t0"."id" DESC LIMIT $2
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

import msgspec
from pypika import Field, PostgreSQLQuery, Table
from pypika import functions as sql_functions
from pypika.queries import QueryBuilder
from pypika.terms import Criterion, ExistsCriterion, Term

from querybuild.binds import Binds
from querybuild.plan import (
    Branch,
    ColumnRef,
    Condition,
    CustomTest,
    Exists,
    IdIs,
    Logic,
    Node,
    OrderKey,
    ReadPlan,
    Slot,
    Statement,
    Step,
    Test,
)
from querybuild.resource import Attribute, Link, Relationship, Resource, ToMany, ToOne
from querybuild.terms import Everything, Nothing, Template, equals_any, ordered
from querybuild.types import OPAQUE, array

KEYS, PATH = Slot("keys"), Slot("path")


class ReadStatements(msgspec.Struct, frozen=True):
    """primary, and the count where the plan wants one. branches: of the whole tree in pre-order; None where a
    branch's linkage needs no rows."""

    primary: Statement
    count: Statement | None
    branches: tuple[Statement | None, ...]


def compile_read(plan: ReadPlan) -> ReadStatements:
    return ReadStatements(
        primary=_primary(plan),
        count=_count(plan),
        branches=tuple(_branches(plan.node)),
    )


def _primary(plan: ReadPlan) -> Statement:
    binds = Binds()
    query = PostgreSQLQuery.from_(table(plan.node.resource, "t0")).select(*_columns(plan.node, "t0"))
    query = _join(query, plan.joins)
    query = _where(query, plan.conditions, binds)
    query = _order(query, plan.order)
    query = _limit(query, plan, binds)
    return Statement(query.get_sql(), binds.slots)


def _count(plan: ReadPlan) -> Statement | None:
    if plan.total in (None, "none"):
        return None
    binds = Binds()
    query = PostgreSQLQuery.from_(table(plan.node.resource, "t0"))
    query = query.select(sql_functions.Count("*") if plan.total == "exact" else 1)
    query = _where(query, plan.conditions, binds)
    explain = "EXPLAIN (FORMAT JSON) " if plan.total == "estimated" else ""
    return Statement(explain + query.get_sql(), binds.slots)


def _branches(node: Node) -> Iterator[Statement | None]:
    for branch in node.branches:
        yield _branch(node.resource, branch)
        yield from _branches(branch.node)


def _branch(parent: Resource, branch: Branch) -> Statement | None:
    """The rows at the other end of a relationship, of all parents at once.

    A key in the parent's row: `SELECT ... FROM "groups" "t0" WHERE "t0"."id"=ANY($1)`
    A key in the target's row: `SELECT ...,"t0"."owner_id" FROM "computers" "t0" WHERE "t0"."owner_id"=ANY($1)
    ORDER BY "t0"."id"` A link table: `SELECT ...,"t1"."post_id" FROM "tags" "t0" JOIN "post_tags" "t1" ON
    "t1"."tag_id"="t0"."id" WHERE "t1"."post_id"=ANY($1) ORDER BY "t0"."id"`
    """
    binds = Binds()
    relationship, target = branch.relationship, branch.node.resource
    rows = table(target, "t0")
    columns = _columns(branch.node, "t0")
    query = PostgreSQLQuery.from_(rows)
    if isinstance(relationship, ToOne) and relationship.is_own_key:
        if not branch.is_included:
            return None
        query = query.select(*columns).where(equals_any(rows.field(target.id.column), binds(KEYS)))
        return Statement(query.get_sql(), binds.slots)
    link = _link(relationship)
    if link is None:
        key = rows.field(relationship.foreign_key)
    else:
        links = link_table(link, "t1")
        key = links.field(link.source)
        query = query.join(links).on(links.field(link.target) == rows.field(target.id.column))
    query = query.select(*columns, key).where(equals_any(key, binds(KEYS)))
    return Statement(query.orderby(rows.field(target.id.column)).get_sql(), binds.slots)


def _link(relationship: Relationship) -> Link | None:
    return relationship.through if isinstance(relationship, ToMany) else None


# tables and columns


def table(resource: Resource, alias: str | None = None) -> Table:
    return Table(resource.table, schema=resource.schema, alias=alias)


def link_table(link: Link, alias: str | None = None) -> Table:
    return Table(link.table, schema=link.schema, alias=alias)


def _column(alias: str, name: str) -> Field:
    """`"t0"."age"`. PyPika writes a field's alias alone, so the table's own name need not be known."""
    return Field(name, table=Table("", alias=alias))


def column_term(alias: str, attribute: Attribute) -> Term:
    """The attribute's column, or its term where it is computed in SQL."""
    if attribute.sql is not None:
        return attribute.sql(lambda name: _column(alias, name))
    return _column(alias, attribute.column_name)


def _columns(node: Node, alias: str) -> Iterator[Term]:
    """id, attributes, keys: the row as `plan.Node` has it."""
    yield _column(alias, node.resource.id.column)
    for attribute in node.attributes:
        term = column_term(alias, attribute)
        yield term if attribute.type.select is None else attribute.type.select(term)
    for key in node.keys:
        yield _column(alias, key)


# clauses


def _join(query: QueryBuilder, steps: tuple[Step, ...]) -> QueryBuilder:
    """To-one steps alone come here: a LEFT JOIN of one never multiplies rows."""
    for step in steps:
        query = query.left_join(table(step.resource, step.alias)).on(_meets(step))
    return query


def _meets(step: Step) -> Criterion:
    return Template("{}={}", _column(step.alias, step.far), _column(step.source, step.near))


def _where(query: QueryBuilder, conditions: tuple[Condition, ...], binds: Binds) -> QueryBuilder:
    for condition in conditions:
        query = query.where(criterion(condition, binds))
    return query


def _order(query: QueryBuilder, keys: tuple[OrderKey, ...]) -> QueryBuilder:
    for key in keys:
        term = operand(key.column)
        query = query.orderby(ordered(term, is_descending=key.is_descending, is_nullable=key.is_nullable))
    return query


def _limit(query: QueryBuilder, plan: ReadPlan, binds: Binds) -> QueryBuilder:
    if plan.limit is not None:
        query = query.limit(binds.request(plan.limit))  # type: ignore[arg-type]  # PyPika's hint is of plain numbers
    if plan.offset is not None:
        query = query.offset(binds.request(plan.offset))  # type: ignore[arg-type]  # as above
    return query


# conditions


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
        case IdIs():
            return _column(condition.alias, condition.column) == binds(PATH)
        case _:
            assert_never(condition)


def operand(column: ColumnRef) -> Term:
    """A column as filters and sorts see it: a type that is unknown to us is its text."""
    term = column_term(column.alias, column.attribute)
    return OPAQUE.select(term) if column.attribute.type is OPAQUE and OPAQUE.select is not None else term


def _test(test: Test, binds: Binds) -> Criterion:
    row, attribute = test.operator, test.left.attribute
    left = _as_text(test.left) if row.is_text else operand(test.left)
    if test.form == "null":
        assert row.on_null is not None
        return row.on_null(left)
    if test.right is not None:
        assert row.on_field is not None
        is_mixed = attribute.type.as_text != test.right.attribute.type.as_text
        if row.is_text or is_mixed:
            return row.on_field(_as_text(test.left), _as_text(test.right))
        return row.on_field(left, operand(test.right))
    column_type = array(attribute.type) if row.arity == "list" and attribute.type.element is None else attribute.type
    bound = column_type.bound if not row.is_text else None
    parameters: list[Term] = [binds.request(slot) for slot in test.slots]
    if bound is not None:
        parameters = [bound(parameter) for parameter in parameters]
    return row.criterion(left, *parameters)


def _as_text(column: ColumnRef) -> Term:
    term = operand(column)
    return sql_functions.Cast(term, "TEXT") if column.attribute.type.as_text else term


def _custom(test: CustomTest, binds: Binds) -> Criterion:
    """A custom operator's criterion; with joins, an EXISTS over the joined tables."""
    operator = test.operator
    found, joins = operator.criterion(test.left.attribute, operand(test.left), binds.request(test.slot), operator.name)
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
            return Template("(" + " AND ".join(["{}"] * len(items)) + ")", *items) if items else Everything()
        case "or":
            return Template("(" + " OR ".join(["{}"] * len(items)) + ")", *items) if items else Nothing()
        case "not":
            return Template("NOT ({})", *items)


def _exists(exists: Exists, binds: Binds) -> Criterion:
    """`EXISTS (SELECT 1 FROM "groups" "t1" WHERE "t1"."id"="t0"."group_id" AND ...)`: of the forms that a
    condition over a relationship can take, the one whose cost does not grow with the table under OR and NOT
    (docs/adr/0004-exists.md)."""
    step = exists.step
    rows = table(step.resource, step.alias)
    query = PostgreSQLQuery.from_(rows).select(1)
    if step.link is None:
        query = query.where(_meets(step))
    else:
        links = link_table(step.link, step.link_alias)
        query = query.join(links).on(links.field(step.link.target) == rows.field(step.far))
        query = query.where(links.field(step.link.source) == _column(step.source, step.near))
    return ExistsCriterion(_where(query, exists.conditions, binds))
