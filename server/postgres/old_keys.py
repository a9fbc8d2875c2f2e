"""Removes the kept answers of old Idempotency-Keys, in small batches, so that no long transaction holds other work up.

What comes in: the database. What goes out: how many were removed, as a metric. Any number of workers and servers may
run it: one of them at a time removes.
"""

from __future__ import annotations

import asyncio
import logging
import random

from querybuild.errors import ApiError
from server.observing import metrics
from server.postgres.connection import PostgresConnection
from server.postgres.database import Database

EVERY_SECONDS, PAUSE_SECONDS = 60.0, 0.1
BATCH_ROWS = 500

_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended('waterspout old keys',0))"
_REMOVE = f"""
DELETE FROM waterspout.idempotency_keys WHERE id IN (
    SELECT id FROM waterspout.idempotency_keys WHERE created_at <= now() - make_interval(hours => $1::int)
    ORDER BY created_at LIMIT {BATCH_ROWS} FOR UPDATE SKIP LOCKED
) RETURNING 1
"""

log = logging.getLogger("server")


async def remove_old_keys(database: Database, hours: int) -> None:
    """Remove answers that are older than this, now and then, until it is cancelled."""
    while True:
        # Random, so that the workers of many servers take turns.
        await asyncio.sleep(random.uniform(0.5, 1.5) * EVERY_SECONDS)
        try:
            await remove_all(database, hours)
        except ApiError as error:
            log.warning("old idempotency keys could not be removed, and are tried again: %s", error.detail)


async def remove_all(database: Database, hours: int) -> None:
    """Remove all answers that are older than this, unless another worker does so. Raises what `Database.write`
    raises."""
    as_server = database.acting_as_server("write")

    async def remove(connection: PostgresConnection) -> int:
        if not await connection.fetchval(_LOCK):
            return 0
        return len(await connection.fetch(_REMOVE, hours))

    while count := await as_server.write(remove):
        database.telemetry.meter.add(metrics.KEYS_REMOVED, amount=count)
        if count < BATCH_ROWS:
            return
        await asyncio.sleep(PAUSE_SECONDS)
