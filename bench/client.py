"""Sends single requests over one connection, for what a load test does not show: bodies, round trips, and the stages in
`Server-Timing`. It uses a plain socket, because a client of the standard library takes longer than the measured
request.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from bench.requests import MEDIA_TYPE, Request, rendered

_STAGE = re.compile(rb"(\w+);dur=([\d.]+)")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_READ_BYTES, _WATCH_SECONDS = 1 << 20, 0.2


class Answer(msgspec.Struct, frozen=True):
    """An answer. seconds: from the first byte sent to the last received. first_seconds: to the first received."""

    status: int
    head: bytes
    body: bytes
    seconds: float
    first_seconds: float

    @property
    def stages(self) -> dict[str, float]:
        """Microseconds by stage."""
        return {name.decode(): float(milliseconds) * 1000 for name, milliseconds in _STAGE.findall(self.head)}


class Refused(Exception):
    """An answer that is not a 2xx."""


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    """Yield a connection to a port of the loopback interface."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def ask(connection: socket.socket, request: Request, number: int = 1, cursor: str = "") -> Answer:
    """Send a request and return its answer. Raises Refused, and OSError if the server closes the connection."""
    sent = _bytes(request, number, cursor)
    begin = time.perf_counter()
    connection.sendall(sent)
    received = _received(connection)
    first = time.perf_counter()
    while b"\r\n\r\n" not in received:
        received += _received(connection)
    head, _, rest = received.partition(b"\r\n\r\n")
    whole = _body(connection, head, rest)
    seconds = time.perf_counter() - begin
    status = int(head.split(b" ", 2)[1])
    if not 200 <= status < 300:
        raise Refused(f"{request.label}: {status} {whole[:500].decode(errors='replace')}")
    return Answer(status, head, _without_chunks(whole) if _CHUNKED.search(head) else whole, seconds, first - begin)


def drain(connection: socket.socket, request: Request, watch: Callable[[], None]) -> tuple[float, float, int]:
    """Request an answer that is too long to be kept. watch: called now and then while it arrives. Return the seconds to
    the first byte and to the last, and the number of bytes."""
    begin = time.perf_counter()
    connection.sendall(_bytes(request, 1, ""))
    end = _received(connection)
    first = last_watch = time.perf_counter()
    while b"\r\n\r\n" not in end:
        end += _received(connection)
    if not end.startswith(b"HTTP/1.1 2"):
        raise Refused(f"{request.label}: {end[:500].decode(errors='replace')}")
    length = _LENGTH.search(end)
    wanted = end.index(b"\r\n\r\n") + 4 + int(length[1]) if length else None
    count = len(end)
    while count != wanted if wanted is not None else not end.endswith(_LAST_CHUNK):
        part = _received(connection)
        count += len(part)
        end = end[-len(_LAST_CHUNK) :] + part
        if time.perf_counter() - last_watch > _WATCH_SECONDS:
            watch()
            last_watch = time.perf_counter()
    return first - begin, time.perf_counter() - begin, count


def _bytes(request: Request, number: int, cursor: str) -> bytes:
    path, body = rendered(request, number, cursor)
    lines = [f"{request.method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Accept: {MEDIA_TYPE}"]
    if body:
        lines += [f"Content-Type: {MEDIA_TYPE}", f"Content-Length: {len(body.encode())}"]
    return "\r\n".join([*lines, "", body]).encode()


def _received(connection: socket.socket) -> bytes:
    part = connection.recv(_READ_BYTES)
    if not part:
        raise OSError("the server closed the connection")
    return part


def _body(connection: socket.socket, head: bytes, begun: bytes) -> bytes:
    parts, length = [begun], _LENGTH.search(head)
    if length is not None:
        missing = int(length[1]) - len(begun)
        while missing > 0:
            parts.append(_received(connection))
            missing -= len(parts[-1])
    elif _CHUNKED.search(head):
        # JSON has no raw line breaks, so this can only be the end.
        end = b"\r\n" + begun
        while not end.endswith(_LAST_CHUNK):
            parts.append(_received(connection))
            end = end[-len(_LAST_CHUNK) :] + parts[-1]
    return b"".join(parts)


def _without_chunks(body: bytes) -> bytes:
    parts: list[bytes] = []
    begin = 0
    while True:
        end = body.index(b"\r\n", begin)
        size = int(body[begin:end].split(b";")[0], 16)
        if not size:
            return b"".join(parts)
        parts.append(body[end + 2 : end + 2 + size])
        begin = end + 4 + size
