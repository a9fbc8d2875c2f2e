"""Speaks the protocols of systemd: notifications, the watchdog, socket activation.

What comes in: the environment variables that systemd sets. What goes out: datagrams to its notification socket, and
listening sockets. Without these variables nothing happens, so callers need not know whether systemd is there.
It must not know: the server's settings, its processes, an event loop.

Source: sd_notify(3), sd_watchdog_enabled(3), sd_listen_fds(3).
"""

import os
import socket
import time
from contextlib import suppress

from server.settings import StartError

FIRST_DESCRIPTOR = 3
NOTIFY_SECONDS = 1.0
_LISTEN_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


def notify(**fields: str | int) -> bool:
    """Notify systemd. Return False if there is no NOTIFY_SOCKET, or nobody listens there.

        notify(READY=1, STATUS="answers on http://127.0.0.1:8080")
        notify(RELOADING=1)         # MONOTONIC_USEC, which must come with it, is added
        notify(STOPPING=1), notify(WATCHDOG=1), notify(MAINPID=4711)

    Never raises, and waits at most `NOTIFY_SECONDS`. A line break in a value becomes a space, because a line break
    separates fields.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if "RELOADING" in fields:
        fields.setdefault("MONOTONIC_USEC", time.monotonic_ns() // 1000)
    lines = [f"{name}={' '.join(str(value).splitlines())}" for name, value in fields.items()]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(NOTIFY_SECONDS)
        sender.sendto("\n".join(lines).encode(errors="replace"), _socket_address(address))
        return True
    return False


def _socket_address(address: str) -> str:
    # A leading @ means the abstract namespace. The kernel expects a NUL instead.
    return "\0" + address[1:] if address.startswith("@") else address


def watchdog_seconds() -> float | None:
    """Return after how many seconds without WATCHDOG=1 systemd kills this process. Return None without a watchdog.

    systemd recommends to send it at half of this interval.
    """
    if os.environ.get("WATCHDOG_PID") not in (None, "", str(os.getpid())):
        return None
    microseconds = _number("WATCHDOG_USEC")
    return microseconds / 1_000_000 if microseconds > 0 else None


def listening_sockets() -> dict[str, list[socket.socket]]:
    """Return the sockets that systemd has opened for this process, by name, in its order. The name of a socket without
    one is `unknown`.

    The sockets are non-blocking and close-on-exec. The variables are removed, so a second call and any child get
    nothing. Raises StartError for a descriptor that is no listening stream socket (a socket unit with Accept=yes hands
    over connections).
    """
    is_ours = os.environ.get("LISTEN_PID") == str(os.getpid())
    count = _number("LISTEN_FDS") if is_ours else 0
    names = os.environ.get("LISTEN_FDNAMES", "").split(":")
    for variable in _LISTEN_VARIABLES:
        os.environ.pop(variable, None)
    sockets: dict[str, list[socket.socket]] = {}
    for index in range(count):
        name = names[index] if index < len(names) else ""
        sockets.setdefault(name or "unknown", []).append(_listening_socket(FIRST_DESCRIPTOR + index))
    return sockets


def _listening_socket(descriptor: int) -> socket.socket:
    try:
        os.set_inheritable(descriptor, False)
        opened = socket.socket(fileno=descriptor)
        is_listening = bool(opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError as error:
        raise StartError(f"descriptor {descriptor} from systemd is no socket: {error.strerror}") from None
    if not is_listening or opened.type != socket.SOCK_STREAM:
        raise StartError(
            f"descriptor {descriptor} from systemd is no listening stream socket: "
            "the socket unit needs ListenStream= and Accept=no"
        )
    opened.setblocking(False)
    return opened


def _number(variable: str) -> int:
    """Return the variable as a whole number; 0 if it is not set or not a number."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() and text.isascii() else 0
