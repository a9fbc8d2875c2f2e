"""One generation of workers: a process that takes the settings and runs the workers that go by them. What comes in:
what the master holds, and how to read the settings. What goes out: reports; the end, when SIGTERM or the master's end
comes.

It must not know: other generations, systemd.
"""

from __future__ import annotations

import logging
import socket

import msgspec
import uvloop

from migrations import MigrationError
from server.http.balance import Balance
from server.limits import check_descriptors
from server.observing.board import Board
from server.observing.logs import configure_logging
from server.processes import workers
from server.processes.forks import Life, outlive_no_parent
from server.processes.listening import Listening
from server.processes.stop_times import WORKER_SECONDS
from server.processes.worker import Post, answer
from server.settings import SETTINGS, Settings, StartError
from server.start import declarations, prepare_database

PLACES_PER_WORKER = 2
"""Beside each there may be one that is about to end."""

log = logging.getLogger("server")


class Inherited(msgspec.Struct, frozen=True, eq=False):
    """What outlives generations. embedded_url: of the embedded PostgreSQL, if there is one. settings: those at the
    start of the master. board: on which all workers count."""

    listening: Listening
    board: Board
    embedded_url: str | None
    settings: Settings


def run_generation(inherited: Inherited, settings: Settings, count: int, post: Post, life: Life) -> None:
    """count: how many workers to begin with; more come by SIGTTIN."""
    configure_logging(settings)
    try:
        _run(inherited, settings, count, post, life)
    except (StartError, MigrationError) as error:
        post.reports.failed(str(error))


def _run(inherited: Inherited, settings: Settings, count: int, post: Post, life: Life) -> None:
    """Raises StartError, MigrationError."""
    listening = inherited.listening
    url = _database_url(inherited, settings)
    check_descriptors(settings)
    if listening.admin and settings.admin_port is None:
        # It came from a socket unit, which knows the number.
        settings = msgspec.structs.replace(settings, admin_port=0)
    declared = declarations(settings)
    schema = uvloop.run(prepare_database(url, settings, declared.catalog, is_reload=post.generation > 1))
    post.reports.loaded(settings.workers)

    balance = Balance(PLACES_PER_WORKER * settings.workers)

    def work(_sockets: list[socket.socket], place: int) -> None:
        balance.take(place)
        uvloop.run(answer(listening, url, settings, declared, schema, msgspec.structs.replace(post, balance=balance)))

    def ended(place: int, pid: int) -> None:
        balance.free(place)
        post.reports.ended(pid)

    if settings.workers == 1:
        outlive_no_parent(life, WORKER_SECONDS)
        uvloop.run(answer(listening, url, settings, declared, schema, post))
    else:
        workers.run(
            listening.main,
            count,
            work,
            stop_seconds=WORKER_SECONDS,
            life=life,
            ended=ended,
            stopping=listening.close,
            whole=settings.workers,
        )


def _database_url(inherited: Inherited, settings: Settings) -> str:
    """Raises StartError."""
    if (settings.database_url is None) != (inherited.embedded_url is not None):
        raise StartError("from an embedded database to another one, and back, takes a restart")
    for setting in SETTINGS:
        is_other = getattr(settings, setting.name) != getattr(inherited.settings, setting.name)
        if setting.takes_restart and is_other:
            log.warning("%s has changed, which takes a restart: it stays as it was", setting.name)
    return settings.database_url or inherited.embedded_url or ""
