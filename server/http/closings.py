"""Connections that the server closes of its own accord. What comes in: the reason and the client of each. What goes
out: a count by reason, and one line of the log every few seconds, however many there are.

It must not know: connections, metrics.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from enum import StrEnum

TOLD_SECONDS = 5.0
"""At most one line in so many seconds."""

MOST_CLIENTS = 1000
"""More addresses are not told apart between two lines."""

OTHERS = "others"

log = logging.getLogger("server")


class Reason(StrEnum):
    """Each is the value of a label."""

    IDLE = "idle"
    LATE_HEAD = "late_head"
    UNREAD = "unread"
    MEMORY = "memory"
    CONNECTIONS = "max_connections"
    CLIENT = "max_connections_per_client"
    DESCRIPTORS = "descriptors"


_SILENT = frozenset({Reason.IDLE, Reason.LATE_HEAD})
"""What ends as it should has no line."""

_TOLD = {
    Reason.UNREAD: "%d connections were closed whose clients do not read (%s)",
    Reason.MEMORY: "%d connections were closed to have their memory back (%s)",
    Reason.CONNECTIONS: "%d connections were closed to make room for others: max_connections is reached (%s)",
    Reason.CLIENT: "%d connections were closed of clients that have max_connections_per_client (%s)",
    Reason.DESCRIPTORS: "%d connections were closed because the system lets no more files be opened (%s)",
}


class Closings:
    """The connections that one server has closed, until the log has told of them. count: is told the reason of each, at
    once."""

    def __init__(self, count: Callable[[Reason], None] = lambda _: None) -> None:
        self._count = count
        self._untold: dict[Reason, Counter[str]] = {}
        self._told_at = float("-inf")

    def note(self, reason: Reason, client: str) -> None:
        self._count(reason)
        if reason not in _SILENT:
            clients = self._untold.setdefault(reason, Counter())
            clients[client if client in clients or len(clients) < MOST_CLIENTS else OTHERS] += 1

    def tell(self, *, is_last: bool = False) -> None:
        """To be called every now and then, and once more at the end."""
        if not self._untold or (time.monotonic() - self._told_at < TOLD_SECONDS and not is_last):
            return
        self._told_at = time.monotonic()
        for reason, clients in self._untold.items():
            [(most, count)] = clients.most_common(1)
            log.warning(_TOLD[reason], clients.total(), f"{count} of {most}")
        self._untold.clear()
