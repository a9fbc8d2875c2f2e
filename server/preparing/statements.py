"""Compiles plans, and keeps their statements: those of each shape of a plan are compiled once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import msgspec

from querybuild.cache import BoundedCache
from querybuild.declarations.catalog import Catalog
from querybuild.declarations.function import Call
from querybuild.declarations.keys import Key
from querybuild.planning.plan import Node, ReadPlan
from querybuild.planning.reads.stream_plan import plan_stream
from querybuild.planning.row_plan import Rows
from querybuild.planning.writes.bulk import BulkPlan
from querybuild.planning.writes.write_plan import LockStrength, WritePlan
from querybuild.sql.calls import compile_ids, compile_value
from querybuild.sql.select import ReadStatements, compile_linkage_version, compile_read
from querybuild.sql.statement import Statement
from querybuild.sql.stream import StreamStatements, compile_stream
from querybuild.sql.writes.answered import compile_answered
from querybuild.sql.writes.bulk import (
    compile_bulk_lock,
    compile_locked_bulk,
    compile_whole_bulk,
    is_one_statement,
    is_plain,
)
from querybuild.sql.writes.creates import Create, compile_creates
from querybuild.sql.writes.locks import compile_check, compile_locks
from querybuild.sql.writes.modify import WriteStatements, compile_rows, compile_write

ENTRY_BYTES = 4096
"""The assumed bytes of an entry besides its texts. According to tracemalloc a short read, prepared and compiled, takes
4 to 5 KB, and its encoders 2 to 5 KB more."""


class StatementCaches(msgspec.Struct, frozen=True, eq=False):
    """Statements by their plans. The names are those of the metrics."""

    compiled_reads: BoundedCache[ReadStatements]
    compiled_streams: BoundedCache[StreamStatements]
    compiled_writes: BoundedCache[WriteStatements]
    compiled_creates: BoundedCache[str]
    compiled_locks: BoundedCache[Statement]
    compiled_answers: BoundedCache[Statement]
    compiled_calls: BoundedCache[Statement]


class Statements:
    """The statements of one engine."""

    def __init__(self, make_cache: Callable[[], BoundedCache[Any]]) -> None:
        self.caches = StatementCaches(*[make_cache() for _ in StatementCaches.__struct_fields__])

    def of_read(self, plan: ReadPlan) -> ReadStatements:
        """Return the statements of a read."""
        return self.caches.compiled_reads.get_or_make(plan, lambda: compile_read(plan), _read_bytes)

    def of_linkage(self, plan: ReadPlan) -> Statement:
        """Return the statement that reads the version of linkage. plan: that of all its ids."""
        return compile_linkage_version(plan)

    def of_stream(self, plan: ReadPlan, catalog: Catalog) -> StreamStatements:
        """Return the statements of a read whose rows are streamed."""
        make = lambda: compile_stream(plan_stream(plan, catalog))  # noqa: E731
        return self.caches.compiled_streams.get_or_make(plan, make, _stream_bytes)

    def of_write(self, plan: WritePlan, shown: Node | None) -> WriteStatements:
        """Return the statements of a write. shown: what the row's own statement returns of it."""
        make = lambda: compile_write(plan, shown)  # noqa: E731
        return self.caches.compiled_writes.get_or_make((plan, shown), make, lambda _: ENTRY_BYTES)

    def of_answered(self, plan: WritePlan, shown: Node | None) -> Statement | None:
        """Return the beginning of the statement of a write that makes its own answer, or None if the write or the
        answer needs another statement. shown: the columns of the answer, if it shows the row."""
        make = lambda: self._compile_answered(plan, shown)  # noqa: E731
        size = lambda made: ENTRY_BYTES + len(made.sql)  # noqa: E731
        statement = self.caches.compiled_answers.get_or_make((plan, shown), make, size)
        return statement if statement.sql else None

    def _compile_answered(self, plan: WritePlan, shown: Node | None) -> Statement:
        is_whole = self.of_write(plan, shown).standalone is not None
        return (compile_answered(plan, shown) if is_whole else None) or Statement("", ())

    def of_call(self, call: Call, key: Key | None) -> Statement:
        """Return the statement that calls a function for the ids of its rows, or for its value."""
        make = lambda: compile_value(call) if key is None else compile_ids(call, key)  # noqa: E731
        return self.caches.compiled_calls.get_or_make((call, key), make, lambda _: ENTRY_BYTES)

    def of_rows(self, plan: WritePlan, size: int, shown: Node | None) -> str:
        """Return the statement that creates so many rows."""
        return self._text(("rows", plan, size, shown), lambda: compile_rows(plan, size, shown))

    def of_creates(self, creates: tuple[Create, ...]) -> str:
        """Return one statement for several creates."""
        return self._text(creates, lambda: compile_creates(creates))

    def of_locks(
        self, rows: Rows, keys: tuple[Key, ...], strength: LockStrength | None, shown: tuple[Key, ...] = ()
    ) -> Statement:
        """Return the statement that locks those of the rows that have certain values in the keys."""
        return self._lock((rows, keys, strength, shown), lambda: compile_locks(rows, keys, strength, shown))

    def of_bulk(self, plan: BulkPlan) -> Statement:
        """Return the statement that locks the rows that a filter finds."""
        return self._lock(plan, lambda: compile_bulk_lock(plan))

    def of_whole_bulk(self, plan: BulkPlan) -> Statement | None:
        """Return the statement that writes the rows that a filter finds, or None if one statement cannot do it."""
        if plan.write is None or not is_one_statement(plan, plan.write):
            return None
        write = plan.write
        return self._lock(("whole", plan), lambda: compile_whole_bulk(plan, write))

    def of_locked_bulk(self, plan: BulkPlan) -> Statement | None:
        """Return the statement that writes these rows once they are locked, or None if they need more than that."""
        if plan.write is None or not is_plain(plan.write):
            return None
        write = plan.write
        return self._lock(("locked", plan), lambda: compile_locked_bulk(write))

    def of_check(self, checked: Rows) -> Statement:
        """Return the statement that finds the written rows that are not among these."""
        return self._lock(checked, lambda: compile_check(checked))

    def _lock(self, key: Hashable, make: Callable[[], Statement]) -> Statement:
        return self.caches.compiled_locks.get_or_make(key, make, lambda made: ENTRY_BYTES + len(made.sql))

    def _text(self, key: Hashable, make: Callable[[], str]) -> str:
        return self.caches.compiled_creates.get_or_make(key, make, lambda sql: ENTRY_BYTES + len(sql))


def _read_bytes(statements: ReadStatements) -> int:
    return ENTRY_BYTES + sum(len(statement.sql) for statement in statements.all())


def _stream_bytes(statements: StreamStatements) -> int:
    return ENTRY_BYTES + sum(len(part.rows.sql) + len(part.count.sql) for part in statements.parts)
