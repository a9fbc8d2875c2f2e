"""Limits that are stated for the whole server. What comes in: settings. What goes out: what one worker has of them.

The rule: it is divided among the workers, and each has at least one. It must not know: connections, requests.
"""

from __future__ import annotations

import logging
import resource
from contextlib import suppress

import msgspec

from server.settings import Settings, StartError

OWN_DESCRIPTORS = 100
"""Open files of a worker besides its connections: listening sockets, pipes, logs, and some for custom code."""

FEWEST_CONNECTIONS = 50
"""A worker that the system lets have fewer is of no use, unless the settings want no more."""

ADMIN_CONNECTIONS = 50
"""Of the port for health and metrics."""

MOST_DESCRIPTORS = 1_048_576

log = logging.getLogger("server")


class ConnectionLimits(msgspec.Struct, frozen=True):
    """What the clients of one worker may take. of_client: connections of one of them. unread_bytes: of answers that
    they do not read."""

    connections: int = 10_000
    of_client: int = 5_000
    unread_bytes: int = 2**29
    idle_seconds: float = 620.0
    head_seconds: float = 20.0
    write_seconds: float = 60.0


def share(total: int, workers: int) -> int:
    """What each worker has of what is stated for the server.

    >>> share(10, 4), share(2, 4)
    (2, 1)
    """
    return max(1, total // workers)


def streams_at_once(settings: Settings, size: int) -> int:
    """How many of a worker's connections may stream at once: by default a quarter, and not all, but two, so that one
    client cannot have them all. size: its connections."""
    if settings.max_streams is not None:
        return min(share(settings.max_streams, settings.workers), size)
    return max(1, min(max(2, size // 4), size - 1))


def connections_of_client(settings: Settings, size: int) -> int:
    """How many of a worker's connections the requests of one client may hold: by default half of them, rounded up."""
    most = settings.max_requests_per_client
    return (size + 1) // 2 if most is None else share(most, settings.workers)


def connection_limits(settings: Settings) -> ConnectionLimits:
    """Of one worker. Says so where the system does not let it have the connections that the settings would."""
    wanted = share(settings.max_connections, settings.workers)
    most = max(1, raise_descriptors() - _own_descriptors(settings))
    if most < wanted:
        log.warning("a worker has %d connections, not %d: the system does not let it open more files", most, wanted)
    connections = min(wanted, most)
    of_client = settings.max_connections_per_client
    return ConnectionLimits(
        connections=connections,
        of_client=max(1, connections // 2) if of_client is None else share(of_client, settings.workers),
        unread_bytes=share(settings.max_buffered_bytes, settings.workers),
        idle_seconds=settings.idle_connection_seconds,
        head_seconds=settings.header_timeout_seconds,
        write_seconds=settings.write_timeout_seconds,
    )


def admin_limits(settings: Settings) -> ConnectionLimits:
    """Of one worker, on the port for health and metrics. They are among its own descriptors."""
    return ConnectionLimits(
        connections=ADMIN_CONNECTIONS,
        of_client=ADMIN_CONNECTIONS,
        unread_bytes=share(settings.max_buffered_bytes, settings.workers),
        idle_seconds=settings.idle_connection_seconds,
        head_seconds=settings.header_timeout_seconds,
        write_seconds=settings.write_timeout_seconds,
    )


def check_descriptors(settings: Settings) -> None:
    """Raises StartError: the system lets a worker open too few files to be of use."""
    found = raise_descriptors()
    connections = min(FEWEST_CONNECTIONS, share(settings.max_connections, settings.workers))
    needed = _own_descriptors(settings) + connections
    if found < needed:
        raise StartError(
            f"the system lets a process open {found} files, and a worker needs {needed} for {connections} connections: "
            f"set LimitNOFILE= in the unit of systemd, or ulimit -n, to {needed} or more"
        )


def _own_descriptors(settings: Settings) -> int:
    return OWN_DESCRIPTORS + share(settings.pool_size, settings.workers)


def raise_descriptors() -> int:
    """Lets this process open as many files as the system allows, and gives their number: the 1024 that it begins with
    are meant for programs that call select()."""
    soft, hard = (_number(limit) for limit in resource.getrlimit(resource.RLIMIT_NOFILE))
    if soft < hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            return hard
    return soft


def _number(limit: int) -> int:
    return MOST_DESCRIPTORS if limit == resource.RLIM_INFINITY else min(limit, MOST_DESCRIPTORS)
