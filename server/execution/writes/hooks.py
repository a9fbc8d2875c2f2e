"""Defines the argument that hooks take: the connection inside the transaction, and the headers of the request.

`querybuild/declarations/hooks.py` declares hooks; `transaction.py` and `writer.py` run them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

import msgspec

from querybuild.planning.context import Context


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
