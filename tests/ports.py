"""Finds ports for servers of tests."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress


def free_port() -> int:
    """Return a port that is free, and that the system gives to no client: a client could take another one before the
    server listens."""
    while True:
        with suppress(OSError), socket.create_server(("127.0.0.1", 20_000 + secrets.randbelow(12_000))) as free:
            return int(free.getsockname()[1])
