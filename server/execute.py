"""Runs prepared reads and planned writes on a connection. What comes in: statements, values, a connection
inside its transaction. What goes out: rows by node, a total, a row's id; or the answer that the database's
word amounts to.

Nothing here writes SQL, and nothing encodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from asyncpg import exceptions as pg

from querybuild.errors import quoted
from querybuild.filters import field_filters
from querybuild.plan import Node, Statement, Values
from querybuild.query import FilterNode, Source
from querybuild.rows import Row, branch_keys, needs_rows, nodes, row_width
from server.database import Connection
from server.engine import Engine, PreparedRead
from server.errors import (
    ResourceNotFound,
    TooManyIncluded,
    TooManyRows,
    ValueRefused,
)

REFUSED = (pg.DataError, pg.ProgramLimitExceededError, pg._base.DataError)
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
            statements.primary.sql, *arguments(statements.primary, read.values, path_id)
        )
        rows, has_more = _page(primary, read, engine)
        total, is_estimated = await _total(connection, read, path_id, len(rows), has_more)
    except REFUSED as error:
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
    bound = arguments(statement, read.values, path_id)
    limit = engine.limits.max_included + 2
    rows: Sequence[Row] = await connection.fetch_at_most(statement.sql, bound, limit)
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
    detail = f"{place}PostgreSQL refuses a value of the filter: {words(error)}."
    return ValueRefused(detail, parameter=source.parameter)


_SUSPECTS = {"2201B": frozenset({"match"}), "22025": frozenset({"like", "ilike", "notlike", "notilike"})}


async def _check_parent(connection: Connection, read: PreparedRead, path_id: Any) -> None:
    """Nothing related: because there is nothing, or because the resource of the path is not there."""
    statement, scope = read.compiled.statements.parent, read.plan.scope
    assert statement is not None
    assert scope is not None
    if await connection.fetchval(statement.sql, path_id) is None:
        raise resource_not_found(scope.parent.type, str(path_id))


def arguments(
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
    found = await connection.fetchval(statement.sql, *arguments(statement, read.values, path_id))
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
            children = await connection.fetch_at_most(statement.sql, arguments(statement, (), keys=keys), limit)
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


def resource_not_found(type_name: str, id_text: str) -> ResourceNotFound:
    return ResourceNotFound(f"There is no {type_name} with the id {quoted(id_text)}.")


def words(error: Exception) -> str:
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
