"""Divides the limits of the whole server among its workers.

Each worker gets at least one of everything. It must not know: connections, requests.
"""

from __future__ import annotations

import logging
import resource
from contextlib import suppress

import msgspec

from server.settings import Settings, StartError

OWN_DESCRIPTORS = 100
"""Open files of a worker besides its connections: listening sockets, pipes, logs, and some for custom code."""

MIN_CONNECTIONS = 50
"""The start fails if the system allows a worker fewer connections, unless the settings ask for fewer."""

ADMIN_CONNECTIONS = 50
"""The limit for the port for health and metrics."""

MAX_DESCRIPTORS = 1_048_576

log = logging.getLogger("server")


class ConnectionLimits(msgspec.Struct, frozen=True):
    """The limits of one worker's connections. per_client: connections of one client. unread_bytes: bytes of answers
    that clients have not read. *_seconds: timeouts."""

    connections: int = 10_000
    per_client: int = 5_000
    unread_bytes: int = 2**29
    idle_seconds: float = 620.0
    head_seconds: float = 20.0
    write_seconds: float = 60.0


def share(total: int, workers: int) -> int:
    """Return one worker's share of a limit for the whole server.

    >>> share(10, 4), share(2, 4)
    (2, 1)
    """
    return max(1, total // workers)


def max_streams_per_worker(settings: Settings, size: int) -> int:
    """Return how many of a worker's database connections may stream at once. By default a quarter of them: at least
    two, so that one client cannot have all streams, but never all connections. size: how many the worker has."""
    if settings.max_streams is not None:
        return min(share(settings.max_streams, settings.workers), size)
    return max(1, min(max(2, size // 4), size - 1))


def max_connections_per_client(settings: Settings, size: int) -> int:
    """Return how many of a worker's database connections one client may hold. By default half of them, rounded up."""
    limit = settings.max_requests_per_client
    return (size + 1) // 2 if limit is None else share(limit, settings.workers)


def has_spare_connection(settings: Settings) -> bool:
    """Return whether a worker may open one database connection more than its share, for a client that finds all of them
    in use by another client."""
    return settings.max_requests_per_client is None


def connection_limits(settings: Settings) -> ConnectionLimits:
    """Return the limits of one worker. Logs a warning if the system allows fewer connections than the settings."""
    wanted = share(settings.max_connections, settings.workers)
    possible = max(1, raise_descriptors() - _own_descriptors(settings))
    if possible < wanted:
        log.warning("a worker has %d connections, not %d: the system does not let it open more files", possible, wanted)
    connections = min(wanted, possible)
    per_client = settings.max_connections_per_client
    return ConnectionLimits(
        connections=connections,
        per_client=max(1, connections // 2) if per_client is None else share(per_client, settings.workers),
        unread_bytes=share(settings.max_buffered_bytes, settings.workers),
        idle_seconds=settings.idle_connection_seconds,
        head_seconds=settings.header_timeout_seconds,
        write_seconds=settings.write_timeout_seconds,
    )


def admin_limits(settings: Settings) -> ConnectionLimits:
    """Return the limits of one worker on the port for health and metrics. OWN_DESCRIPTORS includes these
    connections."""
    return ConnectionLimits(
        connections=ADMIN_CONNECTIONS,
        per_client=ADMIN_CONNECTIONS,
        unread_bytes=share(settings.max_buffered_bytes, settings.workers),
        idle_seconds=settings.idle_connection_seconds,
        head_seconds=settings.header_timeout_seconds,
        write_seconds=settings.write_timeout_seconds,
    )


def check_descriptors(settings: Settings) -> None:
    """Check that a worker may open enough files. Raises StartError."""
    descriptors = raise_descriptors()
    connections = min(MIN_CONNECTIONS, share(settings.max_connections, settings.workers))
    needed = _own_descriptors(settings) + connections
    if descriptors < needed:
        raise StartError(
            f"the system lets a process open {descriptors} files, "
            f"and a worker needs {needed} for {connections} connections: "
            f"set LimitNOFILE= in the unit of systemd, or ulimit -n, to {needed} or more"
        )


def _own_descriptors(settings: Settings) -> int:
    return OWN_DESCRIPTORS + share(settings.pool_size, settings.workers) + has_spare_connection(settings)


def raise_descriptors() -> int:
    """Raise the soft limit of open files to the hard limit, and return it. The default soft limit of 1024 is only for
    programs that call select()."""
    soft, hard = (_number(limit) for limit in resource.getrlimit(resource.RLIMIT_NOFILE))
    if soft < hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            return hard
    return soft


def _number(limit: int) -> int:
    return MAX_DESCRIPTORS if limit == resource.RLIM_INFINITY else min(limit, MAX_DESCRIPTORS)
