"""A new program takes over from the one that runs. What comes in: listening sockets. What goes out: another of this
program with them, or the pid of the one before.

It must not know: what either of them answers.

The sockets are handed over as systemd does it (sd_listen_fds(3)). The one before stays until the new one answers, which
then sends it SIGTERM.
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
    """Where this program was started by another one to take over from it; asked for once."""
    # As text: the first process of a container has the parent 0, and a signal to 0 would be for itself.
    parent = os.getppid()
    return parent if os.environ.pop(PREDECESSOR_VARIABLE, "") == str(parent) else None


def start_successor(listening: Listening, signals: Signals) -> int:
    """The pid of this program, started anew. Raises OSError."""
    before = os.getpid()
    return fork("the new program", signals, lambda: _be_successor(listening, before))


def _be_successor(listening: Listening, before: int) -> None:
    sockets = [*listening.main, *listening.admin]
    names = ["main"] * len(listening.main) + [ADMIN] * len(listening.admin)
    _place(sockets)
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
    """As this one was started; a binary is its own interpreter."""
    if getattr(sys, "frozen", False):
        return [sys.executable, *sys.argv[1:]]
    return [sys.executable, *sys.orig_argv[1:]]


def _place(sockets: Sequence[socket.socket]) -> None:
    """Puts them where the new program looks for them, from `FIRST_DESCRIPTOR` on, open across exec."""
    end = FIRST_DESCRIPTOR + len(sockets)
    # First out of each other's way.
    copies = [fcntl.fcntl(one.fileno(), fcntl.F_DUPFD_CLOEXEC, end) for one in sockets]
    for place, copy in enumerate(copies, FIRST_DESCRIPTOR):
        os.dup2(copy, place, inheritable=True)
