"""Runs one worker: an event loop that answers on listening sockets until SIGTERM.

What comes in: sockets, settings, declarations, the URL of a database. What goes out: responses, and reports that it is
ready and alive.

It must not know: the other workers, who opened the sockets, where the settings come from.

Order of the stop: the listening sockets, the requests in flight, the idle connections, the pool.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import msgspec

from querybuild.declarations.database_types.texts import VECTOR
from server.app import Routes, make_admin_server, make_app, make_server
from server.authentication.authenticator import Authenticator
from server.authentication.files import AuthFiles
from server.http.transport.connections import Server
from server.limits.balance import Balance
from server.limits.per_worker import share
from server.observing.shared_counters import SharedCounters
from server.observing.telemetry import Telemetry
from server.postgres.old_keys import remove_old_keys
from server.postgres.opening import open_database
from server.processes import memory
from server.processes.listening import Listening
from server.processes.reports import HEARTBEAT_SECONDS, Reports
from server.processes.stop_times import FINISH_SECONDS, LAST_PROBE_SECONDS, STOP_REASON_SECONDS
from server.processes.timeouts import enforce_timeouts
from server.schema.live_schema import LiveSchema
from server.settings import Settings
from server.startup.declarations import Declarations


class WorkerContext(msgspec.Struct, frozen=True, eq=False):
    """What a worker receives from the master and its generation."""

    generation: int
    reports: Reports
    counters: SharedCounters
    balance: Balance | None = None
    auth_files: AuthFiles = AuthFiles()


async def run_worker(
    listening: Listening,
    url: str,
    settings: Settings,
    declared: Declarations,
    schema: LiveSchema,
    context: WorkerContext,
) -> None:
    """Answer requests until SIGTERM, then finish the requests in flight."""
    context.reports.begun()
    telemetry = Telemetry(settings, context.counters, context.generation)
    size = share(settings.pool_size, settings.workers)
    database = await open_database(
        url,
        settings,
        size,
        telemetry,
        plans_depend_on_role=schema.plans_depend_on_role,
        has_vectors=any(attribute.type is VECTOR for resource in declared.catalog for attribute in resource.attributes),
    )
    authenticator = Authenticator(settings, context.auth_files, declared.authenticate)
    app = make_app(settings, declared.catalog, schema, database, declared.routes, authenticator)
    server, admin = make_server(app, settings, context.balance), make_admin_server(app, settings)
    _listen(server, listening.main)
    if context.balance is not None:
        context.balance.join()
    _listen(admin, listening.admin)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    # SIGINT is ignored: the parent passes it on as SIGTERM, after it has marked the stop of the whole server.
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    memory.tune_memory()
    telemetry.log_unhandled_errors()
    tasks = [
        telemetry.supervise("limits", partial(enforce_timeouts, [server, admin], app.running, settings)),
        telemetry.supervise("gauges", app.gauges.run),
        telemetry.supervise("reports", partial(_send_heartbeats, context.reports)),
        *[telemetry.supervise(name, work) for name, work in authenticator.tasks],
    ]
    if settings.keeps_answers and not settings.read_only:
        tasks.append(telemetry.supervise("keys", partial(remove_old_keys, database, settings.idempotency_hours)))
    context.reports.ready()
    try:
        await stop.wait()
    finally:
        await _stop(app, server, admin, listening, settings, context)
        for task in tasks:
            task.stop()
        authenticator.close()
        app.gauges.update()
        telemetry.close()


async def _stop(
    app: Routes, server: Server, admin: Server, listening: Listening, settings: Settings, context: WorkerContext
) -> None:
    """Accept no more connections, and drain the open ones."""
    app.health.is_stopping = True
    server.stop()
    server.end_after_answers()
    # A socket that is still open would accept connections that nobody answers.
    listening.close()
    if context.balance is not None:
        context.balance.leave()
    # systemd signals all processes at once. The master may mark the stop of the server after this worker got SIGTERM.
    await asyncio.sleep(STOP_REASON_SECONDS)
    # When the whole server stops, the admin port answers to the end. Otherwise the workers that stay answer there.
    stopping = [server] if context.counters.is_stopping else [server, admin]
    for http_server in stopping:
        http_server.stop()
    await drain(app, stopping, settings.drain_seconds)
    admin.stop()
    await _close_server(admin, LAST_PROBE_SECONDS)


def _listen(server: Server, sockets: Sequence[socket.socket]) -> None:
    """Duplicate the descriptors, because a server closes its own when it stops."""
    server.add_sockets([socket.socket(fileno=socket.dup(listener.fileno())) for listener in sockets])


async def _close_server(server: Server, seconds: float) -> None:
    """Close the connections when their requests are answered, or after `seconds`."""
    server.end_after_answers()
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await server.wait_until_empty()
    await server.close_all_connections()


async def _send_heartbeats(reports: Reports) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_SECONDS)
        reports.alive()


async def drain(app: Routes, servers: Sequence[Server], drain_seconds: float) -> None:
    """Finish the requests in flight, then close the connections, then the pool. After FINISH_SECONDS close all."""
    drained_at = asyncio.get_running_loop().time() + drain_seconds
    try:
        async with asyncio.timeout(FINISH_SECONDS):
            for server in servers:
                server.end_after_answers()
            await app.running.drain()
            # A client may send one more request on an open connection. The response says that it closes.
            with suppress(TimeoutError):
                async with asyncio.timeout_at(drained_at):
                    await asyncio.gather(*(server.wait_until_empty() for server in servers))
            await app.running.drain()
            await asyncio.gather(*(server.close_all_connections() for server in servers))
            app.health.close()
            await app.database.close()
    except TimeoutError:
        app.running.evict_all()
        app.database.terminate()
        # Their tasks see the closed connections before the loop ends.
        await asyncio.sleep(0)
