"""Answers readiness probes: ready, busy, or an error with the reason.

A busy server still counts as ready. Otherwise the load balancer would remove all busy servers at once.

Probes may come as often as they like. PostgreSQL's answer is cached for a second, and at most one ping runs at a time,
on a connection of its own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Literal

from querybuild.errors import ApiError
from server.authentication.authenticator import Authenticator
from server.errors import NotReady, Unavailable
from server.observing import metrics
from server.postgres.database import Database

CACHE_SECONDS = 1.0
PROBE_TIMEOUT_SECONDS = 0.9
"""How long a probe waits for PostgreSQL's answer. Kubernetes gives up after a second by default, and should get the
reason before."""

PING_TIMEOUT_SECONDS = 5.0
"""How long PostgreSQL has to answer, with the time to connect. Later probes wait for the same ping."""

log = logging.getLogger("server")


class Health:
    """The readiness of one worker."""

    def __init__(self, database: Database, authenticator: Authenticator) -> None:
        self._is_stopping = False
        self._database = database
        self._authenticator = authenticator
        self._telemetry = database.telemetry
        self._telemetry.meter.put(metrics.STOPPING, 0.0)
        self._pinged_at = float("-inf")
        self._ping: asyncio.Task[None] | None = None
        self._was_ready = True

    @property
    def is_stopping(self) -> bool:
        """Whether the worker has been told to stop, alone or with the whole server."""
        return self._is_stopping

    @is_stopping.setter
    def is_stopping(self, is_stopping: bool) -> None:
        self._is_stopping = is_stopping
        self._telemetry.meter.put(metrics.STOPPING, float(is_stopping))

    async def check(self) -> Literal["ready", "busy"]:
        """Return the status. Busy: every connection of the pool is in use, and requests wait for one.

        Raises NotReady, Unavailable, Busy, AuthUnavailable.
        """
        try:
            self._check_worker()
            if time.monotonic() > self._pinged_at + CACHE_SECONDS:
                await self._wait_for_ping()
        except ApiError as error:
            self._log_change(False, error.detail)
            raise
        self._log_change(True, "")
        return "busy" if self._database.pool_figures().is_busy else "ready"

    def close(self) -> None:
        """Cancel the ping that is under way."""
        if self._ping is not None:
            self._ping.cancel()

    def _check_worker(self) -> None:
        if self._telemetry.counters.is_stopping:
            raise NotReady("The server is stopping.")
        self._authenticator.check_ready()

    async def _wait_for_ping(self) -> None:
        # The result of a finished ping is old: only the probes that waited for it may use it.
        if self._ping is None or self._ping.done():
            self._ping = asyncio.create_task(self._ping_database())
            # asyncio reports an error that nobody retrieves. All probes may have timed out, so retrieve it here.
            self._ping.add_done_callback(lambda done: done.cancelled() or done.exception())
        ping = self._ping
        await asyncio.wait((ping,), timeout=PROBE_TIMEOUT_SECONDS)
        if not ping.done():
            raise Unavailable("The database does not answer in time; try again.")
        ping.result()

    async def _ping_database(self) -> None:
        await self._database.check(PING_TIMEOUT_SECONDS)
        self._pinged_at = time.monotonic()

    def _log_change(self, is_ready: bool, reason: str) -> None:
        if is_ready != self._was_ready:
            self._was_ready = is_ready
            log.log(
                logging.INFO if is_ready else logging.WARNING, "ready again" if is_ready else f"not ready: {reason}"
            )
