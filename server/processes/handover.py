"""Hands the listening sockets over from a running program to a new one.

The sockets are passed as systemd passes them (sd_listen_fds(3)). The old program keeps running until the new one is
ready and sends it SIGTERM.

It must not know: what either of them answers.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
from collections.abc import Sequence

from server.processes.forks import Signals, fork
from server.processes.listening import ADMIN, Listening
from server.processes.systemd import FIRST_DESCRIPTOR
from server.settings import PREDECESSOR_VARIABLE


def predecessor() -> int | None:
    """Return the pid of the program that this one takes over from, or None. Call it once."""
    # Compared as text. The first process of a container has the parent 0, and a signal to 0 would reach itself.
    parent = os.getppid()
    return parent if os.environ.pop(PREDECESSOR_VARIABLE, "") == str(parent) else None


def start_successor(listening: Listening, signals: Signals) -> int:
    """Start this program again, with the sockets. Returns its pid. Raises OSError."""
    before = os.getpid()
    return fork("the new program", signals, lambda: _exec_successor(listening, before))


def _exec_successor(listening: Listening, before: int) -> None:
    sockets = [*listening.main, *listening.admin]
    names = ["main"] * len(listening.main) + [ADMIN] * len(listening.admin)
    _move_to_first_descriptors(sockets)
    variables = {
        "LISTEN_FDS": str(len(sockets)),
        "LISTEN_FDNAMES": ":".join(names),
        "LISTEN_PID": str(os.getpid()),
        PREDECESSOR_VARIABLE: str(before),
    }
    if "WATCHDOG_USEC" in os.environ:
        variables["WATCHDOG_PID"] = str(os.getpid())
    command = _command()
    os.execve(command[0], command, os.environ | variables)


def _command() -> list[str]:
    """Return the command that started this process. A binary is its own interpreter."""
    if getattr(sys, "frozen", False):
        return [sys.executable, *sys.argv[1:]]
    return [sys.executable, *sys.orig_argv[1:]]


def _move_to_first_descriptors(sockets: Sequence[socket.socket]) -> None:
    """Move the sockets to the descriptors from `FIRST_DESCRIPTOR` on, where the new program expects them, and keep them
    open across exec."""
    end = FIRST_DESCRIPTOR + len(sockets)
    # Copies above the range come first: a socket may have a descriptor that another one is moved to.
    copies = [fcntl.fcntl(listener.fileno(), fcntl.F_DUPFD_CLOEXEC, end) for listener in sockets]
    for descriptor, copy in enumerate(copies, FIRST_DESCRIPTOR):
        os.dup2(copy, descriptor, inheritable=True)
