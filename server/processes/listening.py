"""The sockets that the server listens on. What comes in: settings, or sockets that systemd or another server hands
over. What goes out: listening sockets, for as long as the block that asked for them lasts.

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
"""Connections that wait to be taken; the system has a bound of its own (net.core.somaxconn)."""

ADMIN = "admin"
"""The name under which a socket unit hands over the port of health and metrics."""


class Listening(msgspec.Struct, frozen=True, eq=False):
    """main: where requests come in. admin: where health and metrics are asked for, if they have a port of their own.
    paths: of Unix sockets made here."""

    main: list[socket.socket]
    admin: list[socket.socket]
    paths: tuple[Path, ...] = ()

    @property
    def address(self) -> str:
        """Of the first socket, as the line says it that tells that the server is ready."""
        first = self.main[0]
        name = first.getsockname()
        if first.family == socket.AF_UNIX:
            return f"unix:{name.decode() if isinstance(name, bytes) else name}"
        host = f"[{name[0]}]" if first.family == socket.AF_INET6 else name[0]
        return f"http://{host}:{name[1]}"

    def close(self) -> None:
        for one in (*self.main, *self.admin):
            one.close()

    def remove_paths(self) -> None:
        for path in self.paths:
            path.unlink(missing_ok=True)


def listen(settings: Settings) -> Listening:
    """Those handed over, else those that the settings name. Raises StartError."""
    given = systemd.listening_sockets()
    admin = given.pop(ADMIN, [])
    main = [one for sockets in given.values() for one in sockets]
    if not main:
        return _bind(settings, admin)
    if settings.admin_port is not None and not admin:
        admin = _bound(settings.admin_host, settings.admin_port, "admin-")
    return Listening(main, admin)


def _bind(settings: Settings, admin: list[socket.socket]) -> Listening:
    with ExitStack() as undo:
        paths: tuple[Path, ...] = ()
        if settings.unix_socket is not None:
            main, paths = [_bound_at(settings.unix_socket)], (settings.unix_socket,)
        else:
            main = _bound(settings.host, settings.port)
        undo.callback(Listening(main, [], paths).close)
        undo.callback(Listening(main, [], paths).remove_paths)
        if settings.admin_port is not None and not admin:
            admin = _bound(settings.admin_host, settings.admin_port, "admin-")
        undo.pop_all()
    return Listening(main, admin, paths)


def _bound(host: str, port: int, flags: str = "") -> list[socket.socket]:
    """flags: what those of the two begin with."""
    try:
        return bind_sockets(port, host, backlog=BACKLOG)
    except (OSError, ValueError) as error:
        advice = _ADVICE.get(error.errno, "") if isinstance(error, OSError) else ""
        raise _refused(f"{host}:{port}", error, advice.format(flags)) from error


def _bound_at(path: Path) -> socket.socket:
    """A Unix socket; one that nobody answers on any more is replaced, a live one is not taken over."""
    try:
        if path.is_socket():
            _replace_dead(path)
        return bind_unix_socket(str(path), mode=0o660, backlog=BACKLOG)
    except (OSError, ValueError) as error:
        raise _refused(str(path), error) from error


def _replace_dead(path: Path) -> None:
    """Raises StartError where somebody listens."""
    with socket.socket(socket.AF_UNIX) as other, suppress(ConnectionRefusedError):
        other.setblocking(False)
        # Whose backlog is full lives as well.
        with suppress(BlockingIOError):
            other.connect(str(path))
        raise StartError(f"cannot listen on {path}: another server answers there")


def _refused(where: str, error: Exception, advice: str = "") -> StartError:
    return StartError(f"cannot listen on {where}: {getattr(error, 'strerror', None) or error}{advice}")


_ADVICE: dict[int | None, str] = {
    errno.EADDRINUSE: "; choose another with --{}port",
    errno.EADDRNOTAVAIL: "; --{}host has to be an address of this machine",
    errno.EACCES: "; a port below 1024 is not for every user: choose another with --{}port",
}
