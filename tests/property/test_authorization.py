"""No header Authorization is a fault of the server, whatever its bytes, and none that is not signed lets anybody in."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from server.resources import built_in
from tests.conftest import cloned
from tests.http.rows import reading_server
from tests.issuer import AUDIENCE, claims, encoded, signed

SECRET = b"a secret of at least thirty-two bytes"

BYTES = st.binary(max_size=300).map(lambda found: found.translate(None, b"\r\n\0"))
PARTS = st.lists(st.one_of(BYTES, st.just(encoded({"alg": "HS256"}).encode()), st.just(b"e30")), max_size=5)
SCHEMES = st.sampled_from([b"Bearer ", b"bearer ", b"Bearer", b"Basic ", b"Digest ", b"", b"Bearer  ", b"Bearer\t"])


@pytest.fixture(scope="module")
def port(
    administer: Callable[[str], object], postgres_url: str, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    """Yield the port of a server whose resources are closed to everybody."""
    path = tmp_path_factory.mktemp("secret") / "secret"
    path.write_bytes(SECRET)
    with (
        cloned(administer, postgres_url, f"waterspout_tokens_{os.getpid()}", template) as url,
        reading_server(url, built_in(), auth_secret_file=path, auth_audience=AUDIENCE) as found,
    ):
        yield found


def status(port: int, *values: bytes) -> int:
    """Return the status of the answer to a request with these headers Authorization."""
    lines = b"".join(b"Authorization: %b\r\n" % value for value in values)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(b"GET /users HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%b\r\n" % lines)
        head = b""
        while chunk := client.recv(65_536):
            head += chunk
    return int(head.split(b" ", 2)[1])


@given(SCHEMES, PARTS.map(b".".join))
@example(b"Bearer ", b"[" * 20_000)
@example(b"Bearer ", encoded(b"[" * 5000).encode() + b"..")
@example(b"Bearer ", b"\xff\xfe")
@example(b"", b"")
def test_no_header_is_a_fault(port: int, scheme: bytes, token: bytes) -> None:
    # 400 is the answer to bytes that a header cannot have.
    assert status(port, scheme + token) in (400, 401)


def test_a_signed_token_is_let_in(port: int) -> None:
    """Else the test above would show nothing. The resources have no rules, so they are closed to everybody."""
    token = signed(claims(), SECRET, "HS256").encode()
    assert [status(port), status(port, b"Bearer " + token), status(port, b"Bearer x", b"Bearer x")] == [401, 403, 400]
