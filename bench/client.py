"""Single requests over one connection, for what load does not tell: bodies, round trips, and the stages in
`Server-Timing`. A bare socket, because a client of the standard library takes longer than what it would measure.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from bench.kinds import MEDIA_TYPE, Kind

_STAGE = re.compile(rb"(\w+);dur=([\d.]+)")
_LENGTH = re.compile(rb"\r\nContent-Length: (\d+)")


class Answer(msgspec.Struct, frozen=True):
    """seconds: from the first byte sent to the last received."""

    head: bytes
    body: bytes
    seconds: float

    @property
    def stages(self) -> dict[str, float]:
        """Microseconds by stage."""
        return {name.decode(): float(milliseconds) * 1000 for name, milliseconds in _STAGE.findall(self.head)}


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def ask(connection: socket.socket, kind: Kind) -> Answer:
    """Raises RuntimeError for an answer that is not a 2xx."""
    sent = _request(kind)
    begin = time.perf_counter()
    connection.sendall(sent)
    head, _, body = connection.recv(1 << 20).partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    missing = int(length[1]) - len(body) if length else 0
    parts = [body]
    while missing > 0:
        parts.append(connection.recv(min(missing, 1 << 20)))
        missing -= len(parts[-1])
    seconds = time.perf_counter() - begin
    if not head.startswith(b"HTTP/1.1 2"):
        raise RuntimeError(f"{kind.label}: {head!r}")
    return Answer(head, b"".join(parts), seconds)


def _request(kind: Kind) -> bytes:
    lines = [f"{kind.method} {kind.target} HTTP/1.1", "Host: 127.0.0.1", f"Content-Type: {MEDIA_TYPE}"]
    if kind.body:
        lines.append(f"Content-Length: {len(kind.body.encode())}")
    return "\r\n".join([*lines, "", kind.body]).encode()


def check_same_documents(kinds: tuple[Kind, ...], ports: tuple[int, int]) -> None:
    """Raises RuntimeError unless both servers answer every kind with the same bytes, but for the id of a create."""
    with connected(ports[0]) as one, connected(ports[1]) as other:
        for kind in kinds:
            bodies = [_without_new_id(kind, ask(connection, kind).body) for connection in (one, other)]
            if bodies[0] != bodies[1]:
                raise RuntimeError(f"{kind.label}: the documents differ:\n{bodies[0]!r:.2000}\n{bodies[1]!r:.2000}")


def _without_new_id(kind: Kind, body: bytes) -> bytes:
    found = re.search(rb'"id":"(\d+)"', body)
    if kind.method == "GET" or found is None:
        return body
    return body.replace(b'"id":"' + found[1], b'"id":"new').replace(b"/users/" + found[1], b"/users/new")
