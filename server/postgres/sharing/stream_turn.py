"""Begins the stream of a list in the transaction in which its first rows were read.

It must not know: what is read.
"""

from __future__ import annotations

from server.errors import Busy, TooManyStreams
from server.observing import metrics
from server.observing.telemetry import Telemetry
from server.postgres.connection import PostgresConnection
from server.postgres.pooler import milliseconds
from server.postgres.sharing.stream_slots import StreamReader, StreamSlots


class NoFreeSlot(TooManyStreams):
    """No slot is free for this client now."""


class NoSnapshot(Busy):
    """A stream needs a snapshot for several statements, and the work has none."""


class StreamTurn:
    """The stream of one request. timeout_seconds: the time limit of each statement. is_long: whether the list is known
    to be long. is_snapshot: whether the work runs in a snapshot. is_held: whether the request holds a slot."""

    def __init__(
        self,
        slots: StreamSlots,
        reader: StreamReader,
        telemetry: Telemetry,
        stream_seconds: float,
        timeout_seconds: float | None,
    ) -> None:
        self.is_long = self.is_snapshot = self.is_held = False
        self._slots = slots
        self._reader = reader
        self._telemetry = telemetry
        self._limits = {"idle_in_transaction_session_timeout": stream_seconds, "statement_timeout": timeout_seconds}

    async def begin(self, connection: PostgresConnection) -> None:
        """Take a slot, and let the transaction take as long as its client. Raises NoSnapshot, NoFreeSlot."""
        self.is_long = True
        if not self.is_snapshot:
            raise NoSnapshot("A list is long.")
        self.is_held = self.is_held or self._slots.take(self._reader)
        if not self.is_held:
            raise NoFreeSlot("Too many long answers are being sent.")
        self._telemetry.count(metrics.STREAMS)
        options = {name: milliseconds(seconds) for name, seconds in self._limits.items() if seconds is not None}
        # JIT is chosen by the cost of all rows, and its compilation would delay the first rows.
        options["jit"] = "off"
        await connection.execute("; ".join([f"SET LOCAL {name}={value}" for name, value in options.items()]))
