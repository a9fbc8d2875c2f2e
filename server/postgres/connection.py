"""One connection to PostgreSQL. What comes in: what asyncpg opens. What goes out: the same, and what the pool has to
know before it lends a connection again. Nothing here knows the pool, or a statement of ours.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import asyncpg

from serializers.errors import answer_too_large
from server.observing import metrics
from server.observing.watch import Watch
from server.postgres.meter import Meter

RESET = (
    "DO $$ DECLARE own text; BEGIN FOR own IN SELECT name FROM pg_prepared_statements WHERE from_sql LOOP "
    "EXECUTE format('DEALLOCATE %I', own); END LOOP; END $$; "
    "SET SESSION AUTHORIZATION DEFAULT; RESET ALL; CLOSE ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); "
    "DISCARD PLANS; DISCARD TEMP; DISCARD SEQUENCES"
)
"""DISCARD ALL, but for the prepared statements that the driver keeps count of."""

SYNC = "SELECT"
"""Ends the transaction of a statement that was prepared and then not executed, because its request was cancelled or a
value was refused. asyncpg sends no Sync between the two, so PostgreSQL keeps the locks of the tables."""


class Connection(asyncpg.Connection):
    """A pooled connection. None of our own statements leaves session state behind, so releasing it costs no round trip;
    one that custom code has held is reset in full."""

    watch: Watch | None = None
    _meter: Meter
    _is_held = False
    _is_leaving = False
    is_spoilt = False
    """Whether it must not serve another request: it has codecs that are not ours, which cannot all be taken back, or is
    about to end."""

    def hold(self) -> None:
        """Custom code is given the connection, and may read what it likes."""
        self._is_held = True

    @property
    def must_be_reset(self) -> bool:
        return self._is_held or self.is_spoilt

    def get_reset_query(self) -> str:
        is_held, self._is_held = self._is_held, False
        return RESET if is_held else SYNC

    async def execute(self, query: str, *args: Any, **options: Any) -> str:
        begin = time.perf_counter()
        status = await super().execute(query, *args, **options)
        if not args:
            # What is sent as it is, and not by `_execute`.
            self.ran(query, begin)
        if query == "COMMIT;" and status == "ROLLBACK":
            # What is sent by asyncpg's transactions. PostgreSQL says it in the tag alone.
            raise RuntimeError("a statement had failed, and custom code went on: nothing was written")
        return status

    async def _execute(self, query: str, *args: Any, **options: Any) -> Any:
        """What every other statement comes through, and tells the watch of it."""
        begin = time.perf_counter()
        try:
            return await super()._execute(query, *args, **options)  # type: ignore[misc]  # the stubs leave it out
        finally:
            self.ran(query, begin)

    async def _executemany(self, query: str, *args: Any, **options: Any) -> Any:
        begin = time.perf_counter()
        try:
            return await super()._executemany(query, *args, **options)  # type: ignore[misc]  # as above
        finally:
            self.ran(query, begin)

    def ran(self, query: str, begin: float) -> None:
        """A statement has come to its end. begin: by time.perf_counter."""
        if self.watch is not None:
            self.watch.record_statement(query, begin)

    def begin(self, watch: Watch) -> None:
        """It is open."""
        self.watch = watch
        self._meter = Meter(self)
        watch.count(metrics.OPENED)

    def within(self, most_bytes: int) -> Meter:
        """`with` it, statements may receive so many bytes together; more are AnswerTooLarge."""
        return self._meter.within(most_bytes)

    def count(self) -> None:
        """Counts from here on what `check_received` looks at."""
        self._meter.count()

    def check_received(self, most_bytes: int) -> None:
        """Raises AnswerTooLarge."""
        if self._meter.received_bytes > most_bytes:
            raise answer_too_large(most_bytes)

    async def fetch_batch(self, sql: str, values: Sequence[Sequence[Any]], most_bytes: int) -> list[asyncpg.Record]:
        """The rows of a statement that is executed with each of the values. Where they are too many, the connection is
        closed: a batch cannot be cancelled, since asyncpg does not tell PostgreSQL that nothing more of it comes.

        Raises AnswerTooLarge."""
        with self._meter.within(most_bytes, is_cancelled=False):
            rows: list[asyncpg.Record] = await self.fetchmany(sql, values)
        return rows

    def give_up(self) -> None:
        self.is_spoilt = True

    async def close(self, **options: Any) -> None:
        self._is_leaving = True
        await super().close(**options)

    def terminate(self) -> None:
        self._is_leaving = True
        super().terminate()

    def lose(self) -> None:
        """It broke, unless it was closed by us."""
        if self.watch is not None and not self._is_leaving:
            self.watch.count(metrics.LOST)
        self._is_leaving = True

    def _cleanup(self) -> None:
        self.lose()
        super()._cleanup()  # type: ignore[misc]  # as above

    @property
    def socket(self) -> socket.socket | None:
        found: socket.socket | None = self._transport.get_extra_info("socket")  # type: ignore[attr-defined]
        return found

    @property
    def is_late(self) -> bool:
        """Whether somebody has stopped waiting for an answer that may still come."""
        protocol: Any = self._protocol  # type: ignore[attr-defined]
        return protocol is not None and protocol._is_cancelling()

    async def set_type_codec(self, *args: Any, **options: Any) -> None:
        self.give_up()
        await super().set_type_codec(*args, **options)

    async def set_builtin_type_codec(self, *args: Any, **options: Any) -> None:
        self.give_up()
        await super().set_builtin_type_codec(*args, **options)

    async def reset_type_codec(self, *args: Any, **options: Any) -> None:
        self.give_up()
        await super().reset_type_codec(*args, **options)

    async def fetch_at_most(self, sql: str, values: Sequence[Any], limit: int) -> list[asyncpg.Record]:
        """The first `limit` rows, 0 for all. The bound is the protocol's and not a LIMIT, which would have the
        planner hope to stop early and walk an index for it. asyncpg has this in `fetchrow` alone; `_execute`
        is what that calls."""
        rows: list[asyncpg.Record] = await self._execute(sql, values, limit, None)
        return rows


def is_open(connection: Connection) -> bool:
    """asyncpg detaches the proxy of a connection that broke: then it answers nothing."""
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:
        return False


def is_awaited(connection: Connection) -> bool:
    """Whether an answer that nobody waits for any more has to come before the next statement can be sent."""
    return is_open(connection) and connection.is_late and not connection.is_spoilt


def give_up(connection: Connection) -> None:
    """The connection goes when whoever has it brings it back."""
    # One that broke is gone.
    with suppress(asyncpg.InterfaceError, AttributeError):
        connection.give_up()


def lose(connection: Connection) -> None:
    """The connection is known to be broken, before it knows that itself."""
    with suppress(asyncpg.InterfaceError, AttributeError):
        connection.lose()


class Sending:
    """Whether a statement has been sent on a connection since this was made, and so may have been done."""

    __slots__ = ("_before", "_protocol")

    def __init__(self, connection: Connection) -> None:
        # A connection that broke has none.
        self._protocol: Any = getattr(connection, "_protocol", None)
        self._before = 0 if self._protocol is None else self._protocol.queries_count

    @property
    def is_begun(self) -> bool:
        return self._protocol is not None and self._protocol.queries_count > self._before
