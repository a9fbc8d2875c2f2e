"""ReadPlan -> SELECT statements. What comes in: a plan. What goes out: statements, their clauses in the order in
which SQL is read.

Nothing here can fail for a request's sake, and nothing knows a value. For a list of users with a filter on
`group.name`, sorted by `-age`:

    SELECT "t0"."id","t0"."first_name",... FROM "users" "t0"
    WHERE EXISTS (SELECT 1 FROM "groups" "t1" WHERE "t1"."id"="t0"."group_id" AND "t1"."name"=$1)
    ORDER BY "t0"."age" DESC NULLS LAST,"t0"."id" DESC LIMIT $2
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from pypika import PostgreSQLQuery
from pypika import functions as sql_functions
from pypika.queries import QueryBuilder
from pypika.terms import Term

from querybuild.binds import Binds
from querybuild.clauses import (
    PATH,
    column,
    columns,
    cursor_columns,
    follows,
    join,
    link_table,
    order,
    order_terms,
    scope_criterion,
    table,
    where,
)
from querybuild.plan import Branch, Node, ReadPlan, Slot, Statement
from querybuild.resource import link_of, own_key_of
from querybuild.rows import needs_rows
from querybuild.terms import Template, equals_any

KEYS = Slot("keys")


class ReadStatements(msgspec.Struct, frozen=True):
    """primary, and the count where the plan wants one. branches: of the whole tree in pre-order; None where a
    branch's linkage needs no rows. parent: whether the resource is there that the rows are related to. at_once: primary
    and branches as one statement, for a read that has no snapshot of its own; None where it would have one part.
    locked: the one row of a to-one, kept from being written by others; None of other reads.
    """

    primary: Statement
    count: Statement | None
    branches: tuple[Statement | None, ...]
    parent: Statement | None
    at_once: Statement | None
    locked: Statement | None

    def all(self) -> Iterator[Statement]:
        for statement in (self.primary, self.count, self.parent, self.at_once, *self.branches):
            if statement is not None:
                yield statement


def compile_read(plan: ReadPlan) -> ReadStatements:
    primary = _primary(plan)
    return ReadStatements(
        primary=primary,
        count=_count(plan),
        branches=tuple(_branches(plan.node)),
        parent=_parent(plan),
        at_once=_at_once(plan) if plan.answers_writes and any(map(needs_rows, plan.node.branches)) else None,
        locked=Statement(f"{primary.sql} FOR UPDATE", primary.slots) if plan.is_to_one_linkage else None,
    )


def _primary(plan: ReadPlan) -> Statement:
    """`SELECT ...,(SELECT COUNT(*) FROM "users" "t0" WHERE ...) FROM "users" "t0" WHERE ...`: the exact total
    rides along as the last column, which saves a round trip and the transaction that two statements would need."""
    binds = Binds()
    query = _with_total(_page(plan, binds).select(*_primary_columns(plan)), plan, binds)
    query = join(query, plan.joins)
    query = order(query, plan.order)
    query = _limit(query, plan, binds)
    return Statement(query.get_sql(), binds.slots)


def _primary_columns(plan: ReadPlan) -> list[Term]:
    return [*columns(plan.node, "t0"), *cursor_columns(plan.cursor_keys)]


def _with_total(query: QueryBuilder, plan: ReadPlan, binds: Binds) -> QueryBuilder:
    if plan.total != "exact":
        return query
    return query.select(Template("{}", _matching(plan, binds).select(sql_functions.Count("*"))))


def _count(plan: ReadPlan) -> Statement | None:
    """`SELECT COUNT(*) FROM "users" "t0" WHERE ...`, for a page without rows, which cannot carry the total; an estimate
    is the planner's, of the rows themselves."""
    if plan.total in (None, "none"):
        return None
    binds = Binds()
    query = _matching(plan, binds).select(sql_functions.Count("*") if plan.total == "exact" else 1)
    explain = "EXPLAIN (FORMAT JSON) " if plan.total == "estimated" else ""
    return Statement(explain + query.get_sql(), binds.slots)


def _parent(plan: ReadPlan) -> Statement | None:
    """`SELECT 1 FROM "users" "t0" WHERE "t0"."id"=$1`"""
    if plan.scope is None:
        return None
    binds = Binds()
    parent = plan.scope.parent
    query = PostgreSQLQuery.from_(table(parent, "t0")).select(1)
    return Statement(query.where(column("t0", parent.id.column) == binds(PATH)).get_sql(), binds.slots)


def _matching(plan: ReadPlan, binds: Binds) -> QueryBuilder:
    """FROM and WHERE of the primary rows."""
    query = PostgreSQLQuery.from_(table(plan.node.resource, "t0"))
    if plan.scope is not None:
        query = query.where(scope_criterion(plan.scope, "t0", binds))
    return where(query, plan.conditions, binds)


def _page(plan: ReadPlan, binds: Binds) -> QueryBuilder:
    """FROM and WHERE of the rows of the page, which a cursor may have begin somewhere."""
    query = _matching(plan, binds)
    return query if plan.place is None else query.where(follows(plan.place, binds))


def _limit(query: QueryBuilder, plan: ReadPlan, binds: Binds, *, is_page: bool = False) -> QueryBuilder:
    """is_page: without the row more that tells whether there is another page."""
    if plan.limit is not None:
        # PyPika's hint is of plain numbers.
        limit: Any = binds.request(plan.limit)
        limit = Template("{}-1", limit) if is_page and plan.reads_one_more else limit
        query = query.limit(limit)
    if plan.offset is not None:
        query = query.offset(binds.request(plan.offset))  # type: ignore[arg-type]  # as above
    return query


def _branches(node: Node) -> Iterator[Statement | None]:
    for branch in node.branches:
        yield _branch(branch)
        yield from _branches(branch.node)


def _branch(branch: Branch) -> Statement | None:
    """The rows at the other end of a relationship, of all parents at once.

    A key in the parent's row:
    `SELECT ... FROM "groups" "t0" WHERE "t0"."id"=ANY($1) ORDER BY "t0"."id"`
    A key in the target's row:
    `SELECT ...,"t0"."owner_id" FROM "computers" "t0" WHERE "t0"."owner_id"=ANY($1) ORDER BY "t0"."id"`
    A link table:
    `SELECT ...,"t1"."post_id" FROM "tags" "t0" JOIN "post_tags" "t1" ON "t1"."tag_id"="t0"."id"
    WHERE "t1"."post_id"=ANY($1) ORDER BY "t0"."id"`
    """
    if not needs_rows(branch):
        return None
    binds = Binds()
    query = _related(branch, binds(KEYS)).select(*_branch_columns(branch))
    return Statement(query.orderby(_id_of(branch.node)).get_sql(), binds.slots)


def _related(branch: Branch, keys: Term) -> QueryBuilder:
    """FROM and WHERE of the rows of a branch; keys is an array, a parameter or a subquery."""
    node = branch.node
    query = PostgreSQLQuery.from_(table(node.resource, "t0"))
    link = link_of(branch.relationship)
    if link is not None:
        meets = Template("{}={}", column("t1", link.target), _id_of(node))
        query = query.join(link_table(link, "t1")).on(meets)
    return query.where(equals_any(_far_key(branch), keys))


def _branch_columns(branch: Branch) -> list[Term]:
    own = list(columns(branch.node, "t0"))
    return own if branch.relationship.is_own_key else [*own, _far_key(branch)]


def _far_key(branch: Branch) -> Term:
    """The column that meets the parents' keys."""
    link = link_of(branch.relationship)
    if link is not None:
        return column("t1", link.source)
    return _id_of(branch.node) if branch.relationship.is_own_key else column("t0", branch.relationship.foreign_key)


def _near_key(node: Node, branch: Branch) -> Term:
    """The parents' own column for a branch."""
    own = own_key_of(branch.relationship)
    return _id_of(node) if own is None else column("t0", own.column_name)


def _id_of(node: Node) -> Term:
    return column("t0", node.resource.id.column)


def _at_once(plan: ReadPlan) -> Statement:
    """All rows of the answer to a write in one statement, and so in one snapshot, whatever the isolation: of one
    resource, or of a page of linkage, which is in the order of the ids.

    Each part numbers its rows; a row of the result belongs to the part whose number is not null:

        SELECT * FROM (SELECT row_number() OVER (ORDER BY "t0"."id") "n0",... FROM "users" "t0" WHERE "t0"."id"=$1) "p0"
        FULL JOIN (SELECT row_number() OVER (ORDER BY "t0"."id") "n1",... FROM "computers" "t0" WHERE
        "t0"."owner_id"=ANY(ARRAY(SELECT "t0"."id" FROM "users" "t0" WHERE "t0"."id"=$1))) "p1" ON FALSE
        ORDER BY "n0","n1"
    """
    binds = Binds()
    primary = _page(plan, binds)
    number = _numbered(order_terms(plan.order) or [_id_of(plan.node)], 0)
    shown = _with_total(primary.select(number, *_primary_columns(plan)), plan, binds)
    parts = [_limit(order(shown, plan.order), plan, binds)]
    _add_parts(plan.node, _limit(order(primary, plan.order), plan, binds, is_page=True), parts)
    sql = f'({parts[0].get_sql()}) "p0"'
    for index, part in enumerate(parts[1:], 1):
        sql += f' FULL JOIN ({part.get_sql()}) "p{index}" ON FALSE'
    numbers = ",".join(f'"n{index}"' for index in range(len(parts)))
    return Statement(f"SELECT * FROM {sql} ORDER BY {numbers}", binds.slots)


def _add_parts(node: Node, rows: QueryBuilder, parts: list[QueryBuilder]) -> None:
    """The parts below the rows of a node, in pre-order; a branch that needs no rows has none."""
    for branch in node.branches:
        if not needs_rows(branch):
            continue
        keys = Template("ARRAY{}", rows.select(_near_key(node, branch)))
        related = _related(branch, keys)
        parts.append(related.select(_numbered([_id_of(branch.node)], len(parts)), *_branch_columns(branch)))
        _add_parts(branch.node, related, parts)


def _numbered(order_by: list[Term], part: int) -> Term:
    listed = ",".join(["{}"] * len(order_by))
    return Template(f"row_number() OVER (ORDER BY {listed})", *order_by).as_(f"n{part}")
