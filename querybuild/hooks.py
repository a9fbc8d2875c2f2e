"""A user's own code around the writes of a resource. What comes in: changes as decoded, and what became of them. What
goes out: the changes that are planned instead.

Hooks run inside the transaction, and take lists: all writes of one kind and one resource that stand together in a
request come at once. A transaction that was in another's way is tried again, and its hooks with it: what goes out of
the database belongs into `after_commit`. Rows that go with another by a foreign key's cascade run none.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from querybuild.query import Change, ChangeKind, Context


class Connection(Protocol):
    """What of an asyncpg connection a hook may count on; inside the transaction of the write."""

    def execute(self, query: str, *args: Any) -> Awaitable[str]: ...

    def executemany(self, command: str, args: Any) -> Awaitable[None]: ...

    def fetch(self, query: str, *args: Any) -> Awaitable[list[Any]]: ...

    def fetchrow(self, query: str, *args: Any) -> Awaitable[Any]: ...

    def fetchval(self, query: str, *args: Any) -> Awaitable[Any]: ...


class Writing(msgspec.Struct, frozen=True, eq=False):
    """One request's writing. headers: the request's, looked up in any case."""

    connection: Connection
    headers: Mapping[str, str]
    context: Context


class Written(msgspec.Struct, frozen=True, eq=False):
    """What was written. id: as its column has it."""

    change: Change
    id: Any


Before = Callable[[Writing, list[Change]], Awaitable[Sequence[Change] | None]]
"""Gives the changes that are planned instead, as many and in the same order; None for those that came. Values are as
the client sent them and not checked yet. What it raises ends the request: nothing is written."""

After = Callable[[Writing, list[Written]], Awaitable[None]]
"""Runs when the rows and links are written and not yet committed. What it raises ends the request as well."""

AfterCommit = Callable[[list[Written]], Awaitable[None]]
"""Runs once, before the answer is sent, whatever was tried again before. What it raises is logged: the write stands."""


class Hooks(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Each is optional. A write of a relationship is an update of the resource that has it."""

    before_create: Before | None = None
    after_create: After | None = None
    before_update: Before | None = None
    after_update: After | None = None
    before_delete: Before | None = None
    after_delete: After | None = None
    after_commit: AfterCommit | None = None

    def before(self, kind: ChangeKind) -> Before | None:
        return {"create": self.before_create, "update": self.before_update, "delete": self.before_delete}[kind]

    def after(self, kind: ChangeKind) -> After | None:
        return {"create": self.after_create, "update": self.after_update, "delete": self.after_delete}[kind]


def is_async(function: object) -> bool:
    """Whether calling it gives something to wait for; a decorator that is made with functools.wraps is seen through."""
    if not callable(function):
        return False
    plain = inspect.unwrap(function)
    return inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(type(plain).__call__)


def takes(function: object, count: int) -> bool:
    """Whether it can be called with so many arguments."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*range(count))
    except (TypeError, ValueError):
        return False
    return True
