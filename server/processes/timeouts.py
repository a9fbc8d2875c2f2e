"""Closes the connections and ends the requests of one worker that take too long.

One task checks all of them at intervals. This costs less than a timer for each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from server.http.transport.connections import Server
from server.limits.running import Running
from server.settings import Settings

CHECK_SECONDS = 1.0
"""The longest time between two checks."""


async def enforce_timeouts(servers: Sequence[Server], running: Running, settings: Settings) -> None:
    """Check the timeouts for ever. A timeout takes effect at most a tenth of the shortest one late, and at most
    CHECK_SECONDS late."""
    shortest = min(
        settings.idle_connection_seconds,
        settings.header_timeout_seconds,
        settings.body_timeout_seconds,
        settings.request_timeout_seconds,
        settings.write_timeout_seconds,
    )
    while True:
        await asyncio.sleep(min(CHECK_SECONDS, shortest / 10))
        for server in servers:
            await server.check_timeouts()
        running.check_timeouts()
