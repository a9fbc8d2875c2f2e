"""Runs prepared reads and planned writes on a connection. What comes in: statements, values, a connection
inside its transaction. What goes out: rows by node, a total, a row's id; or the answer that the database's
word amounts to.

Nothing here writes SQL, and nothing encodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import asyncpg
import msgspec
from asyncpg import exceptions as pg

from querybuild.changes import PlannedWrite, related_not_found
from querybuild.errors import AttributeFault, RelatedNotFound, RequiredLink, listed, quoted, raise_all
from querybuild.filters import field_filters
from querybuild.modify import LinkStatements
from querybuild.plan import LinkWrite, Node, Statement, Values
from querybuild.query import FilterNode, Source
from querybuild.rows import Row, branch_keys, needs_rows, nodes, row_width
from server.database import Connection
from server.engine import Engine, PreparedRead, ReadShape
from server.errors import (
    BodyValueRefused,
    Conflict,
    ResourceNotFound,
    TooManyIncluded,
    TooManyRows,
    ValueRefused,
)

_REFUSED = (pg.DataError, pg.ProgramLimitExceededError, pg._base.DataError)
"""SQLSTATE classes 22 and 54, and what asyncpg refuses before it is sent."""


class ReadResult(msgspec.Struct, frozen=True):
    """rows: of each node in pre-order. total: None where it was not asked for. has_more: whether rows follow
    this page."""

    rows: list[Sequence[Row]]
    total: int | None
    is_estimated: bool
    has_more: bool


async def run_read(connection: Connection, read: PreparedRead, path_id: Any, engine: Engine) -> ReadResult:
    """All statements of a read; the caller's transaction makes them one snapshot.

    Raises ValueRefused, TooManyIncluded, TooManyRows.
    """
    statements, plan = read.compiled.statements, read.plan
    try:
        primary: Sequence[Row] = await connection.fetch(
            statements.primary.sql, *_arguments(statements.primary, read.values, path_id)
        )
        rows, has_more = _page(primary, read, engine)
        total, is_estimated = await _total(connection, read, path_id, len(rows), has_more)
    except _REFUSED as error:
        raise _refused_value(error, read.query.filter) from error
    if total is not None and not is_estimated:
        has_more = read.query.page.size > 0 and read.query.page.offset + len(rows) < total and bool(rows)
    if not rows and plan.scope is not None:
        await _check_parent(connection, read, path_id)
    found: list[Sequence[Row]] = [rows]
    await _branches(connection, plan.node, rows, iter(statements.branches), found, engine.limits.max_included)
    return ReadResult(found, total, is_estimated, has_more)


async def run_read_at_once(connection: Connection, read: PreparedRead, path_id: Any, engine: Engine) -> ReadResult:
    """A read of one resource inside a transaction that is no snapshot: all its rows in one statement.

    Raises TooManyIncluded.
    """
    statement = read.compiled.statements.at_once
    if statement is None:
        return await run_read(connection, read, path_id, engine)
    arguments = _arguments(statement, read.values, path_id)
    limit = engine.limits.max_included + 2
    rows: Sequence[Row] = await connection.fetch_at_most(statement.sql, arguments, limit)
    if len(rows) == limit:
        raise _too_many_included()
    found: list[Sequence[Row]] = []
    begin = 0
    for node, branch in nodes(read.plan.node):
        parts: list[Row] = []
        if branch is None or needs_rows(branch):
            width = row_width(node, branch)
            parts = [row[begin + 1 : begin + 1 + width] for row in rows if row[begin] is not None]
            begin += 1 + width
        found.append(parts)
    return ReadResult(found, None, False, False)


def _refused_value(error: Exception, filters: tuple[FilterNode, ...]) -> ValueRefused:
    """Points to the filter that PostgreSQL most likely meant: it tells the kind of fault and not its place."""
    suspects = _SUSPECTS.get(getattr(error, "sqlstate", None) or "", frozenset())
    found = list(field_filters(filters))
    sources = [node.source for node in found if node.op in suspects] or [node.source for node in found]
    source = sources[0] if sources else Source("filter")
    place = f"{source.path}: " if source.path else ""
    detail = f"{place}PostgreSQL refuses a value of the filter: {_words(error)}."
    return ValueRefused(detail, parameter=source.parameter)


_SUSPECTS = {"2201B": frozenset({"match"}), "22025": frozenset({"like", "ilike", "notlike", "notilike"})}


async def _check_parent(connection: Connection, read: PreparedRead, path_id: Any) -> None:
    """Nothing related: because there is nothing, or because the resource of the path is not there."""
    statement, scope = read.compiled.statements.parent, read.plan.scope
    assert statement is not None
    assert scope is not None
    if await connection.fetchval(statement.sql, path_id) is None:
        raise resource_not_found(scope.parent.type, str(path_id))


def _arguments(
    statement: Statement, values: Values, path_id: Any = None, keys: Any = None, row_id: Any = None
) -> list[Any]:
    """The values of $1, $2, ... by where each comes from."""
    sources = {"path": path_id, "keys": keys, "row": row_id}
    return [values[slot.index] if slot.source == "request" else sources[slot.source] for slot in statement.slots]


def _page(rows: Sequence[Row], read: PreparedRead, engine: Engine) -> tuple[Sequence[Row], bool]:
    """The page's rows, and whether a row more was there than the page holds."""
    size = read.query.page.size
    if not read.plan.is_collection:
        return rows, False
    most = engine.limits.unpaginated
    if size == 0 and isinstance(most, int) and len(rows) > most:
        detail = f"There are more than {most} resources: ask for pages."
        raise TooManyRows(detail, parameter="page[size]")
    return (rows[:size], True) if 0 < size < len(rows) else (rows, False)


async def _total(
    connection: Connection, read: PreparedRead, path_id: Any, count: int, has_more: bool
) -> tuple[int | None, bool]:
    """How many match, and whether that is an estimate. A page that is not full tells the total itself."""
    plan, page = read.plan, read.query.page
    if not plan.is_collection or plan.total == "none":
        return None, False
    is_estimated = plan.total == "estimated"
    seen = page.offset + count
    if page.size == 0 or (count < page.size and (count or not page.offset)):
        return seen, is_estimated
    statement = read.compiled.statements.count
    assert statement is not None
    found = await connection.fetchval(statement.sql, *_arguments(statement, read.values, path_id))
    if not is_estimated:
        return int(found), False
    estimate = int(json.loads(found)[0]["Plan"]["Plan Rows"])
    return max(estimate, seen + has_more if count else 0), True


async def _branches(
    connection: Connection,
    node: Node,
    rows: Sequence[Row],
    statements: Iterator[Statement | None],
    found: list[Sequence[Row]],
    room: int,
) -> int:
    """Reads what hangs below the rows of a node, in pre-order; gives back how many more resources may be included."""
    for branch in node.branches:
        statement = next(statements)
        keys = branch_keys(node, branch, rows) if statement is not None else []
        children: Sequence[Row] = []
        if statement is not None and keys:
            limit = room + 1 if branch.is_included else 0
            children = await connection.fetch_at_most(statement.sql, _arguments(statement, (), keys=keys), limit)
        if branch.is_included:
            room -= len(children)
            if room < 0:
                raise _too_many_included()
        found.append(children)
        room = await _branches(connection, branch.node, children, statements, found, room)
    return room


def _too_many_included() -> TooManyIncluded:
    detail = "The answer would include too many resources: ask for a smaller page or include less."
    return TooManyIncluded(detail, parameter="include")


async def run_write(connection: Connection, write: PlannedWrite, engine: Engine) -> Any:
    """Writes the row and its links; gives the row's id.

    Raises ResourceNotFound, RelatedNotFound, RequiredLink, AttributeFault.
    """
    plan, statements = write.plan, engine.write_statements(write.plan)
    row_id = None if plan.id_slot is None else write.values[plan.id_slot]
    for statement in (statements.lock, statements.row):
        if statement is statements.row and plan.unchanged:
            await _check_unchanged(connection, write, row_id, engine)
        if statement is None:
            continue
        found = await connection.fetchval(statement.sql, *_arguments(statement, write.values, row_id=row_id))
        if found is None and statements.skip_taken is not None:
            found = await _insert_past_taken(connection, write, statement, statements.skip_taken)
        if found is None:
            raise resource_not_found(plan.resource.type, str(row_id))
        row_id = found
    for link, link_statements in zip(plan.links, statements.links, strict=True):
        await _write_link(connection, write, link, link_statements, row_id)
    return row_id


def resource_not_found(type_name: str, id_text: str) -> ResourceNotFound:
    return ResourceNotFound(f"There is no {type_name} with the id {quoted(id_text)}.")


async def _insert_past_taken(
    connection: Connection, write: PlannedWrite, insert: Statement, skip_taken: Statement
) -> Any:
    """The sequence offered an id that a client had taken: moves it to the end of what is taken there, and
    inserts again."""
    for _ in range(10):
        await connection.fetchval(skip_taken.sql)
        found = await connection.fetchval(insert.sql, *_arguments(insert, write.values))
        if found is not None:
            return found
    raise RuntimeError("no free id after 10 moves of the sequence")


async def _check_unchanged(connection: Connection, write: PlannedWrite, row_id: Any, engine: Engine) -> None:
    """Read-only attributes that were sent must have the value that they have."""
    read = engine.prepare_read(ReadShape("resource", write.plan.resource), "")
    result = await run_read(connection, read, row_id, engine)
    if not result.rows[0]:
        raise resource_not_found(write.plan.resource.type, str(row_id))
    current = json.loads(read.compiled.encoder.encode(result.rows, {}), parse_float=Decimal)["data"]["attributes"]
    errors = [
        AttributeFault(
            f"{quoted(sent.column)} is read-only: leave it out, or send the value it has.",
            pointer=str(write.pointers[sent.slot]),
        )
        for sent in write.plan.unchanged
        if current[sent.column] != write.values[sent.slot]
    ]
    raise_all(errors)


async def _write_link(
    connection: Connection, write: PlannedWrite, link: LinkWrite, statements: LinkStatements, row_id: Any
) -> None:
    wanted: list[Any] = write.values[link.slot]
    pointers = write.pointers[link.slot]

    def arguments(statement: Statement) -> list[Any]:
        return _arguments(statement, write.values, row_id=row_id)

    rows = await connection.fetch(statements.lock.sql, *arguments(statements.lock))
    there = {row[0] for row in rows}
    missing = [
        related_not_found(link.target, str(id_value), pointer)
        for id_value, pointer in zip(wanted, pointers, strict=True)
        if id_value not in there
    ]
    raise_all(missing)
    leaving = [row[0] for row in rows if row[1] == row_id and row[0] not in set(wanted)]
    if leaving and not link.is_detachable:
        shown = ", ".join(str(id_value) for id_value in leaving[:5])
        detail = f"{link.target.type} {shown} would be left without a required relationship: delete or move first."
        pointer = f"/data/relationships/{link.relationship.name}/data"
        raise RequiredLink(detail, pointer=pointer)
    if leaving or link.is_link_table:
        await connection.execute(statements.detach.sql, *arguments(statements.detach))
    if wanted:
        await connection.execute(statements.attach.sql, *arguments(statements.attach))


def refused_write(error: Exception, write: PlannedWrite, engine: Engine) -> Exception:
    """What a constraint or a value's refusal amounts to; any other exception is itself."""
    if isinstance(error, pg.IntegrityConstraintViolationError):
        return _violation(error, write, engine)
    if isinstance(error, _REFUSED):
        return BodyValueRefused(f"PostgreSQL refuses a value of the document: {_words(error)}.", pointer="/data")
    return error


def _words(error: Exception) -> str:
    """What kind of refusal it was, without the database's own text, which names its parts."""
    return _REFUSALS.get(getattr(error, "sqlstate", None) or "", "it is out of range or not of the right form")


_REFUSALS = {
    "22003": "a number is out of range",
    "22008": "a date or time is out of range",
    "22001": "a text is too long",
    "2201B": "a regular expression is not valid",
    "22025": "a LIKE pattern must not end with a backslash",
    "22P05": "a character cannot be stored",
    "54000": "it is too complex",
}


def _violation(error: asyncpg.PostgresError, write: PlannedWrite, engine: Engine) -> Exception:
    plan = write.plan
    if plan.kind == "delete":
        return Conflict(f"This {plan.resource.type} is still referred to by other resources.")
    key = (error.schema_name or "", error.table_name or "", error.constraint_name or "")
    constraint = engine.constraints.get(key)
    columns = (error.column_name,) if error.column_name else constraint.columns if constraint else ()
    fields = [field for column in columns if (field := _field(column, error.table_name, write))]
    pointer = fields[0][1] if fields else "/data"
    names = listed(quoted(name) for name, _ in fields) if fields else "The document"
    match error:
        case pg.UniqueViolationError():
            return Conflict(f"Another {plan.resource.type} has this value already: {names}.", pointer=pointer)
        case pg.ForeignKeyViolationError():
            return RelatedNotFound(f"The related resource is not there: {names}.", pointer=pointer)
        case pg.NotNullViolationError() | pg.CheckViolationError():
            return AttributeFault(f"{names} has a value that the database does not allow.", pointer=pointer)
        case _:
            return Conflict(f"{names} is in conflict with another resource.", pointer=pointer)


def _field(column: str, table: str | None, write: PlannedWrite) -> tuple[str, str] | None:
    """The field of the document that a column holds, and where it stood or would stand."""
    plan = write.plan
    if table == plan.resource.table:
        for assignment in plan.assignments:
            if assignment.column == column:
                pointer = str(write.pointers[assignment.slot])
                return pointer.removesuffix("/data").rpartition("/")[2], pointer
        for attribute in plan.resource.attributes:
            if attribute.is_stored and attribute.column_name == column:
                return attribute.name, f"/data/attributes/{attribute.name}"
    for link in plan.links:
        if link.target.table == table and link.relationship.foreign_key == column:
            return link.relationship.name, f"/data/relationships/{link.relationship.name}"
    return None
