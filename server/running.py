"""The requests of one worker: how many are at work, how long each takes, and how one is given up. What comes in:
requests, as they begin and end. What goes out: whether there is room for one more, and an end for what takes too long.

It must not know: HTTP, documents, the database.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from server.bodies import Bodies
from server.errors import OutcomeUnknown, RequestTimeout

Result = TypeVar("Result")


class ClientGone(Exception):
    """The client has closed its connection: what was under way for it is given up, and there is nobody to answer."""


class Lifeline:
    """Work that is given up when the client goes or time is up, so that no transaction and no lock outlives its
    request. is_let_go: whether something of it has begun to be committed."""

    def __init__(self) -> None:
        self.is_let_go = False
        # More than one where custom code waits for several things at once.
        self._tasks: set[asyncio.Task[Any]] = set()
        # What the work ends with. Not an exception, which would hold the frames that hold this.
        self._ending: Callable[[], Exception] | None = None
        self._is_unsure = False

    async def run(self, work: Awaitable[Result]) -> Result:
        """Raises ClientGone, RequestTimeout."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            return await work
        except asyncio.CancelledError as error:
            if self._ending is None:
                raise RuntimeError("what the request was waiting for has been cancelled") from error
            task.uncancel()
            raise self._ending() from None
        finally:
            self._tasks.discard(task)

    async def run_statement(self, work: Awaitable[Result]) -> Result:
        """A write that is its own transaction: PostgreSQL may have done it before it hears that it is not wanted.

        Raises ClientGone, OutcomeUnknown.
        """
        self._is_unsure = True
        try:
            return await self.run(work)
        finally:
            self._is_unsure = False

    def let_go(self) -> None:
        """From here on the work is finished, whoever is there to hear of it."""
        self._tasks.clear()
        self.is_let_go = True

    def cut(self) -> None:
        """The client has gone."""
        self._cut(ClientGone)

    def time_out(self) -> None:
        self._cut(self._lateness)

    def end(self, error: Callable[[], Exception]) -> None:
        """error: makes what `run` raises."""
        self._cut(error)

    def too_late(self) -> Exception:
        """What a client is told whose time is up: not that nothing was written, where that is not known."""
        return self._lateness()

    @property
    def _lateness(self) -> Callable[[], Exception]:
        return _unsure if self.is_let_go or self._is_unsure else _late

    def _cut(self, ending: Callable[[], Exception]) -> None:
        if self._tasks:
            self._ending = ending
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()


def _unsure() -> Exception:
    return OutcomeUnknown("The write was not done in time: look whether it was done after all.")


def _late() -> Exception:
    return RequestTimeout("The request took longer than a request may.")


class Underway(Protocol):
    """A request, as its handler has it."""

    is_at_work: bool
    client: str

    def look(self, now: float, began_at: float) -> None:
        """Ends what takes too long."""

    def evict(self, why: str) -> None:
        """Closes the connection, as if its client had gone."""

    def hurry(self) -> None:
        """The server stops: this answer is the last of its connection, and half a body is not waited for."""


class Running:
    """streams: how many requests stream. at_work: how many are being answered: all is there that they need, and the
    answer is not ready. A stop waits for all of them, until the last byte of the answer has been sent."""

    def __init__(self, most_requests: int = sys.maxsize, most_body_bytes: int = sys.maxsize) -> None:
        self.streams = 0
        self.at_work = 0
        self._most_requests = most_requests
        self._most_of_client = max(1, most_requests // 2)
        self._of_client: dict[str, int] = {}
        self.bodies = Bodies(most_body_bytes)
        self._underway: dict[Underway, float] = {}
        self._is_stopping = False
        self._none_left = asyncio.Event()

    @property
    def is_full(self) -> bool:
        return self.at_work >= self._most_requests

    def has_most(self, client: str) -> bool:
        """Whether the client has as many at work as one client may: half of what is possible, so that those of one
        client that wait for a connection keep nobody else out."""
        return self.at_work >= self._most_of_client <= self._of_client.get(client, 0)

    @property
    def has_others(self) -> bool:
        """Whether anything is at work that does not stream."""
        return self.at_work > self.streams

    def add(self, one: Underway, began_at: float) -> None:
        self._underway[one] = began_at
        if self._is_stopping:
            one.hurry()

    def begin(self, one: Underway) -> None:
        one.is_at_work = True
        self.at_work += 1
        self._of_client[one.client] = self._of_client.get(one.client, 0) + 1

    def end(self, one: Underway) -> None:
        """Its answer is ready, or nobody waits for one."""
        if not one.is_at_work:
            return
        one.is_at_work = False
        self.at_work -= 1
        left = self._of_client[one.client] - 1
        if left:
            self._of_client[one.client] = left
        else:
            del self._of_client[one.client]

    def discard(self, one: Underway) -> None:
        self.end(one)
        self._underway.pop(one, None)
        if self._is_stopping and not self._underway:
            self._none_left.set()

    async def finished(self) -> None:
        """Waits for all."""
        self._is_stopping = True
        for one in list(self._underway):
            one.hurry()
        while self._underway:
            self._none_left.clear()
            await self._none_left.wait()

    def let_all_fall(self) -> None:
        """The stop waits no longer."""
        for one in list(self._underway):
            one.evict("the server stops")

    def look(self) -> None:
        """To be called every now and then."""
        now = time.monotonic()
        for one, began_at in list(self._underway.items()):
            one.look(now, began_at)
