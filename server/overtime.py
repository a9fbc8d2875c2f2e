"""The end of what takes too long. What comes in: the connections and the requests of one worker. What goes out: a look
at all of them every now and then, which costs less than a timer for each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from server.http.connections import Server
from server.running import Running
from server.settings import Settings

LOOK_SECONDS = 1.0


async def end_overtime(servers: Sequence[Server], running: Running, settings: Settings) -> None:
    """Looks, for ever. What is over a limit is ended a tenth of the shortest one too late, and at most LOOK_SECONDS."""
    shortest = min(
        settings.idle_connection_seconds,
        settings.header_timeout_seconds,
        settings.body_timeout_seconds,
        settings.request_timeout_seconds,
        settings.write_timeout_seconds,
    )
    while True:
        await asyncio.sleep(min(LOOK_SECONDS, shortest / 10))
        for server in servers:
            await server.look()
        running.look()
