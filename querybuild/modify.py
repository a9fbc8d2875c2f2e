"""WritePlan -> INSERT, UPDATE, DELETE and the statements of links. What comes in: a plan. What goes out:
statements, in the order in which they run.

Nothing here knows a value. The row is locked first and then the related rows in the order of their ids, so
that two writes of one relationship leave what one order of the two would leave.
"""

from __future__ import annotations

from typing import Any

import msgspec
from pypika import PostgreSQLQuery, Table
from pypika.terms import Criterion, ExistsCriterion, Function, NullValue, Term

from querybuild.binds import Binds
from querybuild.clauses import columns, link_table, table
from querybuild.plan import LinkWrite, Node, Slot, Statement, WritePlan
from querybuild.resource import Link, Resource, ToMany
from querybuild.terms import Template, equals_any
from querybuild.types import BIGINT, INT

ROW = Slot("row")


class LinkStatements(msgspec.Struct, frozen=True):
    """lock: the related rows, (id, key or null), in the order of their ids. detach: takes the links away that
    are not wanted. attach: makes those that are."""

    lock: Statement
    detach: Statement
    attach: Statement


class WriteStatements(msgspec.Struct, frozen=True):
    """lock: the row itself, before links of it are written; it is absent on create. row: writes it and returns
    its id; absent when nothing of it changes.
    skip_taken: moves the id's sequence past ids that clients have taken.
    """

    lock: Statement | None
    row: Statement | None
    skip_taken: Statement | None
    links: tuple[LinkStatements, ...]

    @property
    def is_single(self) -> bool:
        """Whether the row's statement is the whole write."""
        return self.row is not None and not (self.lock or self.skip_taken or self.links)


def compile_write(plan: WritePlan) -> WriteStatements:
    is_update = plan.kind == "update"
    return WriteStatements(
        lock=_lock_row(plan) if is_update and (plan.links or plan.unchanged or not plan.assignments) else None,
        row=_ROW_STATEMENTS[plan.kind](plan) if not is_update or plan.assignments else None,
        skip_taken=_skip_taken(plan.resource) if _may_meet_taken_ids(plan) else None,
        links=tuple(_link_statements(link) for link in plan.links),
    )


# PyPika types `columns`, `set` and `returning` of these as the Field that a table would have by that name.


def _into(rows: Table) -> Any:
    return PostgreSQLQuery.into(rows)


def _delete_from(rows: Table) -> Any:
    return PostgreSQLQuery.from_(rows).delete()


def _update_of(rows: Table) -> Any:
    return PostgreSQLQuery.update(rows)


def _may_meet_taken_ids(plan: WritePlan) -> bool:
    """Whether a sequence chooses the id, and clients may have taken what it offers."""
    resource = plan.resource
    return plan.kind == "create" and plan.id_slot is None and resource.client_ids and resource.id.type in (BIGINT, INT)


def _insert(plan: WritePlan) -> Statement:
    """`INSERT INTO "groups" ("name") VALUES ($1) RETURNING "groups"."id"`. Where clients choose ids, one that
    the sequence offers may be taken: ON CONFLICT DO NOTHING returns no row then, and the execution asks for
    the next free id."""
    binds = Binds()
    resource = plan.resource
    rows = table(resource)
    columns = [assignment.column for assignment in plan.assignments] or [resource.id.column]
    parameters: list[Term] = [_assigned(plan, index, binds) for index in range(len(plan.assignments))]
    query = _into(rows).columns(*columns).insert(*(parameters or [Template("DEFAULT")]))
    if _may_meet_taken_ids(plan):
        query = query.on_conflict(resource.id.column).do_nothing()
    return Statement(query.get_sql() + _returning(plan), binds.slots)


def _skip_taken(resource: Resource) -> Statement:
    """From the id that was offered to the last of the unbroken run of taken ids that it stands in. One is taken from
    the successor and not added to the id, since the largest id has none.

    `SELECT setval(pg_get_serial_sequence(...),(SELECT "t0"."id" FROM "persons" "t0" WHERE "t0"."id">=currval(...)
    AND NOT EXISTS (SELECT 1 FROM "persons" "t1" WHERE "t1"."id"-1="t0"."id" AND "t1"."id">currval(...))
    ORDER BY "t0"."id" LIMIT 1))`
    """
    taken, following = table(resource, "t0"), table(resource, "t1")
    id_column, successor = taken.field(resource.id.column), following.field(resource.id.column)
    sequence = Function("pg_get_serial_sequence", table(resource).get_sql(quote_char='"'), resource.id.column)
    offered = Function("currval", sequence)
    is_followed = PostgreSQLQuery.from_(following).select(1).where(successor - 1 == id_column)
    is_followed = is_followed.where(successor > offered)
    end = PostgreSQLQuery.from_(taken).select(id_column).where(id_column >= offered)
    end = end.where(ExistsCriterion(is_followed).negate()).orderby(id_column).limit(1)
    return Statement(PostgreSQLQuery.select(Function("setval", sequence, end)).get_sql(), ())


def _update(plan: WritePlan) -> Statement:
    """`UPDATE "groups" SET "name"=$1 WHERE "id"=$2 RETURNING "groups"."id"`"""
    binds = Binds()
    rows = table(plan.resource)
    query = _update_of(rows)
    for index, assignment in enumerate(plan.assignments):
        query = query.set(rows.field(assignment.column), _assigned(plan, index, binds))
    return Statement(query.where(_is_row(plan, binds)).get_sql() + _returning(plan), binds.slots)


def _delete(plan: WritePlan) -> Statement:
    """`DELETE FROM "groups" WHERE "id"=$1 RETURNING "groups"."id"`"""
    binds = Binds()
    rows = table(plan.resource)
    query = _delete_from(rows).where(_is_row(plan, binds))
    return Statement(query.get_sql() + _returning(plan), binds.slots)


_ROW_STATEMENTS = {"create": _insert, "update": _update, "delete": _delete}


def _returning(plan: WritePlan) -> str:
    """` RETURNING "groups"."id"`, or all that the answer shows. PyPika would look for each term's table in the
    query."""
    node = plan.returning or Node(plan.resource, (), (), (), ())
    terms = [term.get_sql(quote_char='"') for term in columns(node, plan.resource.table)]
    return " RETURNING " + ",".join(terms)


def _lock_row(plan: WritePlan) -> Statement:
    """`SELECT "groups"."id" FROM "groups" WHERE "id"=$1 FOR UPDATE`, with the attributes that must be unchanged."""
    binds = Binds()
    node = Node(plan.resource, tuple(sent.attribute for sent in plan.unchanged), (), (), ())
    query = PostgreSQLQuery.from_(table(plan.resource)).select(*columns(node, plan.resource.table))
    return Statement(query.where(_is_row(plan, binds)).for_update().get_sql(), binds.slots)


def _is_row(plan: WritePlan, binds: Binds) -> Criterion:
    assert plan.id_slot is not None
    return table(plan.resource).field(plan.resource.id.column) == binds.request(plan.id_slot)


def _assigned(plan: WritePlan, index: int, binds: Binds) -> Term:
    assignment = plan.assignments[index]
    parameter = binds.request(assignment.slot)
    bound = assignment.attribute.type.bound if assignment.attribute is not None else None
    return parameter if bound is None else bound(parameter)


def _link_statements(link: LinkWrite) -> LinkStatements:
    relationship = link.relationship
    if isinstance(relationship, ToMany) and relationship.through is not None:
        return _through(link, relationship.through)
    return _foreign_key(link, relationship.foreign_key)


def _foreign_key(link: LinkWrite, foreign_key: str) -> LinkStatements:
    """The key lies in the target's rows.

    lock: `SELECT "id","owner_id" FROM "computers" WHERE "id"=ANY($1) OR "owner_id"=$2 ORDER BY "id" FOR UPDATE`
    detach: `UPDATE "computers" SET "owner_id"=null WHERE "owner_id"=$1 AND "id"<>ALL($2)`
    attach: `UPDATE "computers" SET "owner_id"=$1 WHERE "id"=ANY($2) AND "owner_id" IS DISTINCT FROM $1`
    """
    rows = table(link.target)
    id_column, key = rows.field(link.target.id.column), rows.field(foreign_key)
    wanted = Slot("request", link.slot)

    binds = Binds()
    lock = PostgreSQLQuery.from_(rows).select(id_column, key)
    lock = lock.where(Template("{} OR {}={}", equals_any(id_column, binds(wanted)), key, binds(ROW)))
    lock_statement = Statement(lock.orderby(id_column).for_update().get_sql(), binds.slots)

    binds = Binds()
    detach = _update_of(rows).set(key, NullValue()).where(key == binds(ROW))
    detach = detach.where(Template("{}<>ALL({})", id_column, binds(wanted)))
    detach_statement = Statement(detach.get_sql(), binds.slots)

    binds = Binds()
    attach = _update_of(rows).set(key, binds(ROW)).where(equals_any(id_column, binds(wanted)))
    attach = attach.where(Template("{} IS DISTINCT FROM {}", key, binds(ROW)))
    return LinkStatements(lock_statement, detach_statement, Statement(attach.get_sql(), binds.slots))


def _through(link: LinkWrite, through: Link) -> LinkStatements:
    """The key lies in a link table.

    lock: `SELECT "id",null FROM "tags" WHERE "id"=ANY($1) ORDER BY "id" FOR KEY SHARE`
    detach: `DELETE FROM "post_tags" WHERE "post_id"=$1 AND "tag_id"<>ALL($2)`
    attach: `INSERT INTO "post_tags" ("post_id","tag_id") SELECT $1::int8,unnest($2::int8[]) ON CONFLICT DO NOTHING`
    """
    rows, links = table(link.target), link_table(through)
    id_column = rows.field(link.target.id.column)
    wanted = Slot("request", link.slot)

    binds = Binds()
    lock = PostgreSQLQuery.from_(rows).select(id_column, NullValue())
    lock = lock.where(equals_any(id_column, binds(wanted))).orderby(id_column)
    lock_statement = Statement(lock.get_sql() + " FOR KEY SHARE", binds.slots)

    binds = Binds()
    detach = _delete_from(links).where(links.field(through.source) == binds(ROW))
    detach = detach.where(Template("{}<>ALL({})", links.field(through.target), binds(wanted)))
    detach_statement = Statement(detach.get_sql(), binds.slots)

    binds = Binds()
    source = Template("{}::" + _sql_type(link.resource), binds(ROW))
    targets = Function("unnest", Template("{}::" + _sql_type(link.target) + "[]", binds(wanted)))
    attach = _into(links).columns(through.source, through.target).select(source, targets)
    attach_sql = attach.get_sql() + " ON CONFLICT DO NOTHING"
    return LinkStatements(lock_statement, detach_statement, Statement(attach_sql, binds.slots))


def _sql_type(resource: Resource) -> str:
    return resource.id.type.sql_names[0]
