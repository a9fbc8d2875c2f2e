"""A document that is sent while its rows are read. What comes in: the statements of its parts and a connection inside
its snapshot. What goes out: pieces of the document, each a few milliseconds of work, one when the one before is sent.

Nothing here writes SQL, and nothing knows HTTP.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from asyncpg.cursor import Cursor as Portal

from querybuild.plan import Statement
from querybuild.rows import Row, branch_keys, with_computed
from querybuild.stream import Part
from serializers.errors import AnswerTooLarge, answer_too_large
from serializers.objects import Meta
from serializers.streams import BatchEncoder, Linked
from server.engine import Engine, PreparedRead
from server.execution.arguments import Arguments
from server.execution.execute import ambiguous_ids, raise_refusal, too_many_included, too_many_rows
from server.postgres.connection import Connection, is_open
from server.postgres.driver_errors import INTERNAL, REFUSED
from server.postgres.meter import Meter

BATCH_ROWS = 500
"""Rows that are fetched at once, and shown at once where that reads no linkage."""

BATCH_LINKAGE = 1000
"""About how many rows of linkage are read at once: a resource may be linked to any number."""

BATCH_BYTES = 1_048_576
"""About how many bytes of rows are fetched and shown at once."""

FEWER = 8
"""By how much a batch is divided that was too large."""

SAVEPOINT = "batches"

Send = Callable[[bytes], Awaitable[None]]


class Cursor:
    """The rows of one part, a batch at a time, from a portal. reads_ahead: whether PostgreSQL reads the next batch
    while one is encoded and sent. Then `stop` must be called in the end.

    A batch that turns out too large is read again from its first row, with fewer rows. That takes a new portal: a
    cancelled one is gone, and the savepoint keeps the snapshot."""

    def __init__(
        self, connection: Connection, part: Part, encode: BatchEncoder, most_bytes: int, sent: Arguments
    ) -> None:
        self._connection = connection
        self._sent = sent
        self._part = part
        self._encode = encode
        self._most_bytes = most_bytes
        self._portal: Portal | None = None
        self._most_rows = self._fetched_rows = BATCH_ROWS
        self._rows: Sequence[Row] = ()
        self._ahead: asyncio.Task[None] | None = None
        self._is_last = False
        self.reads_ahead = False
        # A guess, from which it grows.
        self._size = BATCH_ROWS if not any(part.linkage) else 1
        self.count = 0

    async def open(self) -> None:
        statement = self._part.rows
        # Prepared for this stream alone: asyncpg does not notice that a migration made a cached one stale.
        prepared = await self._connection.prepare(statement.sql)
        self._portal = await prepared.cursor(*self._sent.of(statement))

    async def next(self) -> bytes:
        """The next objects, with commas between them; empty after the last ones. Raises AnswerTooLarge: of one
        resource."""
        while True:
            try:
                return await self._batch()
            except AnswerTooLarge:
                if self._fetched_rows == 1 or not is_open(self._connection):
                    raise answer_too_large(self._most_bytes) from None
                await self._begin_again()

    async def _batch(self) -> bytes:
        if self._ahead is not None:
            await self._ahead
        elif not self._rows and not self._is_last:
            await self._fetch_rows()
        rows, self._ahead = self._rows[: self._size], None
        if not rows:
            return b""
        with self._limit_received():
            linked = await self._linked(rows)
            linkage = await self._linkage(rows, linked)
        self._rows = self._rows[self._size :]
        self.count += len(rows)
        count = max(1, sum([len(those) for those in linkage]))
        self._size = max(1, min(BATCH_ROWS, 4 * self._size, len(rows) * BATCH_LINKAGE // count))
        if self.reads_ahead and not self._rows and not self._is_last:
            self._ahead = asyncio.create_task(self._fetch_rows())
            # Sends the request before the loop is busy with this batch.
            await asyncio.sleep(0)
        return self._encode([with_computed(self._part.node, rows), *linkage], linked)

    def _limit_received(self) -> Meter:
        return self._connection.limit_received(self._most_bytes if self._fetched_rows == 1 else self._most_bytes // 4)

    async def _fetch_rows(self) -> None:
        assert self._portal is not None
        begin = time.perf_counter()
        with self._limit_received() as meter:
            self._rows = await self._portal.fetch(self._fetched_rows)
        self._connection.statement_finished(self._part.rows.sql, begin)
        self._is_last = len(self._rows) < self._fetched_rows
        fitting = max(1, len(self._rows) * BATCH_BYTES // max(1, meter.received_bytes))
        self._size = min(self._size, fitting)
        self._fetched_rows = min(self._most_rows, fitting, 4 * self._fetched_rows)

    async def _begin_again(self) -> None:
        """At the first row that has not been shown, with fewer rows at a time from here on."""
        await self._connection.execute(f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")
        self._most_rows = self._fetched_rows = max(1, self._fetched_rows // FEWER)
        self._size = min(self._size, self._most_rows)
        self._rows, self._ahead, self._is_last = (), None, False
        await self.open()
        assert self._portal is not None
        if self.count:
            await self._portal.forward(self.count)

    async def _linked(self, rows: Sequence[Row]) -> list[set[Any] | None]:
        """Of each branch, the ids of the rows that show its linkage; None where all do."""
        found: dict[Statement | None, set[Any] | None] = {None: None}
        for statement in self._part.linked:
            if statement is not None and statement not in found:
                ids = [row[0] for row in rows]
                sent = self._sent.of(statement, keys=ids)
                found[statement] = {row[0] for row in await self._connection.fetch(statement.sql, *sent)}
        return [found[statement] for statement in self._part.linked]

    async def _linkage(self, rows: Sequence[Row], linked: Linked) -> list[Sequence[Row]]:
        node, found = self._part.node, []
        for branch, statement, ids in zip(node.branches, self._part.linkage, linked, strict=True):
            children: Sequence[Row] = ()
            if statement is not None:
                showing = rows if ids is None else [row for row in rows if row[0] in ids]
                if keys := branch_keys(node, branch, showing):
                    children = await self._connection.fetch(statement.sql, *self._sent.of(statement, keys=keys))
            found.append(children)
        return found

    async def stop(self) -> None:
        """Ends what is read ahead."""
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.gather(self._ahead, return_exceptions=True)

    async def close(self) -> None:
        """Gives back what PostgreSQL sorted for it. No other portal is open."""
        await self._connection.execute("CLOSE ALL")


class Stream:
    """One document on its way. count: primary resources so far."""

    def __init__(self, connection: Connection, read: PreparedRead, sent: Arguments, engine: Engine) -> None:
        self._connection = connection
        self._read = read
        self._sent = sent
        self._limits = engine.limits
        self._statements = engine.statements.of_stream(read.plan, engine.catalog)
        self._encoder = engine.encoders.of_stream(read.plan, self._statements)
        self._data, *self._included = [
            Cursor(connection, part, encode, engine.settings.max_answer_bytes, sent)
            for part, encode in zip(self._statements.parts, self._encoder.parts, strict=True)
        ]

    @property
    def count(self) -> int:
        return self._data.count

    async def begin(self) -> bytes:
        """The first piece. Whatever can be said against the request is said before it.

        Raises ValueRefused, TooManyRows, TooManyIncluded, AmbiguousIds, AnswerTooLarge.
        """
        try:
            if self._read.ready.unenforced_keys:
                await self._check_ids()
            await self._check_rows()
            await self._check_included()
            await self._connection.execute(f"SAVEPOINT {SAVEPOINT}")
            await self._data.open()
            return self._encoder.head + await self._data.next()
        except (*REFUSED, *INTERNAL) as error:
            raise_refusal(error, self._read, self._limits)

    async def go_on(self, send: Send) -> None:
        """The pieces after the first, up to the end of the last resource."""
        await self._send_rest(self._data, send, b",")
        await send(self._encoder.between)
        comma = b""
        for cursor in self._included:
            await cursor.open()
            await self._send_rest(cursor, send, comma)
            comma = b"," if cursor.count else comma

    async def _send_rest(self, cursor: Cursor, send: Send, comma: bytes) -> None:
        """comma: what the next piece begins with."""
        cursor.reads_ahead = True
        try:
            while piece := await cursor.next():
                await send(comma + piece)
                comma = b","
        finally:
            await cursor.stop()
        await cursor.close()

    def tail(self, links: dict[str, str], meta: Meta) -> bytes:
        return self._encoder.tail(links, meta)

    async def _check_ids(self) -> None:
        for part in self._statements.parts:
            statement = part.ambiguous
            if (row := await self._connection.fetchrow(statement.sql, *self._sent.of(statement))) is not None:
                raise ambiguous_ids(self._read, row[0])

    async def _check_rows(self) -> None:
        most = self._limits.unpaginated
        if isinstance(most, int) and await self._count(self._statements.data, most + 1) > most:
            raise too_many_rows(self._read, most)

    async def _check_included(self) -> None:
        room = self._limits.max_included
        if await self._fits(room):
            return
        for part in self._statements.included:
            room -= await self._count(part, room + 1)
            if room < 0:
                raise too_many_included()

    async def _fits(self, room: int) -> bool:
        """Whether all that could be included is not too much, so that nothing needs to be counted."""
        if self._statements.bounds is None:
            return True
        bounds = [row[0] for row in await self._connection.fetch(self._statements.bounds.sql)]
        return all(bound is not None for bound in bounds) and sum(bounds) <= room

    async def _count(self, part: Part, most: int) -> int:
        return int(await self._connection.fetchval(part.count.sql, *self._sent.of(part.count, most=most)))
