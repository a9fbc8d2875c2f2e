"""The SQL text of writes: INSERT, UPDATE, DELETE and the statements of links."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest

from querybuild.declarations.resource import TableAbilities
from querybuild.planning.changes import PlannedWrite
from querybuild.planning.plan import node_of
from querybuild.planning.row_plan import Rows, Slot
from querybuild.query import LinkMode
from querybuild.sql.statement import Statement
from querybuild.sql.writes.creates import Create, compile_creates
from querybuild.sql.writes.modify import WriteStatements, compile_rows, compile_write, rows_per_insert
from server.resources import built_in
from tests.link_statements import JOINS, LINKS, Join, LinkCase
from tests.planning import create, delete, filter_query, link, read_collection, read_resource, update
from tests.statements import LEAVING, ROW, TOKEN, WRITES, Sent, Write, linkage_of, linked


def sent(statement: Statement | None, write: PlannedWrite) -> Sent | None:
    if statement is None:
        return None
    stand_ins = {"row": ROW, "keys": LEAVING}
    bound = tuple(stand_ins.get(slot.source) or write.values[slot.index] for slot in statement.slots)
    return Sent(statement.sql, bound)


def planned(case: Write) -> PlannedWrite:
    return update(case.type, case.id, case.data) if case.id else create(case.type, case.data)


@pytest.mark.parametrize("case", WRITES, ids=lambda case: f"{case.type} {case.id} {case.data}"[:100])
def test_write(case: Write) -> None:
    write = planned(case)
    statements = compile_write(write.plan)
    assert sent(statements.row, write) == case.row
    assert sent(statements.lock, write) == case.lock
    assert statements.free_ids is None
    links = [(link.lock, link.detach, link.attach) for link in statements.links]
    assert tuple(tuple(sent(statement, write) for statement in link) for link in links) == case.links


@pytest.mark.parametrize("case", LINKS, ids=lambda case: f"{case.mode} {case.type}.{case.relationship} {case.data}")
def test_links(case: LinkCase) -> None:
    write = link(case.type, case.id, case.relationship, case.mode, linkage_of(case.data))
    statements = compile_write(write.plan)
    assert (sent(statements.lock, write), sent(statements.row, write)) == (case.owner_lock, case.row)
    assert (statements.owner, statements.free_ids) == (None, None)
    links = [(one.lock, one.detach, one.attach) for one in statements.links]
    expected = [] if case.row is not None else [(case.lock, case.detach, case.attach)]
    assert [tuple(sent(statement, write) for statement in one) for one in links] == expected


DETACH = 'UPDATE "corner"."articles" SET "editor_id"=null WHERE "editor_id"=$1 AND '
ATTACH = 'UPDATE "corner"."articles" SET "editor_id"=$1 WHERE "id"=ANY($2) AND "editor_id" IS DISTINCT FROM $1'


@pytest.mark.parametrize(
    ("mode", "changes", "done"),
    [
        (
            "replace",
            [f'{DETACH}"id"<>ALL($2)', ATTACH],
            'count(*)=$3 AND count(*) FILTER (WHERE "id"=ANY($2))=$3 FROM "corner"."articles" WHERE "editor_id"=$1',
        ),
        ("add", [ATTACH], 'count(*)=$3 FROM "corner"."articles" WHERE "editor_id"=$1 AND "id"=ANY($2)'),
        (
            "remove",
            [f'{DETACH}"id"=ANY($2)'],
            'count(*)=0 FROM "corner"."articles" WHERE "editor_id"=$1 AND "id"=ANY($2)',
        ),
    ],
)
def test_pipelined_links(mode: LinkMode, changes: list[str], done: str) -> None:
    write = link("author", "1", "edited", mode, linkage_of([("article", "a")]))
    statements = compile_write(write.plan)
    check = (
        f'SELECT $1::int4,1/CASE WHEN EXISTS (SELECT FROM "authors" WHERE "author_no"=$1) AND (SELECT {done})'
        " THEN 1 ELSE 0 END"
    )
    assert statements.lock is not None
    assert statements.links[0].lock is not None
    locks = [statements.lock.sql, statements.links[0].lock.sql]
    assert [one.sql for one in statements.pipelined] == [*locks, *changes, check]


@pytest.mark.parametrize(("name", "target"), [("tags", [("tag", "1")]), ("editor", ("author", "1"))])
def test_other_links_are_not_pipelined(name: str, target: Any) -> None:
    assert compile_write(link("article", "a", name, "replace", linkage_of(target)).plan).pipelined == ()


def test_a_write_of_links_has_one_shape_for_any_number_of_links() -> None:
    few = link("article", "a", "tags", "replace", linkage_of([("tag", "1")]))
    many = link("article", "b", "tags", "replace", linkage_of([("tag", str(number)) for number in range(1, 1001)]))
    assert few.plan == many.plan


@pytest.mark.parametrize("case", JOINS, ids=lambda case: f"{case.owner} {case.data}"[:100])
def test_creates_below_an_owner(case: Join) -> None:
    write = case.planned()
    statements = compile_write(write.plan)
    assert sent(statements.owner, write) == case.owner_lock
    assert (statements.lock, sent(statements.row, write)) == (None, case.row)
    links = [(sent(one.lock, write), one.detach, sent(one.attach, write)) for one in statements.links]
    assert links == ([] if case.attach is None else [(case.lock, None, case.attach)])


def test_delete() -> None:
    write = delete("node", TOKEN)
    statements = compile_write(write.plan)
    assert sent(statements.row, write) == Sent(
        'DELETE FROM "corner"."nodes" WHERE "id"=$1 RETURNING "nodes"."id"', (UUID(TOKEN),)
    )
    there = Statement('SELECT "id" FROM "corner"."nodes" WHERE "id"=$1', statements.row.slots if statements.row else ())
    assert statements == WriteStatements(
        owner=None,
        joined=(),
        lock=None,
        there=there,
        has_rights=False,
        row=statements.row,
        targets=(),
        is_limited=False,
        free_ids=None,
        links=(),
        keeps_row=False,
        is_in_order=False,
        standalone=statements.standalone,
        is_repeatable=True,
    )


ALONE = [
    (
        create("node", {"id": TOKEN, "attributes": {"title": "Twig"}}),
        'WITH "the row" ("c0") AS (INSERT INTO "corner"."nodes" ("id","Mixed Case") VALUES ($1,$2)'
        ' RETURNING "nodes"."id") SELECT "the row".*,1/CASE WHEN "the row"."c0" IS NULL THEN 0 ELSE 1 END'
        ' FROM (VALUES (0)) "all" LEFT JOIN "the row" ON TRUE',
    ),
    (
        update("node", TOKEN, {"attributes": {"title": "Twig"}}),
        'WITH "the row" ("c0") AS (UPDATE "corner"."nodes" SET "Mixed Case"=$1 WHERE "id"=$2 RETURNING "nodes"."id")'
        ' SELECT "the row".*,1/CASE WHEN "the row"."c0" IS NULL'
        ' AND EXISTS (SELECT 1 FROM "corner"."nodes" WHERE "id"=$2) THEN 0 ELSE 1 END'
        ' FROM (VALUES (0)) "all" LEFT JOIN "the row" ON TRUE',
    ),
    (
        delete("node", TOKEN),
        'WITH "the row" ("c0") AS (DELETE FROM "corner"."nodes" WHERE "id"=$1 RETURNING "nodes"."id")'
        ' SELECT "the row".*,1/CASE WHEN "the row"."c0" IS NULL'
        ' AND EXISTS (SELECT 1 FROM "corner"."nodes" WHERE "id"=$1) THEN 0 ELSE 1 END'
        ' FROM (VALUES (0)) "all" LEFT JOIN "the row" ON TRUE',
    ),
]


@pytest.mark.parametrize(("write", "sql"), ALONE, ids=["create", "update", "delete"])
def test_a_write_of_one_statement_fails_if_a_trigger_cancels_it(write: PlannedWrite, sql: str) -> None:
    statements = compile_write(write.plan)
    assert statements.standalone is not None
    assert statements.row is not None
    assert (statements.standalone.sql, statements.standalone.slots) == (sql, statements.row.slots)


@pytest.mark.parametrize("write", [write for write, _ in ALONE], ids=["create", "update", "delete"])
def test_a_write_that_nothing_can_cancel_is_a_plain_statement(write: PlannedWrite) -> None:
    resource = msgspec.structs.replace(write.plan.resource, abilities=TableAbilities(cancels_writes=False))
    statements = compile_write(msgspec.structs.replace(write.plan, rows=Rows(resource, resource.table)))
    assert statements.standalone == statements.row


def test_a_write_of_one_statement_fails_if_a_rule_does_not_allow_it() -> None:
    write = update("node", TOKEN, {"attributes": {"title": "Twig"}})
    readable, writable, right = [
        read_collection("node", filter_query([{"name": name, "op": op, "val": None}])).plan.rows.conditions
        for name, op in (("weight", "isnot"), ("weight", "is_"), ("title", "is_"))
    ]
    rows = msgspec.structs.replace(write.plan.rows, criteria=readable, rights=writable)
    checked = msgspec.structs.replace(write.plan.rows, rights=right)
    statements = compile_write(msgspec.structs.replace(write.plan, rows=rows, checked=checked))
    assert statements.standalone is not None
    is_readable, is_writable, is_right = (
        '"t0"."weight" IS NOT NULL',
        '"t0"."weight" IS NULL',
        '"t0"."Mixed Case" IS NULL',
    )
    assert statements.standalone.sql == (
        'WITH "the row" ("c0","c1") AS (UPDATE "corner"."nodes" SET "Mixed Case"=$1'
        f' WHERE ("id"=$2) AND ({is_readable}) AND ({is_writable}) RETURNING "nodes"."id",(({is_right})) IS TRUE)'
        ' SELECT "the row".*,1/CASE WHEN "the row"."c0" IS NULL'
        f' AND EXISTS (SELECT 1 FROM "corner"."nodes" WHERE ("id"=$2) AND ({is_readable}))'
        ' OR NOT "the row"."c1" THEN 0 ELSE 1'
        ' END FROM (VALUES (0)) "all" LEFT JOIN "the row" ON TRUE'
    )


def test_a_soft_delete_is_not_a_single_statement() -> None:
    write = delete("node", TOKEN)
    soft = msgspec.structs.replace(write.plan.resource, soft_delete=True)
    statements = compile_write(msgspec.structs.replace(write.plan, rows=Rows(soft, soft.table)))
    assert (statements.standalone, statements.is_repeatable, statements.keeps_row) == (None, False, True)


def test_a_write_returns_the_columns_of_its_answer() -> None:
    write = update("author", "1", {"attributes": {"born": 1900}})
    node = read_resource("author", "fields[author]=full-name,born").plan.node
    assert sent(compile_write(write.plan, node).row, write) == Sent(
        'UPDATE "authors" SET "born"=$1 WHERE "author_no"=$2'
        ' RETURNING "authors"."author_no","authors"."given"||\' \'||"authors"."family","authors"."born"',
        (1900, 1),
    )


def test_a_sequence_behind_ids_that_clients_chose() -> None:
    write = create("person", {"attributes": {"name": "x"}}, built_in())
    statements = compile_write(write.plan)
    assert statements.row is not None
    assert statements.row.sql == (
        'INSERT INTO "persons" ("name") VALUES ($1) ON CONFLICT ("id") DO NOTHING RETURNING "persons"."id"'
    )
    assert statements.free_ids is not None
    assert (statements.free_ids.table, statements.free_ids.column) == ('"persons"', "id")
    assert statements.free_ids.insert == Statement(
        'INSERT INTO "persons" ("id","name") VALUES ($1,$2) ON CONFLICT ("id") DO NOTHING RETURNING "persons"."id"',
        (Slot("row"), Slot("request", 0)),
    )
    chosen = create("person", {"id": "7", "attributes": {"name": "x"}}, built_in())
    assert sent(compile_write(chosen.plan).row, chosen) == Sent(
        'INSERT INTO "persons" ("id","name") VALUES ($1,$2) RETURNING "persons"."id"', (7, "x")
    )
    assert compile_write(chosen.plan).free_ids is None


def test_rows_with_the_same_columns_are_one_statement() -> None:
    write = create("person", {"id": "7", "attributes": {"name": "x"}}, built_in())
    rows = "($1,$2),($3,$4),($5,$6)"
    sql = f'INSERT INTO "persons" ("id","name") VALUES {rows} RETURNING "persons"."id"'
    assert (compile_rows(write.plan, 3), rows_per_insert(write.plan)) == (sql, [160, 26, 4, 1])


def test_several_creates_in_one_statement() -> None:
    group = create("group", {"attributes": {"name": "x"}}, built_in())
    node = node_of(group.plan.rows, group.plan.resource.readable_attributes)
    names = {"first_name": "a", "last_name": "b"}
    user = create("user", {"attributes": names, "relationships": linked(group=("group", "1"))}, built_in())
    parts = (Create(group.plan, node, ()), Create(user.plan, None, ((2, 0),)))
    assert compile_creates(parts) == (
        'WITH "o0" ("c0","c1") AS (INSERT INTO "groups" ("name") VALUES ($1)'
        ' RETURNING "groups"."id","groups"."name"),'
        '"o1" ("c0") AS (INSERT INTO "users" ("first_name","last_name","group_id")'
        ' VALUES ($2,$3,(SELECT "c0" FROM "o0")) RETURNING "users"."id")'
        ' SELECT 1/("o0"."c0" IS NOT NULL AND "o1"."c0" IS NOT NULL)::int,"o0".*,"o1".*'
        ' FROM (VALUES (0)) "all" LEFT JOIN "o0" ON TRUE LEFT JOIN "o1" ON TRUE'
    )
