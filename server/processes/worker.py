"""One worker: an event loop that answers on listening sockets until SIGTERM. What comes in: sockets, settings,
declarations, a database's URL. What goes out: answers, and reports that it is ready and alive.

It must not know: the other workers, who opened the sockets, where the settings come from.

Order of the stop: no more connections, the requests in flight, the connections that wait for one, the pool.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import msgspec

from server.app import Routes, make_admin_server, make_app, make_server
from server.declarations import Declarations
from server.http.balance import Balance
from server.http.connections import Server
from server.limits import share
from server.live_schema import LiveSchema
from server.observing.board import Board
from server.observing.watch import Watch
from server.postgres.database import open_database
from server.processes import memory
from server.processes.listening import Listening
from server.processes.reports import BEAT_SECONDS, Reports
from server.processes.stop_times import FINISH_SECONDS, HEARSAY_SECONDS, LAST_PROBE_SECONDS
from server.settings import Settings
from server.timeouts import enforce_timeouts


class Post(msgspec.Struct, frozen=True, eq=False):
    """What a worker is given by those above it."""

    generation: int
    reports: Reports
    board: Board
    balance: Balance | None = None


async def answer(
    listening: Listening, url: str, settings: Settings, declared: Declarations, schema: LiveSchema, post: Post
) -> None:
    """Answers until a signal, then lets the requests in flight finish."""
    post.reports.begun()
    watch = Watch(settings, post.board, post.generation)
    database = await open_database(url, settings, share(settings.pool_size, settings.workers), watch)
    app = make_app(settings, declared.catalog, schema, database, declared.routes)
    server, admin = make_server(app, settings, post.balance), make_admin_server(app, settings)
    _listen(server, listening.main)
    if post.balance is not None:
        post.balance.join()
    _listen(admin, listening.admin)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    # Not SIGINT, which the parent passes on in this form: by itself the worker could not know that all are to end.
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    memory.settle()
    watch.tell_of_other_tasks()
    tasks = [
        watch.supervise("limits", partial(enforce_timeouts, [server, admin], app.running, settings)),
        watch.supervise("gauges", app.gauges.run),
        watch.supervise("reports", partial(_beat, post.reports)),
    ]
    post.reports.ready()
    try:
        await stop.wait()
    finally:
        await _leave(app, server, admin, listening, settings, post)
        for task in tasks:
            task.stop()
        app.gauges.update()
        watch.close()


async def _leave(
    app: Routes, server: Server, admin: Server, listening: Listening, settings: Settings, post: Post
) -> None:
    """Takes no more connections, and finishes with those that there are."""
    app.health.is_stopping = True
    server.stop()
    server.end_after_answers()
    # What is open still would go on taking connections, which nobody answers.
    listening.close()
    if post.balance is not None:
        post.balance.leave()
    # systemd tells all processes at once: this one may hear of the end of all before the master has written it.
    await asyncio.sleep(HEARSAY_SECONDS)
    # Of the end of all the admin port tells to the last; else it is for the workers that stay to answer there.
    leaving = [server] if post.board.is_ending else [server, admin]
    for one in leaving:
        one.stop()
    await finish(app, leaving, settings.drain_seconds)
    admin.stop()
    await _close(admin, LAST_PROBE_SECONDS)


def _listen(server: Server, sockets: Sequence[socket.socket]) -> None:
    """On descriptors of its own: a server closes them when it stops."""
    server.add_sockets([socket.socket(fileno=socket.dup(one.fileno())) for one in sockets])


async def _close(server: Server, seconds: float) -> None:
    """Who has asked is answered, if that does not take longer."""
    server.end_after_answers()
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await server.last_connection()
    await server.close_all_connections()


async def _beat(reports: Reports) -> None:
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        reports.alive()


async def finish(app: Routes, servers: Sequence[Server], drain_seconds: float) -> None:
    """The requests in flight, then the connections, then the pool."""
    drained_at = asyncio.get_running_loop().time() + drain_seconds
    try:
        async with asyncio.timeout(FINISH_SECONDS):
            for one in servers:
                one.end_after_answers()
            await app.running.drain()
            # Who keeps a connection and asks once more gets an answer, and hears in it that it is the last.
            with suppress(TimeoutError):
                async with asyncio.timeout_at(drained_at):
                    await asyncio.gather(*(one.last_connection() for one in servers))
            await app.running.drain()
            await asyncio.gather(*(one.close_all_connections() for one in servers))
            app.health.close()
            await app.database.close()
    except TimeoutError:
        app.running.evict_all()
        app.database.terminate()
        # Their tasks hear of it before the loop ends.
        await asyncio.sleep(0)
