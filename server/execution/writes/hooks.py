"""Runs the hooks of a resource inside the transaction of a write, and defines the argument that they take.

`querybuild/declarations/hooks.py` declares hooks; `writer.py` runs those after the commit.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from querybuild.planning.context import Context
from querybuild.query import Change
from server.execution.refusals import is_refusal
from server.postgres.connection import PostgresConnection
from server.postgres.custom_code import custom_code
from server.postgres.driver_errors import SAVEPOINT_GONE
from server.postgres.rules import raise_rule

Item = TypeVar("Item")
Result = TypeVar("Result")


class Connection(Protocol):
    """The methods of an asyncpg connection that a hook may use. They run inside the transaction of the write."""

    def execute(self, query: str, *args: Any) -> Awaitable[str]: ...

    def executemany(self, command: str, args: Any) -> Awaitable[None]: ...

    def fetch(self, query: str, *args: Any) -> Awaitable[list[Any]]: ...

    def fetchrow(self, query: str, *args: Any) -> Awaitable[Any]: ...

    def fetchval(self, query: str, *args: Any) -> Awaitable[Any]: ...


class Writing(msgspec.Struct, frozen=True, eq=False):
    """The first argument of most hooks. headers: those of the request; their case does not matter."""

    connection: Connection
    headers: Mapping[str, str]
    context: Context


async def run_before(
    hook: Callable[[Writing, list[Change]], Awaitable[Sequence[Change] | None]],
    connection: PostgresConnection,
    writing: Writing,
    sent: list[Change],
) -> list[Change]:
    """Return the changes that custom code makes of those that were sent."""
    # A retry must begin with the changes that were sent, so custom code gets a copy.
    changes = await run_hook(hook, connection, writing, copy.deepcopy(sent))
    if changes is None:
        changes = sent
    if [(change.kind, change.lid) for change in changes] != [(change.kind, change.lid) for change in sent]:
        raise ValueError(f"custom code was given {len(sent)} changes, and gives others or another number of them")
    # Custom code may have made a new change, and must not lose what the client demands.
    return [msgspec.structs.replace(change, match=asked.match) for change, asked in zip(changes, sent, strict=True)]


async def run_hook(
    hook: Callable[[Writing, list[Item]], Awaitable[Result]],
    connection: PostgresConnection,
    writing: Writing,
    items: list[Item],
) -> Result:
    """Run custom code in a savepoint. The savepoint cannot be released if the code has ended the transaction, or has
    ignored a statement that failed: then no answer can be true. If PostgreSQL refuses a statement of the custom code,
    that is a fault of the code, and not of the document."""
    connection.require_reset()
    savepoint = connection.transaction()
    await savepoint.start()
    try:
        with custom_code(connection):
            result = await hook(writing, items)
        await savepoint.commit()
        connection.count_received()
    except SAVEPOINT_GONE as error:
        raise RuntimeError("custom code has ended the transaction that it was given") from error
    except Exception as error:
        raise_rule(error)
        if is_refusal(error):
            raise RuntimeError("PostgreSQL refuses a statement of custom code") from error
        raise
    return result
