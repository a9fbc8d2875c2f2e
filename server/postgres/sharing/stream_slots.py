"""Limits how many answers are streamed at once.

Each client may hold half of the slots. While a stream waits for a slot, a stream whose client has stopped reading is
ended: the one that has been stalled for the longest time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from server.postgres.sharing.shares import Shares

STALLED_SECONDS = 1.0
"""A stream is stalled if its reader has read nothing for this time. It may be ended for a stream that waits."""

CHECK_SECONDS = 0.25
"""How often a waiting stream looks for a stalled one."""


class StreamShareUsed(TimeoutError):
    """The client held its full share of slots for the whole time that it waited."""


class StreamReader:
    """The client of one stream. end: ends the stream. since: when the piece that it has not read yet was sent, by the
    monotonic clock. None if it has read all pieces."""

    def __init__(self, client: str | None, end: Callable[[], None]) -> None:
        self.client = client
        self.end = end
        self.since: float | None = None


class StreamSlots:
    """The stream slots of one process. The waiting clients take turns."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._turns = Shares(max(1, slots // 2))
        self._readers: set[StreamReader] = set()

    def take(self, reader: StreamReader) -> bool:
        """Take a slot. Return False if none is free for this client."""
        is_free = bool(self._free) and self._turns.take(reader.client)
        if is_free:
            self._free -= 1
            self._readers.add(reader)
        return is_free

    async def wait(self, reader: StreamReader, timeout_seconds: float) -> None:
        """Take a slot when one is free. Raises StreamShareUsed, TimeoutError."""
        if not self.take(reader):
            await self._wait_turn(reader.client, timeout_seconds)
            self._readers.add(reader)

    def give_back(self, reader: StreamReader) -> None:
        """Give a slot to the next client that waits."""
        self._readers.discard(reader)
        self._give_back(reader.client)

    async def _wait_turn(self, client: str | None, timeout_seconds: float) -> None:
        turn = self._turns.wait(client)
        try:
            async with asyncio.timeout(timeout_seconds):
                while not turn.done() and not self._make_room(client):
                    await asyncio.wait((turn,), timeout=CHECK_SECONDS)
                await turn
        except BaseException as error:
            self._turns.leave(client, turn)
            if turn.done() and not turn.cancelled():
                self._give_back(client)
            elif isinstance(error, TimeoutError) and not self._turns.may_take(client):
                raise StreamShareUsed from error
            raise

    def _give_back(self, client: str | None) -> None:
        self._turns.give_back(client)
        self._free += 1
        turn = self._turns.next()
        if turn is not None:
            self._free -= 1
            turn.set_result(None)

    def _make_room(self, client: str | None) -> bool:
        """End the stream that has been stalled for the longest time. Return whether there was one. If the client holds
        its full share, only its own streams are ended."""
        is_own = not self._turns.may_take(client)
        stalled = [
            (other.since, other)
            for other in self._readers
            if other.since is not None and (other.client == client or not is_own)
        ]
        since, reader = min(stalled, key=lambda each: each[0], default=(float("inf"), None))
        if reader is None or time.monotonic() - since < STALLED_SECONDS:
            return False
        # Its slot becomes free when the stream has ended.
        self._readers.discard(reader)
        reader.end()
        return True
