"""Opens the database with its pool, and connections outside of the pool: with which hosts, settings and limits."""

from __future__ import annotations

from functools import partial
from typing import Any

import asyncpg

from server.limits.per_worker import has_spare_connection, max_streams_per_worker
from server.observing.telemetry import Telemetry
from server.postgres.connection import PostgresConnection
from server.postgres.database import GRACE_SECONDS, Database
from server.postgres.hosts import Hosts, keepalive_settings
from server.postgres.pool import UNUSED_CONNECTION_SECONDS
from server.postgres.pooler import SESSION, PooledConnection, check_backend, timeouts
from server.postgres.probe import Probe
from server.postgres.row_security.connection import PooledRoleConnection, RoleConnection
from server.postgres.temp_files import connector
from server.settings import Settings

PREPARED_STATEMENTS = 256
"""How many prepared statements each connection caches."""

PREPARED_STATEMENT_BYTES = 4096
"""Longer statements are not cached: 300 cached long filters made a backend of PostgreSQL grow by 200 MB."""

NEAREST = {"hnsw.iterative_scan": "strict_order"}
"""An index of pgvector goes on until a filter has found as many rows as are wanted."""

CUSTOM_PLANS = {"plan_cache_mode": "force_custom_plan"}
"""PostgreSQL keeps no plans of statements. Through a pooler for transactions it keeps none anyway."""


async def open_database(
    url: str,
    settings: Settings,
    size: int,
    telemetry: Telemetry | None = None,
    *,
    plans_depend_on_role: bool = False,
    has_vectors: bool = False,
) -> Database:
    """Open the database, with a pool of `size` connections, and a spare one if clients may borrow. telemetry: the
    worker's. plans_depend_on_role: whether statements are planned each time. has_vectors: whether reads may ask for the
    nearest vectors. Raises asyncpg's errors if the database cannot be reached."""
    telemetry = telemetry or Telemetry(settings)
    session = _session(settings)
    if settings.pooler != "transaction":
        session["server_settings"] |= (CUSTOM_PLANS if plans_depend_on_role else {}) | (NEAREST if has_vectors else {})

    async def begin(connection: Any) -> None:
        connection.on_open(telemetry)

    pool = await asyncpg.create_pool(
        url,
        connect=connector(url, settings),
        # Opens none at the start: a worker that starts while the database is down answers 503 until it is up.
        min_size=0,
        max_size=size + has_spare_connection(settings),
        init=begin,
        max_inactive_connection_lifetime=UNUSED_CONNECTION_SECONDS,
        # PostgreSQL ends a statement that takes too long. This timeout ends the wait when PostgreSQL is silent, or
        # cannot be interrupted, for example while it compiles a regular expression.
        command_timeout=settings.statement_timeout_seconds + min(GRACE_SECONDS, settings.network_timeout_seconds),
        statement_cache_size=PREPARED_STATEMENTS,
        max_cacheable_statement_size=PREPARED_STATEMENT_BYTES,
        **session,
    )
    # The probe has its own list of hosts: it finds the host that answers, whatever the pool tried last.
    probe = Probe(partial(connector(url, settings), **session))
    return Database(pool, probe, settings, max_streams_per_worker(settings, size), telemetry)


async def open_alone(url: str, settings: Settings) -> PostgresConnection:
    """Open a connection outside of the pool, without its time limits, for the work before the first request.

    Raises asyncpg's errors, and StartError if a pooler's backends lack the settings that they need.
    """
    is_pooled = settings.pooler == "transaction"
    connection = await Hosts(url, settings).connect(
        connection_class=PooledConnection if is_pooled else PostgresConnection
    )
    try:
        if is_pooled:
            await check_backend(connection, settings)
    except BaseException:
        connection.terminate()
        raise
    return connection


def _session(settings: Settings) -> dict[str, Any]:
    name, has_roles = {"application_name": "waterspout"}, settings.has_row_security
    if settings.pooler == "transaction":
        pooled = PooledRoleConnection if has_roles else PooledConnection
        return {"connection_class": pooled, "server_settings": name}
    silence = keepalive_settings(settings.network_timeout_seconds)
    own = RoleConnection if has_roles else PostgresConnection
    return {"connection_class": own, "server_settings": name | SESSION | timeouts(settings) | silence}
