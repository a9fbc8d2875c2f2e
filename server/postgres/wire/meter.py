"""Counts the bytes that a connection receives from PostgreSQL, and cancels a statement that sends too many.

The limit applies while rows arrive: asyncpg returns rows only when the last one is there, and a single value may have a
gigabyte. It must not know: statements, rows, documents.
"""

from __future__ import annotations

import asyncio
import sys
from types import TracebackType
from typing import Any

from serializers.errors import answer_too_large
from server.postgres.wire.pipeline import PipelineAnswers, PipelinedStatement

REST_BYTES = 1024 * 1024 * 1024
"""How many bytes a cancelled statement may still send. PostgreSQL sends all rows of a FETCH; asyncpg then keeps only
one at a time."""

PAUSE_SECONDS = 0.05
"""How long reading pauses after a cancellation, so that PostgreSQL receives the cancel request first."""


class ReceivedMeter(asyncio.Protocol):
    """A protocol between a connection's transport and asyncpg's protocol. received_bytes: how many since the last
    reset. is_over: whether the limit was exceeded. answers: those to statements that asyncpg has not sent."""

    def __init__(self, connection: Any) -> None:
        self.received_bytes = 0
        self.is_over = False
        self._max_bytes = sys.maxsize
        self._rest_bytes = 0
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._connection = connection
        self.answers = PipelineAnswers(self._report)
        # asyncpg's own protocol, behind this one.
        self._protocol = connection._protocol
        self._transport = connection._transport
        self._transport.set_protocol(self)

    def reset(self) -> None:
        """Reset the count, and remove the limit."""
        self.received_bytes = 0
        self.is_over = False
        self._max_bytes = sys.maxsize

    def limit(self, max_bytes: int, *, is_cancelled: bool = True) -> ReceivedMeter:
        """Reset the count, and return a context manager that limits the bytes that its statements receive together.
        is_cancelled: whether a statement can be cancelled, so that the connection is kept.

        The block raises AnswerTooLarge. It must run in the task that calls this.
        """
        task = asyncio.current_task()
        assert task is not None
        self.received_bytes = 0
        self.is_over = False
        self._max_bytes = max_bytes
        self._rest_bytes = REST_BYTES if is_cancelled else 0
        self._task, self._cancelling = task, task.cancelling()
        return self

    def __enter__(self) -> ReceivedMeter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The connection outlives the task.
        task, self._task = self._task, None
        if not self.is_over:
            self._max_bytes = sys.maxsize
        elif kind is not None:
            assert task is not None
            # The request may also have been cancelled for another reason.
            is_alone = task.uncancel() <= self._cancelling
            if is_alone or kind is not asyncio.CancelledError:
                raise answer_too_large(self._max_bytes) from error

    def data_received(self, data: bytes) -> None:
        if self.answers.expected and not (data := self.answers.take(data)):
            return
        self.received_bytes += len(data)
        if self.received_bytes <= self._max_bytes or self._pass_on_excess():
            self._protocol.data_received(data)

    def _report(self, statement: PipelinedStatement) -> None:
        self._connection.statement_finished(statement.sql, statement.sent_at)

    def _pass_on_excess(self) -> bool:
        """Cancel the task. Returns whether bytes beyond the limit are still passed to asyncpg: a cancelled statement
        first sends the rest of the row that it has begun, and asyncpg needs it to be complete."""
        if not self.is_over and self._task is not None:
            self._task.cancel()
            # While nothing is read, PostgreSQL sends less. The cancel request goes over another connection.
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._transport.resume_reading)
        self.is_over = True
        if self.received_bytes <= self._max_bytes + self._rest_bytes:
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
