"""Opens the sockets that the server listens on.

What comes in: settings, or sockets that systemd or another server hands over. What goes out: listening sockets.

It must not know: what answers on them.
"""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
from tornado.netutil import bind_sockets, bind_unix_socket

from server.processes import systemd
from server.settings import Settings, StartError

BACKLOG = 1024
"""How many connections may wait to be accepted. The system has a limit of its own (net.core.somaxconn)."""

ADMIN = "admin"
"""The name that a socket unit gives to the socket for health and metrics."""


class Listening(msgspec.Struct, frozen=True, eq=False):
    """The listening sockets. main: for requests. admin: for health and metrics, if they have a port of their own.
    paths: of the Unix sockets that this server has created."""

    main: list[socket.socket]
    admin: list[socket.socket]
    paths: tuple[Path, ...] = ()

    @property
    def address(self) -> str:
        """The address of the first socket, as in the line that says that the server is ready."""
        first = self.main[0]
        name = first.getsockname()
        if first.family == socket.AF_UNIX:
            return f"unix:{name.decode() if isinstance(name, bytes) else name}"
        host = f"[{name[0]}]" if first.family == socket.AF_INET6 else name[0]
        return f"http://{host}:{name[1]}"

    def close(self) -> None:
        """Close all sockets."""
        for listener in (*self.main, *self.admin):
            listener.close()

    def remove_paths(self) -> None:
        """Remove the files of the Unix sockets."""
        for path in self.paths:
            path.unlink(missing_ok=True)


def listen(settings: Settings) -> Listening:
    """Return the sockets that were handed over, else those of the settings. Raises StartError."""
    given = systemd.listening_sockets()
    admin = given.pop(ADMIN, [])
    main = [listener for sockets in given.values() for listener in sockets]
    if not main:
        return _bind(settings, admin)
    if settings.admin_port is not None and not admin:
        admin = _bind_tcp(settings.admin_host, settings.admin_port, "admin-")
    return Listening(main, admin)


def _bind(settings: Settings, admin: list[socket.socket]) -> Listening:
    with ExitStack() as undo:
        paths: tuple[Path, ...] = ()
        if settings.unix_socket is not None:
            main, paths = [_bind_unix(settings.unix_socket)], (settings.unix_socket,)
        else:
            main = _bind_tcp(settings.host, settings.port)
        undo.callback(Listening(main, [], paths).close)
        undo.callback(Listening(main, [], paths).remove_paths)
        if settings.admin_port is not None and not admin:
            admin = _bind_tcp(settings.admin_host, settings.admin_port, "admin-")
        undo.pop_all()
    return Listening(main, admin, paths)


def _bind_tcp(host: str, port: int, flags: str = "") -> list[socket.socket]:
    """Return sockets that listen on the port. flags: the prefix of the flags --host and --port, for the message."""
    try:
        return bind_sockets(port, host, backlog=BACKLOG)
    except (OSError, ValueError) as error:
        advice = _ADVICE.get(error.errno, "") if isinstance(error, OSError) else ""
        raise _start_error(f"{host}:{port}", error, advice.format(flags)) from error


def _bind_unix(path: Path) -> socket.socket:
    """Create a Unix socket. A stale socket file is replaced. Raises StartError if another server answers there."""
    try:
        if path.is_socket():
            _refuse_live(path)
        return bind_unix_socket(str(path), mode=0o660, backlog=BACKLOG)
    except (OSError, ValueError) as error:
        raise _start_error(str(path), error) from error


def _refuse_live(path: Path) -> None:
    """Check that no other server listens. Raises StartError."""
    with socket.socket(socket.AF_UNIX) as other, suppress(ConnectionRefusedError):
        other.setblocking(False)
        # A full backlog also means that a server listens.
        with suppress(BlockingIOError):
            other.connect(str(path))
        raise StartError(f"cannot listen on {path}: another server answers there")


def _start_error(where: str, error: Exception, advice: str = "") -> StartError:
    return StartError(f"cannot listen on {where}: {getattr(error, 'strerror', None) or error}{advice}")


_ADVICE: dict[int | None, str] = {
    errno.EADDRINUSE: "; choose another with --{}port",
    errno.EADDRNOTAVAIL: "; --{}host has to be an address of this machine",
    errno.EACCES: "; a port below 1024 needs more privileges: choose another with --{}port",
}
