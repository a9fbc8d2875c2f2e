"""Keeps track of the requests of one worker: how many are running, how long each takes, and how one is cancelled.

What comes in: requests, as they begin and end. What goes out: whether one more may begin, and the cancellation of
requests that take too long.

It must not know: HTTP, documents, the database.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from server.errors import OutcomeUnknown, RequestTimeout
from server.limits.bodies import Bodies

Result = TypeVar("Result")


class ClientGone(Exception):
    """The client has closed its connection. Its work is cancelled and no response is sent."""


class CancelScope:
    """The work of one request, which is cancelled when the client goes or the request times out. No transaction and no
    lock outlives its request. is_shielded: whether a commit has begun, so that the work is not cancelled any more.
    is_unsure: whether a statement was cancelled that may have been committed."""

    def __init__(self) -> None:
        self.is_shielded = False
        self.is_unsure = False
        # More than one when custom code runs several tasks at once.
        self._tasks: set[asyncio.Task[Any]] = set()
        # Makes the exception that `run` raises. A stored exception would keep its frames alive, and they refer to this.
        self._make_error: Callable[[], Exception] | None = None
        self._is_statement = False

    async def run(self, work: Awaitable[Result]) -> Result:
        """Await the work. Raises ClientGone, RequestTimeout."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            return await work
        except asyncio.CancelledError as error:
            if self._make_error is None:
                raise RuntimeError("what the request was waiting for has been cancelled") from error
            task.uncancel()
            raise self._make_error() from None
        finally:
            self._tasks.discard(task)

    async def run_statement(self, work: Awaitable[Result]) -> Result:
        """Await a write that is its own transaction. PostgreSQL may have committed it before the cancellation arrives.

        Raises ClientGone, OutcomeUnknown.
        """
        self._is_statement = True
        try:
            return await self.run(work)
        finally:
            self._is_statement = False

    def shield(self) -> None:
        """Do not cancel the work from now on, even if the client goes."""
        self._tasks.clear()
        self.is_shielded = True

    def cancel(self) -> None:
        """Cancel the work because the client has gone: `run` raises ClientGone."""
        self.cancel_with(ClientGone)

    def time_out(self) -> None:
        """Cancel the work because the request took too long."""
        self.cancel_with(self._make_timeout_error)

    def cancel_with(self, make_error: Callable[[], Exception]) -> None:
        """Cancel the work: `run` raises what `make_error` returns."""
        if self._tasks:
            self._make_error = make_error
            self.is_unsure = self._is_statement
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    def timeout_error(self) -> Exception:
        """Return the error for a request that took too long. It says when the outcome of a write is unknown."""
        return self._make_timeout_error()

    @property
    def _make_timeout_error(self) -> Callable[[], Exception]:
        return _outcome_unknown if self.is_shielded or self._is_statement else _request_timeout


def _outcome_unknown() -> Exception:
    return OutcomeUnknown("The write took too long. Check whether it was done.")


def _request_timeout() -> Exception:
    return RequestTimeout("The request took too long.")


class CountedRequest(Protocol):
    """A request that is counted for its client while it is at work."""

    is_at_work: bool
    is_long: bool
    client: str


class RunningRequest(Protocol):
    """A request, as its handler represents it. sender: as what it is counted."""

    @property
    def sender(self) -> CountedRequest: ...

    def check_timeouts(self, now: float, began_at: float) -> None:
        """End the request if it takes too long."""

    def evict(self, why: str) -> None:
        """Close the connection, as if the client had gone."""

    def shutdown(self) -> None:
        """Prepare for the stop of the server: close the connection after this response, and do not wait for the rest of
        a body."""


class Running:
    """The requests of one worker. A stop waits until the last byte of each response has been sent.

    streams: how many requests are streaming. at_work: how many are complete (head and body have arrived) and have no
    response yet. long: how many of these have a long answer, as a stream is."""

    def __init__(self, max_requests: int = sys.maxsize, max_body_bytes: int = sys.maxsize) -> None:
        self.streams = 0
        self.at_work = 0
        self.long = 0
        self._had_short = False
        self._max_requests = max_requests
        self._client_limit = max(1, max_requests // 2)
        self._at_work_by_client: dict[str, int] = {}
        self.imports = asyncio.Lock()
        self.bodies = Bodies(max_body_bytes)
        self._requests: dict[RunningRequest, float] = {}
        self._is_stopping = False
        self._is_empty = asyncio.Event()

    @property
    def is_crowded(self) -> bool:
        """Whether so many requests are at work that one more may be refused."""
        return self.at_work >= self._client_limit

    @property
    def is_full(self) -> bool:
        """Whether as many requests are at work as are allowed."""
        return self.at_work >= self._max_requests

    def is_at_client_limit(self, client: str) -> bool:
        """Return whether the client has as many requests at work as one client may have: half of the limit. Otherwise
        the requests of one client that wait for a connection would keep other clients out."""
        return self.at_work >= self._client_limit <= self._at_work_by_client.get(client, 0)

    @property
    def has_short(self) -> bool:
        """Whether a request is at work whose answer is not long."""
        return self.at_work > self.long

    def had_short(self) -> bool:
        """Return whether a request whose answer is not long was at work since the last call, or is now."""
        had, self._had_short = self._had_short, False
        return had or self.has_short

    def add(self, request: RunningRequest, began_at: float) -> None:
        """Track a request from its first byte on."""
        self._requests[request] = began_at
        if self._is_stopping:
            request.shutdown()

    def begin(self, request: CountedRequest) -> None:
        """Count the request as at work, because it is complete."""
        request.is_at_work = True
        self.at_work += 1
        self._at_work_by_client[request.client] = self._at_work_by_client.get(request.client, 0) + 1

    def end(self, request: CountedRequest) -> None:
        """Stop counting the request as at work: its response is ready, or its client has gone."""
        if not request.is_at_work:
            return
        request.is_at_work = False
        self.at_work -= 1
        if request.is_long:
            request.is_long = False
            self.long -= 1
        else:
            self._had_short = True
        left = self._at_work_by_client[request.client] - 1
        if left:
            self._at_work_by_client[request.client] = left
        else:
            del self._at_work_by_client[request.client]

    def expect_long(self, request: CountedRequest) -> None:
        """Count the answer of the request as long. Long answers make no pauses for each other."""
        if request.is_at_work and not request.is_long:
            request.is_long = True
            self.long += 1

    def move(self, request: CountedRequest, client: str) -> None:
        """Count the request for another client, because its principal is known now."""
        is_at_work, had_short = request.is_at_work, self._had_short
        self.end(request)
        self._had_short = had_short
        request.client = client
        if is_at_work:
            self.begin(request)

    def discard(self, request: RunningRequest) -> None:
        """Stop tracking the request: the response has been sent, or the connection is closed."""
        self.end(request.sender)
        self._requests.pop(request, None)
        if self._is_stopping and not self._requests:
            self._is_empty.set()

    async def drain(self) -> None:
        """Wait until all requests are finished."""
        self._is_stopping = True
        for request in list(self._requests):
            request.shutdown()
        while self._requests:
            self._is_empty.clear()
            await self._is_empty.wait()

    def evict_all(self) -> None:
        """Close the connections of all requests that are left, because the stop does not wait any longer."""
        for request in list(self._requests):
            request.evict("the server stops")

    def check_timeouts(self) -> None:
        """End the requests that take too long. Call it at intervals."""
        now = time.monotonic()
        for request, began_at in list(self._requests.items()):
            request.check_timeouts(now, began_at)
