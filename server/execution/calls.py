"""Runs the calls of database functions. What comes in: a call with its values. What goes out: the value that the
function returns, or the rows of the resources. What PostgreSQL refuses is raised as an answer.

It must not know: HTTP, documents.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TypeVar

import msgspec

from querybuild.calls import SentCall
from querybuild.declarations.function import Function
from querybuild.errors import ApiError, raise_as
from server.engine import Engine
from server.errors import MissingPrivilege
from server.execution.arguments import Arguments
from server.execution.execute import ReadResult, run_read
from server.execution.refusals import call_answer
from server.execution.writes.writer import Writer
from server.postgres.connection import PostgresConnection, Work
from server.postgres.database import Database
from server.preparing.reads import PreparedRead

Result = TypeVar("Result")

_MAY_EXECUTE = "SELECT has_function_privilege($1::int8::oid, 'EXECUTE')"


async def check_privilege(database: Database, function: Function) -> None:
    """Check that the role of the request may execute the function. PostgreSQL only does it when it plans, if it inlines
    the function, and may keep the plan for other roles. Raises MissingPrivilege."""
    if database.role is None:
        return
    oid = function.signature.oid
    may_execute = await database.read(lambda reader: reader.fetchval(_MAY_EXECUTE, oid), is_snapshot=False)
    if may_execute is False:
        raise MissingPrivilege("The role of the request may not execute the function.")


async def answer_refusals(work: Awaitable[Result], sent: SentCall) -> Result:
    """Await the work of a call. Raises what PostgreSQL refuses as an answer."""
    try:
        return await work
    except ApiError:
        raise
    except Exception as error:
        answer = call_answer(error, sent)
        if answer is None:
            raise
        raise_as(answer, error)


async def read_value(database: Database, sent: SentCall, engine: Engine) -> str | None:
    """Return the value of a function, as JSON, in a transaction that only reads. None: it is null."""
    await check_privilege(database, sent.call.function)
    fetch = partial(_fetch_value, sent=sent, engine=engine)
    return await answer_refusals(database.read_unknown(fetch, is_snapshot=False), sent)


async def write_value(writer: Writer, sent: SentCall) -> str | None:
    """Return the value of a function, as JSON, in a transaction that may write. None: it is null."""
    return await _write(writer, sent, partial(_fetch_value, sent=sent, engine=writer.engine))


async def write_rows(writer: Writer, sent: SentCall, read: PreparedRead, arguments: Arguments) -> ReadResult:
    """Call a function in a transaction that may write, and read the resources that it has returned, as they are then.
    arguments: the values for the read, without the ids."""
    engine = writer.engine

    async def fetch(connection: PostgresConnection) -> ReadResult:
        statement = engine.statements.of_call(sent.call, read.plan.node.resource.id.key)
        with connection.limit_received(engine.settings.max_answer_bytes):
            ids = [row[0] for row in await connection.fetch(statement.sql, *sent.values)]
        with_ids = msgspec.structs.replace(arguments, returned=ids)
        result = await run_read(connection, read, with_ids, engine)
        assert result is not None
        return result

    return await _write(writer, sent, fetch)


async def _write(writer: Writer, sent: SentCall, work: Work[Result]) -> Result:
    await writer.client.run(check_privilege(writer.database, sent.call.function))
    return await answer_refusals(writer.transact(work), sent)


async def _fetch_value(connection: PostgresConnection, sent: SentCall, engine: Engine) -> str | None:
    statement = engine.statements.of_call(sent.call, None)
    with connection.limit_received(engine.settings.max_answer_bytes):
        value: str | None = await connection.fetchval(statement.sql, *sent.values)
    return value
