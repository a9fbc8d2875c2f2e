"""Streams a document: it is sent while its rows are read. What comes in: the statements of its parts, the first rows,
and a connection inside a snapshot. What goes out: pieces of the document. Each takes a few milliseconds, and is created
when the piece before it was sent.

It must not know: SQL text, HTTP.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from asyncpg.cursor import Cursor as Portal

from querybuild.planning.rows import Row, branch_keys, with_computed
from querybuild.sql.statement import Statement
from querybuild.sql.stream import Part
from serializers.errors import AnswerTooLarge, answer_too_large
from serializers.objects import Meta
from serializers.streams import BatchEncoder, Linked
from server.engine import Engine
from server.execution.arguments import Arguments
from server.execution.execute import ambiguous_ids, check_ids, too_many_rows
from server.execution.included import read_related, too_many_included
from server.execution.read_refusals import raise_refusal
from server.postgres.connection import PostgresConnection
from server.postgres.driver_errors import OF_VALUES
from server.postgres.wire.meter import ReceivedMeter
from server.preparing.reads import PreparedRead, PreparedStream

BATCH_ROWS = 500
"""The maximal number of rows in a batch. A piece shows all rows of a batch, or fewer if linkage is read for them."""

BATCH_LINKAGE = 1000
"""About how many rows of linkage are read for one piece. A resource may have any number of links."""

BATCH_BYTES = 1_048_576
"""About how many bytes of rows are in a batch."""

BATCH_DIVISOR = 8
"""A batch that was too large is divided by this number."""

SAVEPOINT = "batches"

Send = Callable[[bytes], Awaitable[None]]


class PartReader:
    """Reads the rows of one part from a portal, in batches. reads_ahead: whether PostgreSQL reads the next batch while
    one is encoded and sent. Then `stop` must be called at the end.

    If a batch is too large, its statement is cancelled, which closes the portal. Then a new portal reads the batch
    again, with fewer rows. A savepoint keeps the snapshot."""

    def __init__(
        self,
        connection: PostgresConnection,
        read: PreparedRead,
        part: Part,
        encode: BatchEncoder,
        max_bytes: int,
        sent: Arguments,
    ) -> None:
        self._connection = connection
        self._read = read
        self._sent = sent
        self._part = part
        self._encode = encode
        self._max_bytes = max_bytes
        self._portal: Portal | None = None
        self._max_rows = self._fetched_rows = BATCH_ROWS
        self._rows: Sequence[Row] = ()
        self._ahead: asyncio.Task[None] | None = None
        self._is_last = False
        self.reads_ahead = False
        # The number of rows in the next piece. With linkage it starts at 1, because the number of links is not known.
        self._size = BATCH_ROWS if not any(part.linkage) else 1
        self.count = 0

    def take(self, rows: Sequence[Row]) -> None:
        """Take the first rows, which were read already."""
        self._rows = rows

    async def _open(self) -> Portal:
        """Return a portal at the first row that was not shown."""
        statement = self._part.rows
        # Not cached: asyncpg would not notice that a migration has made a cached statement stale.
        prepared = await self._connection.prepare(statement.sql)
        portal = await prepared.cursor(*self._sent.of(statement))
        if self.count:
            await portal.forward(self.count)
        return portal

    async def next(self) -> bytes:
        """Return the next resource objects, with commas between them. Empty at the end. Raises AnswerTooLarge if one
        resource is too large."""
        while True:
            try:
                return await self._piece()
            except AnswerTooLarge:
                if self._fetched_rows == 1 or self._connection.is_closed():
                    raise answer_too_large(self._max_bytes) from None
                await self._divide()

    async def _piece(self) -> bytes:
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
        count = max(1, sum([len(linked_rows) for linked_rows in linkage]))
        self._size = max(1, min(BATCH_ROWS, 4 * self._size, len(rows) * BATCH_LINKAGE // count))
        if self.reads_ahead and not self._rows and not self._is_last:
            self._ahead = asyncio.create_task(self._fetch_rows())
            # The task sends its request before the loop is busy with this batch.
            await asyncio.sleep(0)
        return self._encode([with_computed(self._part.node, rows), *linkage], linked)

    def _limit_received(self) -> ReceivedMeter:
        return self._connection.limit_received(self._max_bytes if self._fetched_rows == 1 else self._max_bytes // 4)

    async def _fetch_rows(self) -> None:
        if self._portal is None:
            self._portal = await self._open()
        begin = time.perf_counter()
        with self._limit_received() as meter:
            self._rows = await self._portal.fetch(self._fetched_rows)
        self._connection.statement_finished(self._part.rows.sql, begin)
        self._is_last = len(self._rows) < self._fetched_rows
        rows_for_bytes = max(1, len(self._rows) * BATCH_BYTES // max(1, meter.received_bytes))
        self._size = min(self._size, rows_for_bytes)
        self._fetched_rows = min(self._max_rows, rows_for_bytes, 4 * self._fetched_rows)

    async def _divide(self) -> None:
        """Make batches smaller. A new portal begins at the first row that was not shown."""
        await self._connection.execute(f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")
        self._max_rows = self._fetched_rows = max(1, self._fetched_rows // BATCH_DIVISOR)
        self._size = min(self._size, self._max_rows)
        self._rows, self._ahead, self._portal, self._is_last = (), None, None, False

    async def _linked(self, rows: Sequence[Row]) -> list[set[Any] | None]:
        """Return for each branch the ids of the rows that show its linkage. None if all rows show it."""
        linked: dict[Statement | None, set[Any] | None] = {None: None}
        for statement in self._part.linked:
            if statement is not None and statement not in linked:
                ids = [row[0] for row in rows]
                sent = self._sent.of(statement, keys=ids)
                linked[statement] = {row[0] for row in await self._connection.fetch(statement.sql, *sent)}
        return [linked[statement] for statement in self._part.linked]

    async def _linkage(self, rows: Sequence[Row], linked: Linked) -> list[Sequence[Row]]:
        node, linkage = self._part.node, []
        for branch, statement, ids in zip(node.branches, self._part.linkage, linked, strict=True):
            children: Sequence[Row] = ()
            if statement is not None:
                showing = rows if ids is None else [row for row in rows if row[0] in ids]
                if keys := branch_keys(node, branch, showing):
                    values = self._sent.of(statement, keys=keys)
                    children = await read_related(self._connection, self._read, branch, statement, values)
                if self._read.ready.unenforced_keys:
                    check_ids(self._read, branch, children)
            linkage.append(children)
        return linkage

    async def stop(self) -> None:
        """Cancel the batch that is being read ahead."""
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.gather(self._ahead, return_exceptions=True)

    async def close(self) -> None:
        """Close the portal, so that PostgreSQL releases its memory and temporary files. No other portal is open."""
        await self._connection.execute("CLOSE ALL")


class Stream:
    """A document that is being sent."""

    def __init__(
        self,
        connection: PostgresConnection,
        stream: PreparedStream,
        sent: Arguments,
        engine: Engine,
        first: Sequence[Row],
    ) -> None:
        """first: the first primary rows, as the plan reads them."""
        self._connection = connection
        self._read = stream.read
        self._sent = sent
        self._limits = engine.limits
        self._statements = stream.statements
        self._encoder = stream.encoder.encoder
        # What the next piece begins with.
        self._before = b""
        self._shown = self._statements.parts[: len(stream.encoder.parts)]
        self._data, *self._included = [
            PartReader(connection, stream.read, part, encode, engine.settings.max_answer_bytes, sent)
            for part, encode in zip(self._shown, stream.encoder.parts, strict=True)
        ]
        if self._statements.data.node.has_columns_of(stream.read.plan.node):
            self._data.take(first)

    @property
    def count(self) -> int:
        """How many primary resources have been encoded."""
        return self._data.count

    async def begin(self) -> bytes:
        """Check everything that can be checked before the status is sent. Return the first piece.

        Raises ValueRefused, TooManyRows, TooManyIncluded, AmbiguousIds, AnswerTooLarge.
        """
        try:
            if self._read.ready.unenforced_keys:
                await self._check_ids()
            await self._check_rows()
            await self._check_included()
            await self._connection.execute(f"SAVEPOINT {SAVEPOINT}")
            self._before = self._encoder.comma
            return self._encoder.head + await self._data.next()
        except OF_VALUES as error:
            raise_refusal(error, self._read, self._sent.path)

    async def send_rest(self, send: Send) -> None:
        """Send the pieces after the first, up to the end of the last resource."""
        await self._send_rest(self._data, send)
        self._before = self._encoder.between
        for reader in self._included:
            await self._send_rest(reader, send)

    async def _send_rest(self, reader: PartReader, send: Send) -> None:
        reader.reads_ahead = True
        try:
            while piece := await reader.next():
                await send(self._before + piece)
                self._before = self._encoder.comma
        finally:
            await reader.stop()
        await reader.close()

    def tail(self, links: dict[str, str], meta: Meta) -> bytes:
        """Return the end of the document."""
        before = b"" if self._before == self._encoder.comma else self._before
        return before + self._encoder.tail(links, meta)

    async def _check_ids(self) -> None:
        for part in self._shown:
            statement = part.ambiguous
            if (row := await self._connection.fetchrow(statement.sql, *self._sent.of(statement))) is not None:
                raise ambiguous_ids(self._read, row[0])

    async def _check_rows(self) -> None:
        limit = self._limits.unpaginated
        if isinstance(limit, int) and await self._count(self._statements.data, limit + 1) > limit:
            raise too_many_rows(self._read, limit)

    async def _check_included(self) -> None:
        room = self._limits.max_included
        if self._read.planned.choices:
            # An error of a filter is found before the status is sent.
            for part in self._statements.included:
                await self._count(part, 1)
        if not self._included or await self._is_within_bounds(room):
            return
        for part in self._statements.included:
            room -= await self._count(part, room + 1)
            if room < 0:
                raise too_many_included()

    async def _is_within_bounds(self, room: int) -> bool:
        """Return whether the tables of the included resources are so small that the rows need not be counted."""
        assert self._statements.bounds is not None
        bounds = [row[0] for row in await self._connection.fetch(self._statements.bounds.sql)]
        return all(bound is not None for bound in bounds) and sum(bounds) <= room

    async def _count(self, part: Part, max_rows: int) -> int:
        return int(await self._connection.fetchval(part.count.sql, *self._sent.of(part.count, max_rows=max_rows)))
