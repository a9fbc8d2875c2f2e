"""WritePlan -> INSERT, UPDATE, DELETE and the statements of links: the text in full."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest

from querybuild.changes import PlannedWrite
from querybuild.modify import WriteStatements, compile_write
from querybuild.plan import Statement
from server.resources import built_in
from tests.planning import create, delete, read_resource, update
from tests.statements import ROW, TOKEN, WRITES, Sent, Write


def sent(statement: Statement | None, write: PlannedWrite) -> Sent | None:
    if statement is None:
        return None
    bound = tuple(ROW if slot.source == "row" else write.values[slot.index] for slot in statement.slots)
    return Sent(statement.sql, bound)


def planned(case: Write) -> PlannedWrite:
    return update(case.type, case.id, case.data) if case.id else create(case.type, case.data)


@pytest.mark.parametrize("case", WRITES, ids=lambda case: f"{case.type} {case.id} {case.data}"[:100])
def test_write(case: Write) -> None:
    write = planned(case)
    statements = compile_write(write.plan)
    assert sent(statements.row, write) == case.row
    assert sent(statements.lock, write) == case.lock
    assert sent(statements.skip_taken, write) == case.skip_taken
    links = [(link.lock, link.detach, link.attach) for link in statements.links]
    assert tuple(tuple(sent(statement, write) for statement in link) for link in links) == case.links


def test_delete() -> None:
    write = delete("node", TOKEN)
    statements = compile_write(write.plan)
    assert sent(statements.row, write) == Sent(
        'DELETE FROM "corner"."nodes" WHERE "id"=$1 RETURNING "nodes"."id"', (UUID(TOKEN),)
    )
    assert statements == WriteStatements(owner=None, lock=None, row=statements.row, skip_taken=None, links=())


def test_a_write_returns_what_its_answer_shows() -> None:
    write = update("author", "1", {"attributes": {"born": 1900}})
    node = read_resource("author", "fields[author]=full-name,born").plan.node
    plan = msgspec.structs.replace(write.plan, returning=node)
    assert sent(compile_write(plan).row, write) == Sent(
        'UPDATE "authors" SET "born"=$1 WHERE "author_no"=$2'
        ' RETURNING "authors"."author_no","authors"."given"||\' \'||"authors"."family","authors"."born"',
        (1900, 1),
    )


def test_a_sequence_that_clients_ran_ahead_of() -> None:
    write = create("person", {"attributes": {"name": "x"}}, built_in())
    statements = compile_write(write.plan)
    assert statements.row is not None
    assert statements.row.sql == (
        'INSERT INTO "persons" ("name") VALUES ($1) ON CONFLICT ("id") DO NOTHING RETURNING "persons"."id"'
    )
    assert statements.skip_taken is not None
    assert statements.skip_taken.sql.startswith("SELECT setval(pg_get_serial_sequence('\"persons\"','id'),(SELECT ")
    assert statements.skip_taken.slots == ()
    chosen = create("person", {"id": "7", "attributes": {"name": "x"}}, built_in())
    assert sent(compile_write(chosen.plan).row, chosen) == Sent(
        'INSERT INTO "persons" ("id","name") VALUES ($1,$2) RETURNING "persons"."id"', (7, "x")
    )
    assert compile_write(chosen.plan).skip_taken is None
