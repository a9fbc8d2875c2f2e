"""Counts and logs the connections that the server closes by itself. What comes in: the reason and the client of each.
What goes out: a count by reason, and for each reason at most one log line every few seconds.

It must not know: connections, metrics.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from enum import StrEnum

LOG_INTERVAL_SECONDS = 5.0
"""The least time between two rounds of log lines."""

MAX_CLIENTS = 1000
"""How many addresses are counted separately between two log lines; further ones are counted together."""

OTHERS = "others"

log = logging.getLogger("server")


class Reason(StrEnum):
    """Why a connection was closed. Each is a label value of the metric."""

    IDLE = "idle"
    LATE_HEAD = "late_head"
    UNREAD = "unread"
    MEMORY = "memory"
    CONNECTIONS = "max_connections"
    CLIENT = "max_connections_per_client"
    DESCRIPTORS = "descriptors"


_SILENT = frozenset({Reason.IDLE, Reason.LATE_HEAD})
"""Normal ends, which are not logged."""

_MESSAGES = {
    Reason.UNREAD: "%d connections were closed whose clients do not read (%s)",
    Reason.MEMORY: "%d connections were closed to free their memory (%s)",
    Reason.CONNECTIONS: "%d connections were closed to make room for others: max_connections is reached (%s)",
    Reason.CLIENT: "%d connections were closed of clients that have reached max_connections_per_client (%s)",
    Reason.DESCRIPTORS: "%d connections were closed because the system allows no more open files (%s)",
}


class Closings:
    """The connections that one server has closed and not yet logged. count: called at once with the reason of each."""

    def __init__(self, count: Callable[[Reason], None] = lambda _: None) -> None:
        self._count = count
        self._unlogged: dict[Reason, Counter[str]] = {}
        self._logged_at = float("-inf")

    def record(self, reason: Reason, client: str) -> None:
        """Count one closed connection."""
        self._count(reason)
        if reason not in _SILENT:
            clients = self._unlogged.setdefault(reason, Counter())
            clients[client if client in clients or len(clients) < MAX_CLIENTS else OTHERS] += 1

    def log_closings(self, *, is_last: bool = False) -> None:
        """Log what was recorded, if the last time is long enough ago. Call it periodically, and once at the end."""
        if not self._unlogged or (time.monotonic() - self._logged_at < LOG_INTERVAL_SECONDS and not is_last):
            return
        self._logged_at = time.monotonic()
        for reason, clients in self._unlogged.items():
            [(client, count)] = clients.most_common(1)
            log.warning(_MESSAGES[reason], clients.total(), f"{count} of {client}")
        self._unlogged.clear()
