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
        self._cancelling = 0
        self._connection = connection
        # asyncpg's own.
        self._protocol = connection._protocol
        self._transport = connection._transport
        self._transport.set_protocol(self)

    def count(self) -> None:
        """Counts anew, without a limit."""
        self.received_bytes = 0
        self.is_over = False
        self._most_bytes = sys.maxsize

    def within(self, most_bytes: int, *, is_cancelled: bool = True) -> Meter:
        """Counts anew, in a block whose statements may receive so many bytes together. is_cancelled: whether a
        statement can be cancelled, and the connection kept.

        The block raises AnswerTooLarge. It runs in the task that calls this.
        """
        task = asyncio.current_task()
        assert task is not None
        self.received_bytes = 0
        self.is_over = False
        self._most_bytes = most_bytes
        self._rest_bytes = REST_BYTES if is_cancelled else 0
        self._task, self._cancelling = task, task.cancelling()
        return self

    def __enter__(self) -> Meter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The connection outlives the task.
        task, self._task = self._task, None
        if not self.is_over:
            self._most_bytes = sys.maxsize
        elif kind is not None:
            assert task is not None
            # Somebody else may have given up the request at the same time.
            is_alone = task.uncancel() <= self._cancelling
            if is_alone or kind is not asyncio.CancelledError:
                raise answer_too_large(self._most_bytes) from error

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
