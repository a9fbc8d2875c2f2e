"""Runs one generation: a process that loads the declarations for some settings, and runs the workers that use them.

What comes in: what the master holds, and settings. What goes out: reports to the master. It ends on SIGTERM or when the
master ends.

It must not know: other generations, systemd.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec
import uvloop

from migrations import MigrationError
from server.authentication.authenticator import check_files, has_authentication
from server.limits.balance import Balance
from server.limits.per_worker import check_descriptors
from server.observing.audit import check_audit_log
from server.observing.logs import configure_logging
from server.observing.shared_counters import SharedCounters
from server.processes import workers
from server.processes.forks import ParentPipe, exit_with_parent
from server.processes.listening import Listening
from server.processes.stop_times import WORKER_SECONDS
from server.processes.worker import WorkerContext, run_worker
from server.settings import SETTINGS, Settings, StartError
from server.startup.access_table import closed_line, closed_types
from server.startup.start import declarations, prepare_database, say

SLOTS_PER_WORKER = 2
"""One for the worker, and one for an older worker that is about to end."""

log = logging.getLogger("server")


class Inherited(msgspec.Struct, frozen=True, eq=False):
    """What a generation inherits from the master. embedded_url: of the embedded PostgreSQL, if there is one. settings:
    those at the start of the master. counters: the counters that all workers share."""

    listening: Listening
    counters: SharedCounters
    embedded_url: str | None
    settings: Settings


def run_generation(
    inherited: Inherited, settings: Settings, count: int, context: WorkerContext, parent_pipe: ParentPipe
) -> None:
    """Run until SIGTERM. count: the number of workers at first; SIGTTIN adds more."""
    configure_logging(settings)
    try:
        _run(inherited, settings, count, context, parent_pipe)
    except (StartError, MigrationError) as error:
        context.reports.failed(str(error))


def _run(inherited: Inherited, settings: Settings, count: int, context: WorkerContext, parent_pipe: ParentPipe) -> None:
    """Start the workers and run until the generation ends. Raises StartError, MigrationError."""
    listening = inherited.listening
    url = _database_url(inherited, settings)
    check_descriptors(settings)
    check_audit_log(settings)
    if listening.admin and settings.admin_port is None:
        # The socket came from a socket unit, which defines the port.
        settings = msgspec.structs.replace(settings, admin_port=0)
    declared = declarations(settings)
    context = msgspec.structs.replace(context, auth_files=check_files(settings))
    schema = uvloop.run(prepare_database(url, settings, declared, is_reload=context.generation > 1))
    is_authenticated = has_authentication(settings, declared.authenticate)
    if closed := closed_types(declared.catalog, is_authenticated=is_authenticated):
        say(closed_line(closed))
    context.reports.loaded(settings.workers)

    answer = partial(run_worker, listening, url, settings, declared, schema)
    if settings.workers == 1:
        exit_with_parent(parent_pipe, WORKER_SECONDS)
        uvloop.run(answer(context))
    else:
        _run_workers(answer, context, listening, count, settings.workers, parent_pipe)


def _run_workers(
    answer: Callable[[WorkerContext], Coroutine[Any, Any, None]],
    context: WorkerContext,
    listening: Listening,
    count: int,
    max_count: int,
    parent_pipe: ParentPipe,
) -> None:
    """Run each worker in its own process. answer: what a worker does. count: how many there are at first."""
    balance = Balance(SLOTS_PER_WORKER * max_count)

    def work(_sockets: list[socket.socket], slot: int) -> None:
        balance.claim(slot)
        uvloop.run(answer(msgspec.structs.replace(context, balance=balance)))

    def on_exit(slot: int, pid: int) -> None:
        balance.free_slot(slot)
        context.reports.ended(pid)

    workers.run(
        listening.main,
        count,
        work,
        stop_seconds=WORKER_SECONDS,
        parent_pipe=parent_pipe,
        on_exit=on_exit,
        on_stop=listening.close,
        max_count=max_count,
    )


def _database_url(inherited: Inherited, settings: Settings) -> str:
    """Return the URL of the database. Raises StartError."""
    if (settings.database_url is None) != (inherited.embedded_url is not None):
        raise StartError("a change between the embedded database and another one needs a restart")
    for setting in SETTINGS:
        is_other = getattr(settings, setting.name) != getattr(inherited.settings, setting.name)
        if setting.takes_restart and is_other:
            log.warning("the change of %s needs a restart: the old value stays in effect", setting.name)
    return settings.database_url or inherited.embedded_url or ""
