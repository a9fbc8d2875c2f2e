"""Runs planned writes. What comes in: a plan, its values, and the read that answers it. What goes out: a row's
id and what was read; or the answer that a constraint amounts to.

Nothing here writes SQL, and nothing encodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import asyncpg
import msgspec
from asyncpg import exceptions as pg

from querybuild.changes import PlannedWrite, related_not_found
from querybuild.errors import ApiError, AttributeFault, RelatedNotFound, RequiredLink, listed, quoted, raise_all
from querybuild.modify import LinkStatements, WriteStatements
from querybuild.plan import LinkWrite, Statement
from querybuild.resource import Resource, ToOne
from querybuild.rows import Row, nodes
from serializers.encode import shown_value
from server.database import Connection, Database
from server.engine import Engine, PreparedRead
from server.errors import BodyValueRefused, Conflict
from server.execute import REFUSED, ReadResult, arguments, resource_not_found, run_read_at_once, words


async def write_and_read(
    database: Database, write: PlannedWrite, read: PreparedRead, engine: Engine
) -> tuple[Any, ReadResult]:
    """A write and the reading of its answer, in one transaction; in one statement where that can be."""
    plan = write.plan
    if read.compiled.statements.at_once is None and not (plan.links or plan.unchanged):
        plan = msgspec.structs.replace(plan, returning=read.plan.node)
    statements = engine.write_statements(plan)

    async def by_returning(connection: Connection) -> tuple[Any, ReadResult]:
        row = await _write_row(connection, write, statements)
        rows: list[Sequence[Row]] = [[row], *([] for _ in list(nodes(read.plan.node))[1:])]
        return row[0], ReadResult(rows, None, False, False)

    async def one_by_one(connection: Connection) -> tuple[Any, ReadResult]:
        row_id = await run_write(connection, write, statements)
        return row_id, await run_read_at_once(connection, read, row_id, engine)

    with _refusals(write, engine):
        if statements.is_single and plan.returning is not None:
            return await database.write_statement(by_returning)
        return await database.write(one_by_one)


async def write_only(database: Database, write: PlannedWrite, engine: Engine) -> None:
    """A write whose answer shows nothing of it."""
    statements = engine.write_statements(write.plan)
    run = database.write_statement if statements.is_single else database.write
    with _refusals(write, engine):
        await run(lambda connection: run_write(connection, write, statements))


@contextmanager
def _refusals(write: PlannedWrite, engine: Engine) -> Iterator[None]:
    """What the database refuses, as an answer; a fault stays what it is."""
    try:
        yield
    except ApiError:
        raise
    except Exception as error:
        answer = refused_write(error, write, engine)
        if answer is error:
            raise
        raise answer from error


async def run_write(connection: Connection, write: PlannedWrite, statements: WriteStatements) -> Any:
    """Writes the row and its links; gives the row's id.

    Raises ResourceNotFound, RelatedNotFound, RequiredLink, AttributeFault.
    """
    plan = write.plan
    row_id = None if plan.id_slot is None else write.values[plan.id_slot]
    if statements.lock is not None:
        row = await connection.fetchrow(statements.lock.sql, *arguments(statements.lock, write.values))
        if row is None:
            raise resource_not_found(plan.resource.type, str(row_id))
        _check_unchanged(write, row)
    if statements.row is not None:
        row_id = (await _write_row(connection, write, statements))[0]
    for link, link_statements in zip(plan.links, statements.links, strict=True):
        await _write_link(connection, write, link, link_statements, row_id)
    return row_id


async def _write_row(connection: Connection, write: PlannedWrite, statements: WriteStatements) -> asyncpg.Record:
    """The row as the statement returns it, its id first. Raises ResourceNotFound."""
    statement = statements.row
    assert statement is not None
    row = await connection.fetchrow(statement.sql, *arguments(statement, write.values))
    if row is None and statements.skip_taken is not None:
        row = await _insert_past_taken(connection, write, statement, statements.skip_taken)
    if row is None:
        id_slot = write.plan.id_slot
        raise resource_not_found(write.plan.resource.type, "" if id_slot is None else str(write.values[id_slot]))
    return row


async def _insert_past_taken(
    connection: Connection, write: PlannedWrite, insert: Statement, skip_taken: Statement
) -> asyncpg.Record:
    """The sequence offered an id that a client had taken: moves it to the end of what is taken there, and
    inserts again."""
    for _ in range(10):
        await connection.fetchval(skip_taken.sql)
        row = await connection.fetchrow(insert.sql, *arguments(insert, write.values))
        if row is not None:
            return row
    raise RuntimeError("no free id after 10 moves of the sequence")


def _check_unchanged(write: PlannedWrite, row: Row) -> None:
    """Read-only attributes that were sent must have the value that they have. row: the id, and those attributes."""
    raise_all(
        [
            AttributeFault(
                f"{quoted(sent.attribute.name)} is read-only: leave it out, or send the value it has.",
                pointer=str(write.pointers[sent.slot]),
            )
            for sent, value in zip(write.plan.unchanged, row[1:], strict=True)
            if shown_value(sent.attribute, value) != write.values[sent.slot]
        ]
    )


async def _write_link(
    connection: Connection, write: PlannedWrite, link: LinkWrite, statements: LinkStatements, row_id: Any
) -> None:
    wanted: list[Any] = write.values[link.slot]
    pointers = write.pointers[link.slot]

    async def run(statement: Statement) -> list[asyncpg.Record]:
        return await connection.fetch(statement.sql, *arguments(statement, write.values, row_id=row_id))

    rows = await run(statements.lock)
    there = {row[0] for row in rows}
    missing = [
        related_not_found(link.target, str(id_value), pointer)
        for id_value, pointer in zip(wanted, pointers, strict=True)
        if id_value not in there
    ]
    raise_all(missing)
    kept = set(wanted)
    leaving = [row[0] for row in rows if row[1] == row_id and row[0] not in kept]
    if leaving and not link.is_detachable:
        shown = ", ".join(str(id_value) for id_value in leaving[:5])
        detail = f"{link.target.type} {shown} would be left without a required relationship: delete or move first."
        pointer = f"{write.pointer}/relationships/{link.relationship.name}/data"
        raise RequiredLink(detail, pointer=pointer)
    if leaving or link.is_link_table:
        await run(statements.detach)
    if wanted:
        await run(statements.attach)


def refused_write(error: Exception, write: PlannedWrite, engine: Engine) -> Exception:
    """What a constraint or a value's refusal amounts to; any other exception is itself."""
    if isinstance(error, pg.IntegrityConstraintViolationError):
        return _violation(error, write, engine)
    if isinstance(error, REFUSED):
        return BodyValueRefused(f"PostgreSQL refuses a value of the document: {words(error)}.", pointer=write.pointer)
    return error


def _violation(error: asyncpg.PostgresError, write: PlannedWrite, engine: Engine) -> Exception:
    plan = write.plan
    if plan.kind == "delete":
        return Conflict(f"This {plan.resource.type} is still referred to by other resources.")
    key = (error.schema_name or "", error.table_name or "", error.constraint_name or "")
    columns = (error.column_name,) if error.column_name else engine.constraints.get(key, ())
    fields = [field for column in columns if (field := _field(column, error, write))]
    pointer = fields[0][1] if fields else write.pointer
    names = listed(quoted(name) for name, _ in fields) if fields else "The document"
    match error:
        case pg.UniqueViolationError():
            return Conflict(f"Another {plan.resource.type} has this value already: {names}.", pointer=pointer)
        case pg.ForeignKeyViolationError():
            return _missing_related(columns, write, engine) or RelatedNotFound(
                f"The related resource is not there: {names}.", pointer=pointer
            )
        case pg.NotNullViolationError() if pointer == f"{write.pointer}/id":
            return AttributeFault(f"The client chooses the id of a {plan.resource.type}: send one.", pointer=pointer)
        case pg.NotNullViolationError() | pg.CheckViolationError():
            return AttributeFault(f"{names} has a value that the database does not allow.", pointer=pointer)
        case _:
            return Conflict(f"{names} is in conflict with another resource.", pointer=pointer)


def _missing_related(columns: Sequence[str], write: PlannedWrite, engine: Engine) -> RelatedNotFound | None:
    """The to-one whose key the row was given, and what was not there."""
    for relationship in write.plan.resource.relationships:
        if isinstance(relationship, ToOne) and relationship.is_own_key and relationship.column_name in columns:
            for assignment in write.plan.assignments:
                if assignment.column == relationship.column_name:
                    id_text = str(write.values[assignment.slot])
                    pointer = str(write.pointers[assignment.slot])
                    return related_not_found(engine.catalog.target(relationship), id_text, pointer)
    return None


def _field(column: str, error: asyncpg.PostgresError, write: PlannedWrite) -> tuple[str, str] | None:
    """The field of the document that a column holds, and where it stood or would stand."""
    plan = write.plan
    if _is_about(error, plan.resource):
        if column == plan.resource.id.column:
            return "id", f"{write.pointer}/id"
        for assignment in plan.assignments:
            if assignment.column == column:
                pointer = str(write.pointers[assignment.slot])
                return pointer.removesuffix("/data").rpartition("/")[2], pointer
        for attribute in plan.resource.attributes:
            if attribute.is_stored and attribute.column_name == column:
                return attribute.name, f"{write.pointer}/attributes/{attribute.name}"
    for link in plan.links:
        if _is_about(error, link.target) and link.relationship.foreign_key == column:
            return link.relationship.name, f"{write.pointer}/relationships/{link.relationship.name}"
    return None


def _is_about(error: asyncpg.PostgresError, resource: Resource) -> bool:
    return error.table_name == resource.table and resource.schema in (None, error.schema_name)
