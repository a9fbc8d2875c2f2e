"""Runs a read in a transaction that is rolled back, and asks PostgreSQL how it executes each statement.

What comes in: a read, and a connection that nothing else uses. What goes out: each statement that the server would
send, with its values, PostgreSQL's plan, and the tables that it reads as a whole.

Without running it, the values of some statements are not known, such as the ids of the rows that an earlier one would
find. PostgreSQL then makes the plan for all values, as it does for a prepared statement.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import asyncpg
import msgspec
from asyncpg.connection import LoggedQuery

from querybuild.errors import ApiError, raise_as, release_frames, resource_not_found
from querybuild.planning.rows import nodes
from server.engine import Engine
from server.execution.execute import execute_read, execute_short
from server.explaining.requested import RequestedRead
from server.postgres.connection import PostgresConnection, Work
from server.postgres.database import Database
from server.postgres.driver_errors import in_one_line, translate
from server.postgres.pooler import SESSION, milliseconds
from server.postgres.row_security.roles import SET_ROLE, RequestRole, translate_refusals
from server.postgres.rules import raise_rule

Result = TypeVar("Result")

_LATER = frozenset({"returned", "keys", "row", "max_rows"})
"""The sources of values that only an earlier statement finds."""


class Scan(msgspec.Struct, frozen=True):
    """What a plan says of one table. has_condition: whether its rows are found by a condition on an index. Otherwise
    PostgreSQL reads all of them, or all up to a limit."""

    table: str
    has_condition: bool


class ExplainedStatement(msgspec.Struct, frozen=True):
    """A statement of a read. plan: the lines of EXPLAIN. tree: the same from EXPLAIN (FORMAT JSON). scans: the tables
    that it reads. expressions: the conditions and the sort keys in the plan, as PostgreSQL writes them."""

    name: str
    sql: str
    values: Sequence[Any]
    plan: tuple[str, ...]
    tree: Any = None
    scans: tuple[Scan, ...] = ()
    expressions: tuple[str, ...] = ()


class _Sent(msgspec.Struct, frozen=True):
    """A statement that was sent. error: that of PostgreSQL or the driver. has_values: False if the values are only
    known when the read runs."""

    name: str
    sql: str
    values: Sequence[Any]
    error: BaseException | None = None
    has_values: bool = True


class Explained(msgspec.Struct, frozen=True, eq=False):
    """The statements of a read. error: what the server would answer instead of a document; any other error than an
    ApiError is a 500."""

    statements: tuple[ExplainedStatement, ...]
    error: Exception | None
    is_stream: bool


class _OneConnection(Database):
    """Runs reads on one connection, inside its transaction. It has no pool."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    async def read(
        self,
        work: Work[Result],
        *,
        is_snapshot: bool,
        timeout_seconds: float | None = None,
    ) -> Result:
        """Run the work in a savepoint, so that the transaction can be used after an error. Raises like `Database`."""
        try:
            async with self._connection.transaction():
                return await work(self._connection)
        except ApiError:
            raise
        except Exception as error:
            raise_rule(error)
            raise_as(translate(error), error)


async def explain_read(
    connection: PostgresConnection,
    requested: RequestedRead,
    engine: Engine,
    role: RequestRole | None = None,
    *,
    is_run: bool = True,
    has_lines: bool = True,
) -> Explained:
    """Run the read, and explain its statements, in a read-only transaction that is rolled back. role: that of the
    principal, with row security. is_run: False to explain the statements without running them. has_lines: whether the
    lines of EXPLAIN are wanted; otherwise the times are in the tree."""
    transaction = connection.transaction(isolation="repeatable_read", readonly=True)
    await transaction.start()
    try:
        timeout = milliseconds(engine.settings.statement_timeout_seconds)
        for name, value in {**SESSION, "statement_timeout": timeout}.items():
            await connection.execute("SELECT set_config($1, $2, true)", name, value)
        if role is not None:
            await connection.execute(SET_ROLE, role.name, role.claims)
        if is_run:
            sent, error, is_stream = await _run(connection, requested, engine, role)
        else:
            sent, error, is_stream = list(_planned(requested)), None, requested.prepared.may_be_streamed
        if is_stream:
            sent += _stream_statements(requested, engine)
        statements = [await _explain(connection, statement, is_run=is_run, has_lines=has_lines) for statement in sent]
    finally:
        await transaction.rollback()
    return Explained(tuple(statements), error, is_stream)


async def explain_planned(database: Database, requested: RequestedRead) -> list[ExplainedStatement]:
    """Explain the statements of a read without running them, as the principal of the database. Raises what a read
    raises."""

    async def work(connection: PostgresConnection) -> list[ExplainedStatement]:
        # A statement that PostgreSQL refuses to plan leaves the name that it was prepared with.
        connection.require_reset()
        return [
            await _explain(connection, statement, is_run=False, has_lines=True) for statement in _planned(requested)
        ]

    return await database.read(work, is_snapshot=True)


def _planned(requested: RequestedRead) -> Iterator[_Sent]:
    """Return the statements that the read sends if it finds rows. An exact total is a column of the primary rows."""
    statements = requested.prepared.ready.statements
    primary = statements.first if requested.prepared.may_be_streamed else statements.primary
    for statement in dict.fromkeys((primary, *statements.branches)):
        if statement is not None:
            has_values = not any(slot.source in _LATER for slot in statement.slots)
            name = _names(requested)[statement.sql]
            yield _Sent(name, statement.sql, requested.sent.of(statement) if has_values else (), has_values=has_values)


async def _run(
    connection: PostgresConnection, requested: RequestedRead, engine: Engine, role: RequestRole | None
) -> tuple[list[_Sent], Exception | None, bool]:
    """Return the statements that the server sends, its error, and whether it would send a stream."""
    sent, names = list[_Sent](), _names(requested)

    def note(query: LoggedQuery) -> None:
        # asyncpg looks up types that are new to the connection.
        if query.query.startswith(("SELECT ", "WITH ", "(")) and "typeinfo_tree" not in query.query:
            sent.append(_Sent(names.get(query.query, "other"), query.query, query.args, query.exception))

    connection.add_query_logger(note)
    error: Exception | None = None
    prepared, is_stream = requested.prepared, False
    read = translate_refusals(role, execute_short if prepared.may_be_streamed else execute_read)
    try:
        result = await read(_OneConnection(connection), prepared, requested.sent, engine)
        is_stream = result is None
        if not (result is None or result.rows[0] or prepared.plan.is_collection or prepared.plan.scope):
            error = resource_not_found(requested.shape.resource.type, requested.route.id)
    except (ApiError, asyncpg.PostgresError, asyncpg.InterfaceError, RuntimeError) as refusal:
        release_frames(refusal)
        error = refusal
    finally:
        # asyncpg calls loggers in the next turn of the loop.
        await asyncio.sleep(0)
        connection.remove_query_logger(note)
    return sent, error, is_stream


def _stream_statements(requested: RequestedRead, engine: Engine) -> Iterator[_Sent]:
    """Return the statements that a stream reads in pieces."""
    for part in (parts := engine.reads.prepare_stream(requested.prepared).statements.parts):
        name = "all primary rows" if part is parts[0] else f"all included rows of {part.node.resource.type}"
        yield _Sent(name, part.rows.sql, requested.sent.of(part.rows))


def _names(requested: RequestedRead) -> dict[str, str]:
    """Return what each statement of a read is for, by its text."""
    statements, names = requested.prepared.ready.statements, dict[str, str]()
    for (_, branch), statement in zip(list(nodes(requested.prepared.plan.node))[1:], statements.branches, strict=True):
        if statement is not None and branch is not None:
            names[statement.sql] = f"rows of {branch.relationship.name}"
    for name, part in (
        ("the resource of the path", statements.parent),
        ("total", statements.count),
        ("first rows", statements.first),
        ("primary rows", statements.primary),
    ):
        if part is not None:
            names[part.sql] = name
    return names


async def _explain(connection: PostgresConnection, sent: _Sent, *, is_run: bool, has_lines: bool) -> ExplainedStatement:
    """Explain a statement. One that PostgreSQL cancelled is explained without running it again."""
    is_cancelled = isinstance(sent.error, asyncpg.QueryCanceledError)
    if sent.error is not None and not is_cancelled:
        return _refused(sent, sent.error)
    measures = "ANALYZE, BUFFERS, " if is_run and not is_cancelled and sent.has_values else ""
    try:
        # A savepoint, so that the transaction can be used after an error.
        async with connection.transaction():
            plan = await _plan(connection, f"EXPLAIN ({'' if has_lines else measures}VERBOSE, FORMAT JSON)", sent)
            tree = json.loads(plan[0])[0]
            lines = await _plan(connection, f"EXPLAIN ({measures}COSTS)", sent) if has_lines else []
    except asyncpg.PostgresError as error:
        return _refused(sent, error)
    if is_cancelled:
        lines = ["PostgreSQL cancelled this statement. Its plan, without running it:", *lines]
    elif not sent.has_values:
        lines = ["The plan for all values, because these are only known when the read runs:", *lines]
    scans, expressions = list[Scan](), list[str]()
    for node in _plan_nodes(tree["Plan"]):
        if "Relation Name" in node:
            table = f"{node['Schema']}.{node['Relation Name']}"
            scans.append(Scan(table, "Index Cond" in node or "Recheck Cond" in node))
        for key, value in node.items():
            # "Rows Removed by Filter" is a number.
            if key.endswith((" Cond", "Filter", "Sort Key", "Group Key")) and isinstance(value, str | list):
                expressions += value if isinstance(value, list) else [value]
    return ExplainedStatement(
        sent.name, sent.sql, sent.values, tuple(lines), tree, tuple(dict.fromkeys(scans)), tuple(expressions)
    )


def _refused(sent: _Sent, error: BaseException) -> ExplainedStatement:
    plan = (f"PostgreSQL refuses this statement: {in_one_line(error)}",)
    return ExplainedStatement(sent.name, sent.sql, sent.values, plan)


async def _plan(connection: PostgresConnection, explain: str, sent: _Sent) -> list[str]:
    """Return what EXPLAIN prints, as lines. JSON is one line."""
    if sent.has_values:
        rows = await connection.fetch(f"{explain} {sent.sql}", *sent.values)
    else:
        await connection.execute(f"SET LOCAL plan_cache_mode=force_generic_plan; PREPARE explained AS {sent.sql}")
        count = await connection.fetchval(
            "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'explained'"
        )
        nulls = f"({','.join(['NULL'] * count)})" if count else ""
        rows = await connection.fetch(f"{explain} EXECUTE explained{nulls}")
        await connection.execute("DEALLOCATE explained")
    return [row[0].decode() if isinstance(row[0], bytes) else row[0] for row in rows]


def _plan_nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for below in node.get("Plans", ()):
        yield from _plan_nodes(below)
