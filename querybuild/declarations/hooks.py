"""Declares custom code around the writes of a resource: hooks that take changes as decoded, or what was written.

Hooks run inside the transaction, and take lists: consecutive writes of one kind and one resource in a request come at
once. If the transaction is retried, its hooks run again, so effects outside the database belong in `after_commit`. Rows
that a foreign key's cascade changes or deletes run no hooks.

It must not know: requests and connections. The server gives them to a hook as its `Writing`
(`server/execution/writes/hooks.py`).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from querybuild.query import Change, ChangeKind


class Written(msgspec.Struct, frozen=True, eq=False):
    """A write that was done. id: the native value of its column."""

    change: Change
    id: Any


# The first argument is the server's `Writing`, a type that nothing here may import.
Before = Callable[[Any, list[Change]], Awaitable[Sequence[Change] | None]]
"""Runs before the planning. It returns the changes to plan instead, as many and in the same order, or None for the
given ones. Their values are not checked yet. An exception ends the request, and nothing is written."""

After = Callable[[Any, list[Written]], Awaitable[None]]
"""Runs after the rows and links are written and before the commit. An exception ends the request, and everything is
rolled back."""

AfterCommit = Callable[[list[Written]], Awaitable[None]]
"""Runs once after the commit, before the answer is sent, even if the transaction was retried. An exception is only
logged, because the write is done."""


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
        """Return the hook before writes of this kind."""
        hook: Before | None = getattr(self, f"before_{kind}")
        return hook

    def after(self, kind: ChangeKind) -> After | None:
        """Return the hook after writes of this kind."""
        hook: After | None = getattr(self, f"after_{kind}")
        return hook


NO_HOOKS = Hooks()
"""The hooks of a resource without custom code."""


def is_async(function: object) -> bool:
    """Return whether a call returns an awaitable. Decorators that use functools.wraps are unwrapped."""
    if not callable(function):
        return False
    plain = inspect.unwrap(function)
    return inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(type(plain).__call__)


def accepts_arguments(function: object, count: int) -> bool:
    """Return whether the function can be called with this number of arguments."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*range(count))
    except (TypeError, ValueError):
        return False
    return True
