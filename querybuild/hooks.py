"""Declares custom code around the writes of a resource: hooks that take changes as decoded, or what was written.

Hooks run inside the transaction, and take lists: consecutive writes of one kind and one resource in a request come at
once. If the transaction is retried, its hooks run again, so effects outside the database belong in `after_commit`. Rows
that a foreign key's cascade changes or deletes run no hooks.

It must not know: requests and connections. The server gives them to a hook as its `Writing`
(`server/execution/hooks.py`).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from querybuild.query import Change, ChangeKind


class Written(msgspec.Struct, frozen=True, eq=False):
    """What was written. id: as its column has it."""

    change: Change
    id: Any


# The first argument is the server's `Writing`, a type that nothing here may import.
Before = Callable[[Any, list[Change]], Awaitable[Sequence[Change] | None]]
"""Returns the changes that are planned instead, as many and in the same order; None for those that came. Values are as
the client sent them and not checked yet. What it raises ends the request: nothing is written."""

After = Callable[[Any, list[Written]], Awaitable[None]]
"""Runs when the rows and links are written and not yet committed. What it raises ends the request as well."""

AfterCommit = Callable[[list[Written]], Awaitable[None]]
"""Runs once, before the answer is sent, whatever was tried again before. What it raises is logged: the write stands."""


class Hooks(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The custom code around the writes of a resource. Each hook is optional. A write of a relationship is an update of
    the resource that has it."""

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
