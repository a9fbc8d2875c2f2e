"""Runs prepared reads on a connection. What comes in: statements, values, and a connection inside its transaction. What
goes out: the rows of each node and a total. If PostgreSQL refuses a value, the error says which parameter it is.

It must not know: SQL text, documents.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

import msgspec

from querybuild.cursors import OF_THIS_LIST, encode_cursor
from querybuild.declarations.resource import Attribute, Resource, link_of
from querybuild.errors import PageError, listed, quoted, raise_as, resource_not_found
from querybuild.planning.context import Context
from querybuild.planning.plan import Branch, ReadPlan
from querybuild.planning.rows import (
    Row,
    nodes,
    part_width,
    row_width,
    split_rows,
    with_computed,
)
from querybuild.query import CAPPED_TOTAL
from serializers.errors import AnswerTooLarge
from serializers.json_api import JSON_API
from server.engine import Engine
from server.errors import AmbiguousIds, TooManyIncluded, TooManyRows
from server.execution.arguments import Arguments
from server.execution.included import IncludedCount, read_branches
from server.execution.pacing import run_steps
from server.execution.read_refusals import impossible_value, raise_refusal
from server.postgres.connection import PostgresConnection
from server.postgres.database import Database
from server.postgres.driver_errors import OF_ROWS, OF_VALUES, is_of_rows
from server.postgres.time_limits import timed
from server.preparing.reads import PreparedRead, ReadShape

log = logging.getLogger("server")

FIRST_INCLUDED = 5000
"""How many included rows a list without pages may have that is not streamed."""


class ReadResult(msgspec.Struct, frozen=True):
    """The rows of a read.

    rows: for each node, in pre-order.
    total: None if it was not requested. is_estimated: whether the total is PostgreSQL's estimate. is_capped: whether
        there are more.
    has_more: whether there are rows after this page.
    received_bytes: how much PostgreSQL sent.
    linkage_version: that of all links, if the rows do not tell it.
    """

    rows: list[Sequence[Row]]
    total: int | None
    is_estimated: bool
    has_more: bool
    received_bytes: int = 0
    linkage_version: str | None = None
    is_capped: bool = False

    @property
    def count(self) -> int:
        """How many rows there are in all nodes."""
        return sum(map(len, self.rows))


async def execute_read(
    database: Database, read: PreparedRead, sent: Arguments, engine: Engine, seconds: float | None = None
) -> ReadResult:
    """Execute a read in one snapshot. A transaction is only used if the read needs more than one statement. seconds:
    how long it may take, None for the usual limit.

    Raises PageError, ValueRefused, ImpossibleValue, TooManyIncluded, TooManyRows, AnswerTooLarge, ResourceNotFound.
    """
    if read.planned.cursor_parent is not None:
        _check_cursor(read, sent)
    result, timeout_seconds = None, engine.reads.timeout_of(read) if seconds is None else seconds
    try:
        if read.ready.is_single_statement:
            result = await database.read(
                lambda connection: run_read(connection, read, sent, engine, is_snapshot=False),
                is_snapshot=False,
                timeout_seconds=timeout_seconds,
            )
        if result is None:
            result = await database.read(
                lambda connection: run_read(connection, read, sent, engine),
                is_snapshot=True,
                timeout_seconds=timeout_seconds,
            )
    except OF_ROWS as error:
        raise_impossible(error, read)
    assert result is not None
    return result


async def execute_short(database: Database, read: PreparedRead, sent: Arguments, engine: Engine) -> ReadResult | None:
    """Execute the read of a list without pages. None: there are too many rows for a whole document. Raises like
    `execute_read`."""
    try:
        result = await database.read(lambda connection: read_first(connection, read, sent, engine), is_snapshot=True)
    except AnswerTooLarge:
        return None
    except OF_ROWS as error:
        raise_impossible(error, read)
    return result if isinstance(result, ReadResult) else None


async def run_read(
    connection: PostgresConnection,
    read: PreparedRead,
    sent: Arguments,
    engine: Engine,
    *,
    is_snapshot: bool = True,
) -> ReadResult | None:
    """Run the statements of a read. is_snapshot: False if only one statement may run. Then the result is None if this
    is not enough. Raises like `execute_read`."""
    plan, page = read.plan, read.page
    with connection.limit_received(engine.settings.max_answer_bytes) as meter:
        try:
            primary, united = await _primary(connection, read, sent, engine)
            if read.ready.unenforced_keys:
                check_ids(read, None, primary)
            rows, has_more = _page(primary, read, engine)
            if not rows and not is_snapshot and (plan.scope is not None or page.offset or plan.rows.keyset is not None):
                return None
            total = await _total(connection, read, sent, rows, has_more)
            if not rows and plan.rows.keyset is not None and plan.rows.keyset.needs_row:
                detail = "The row of this cursor is not there any more, or is the last one: begin again."
                raise PageError(detail, parameter=page.cursor_parameter)
        except OF_VALUES as error:
            raise_refusal(error, read, sent.path)
        if plan.scope is not None and (not rows or plan.rows.grouping is not None):
            await check_parent(connection, read, sent)
        parts: list[Sequence[Row]] = [rows]
        if plan.node.branches or plan.includes_primary:
            parts = await read_branches(connection, read, sent, rows, united, engine.limits.max_included)
        return _result(read, parts, total, has_more, meter.received_bytes)


async def read_first(
    connection: PostgresConnection, read: PreparedRead, sent: Arguments, engine: Engine
) -> ReadResult | Sequence[Row]:
    """Read a list without pages in its snapshot, if it is short. Otherwise return its first rows. Raises like
    `execute_read`; AnswerTooLarge: the rows are few, but large."""
    seconds = engine.reads.timeout_of(read)
    first = partial(_read_first, read=read, sent=sent, engine=engine)
    return await (first if seconds is None else timed(first, seconds))(connection)


async def _read_first(
    connection: PostgresConnection, read: PreparedRead, sent: Arguments, engine: Engine
) -> ReadResult | Sequence[Row]:
    statement = read.ready.statements.first
    # One received byte becomes at most six bytes of the document.
    with connection.limit_received(engine.settings.max_answer_bytes // 6) as meter:
        try:
            rows = await connection.fetch(statement.sql, *sent.of(statement))
            if len(rows) == read.plan.first_rows:
                return rows
            _page(rows, read, engine)
        except OF_VALUES as error:
            raise_refusal(error, read, sent.path)
        if not rows and read.plan.scope is not None:
            await check_parent(connection, read, sent)
        limit = min(engine.limits.max_included, FIRST_INCLUDED)
        try:
            parts = await read_branches(connection, read, sent, rows, (), limit)
        except TooManyIncluded:
            return rows
        total = None if read.page.total == "none" else len(rows)
        return _result(read, parts, total, has_more=False, received_bytes=meter.received_bytes)


async def _primary(
    connection: PostgresConnection, read: PreparedRead, sent: Arguments, engine: Engine
) -> tuple[Sequence[Row], Sequence[Row]]:
    """Return the primary rows, and those of the branch that the same statement reads."""
    statement, branch = read.ready.statements.primary, read.plan.united
    values = sent.of(statement)
    if branch is None:
        return await connection.fetch(statement.sql, *values), ()
    # With one row more there are too many included resources, even if some of them are primary resources. Rows of a
    # link table are repeated for each primary row.
    max_primary = read.page.size + 1
    repeats = max_primary if link_of(branch.relationship) is not None else 1
    limit = max_primary + (engine.limits.max_included + max_primary) * repeats + 1
    if branch.size is not None:
        # For each primary row a row is read that is not shown.
        limit += max_primary
    return split_rows(
        read.plan, await connection.fetch_at_most(statement.sql, values, limit if branch.is_included else 0)
    )


async def run_combined_read(
    connection: PostgresConnection, read: PreparedRead, sent: Arguments, engine: Engine
) -> ReadResult:
    """Read the answer to a write in one statement, because its transaction has no snapshot.

    Raises PageError, TooManyIncluded, AnswerTooLarge.
    """
    _check_cursor(read, sent)
    statement = read.ready.statements.combined
    if statement is None:
        result = await run_read(connection, read, sent, engine)
        assert result is not None
        return result
    with connection.limit_received(engine.settings.max_answer_bytes) as meter:
        parts = _parts(read.plan, await connection.fetch(statement.sql, *sent.of(statement)))
        parts[0], has_more = _page(parts[0], read, engine)
        total = await _total(connection, read, sent, parts[0], has_more)
    included = IncludedCount(read, parts[0], engine.limits.max_included)
    for (_, branch), rows in zip(nodes(read.plan.node), parts, strict=True):
        if branch is not None:
            included.add(branch, rows)
    return _result(read, parts, total, has_more, meter.received_bytes)


def _parts(plan: ReadPlan, rows: Sequence[Row]) -> list[Sequence[Row]]:
    """Split the rows of a statement that reads a whole document into the rows of each node. The first column of each
    part is a number. It is null in the rows of other parts."""
    parts: list[Sequence[Row]] = []
    begin = 0
    for node, branch in nodes(plan.node):
        part: list[Row] = []
        if branch is None or branch.fetch != "row":
            end = begin + part_width(plan, node, branch)
            part = [row[begin + 1 : end] for row in rows if row[begin] is not None]
            begin = end
        parts.append(part)
    return parts


def _result(
    read: PreparedRead, parts: list[Sequence[Row]], total: int | None, has_more: bool, received_bytes: int
) -> ReadResult:
    page, is_estimated = read.page, total is not None and read.plan.total == "estimated"
    is_capped = read.plan.total == "capped" and total is not None and total > CAPPED_TOTAL
    if total is not None and read.plan.total == "exact" and not read.plan.has_cursors:
        has_more = 0 < page.size < total - page.offset
    shown = CAPPED_TOTAL if is_capped else total
    return ReadResult(_computed(read, parts), shown, is_estimated, has_more, received_bytes, is_capped=is_capped)


async def read_rows(
    connection: PostgresConnection, resource: Resource, ids: Sequence[Any], engine: Engine, context: Context
) -> dict[Any, Row]:
    """Return the rows with these ids, each with its id and its readable attributes, read in one batch."""
    read = engine.reads.prepare(ReadShape("resource", resource), "", context)
    statement = read.ready.statements.primary
    values = [Arguments(context=context.values, path=row_id).of(statement) for row_id in ids]
    rows = await connection.fetch_batch(statement.sql, values, engine.settings.max_answer_bytes)
    return {row[0]: row for row in rows}


def result_of(read: PreparedRead, rows: list[Sequence[Row]]) -> ReadResult:
    """Return the result for a document of one resource. rows: for each node, in pre-order."""
    return ReadResult(_computed(read, rows), None, False, False)


async def check_size(read: PreparedRead, result: ReadResult, engine: Engine) -> None:
    """Check the size of the answer to a write before the commit. Raises AnswerTooLarge, and the write is rolled back.

    The answer is only encoded if it may be too large. One received byte becomes at most six bytes. Values computed in
    Python may have any size."""
    max_bytes = engine.settings.max_answer_bytes
    is_small = 6 * result.received_bytes < max_bytes and engine.has_room_for_rows
    if not is_small or read.ready.has_computed:
        document = read.ready.encoders.of(JSON_API).document(result.rows, {}, None, result.received_bytes, max_bytes)
        if not isinstance(document, bytes):
            await run_steps(document)


def _computed(read: PreparedRead, rows: list[Sequence[Row]]) -> list[Sequence[Row]]:
    if read.ready.unenforced_keys:
        for (_, branch), node_rows in zip(nodes(read.plan.node), rows, strict=True):
            check_ids(read, branch, node_rows)
    if not read.ready.has_computed:
        return rows
    return [with_computed(node, node_rows) for (node, _), node_rows in zip(nodes(read.plan.node), rows, strict=True)]


def raise_impossible(error: Exception, read: PreparedRead) -> NoReturn:
    """Raise ImpossibleValue if stored rows can be the reason for an error of a read that no value of the request
    caused. Otherwise raise the error itself. The read of a called function raises it, too: an argument may be the
    reason (`call_answer`)."""
    if read.plan.is_called or not is_of_rows(error):
        raise error
    shown = [node for node, _ in nodes(read.plan.node)]
    types = dict.fromkeys(node.resource.type for node in shown)
    computed = dict.fromkeys(
        attribute.name for node in shown for attribute in node.read if may_be_computed(attribute, node.resource)
    )
    raise_as(impossible_value(error, listed(map(quoted, types)), tuple(computed)), error)


def may_be_computed(attribute: Attribute, resource: Resource) -> bool:
    """Return whether PostgreSQL may compute a value when it reads a row: by an expression of the declaration, as a
    generated column, or as a column of a view."""
    is_fixed = not (attribute.creatable or attribute.updatable)
    return attribute.sql is not None or is_fixed or resource.abilities.is_view


def ambiguous_ids(read: PreparedRead, id_value: object) -> AmbiguousIds:
    """Return the error for an id that is not unique or is null, and log which declaration it is."""
    names = listed(map(quoted, read.ready.unenforced_keys))
    what = "A row has no id" if id_value is None else f"Several rows have the id {id_value}"
    log.warning("%s where %s is read: `waterspout check` tells which declaration it is", what, names)
    advice = "Exclude such rows by a filter. Whoever runs the server finds them by `waterspout check`."
    return AmbiguousIds(f"{what} where {names} is read. {advice}")


def check_ids(read: PreparedRead, branch: Branch | None, rows: Sequence[Row]) -> None:
    """Check that ids are unique. branch: the branch of the rows. With a link table, a row may occur once for each
    parent. Raises AmbiguousIds."""
    parent_position = 0
    if branch is None:
        if not read.plan.is_collection and len(rows) > 1:
            raise ambiguous_ids(read, rows[0][0])
    elif not branch.relationship.is_own_key:
        position = branch.node.position_of_parent
        if not branch.relationship.is_to_many and len({row[position] for row in rows}) < len(rows):
            raise ambiguous_ids(read, rows[0][0])
        parent_position = position if link_of(branch.relationship) is not None else 0
    seen: set[tuple[Any, Any]] = set()
    for row in rows:
        if row[0] is None or (row[0], row[parent_position]) in seen:
            raise ambiguous_ids(read, row[0])
        seen.add((row[0], row[parent_position]))


def _check_cursor(read: PreparedRead, sent: Arguments) -> None:
    """Check that the cursor was created for the parent that the path names. The planner does not know the path. Raises
    PageError."""
    if read.planned.cursor_parent is not None and read.planned.cursor_parent != (
        str(sent.path) if _has_parent(read) else ""
    ):
        page = read.page
        raise PageError(f"Expected {OF_THIS_LIST}, not {quoted(page.cursor)}.", parameter=page.cursor_parameter)


def _has_parent(read: PreparedRead) -> bool:
    """Return whether cursors belong to a resource of the path, or to the arguments of a function."""
    return read.plan.scope is not None or read.plan.is_called


def cursors(read: PreparedRead, result: ReadResult, parent: str) -> tuple[str, str]:
    """Return the cursors of the first and the last row of the page, "" for an empty page. parent: the id in the
    path."""
    parent = parent if _has_parent(read) else ""
    begin = row_width(read.plan.node, None)
    end = begin + len(read.plan.cursor_keys)
    rows = result.rows[0]
    ends = (rows[0], rows[-1]) if rows else ()
    ids = read.plan.cursor_ids
    first, last = [encode_cursor(read.planned.cursor_mark, row[begin:end], parent, ids) for row in ends] or ("", "")
    return first, last


async def check_parent(connection: PostgresConnection, read: PreparedRead, sent: Arguments) -> None:
    """Check that the resource that the path names exists, if there are no related rows. Raises ResourceNotFound."""
    statement, scope = read.ready.statements.parent, read.plan.scope
    assert statement is not None
    assert scope is not None
    if await connection.fetchval(statement.sql, *sent.of(statement)) is None:
        raise resource_not_found(scope.parent.type, str(sent.path))


def _page(rows: Sequence[Row], read: PreparedRead, engine: Engine) -> tuple[Sequence[Row], bool]:
    """Return the rows of the page, and whether there was one row more."""
    size = read.page.size
    if not read.plan.is_collection:
        return rows, False
    limit = engine.limits.unpaginated
    if size == 0 and isinstance(limit, int) and len(rows) > limit:
        raise too_many_rows(read, limit)
    page, has_more = (rows[:size], True) if 0 < size < len(rows) else (rows, False)
    if has_more and read.page.is_all:
        raise too_many_rows(read, size)
    return page[::-1] if read.page.is_before else page, has_more


def too_many_rows(read: PreparedRead, limit: int) -> TooManyRows:
    """Return the error for a list without pages that is too long."""
    what = "groups" if read.plan.data == "groups" else "resources"
    detail = f"There are more than {limit} {what}: ask for pages."
    return TooManyRows(detail, parameter="page[size]" if read.page.family == "number" else "page[limit]")


async def _total(
    connection: PostgresConnection, read: PreparedRead, sent: Arguments, rows: Sequence[Row], has_more: bool
) -> int | None:
    """Return the total. It is in the rows if it is counted, or follows from a page that is not full. Otherwise a
    statement counts or estimates it."""
    plan, page = read.plan, read.page
    if not plan.is_collection or page.total == "none":
        return None
    if rows and plan.counts:
        return int(rows[0][-1])
    seen = page.offset + len(rows)
    is_last = page.size == 0 or (len(rows) < page.size and (rows or not page.offset))
    if is_last and plan.rows.keyset is None:
        return seen
    statement = read.ready.statements.count
    assert statement is not None
    total = await connection.fetchval(statement.sql, *sent.of(statement))
    if plan.counts:
        return int(total)
    estimate = int(json.loads(total)[0]["Plan"]["Plan Rows"])
    return max(estimate, seen + has_more if rows else 0)
