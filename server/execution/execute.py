"""Runs prepared reads on a connection. What comes in: statements, values, a connection inside its transaction. What
goes out: rows by node and a total; or the answer that the database's word amounts to.

Nothing here writes SQL, and nothing encodes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import msgspec

from querybuild.cursors import OF_THIS_LIST, encode_cursor
from querybuild.errors import PageError, listed, quoted, resource_not_found
from querybuild.filters import field_filters, placed
from querybuild.operators import all_names
from querybuild.parse import parse
from querybuild.plan import Branch, Node, ReadPlan, Statement
from querybuild.query import Context, FieldFilter, Limits
from querybuild.resource import Resource, link_of
from querybuild.rows import (
    Row,
    branch_keys,
    joined_rows,
    joined_width,
    nodes,
    part_width,
    parted,
    row_width,
    with_computed,
)
from serializers.errors import AnswerTooLarge
from serializers.steps import SHORT_ROWS
from server.engine import Engine, PreparedRead, ReadShape
from server.errors import TooManyIncluded, TooManyRows, ValueRefused
from server.execution.arguments import Arguments
from server.execution.pacing import run_steps
from server.postgres.connection import Connection
from server.postgres.database import Database
from server.postgres.driver_errors import INTERNAL, OUT_OF_RANGE, REFUSED, describe_refusal
from server.postgres.rules import is_rule

ONLY_FILTERS = frozenset({"filter"})

FIRST_INCLUDED = 5000
"""How many included rows an answer without pages may have that is sent as a whole. One with more is streamed."""


class ReadResult(msgspec.Struct, frozen=True):
    """rows: of each node in pre-order. total: None where it was not asked for. has_more: whether rows follow
    this page; without pages there are then none here, and all of them are to be streamed. received_bytes: how much
    PostgreSQL sent for them."""

    rows: list[Sequence[Row]]
    total: int | None
    is_estimated: bool
    has_more: bool
    received_bytes: int = 0


_ALL = ReadResult([], None, False, True)
"""Too much to be sent as a whole."""


async def execute_read(database: Database, read: PreparedRead, sent: Arguments, engine: Engine) -> ReadResult:
    """A read in one snapshot: that of its one statement, or of a transaction where it turns out to need more.

    Raises PageError, ValueRefused, TooManyIncluded, TooManyRows, AnswerTooLarge, ResourceNotFound.
    """
    if read.cursor_parent is not None:
        _check_cursor(read, sent)
    result, is_first, timeout_seconds = None, read.is_unpaginated, engine.timeout_of(read)
    try:
        if read.plan.is_single_statement:
            result = await database.read(
                lambda connection: run_read(connection, read, sent, engine, is_snapshot=False, is_first=is_first),
                is_snapshot=False,
                timeout_seconds=timeout_seconds,
            )
        if result is None:
            result = await database.read(
                lambda connection: run_read(connection, read, sent, engine, is_first=is_first),
                is_snapshot=True,
                timeout_seconds=timeout_seconds,
            )
    except AnswerTooLarge:
        if not is_first:
            raise
        return _ALL
    assert result is not None
    return result


async def run_read(
    connection: Connection,
    read: PreparedRead,
    sent: Arguments,
    engine: Engine,
    *,
    is_snapshot: bool = True,
    is_first: bool = False,
) -> ReadResult | None:
    """All statements of a read. Without a snapshot only the first one may run: None when that does not tell all.
    is_first: of a read without pages the first rows, which may be all of them. Raises as above."""
    plan, page = read.plan, read.page
    with connection.limit_received(engine.settings.max_answer_bytes) as meter:
        try:
            primary, united = await _primary(connection, read, sent, engine, is_first=is_first)
            if read.ready.unenforced_keys:
                _check_ids(read, None, primary)
            rows, has_more = _page(primary, read, engine)
            if is_first and len(rows) == plan.first_rows:
                return _ALL
            if not rows and not is_snapshot and (plan.scope is not None or page.offset or plan.rows.place is not None):
                return None
            total = await _total(connection, read, sent, rows, has_more)
        except (*REFUSED, *INTERNAL) as error:
            raise_refusal(error, read, engine.limits)
        if not rows and plan.scope is not None:
            await _check_parent(connection, read, sent)
        found: list[Sequence[Row]] = [rows]
        if plan.node.branches or plan.includes_primary:
            most = min(engine.limits.max_included, FIRST_INCLUDED if is_first else sys.maxsize)
            try:
                await _read_branches(connection, read, sent, found, united, most)
            except TooManyIncluded:
                if is_first:
                    return _ALL
                raise
        return _result(read, found, total, has_more, meter.received_bytes)


async def _primary(
    connection: Connection, read: PreparedRead, sent: Arguments, engine: Engine, *, is_first: bool
) -> tuple[Sequence[Row], Sequence[Row]]:
    """The primary rows, and those of the branch that comes with them."""
    statements, branch = read.ready.statements, read.plan.united
    statement = statements.first if is_first else statements.primary
    values = sent.of(statement)
    if branch is None:
        return await connection.fetch(statement.sql, *values), ()
    # Enough to tell that there are too many, whichever of them the page shows already.
    most_primary = read.page.size + 1
    times = most_primary if link_of(branch.relationship) is not None else 1
    most = most_primary + (engine.limits.max_included + most_primary) * times + 1
    return parted(read.plan, await connection.fetch_at_most(statement.sql, values, most if branch.is_included else 0))


async def run_read_at_once(connection: Connection, read: PreparedRead, sent: Arguments, engine: Engine) -> ReadResult:
    """The answer to a write, inside a transaction that is no snapshot: all its rows in one statement.

    Raises PageError, TooManyIncluded, AnswerTooLarge.
    """
    _check_cursor(read, sent)
    statement = read.ready.statements.at_once
    if statement is None:
        result = await run_read(connection, read, sent, engine)
        assert result is not None
        return result
    with connection.limit_received(engine.settings.max_answer_bytes) as meter:
        found = _parts(read.plan, await connection.fetch(statement.sql, *sent.of(statement)))
        found[0], has_more = _page(found[0], read, engine)
        total = await _total(connection, read, sent, found[0], has_more)
    included = _included(read, found[0], engine.limits.max_included)
    for (_, branch), rows in zip(nodes(read.plan.node), found, strict=True):
        if branch is not None:
            included.add(branch, rows)
    return _result(read, found, total, has_more, meter.received_bytes)


def _parts(plan: ReadPlan, rows: Sequence[Row]) -> list[Sequence[Row]]:
    """The rows of each node, of the one statement that has all: each part is led by a number that others have null."""
    found: list[Sequence[Row]] = []
    begin = 0
    for node, branch in nodes(plan.node):
        part: list[Row] = []
        if branch is None or branch.needs_rows:
            end = begin + part_width(plan, node, branch)
            part = [row[begin + 1 : end] for row in rows if row[begin] is not None]
            begin = end
        found.append(part)
    return found


def _included(read: PreparedRead, primary: Sequence[Row], most: int) -> _Included:
    """Linkage that includes what it identifies shows its primary rows in `included` as well."""
    return _Included(read.plan.node, primary, most - (len(primary) if read.plan.includes_primary else 0))


def _result(
    read: PreparedRead, found: list[Sequence[Row]], total: int | None, has_more: bool, received_bytes: int
) -> ReadResult:
    page, is_estimated = read.page, total is not None and read.plan.total == "estimated"
    if total is not None and not is_estimated and not read.plan.has_cursors:
        has_more = 0 < page.size < total - page.offset
    return ReadResult(_computed(read, found), total, is_estimated, has_more, received_bytes)


async def read_rows(
    connection: Connection, resource: Resource, ids: Sequence[Any], engine: Engine, context: Context
) -> dict[Any, Row]:
    """Return the rows with these ids, each with its id and its readable attributes, read in one batch."""
    read = engine.prepare_read(ReadShape("resource", resource), "", context)
    statement = read.ready.statements.primary
    values = [Arguments(context=context.values, path=one).of(statement) for one in ids]
    rows = await connection.fetch_batch(statement.sql, values, engine.settings.max_answer_bytes)
    return {row[0]: row for row in rows}


def result_of(read: PreparedRead, rows: list[Sequence[Row]]) -> ReadResult:
    """A document of one resource. rows: of each node in pre-order."""
    return ReadResult(_computed(read, rows), None, False, False)


async def check_size(read: PreparedRead, result: ReadResult, engine: Engine) -> None:
    """An answer that is too large undoes the write that it answers. It is encoded for that only where it may be: of a
    byte come six at most, and of what Python computes any number. Raises AnswerTooLarge."""
    most_bytes = engine.settings.max_answer_bytes
    is_small = 6 * result.received_bytes < most_bytes and engine.has_room_for_rows
    if not is_small or read.ready.has_computed:
        document = read.ready.encoder.document(result.rows, {}, None, result.received_bytes, most_bytes)
        if not isinstance(document, bytes):
            await run_steps(document)


def _computed(read: PreparedRead, rows: list[Sequence[Row]]) -> list[Sequence[Row]]:
    if read.ready.unenforced_keys:
        for (_, branch), those in zip(nodes(read.plan.node), rows, strict=True):
            _check_ids(read, branch, those)
    if not read.ready.has_computed:
        return rows
    return [with_computed(node, those) for (node, _), those in zip(nodes(read.plan.node), rows, strict=True)]


class AmbiguousIds(RuntimeError):
    """Rows that no document can hold: no constraint says that there is one of each."""


def ambiguous_ids(read: PreparedRead, id_value: object) -> AmbiguousIds:
    names = listed(map(quoted, read.ready.unenforced_keys))
    what = "a row has no id" if id_value is None else f"there is another row beside that with the id {id_value}"
    return AmbiguousIds(f"{what} where {names} is read: `waterspout check` tells which declaration it is")


def _check_ids(read: PreparedRead, branch: Branch | None, rows: Sequence[Row]) -> None:
    """Raises AmbiguousIds. branch: how the rows were reached; those of a link table come once a parent."""
    place = 0
    if branch is None:
        if not read.plan.is_collection and len(rows) > 1:
            raise ambiguous_ids(read, rows[0][0])
    elif not branch.relationship.is_own_key:
        position = branch.node.position_of_parent
        if not branch.relationship.is_to_many and len({row[position] for row in rows}) < len(rows):
            raise ambiguous_ids(read, rows[0][0])
        place = position if link_of(branch.relationship) is not None else 0
    seen: set[tuple[Any, Any]] = set()
    for row in rows:
        if row[0] is None or (row[0], row[place]) in seen:
            raise ambiguous_ids(read, row[0])
        seen.add((row[0], row[place]))


def _check_cursor(read: PreparedRead, sent: Arguments) -> None:
    """Raises PageError for a cursor of another parent's list. The query string alone does not tell whose it is."""
    if read.cursor_parent is not None and read.cursor_parent != ("" if read.plan.scope is None else str(sent.path)):
        page = read.page
        raise PageError(f"Expected {OF_THIS_LIST}, not {quoted(page.cursor)}.", parameter=page.cursor_parameter)


def cursors(read: PreparedRead, result: ReadResult, parent: str) -> tuple[str, str]:
    """Of the first and the last row of the page; "" where it has none. parent: the id of the path."""
    parent = "" if read.plan.scope is None else parent
    begin = row_width(read.plan.node, None)
    end = begin + len(read.plan.cursor_keys)
    rows = result.rows[0]
    ends = (rows[0], rows[-1]) if rows else ()
    first, last = [encode_cursor(read.cursor_mark, row[begin:end], parent) for row in ends] or ("", "")
    return first, last


def raise_refusal(error: Exception, read: PreparedRead, limits: Limits) -> NoReturn:
    """What PostgreSQL refuses of a read's values as an answer; the error itself where a client sent none that can be
    the reason: then an expression of the declarations fails for some row, or a function of its raises it."""
    if is_rule(error):
        raise error
    for node in field_filters(parse(read.pairs, ONLY_FILTERS, limits, []).filter):
        if _is_suspect(node, error):
            detail = placed(node.source, f"PostgreSQL refuses a value of the filter: {describe_refusal(error)}.")
            raise ValueRefused(detail, parameter=node.source.parameter) from error
    if read.plan.rows.place is not None and isinstance(error, REFUSED) and _state(error) not in _SUSPECTS:
        detail = f"PostgreSQL refuses the cursor: {describe_refusal(error)}."
        raise ValueRefused(detail, parameter=read.page.cursor_parameter) from error
    raise error


def _is_suspect(node: FieldFilter, error: Exception) -> bool:
    """Whether PostgreSQL may mean that filter: it tells the kind of fault and not its place."""
    if isinstance(error, INTERNAL):
        return node.op == "match"
    state = _state(error)
    if node.op not in all_names():
        return True
    if state == OUT_OF_RANGE:
        # Of a value it is told before; to compare two columns, one may have to become of the other's type.
        return node.field is not None
    return node.op in _SUSPECTS.get(state, (node.op,))


def _state(error: Exception) -> str:
    """SQLSTATE; empty where the driver itself refuses."""
    return getattr(error, "sqlstate", None) or ""


_SUSPECTS: dict[str, frozenset[str]] = {
    "2201B": frozenset({"match"}),
    # Of arithmetic, parts of texts, subscripts, and LIKE patterns that end in a backslash, which are in none.
    **dict.fromkeys(("22012", "2201E", "2201F", "2201G", "22011", "2202E", "22025"), frozenset()),
}
"""The operators that can be the reason, by SQLSTATE; of any other one all can."""


async def _check_parent(connection: Connection, read: PreparedRead, sent: Arguments) -> None:
    """Nothing related: because there is nothing, or because the resource of the path is not there."""
    statement, scope = read.ready.statements.parent, read.plan.scope
    assert statement is not None
    assert scope is not None
    if await connection.fetchval(statement.sql, *sent.of(statement)) is None:
        raise resource_not_found(scope.parent.type, str(sent.path))


def _page(rows: Sequence[Row], read: PreparedRead, engine: Engine) -> tuple[Sequence[Row], bool]:
    """The page's rows, and whether a row more was there than the page holds."""
    size = read.page.size
    if not read.plan.is_collection:
        return rows, False
    most = engine.limits.unpaginated
    if size == 0 and isinstance(most, int) and len(rows) > most:
        raise too_many_rows(read, most)
    page, has_more = (rows[:size], True) if 0 < size < len(rows) else (rows, False)
    return page[::-1] if read.page.is_before else page, has_more


def too_many_rows(read: PreparedRead, most: int) -> TooManyRows:
    detail = f"There are more than {most} resources: ask for pages."
    return TooManyRows(detail, parameter="page[size]" if read.page.family == "number" else "page[limit]")


def too_many_included() -> TooManyIncluded:
    detail = "The answer would include too many resources: ask for a smaller page or include less."
    return TooManyIncluded(detail, parameter="include")


async def _total(
    connection: Connection, read: PreparedRead, sent: Arguments, rows: Sequence[Row], has_more: bool
) -> int | None:
    """How many match. Rows carry an exact total, and a page that is not full tells it; else there is a
    statement for it."""
    plan, page = read.plan, read.page
    if not plan.is_collection or page.total == "none":
        return None
    if rows and plan.total == "exact":
        return int(rows[0][-1])
    seen = page.offset + len(rows)
    is_last = page.size == 0 or (len(rows) < page.size and (rows or not page.offset))
    if is_last and plan.rows.place is None:
        return seen
    statement = read.ready.statements.count
    assert statement is not None
    found = await connection.fetchval(statement.sql, *sent.of(statement))
    if plan.total == "exact":
        return int(found)
    estimate = int(json.loads(found)[0]["Plan"]["Plan Rows"])
    return max(estimate, seen + has_more if rows else 0)


class _Included:
    """How many resources a document may still include. One that it shows already does not count again."""

    def __init__(self, root: Node, rows: Sequence[Row], most: int) -> None:
        self._room = most
        self._check_room()
        self._seen: dict[Resource, list[Sequence[Row]]] = {root.resource: [rows]}

    def most_rows(self, branch: Branch, key_count: int) -> int:
        """Rows that a branch may have before it must be too many; 0 for any number, where it includes none."""
        if not branch.is_included:
            return 0
        known = sum(len(rows) for rows in self._seen.get(branch.node.resource, ()))
        times = key_count if link_of(branch.relationship) is not None else 1
        return (self._room + known) * times + 1

    def add(self, branch: Branch, rows: Sequence[Row]) -> None:
        """Raises TooManyIncluded."""
        if not branch.is_included:
            return
        seen = self._seen.setdefault(branch.node.resource, [])
        if seen or link_of(branch.relationship) is not None:
            known = {row[0] for earlier in seen for row in earlier}
            self._room -= len({row[0] for row in rows} - known)
        else:
            self._room -= len(rows)
        seen.append(rows)
        self._check_room()

    def _check_room(self) -> None:
        if self._room < 0:
            raise too_many_included()


async def _read_branches(
    connection: Connection,
    read: PreparedRead,
    sent: Arguments,
    found: list[Sequence[Row]],
    united: Sequence[Row],
    most: int,
) -> None:
    """Adds to the primary rows those of each node below. most: resources that may be included.

    Raises TooManyIncluded."""
    plan, rows = read.plan, found[0]
    included, statements = _included(read, rows, most), iter(read.ready.statements.branches)
    begin = row_width(plan.node, None) + len(plan.cursor_keys)
    await _branches(connection, plan.node, rows, begin, statements, found, included, sent, united)


async def _branches(
    connection: Connection,
    node: Node,
    rows: Sequence[Row],
    begin: int,
    statements: Iterator[Statement | None],
    found: list[Sequence[Row]],
    included: _Included,
    sent: Arguments,
    united: Sequence[Row] = (),
) -> None:
    """Reads what hangs below the rows of a node, in pre-order. begin: of the columns of what is joined to them.
    united: the rows of the branch that came with them."""
    for branch in node.branches:
        statement = next(statements)
        keys = branch_keys(node, branch, rows) if statement is not None else []
        children: Sequence[Row] = []
        if branch.is_united:
            children = united
        elif branch.is_joined:
            children = joined_rows(rows, begin, branch.node)
            begin += joined_width(branch.node)
        elif statement is not None and keys:
            most = included.most_rows(branch, len(keys))
            children = await connection.fetch_at_most(statement.sql, sent.of(statement, keys=keys), most)
        if len(children) > SHORT_ROWS:
            # Each look at all of them takes milliseconds.
            await asyncio.sleep(0)
        included.add(branch, children)
        found.append(children)
        if len(children) > SHORT_ROWS:
            await asyncio.sleep(0)
        below = row_width(branch.node, branch)
        await _branches(connection, branch.node, children, below, statements, found, included, sent)
