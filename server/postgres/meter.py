"""How many bytes PostgreSQL sends for an answer, and the end of it where they are too many. In: what a connection
receives. Out: the same, counted, to asyncpg.

Rows are bounded while they come: asyncpg gives them to nobody before the last one is there, and a single value may have
a gigabyte. It must not know: statements, rows, documents.
"""

from __future__ import annotations

import asyncio
import sys
from types import TracebackType
from typing import Any

from serializers.errors import answer_too_large

REST_BYTES = 1024 * 1024 * 1024
"""What a cancelled statement may still send. PostgreSQL sends all rows of a FETCH; asyncpg keeps one at a time."""

PAUSE_SECONDS = 0.05
"""How long nothing more of a cancelled statement is read, so that PostgreSQL hears of it first."""


class Meter(asyncio.Protocol):
    """Stands between a connection's transport and asyncpg's protocol. received_bytes: since it last began to
    count. is_over: whether they were too many."""

    def __init__(self, connection: Any) -> None:
        self.received_bytes = 0
        self.is_over = False
        self._most_bytes = sys.maxsize
        self._rest_bytes = 0
        self._task: asyncio.Task[Any] | None = None
        self._connection = connection
        # asyncpg's own.
        self._protocol = connection._protocol
        self._transport = connection._transport
        self._transport.set_protocol(self)

    def begin(self, most_bytes: int, task: asyncio.Task[Any] | None, rest_bytes: int = 0) -> None:
        """Counts anew. Beyond most_bytes the task is cancelled, and so is its statement; after rest_bytes more the
        connection is closed."""
        self.received_bytes = 0
        self.is_over = False
        self._most_bytes = most_bytes
        self._rest_bytes = rest_bytes
        self._task = task

    def end(self) -> None:
        """Counts on, without a limit; one that was exceeded stays, for what still comes. The task is let go of: the
        connection outlives it."""
        self._task = None
        if not self.is_over:
            self._most_bytes = sys.maxsize

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)
        if self.received_bytes <= self._most_bytes or self._takes_more():
            self._protocol.data_received(data)

    def _takes_more(self) -> bool:
        """Whether what comes beyond the limit is passed on. A cancelled statement first sends the row that it has
        begun, and asyncpg keeps that until it is whole."""
        if not self.is_over and self._task is not None:
            self._task.cancel()
            # What is not read meanwhile need not be sent: PostgreSQL hears of it on a connection of its own.
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._transport.resume_reading)
        self.is_over = True
        if self.received_bytes <= self._most_bytes + self._rest_bytes:
            return True
        self._most_bytes = sys.maxsize
        self._connection.terminate()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)

    def eof_received(self) -> bool | None:
        result: bool | None = self._protocol.eof_received()
        return result

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()


class Within:
    """A block whose statements may receive so many bytes together. Raises AnswerTooLarge."""

    __slots__ = ("_cancelling", "_is_cancelled", "_meter", "_most_bytes", "_task")

    def __init__(self, meter: Meter, most_bytes: int, *, is_cancelled: bool = True) -> None:
        """is_cancelled: whether a statement can be cancelled, and the connection kept."""
        self._meter = meter
        self._most_bytes = most_bytes
        self._is_cancelled = is_cancelled

    def __enter__(self) -> Meter:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        self._meter.begin(self._most_bytes, task, REST_BYTES if self._is_cancelled else 0)
        return self._meter

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._meter.end()
        if not self._meter.is_over or kind is None:
            return
        # Somebody else may have given up the request at the same time.
        is_alone = self._task.uncancel() <= self._cancelling
        if is_alone or kind is not asyncio.CancelledError:
            raise answer_too_large(self._most_bytes) from error
