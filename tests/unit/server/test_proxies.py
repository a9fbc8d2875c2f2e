"""The address, protocol and host of the client in the headers of proxies: which headers are trusted."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from tornado.httputil import HTTPHeaders

from server.http.proxies import ProxiedClient, parse_proxies, read_address, sender

TRUSTED = parse_proxies("10.0.0.0/8,2001:db8::/32,unix")
NOBODY = ProxiedClient()


@pytest.mark.parametrize(
    ("node", "address"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:4711", "192.0.2.1"),
        ("::1", "::1"),
        ("2001:DB8:0::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:80", "2001:db8::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("[::ffff:c000:201]:1", "192.0.2.1"),
    ],
)
def test_addresses(node: str, address: str) -> None:
    assert read_address(node) == ip_address(address)


@pytest.mark.parametrize(
    "node",
    [
        *("", "unknown", "_hidden", "unix", "localhost", "192.0.2", "192.0.2.256", "192.0.2.1:", "192.0.2.1:x"),
        *("192.0.2.01", "[192.0.2.1]:x", "[::1", "::1]", "[]", "::1%eth0", "[::1%25x]", ":", "1.2.3.4.5", "٣.1.1.1"),
        *("192.0.2.1 ", "192.0.2.1\n", "192.0.2.1:123456", "-", "<script>"),
    ],
)
def test_no_addresses(node: str) -> None:
    assert read_address(node) is None


@pytest.mark.parametrize(
    ("peer", "is_trusted"),
    [
        *(("10.1.2.3", True), ("11.1.2.3", False), ("2001:db8::7", True), ("2001:db9::7", False)),
        *(("::ffff:10.1.2.3", True), ("unix", True)),
    ],
)
def test_peers(peer: str, is_trusted: bool) -> None:
    assert TRUSTED.trusts_peer(peer) is is_trusted


def test_a_unix_socket_is_trusted_only_by_name() -> None:
    assert not parse_proxies("0.0.0.0/0,::/0").trusts_peer("unix")


def told(*lines: str) -> ProxiedClient:
    return sender(HTTPHeaders.parse("\r\n".join(lines)), TRUSTED)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], NOBODY),
        (["X-Forwarded-For: 192.0.2.1"], ProxiedClient("192.0.2.1")),
        (["X-Forwarded-For: [2001:db9::1]:99"], ProxiedClient("2001:db9::1")),
        # values that the client sent itself are on the left
        (["X-Forwarded-For: 6.6.6.6, 192.0.2.1"], ProxiedClient("192.0.2.1")),
        (["X-Forwarded-For: 6.6.6.6, 192.0.2.1, 10.0.0.7"], ProxiedClient("192.0.2.1")),
        (
            ["X-Forwarded-For: 6.6.6.6", "X-Forwarded-For: 192.0.2.1", "X-Forwarded-For: 10.0.0.7"],
            ProxiedClient("192.0.2.1"),
        ),
        (["X-Forwarded-For: 10.0.0.9, 192.0.2.1"], ProxiedClient("192.0.2.1")),
        # all are trusted: the farthest one
        (["X-Forwarded-For: 10.0.0.9,2001:db8::1,10.0.0.7"], ProxiedClient("10.0.0.9")),
        # an invalid entry ends the search
        (["X-Forwarded-For: unknown"], NOBODY),
        (["X-Forwarded-For:"], NOBODY),
        (["X-Forwarded-For: 192.0.2.1, nonsense"], NOBODY),
        (["X-Forwarded-For: 192.0.2.1, nonsense, 10.0.0.7"], ProxiedClient("10.0.0.7")),
        (["X-Forwarded-For: 192.0.2.1,"], NOBODY),
        # at most as long as a list of proxies can be
        ([f"X-Forwarded-For: 192.0.2.1{', 10.0.0.7' * 19}"], ProxiedClient("192.0.2.1")),
        ([f"X-Forwarded-For: 192.0.2.1{', 10.0.0.7' * 20}"], ProxiedClient("10.0.0.7")),
        # the protocol and the host
        (["X-Forwarded-Proto: https"], ProxiedClient(None, "https")),
        (["X-Forwarded-Proto: HTTPS"], ProxiedClient(None, "https")),
        (["X-Forwarded-Proto: gopher"], NOBODY),
        (["X-Forwarded-Proto:"], NOBODY),
        (["X-Forwarded-Host: api.example.org:8443"], ProxiedClient(None, None, "api.example.org:8443")),
        (["X-Forwarded-Host: [2001:db9::1]:8443"], ProxiedClient(None, None, "[2001:db9::1]:8443")),
        (["X-Forwarded-Host: <b>"], NOBODY),
        (["X-Forwarded-Host: a/b"], NOBODY),
        (["X-Forwarded-Host: u@a"], NOBODY),
        (
            ["X-Forwarded-For: 192.0.2.1", "X-Forwarded-Proto: https", "X-Forwarded-Host: a.org"],
            ProxiedClient("192.0.2.1", "https", "a.org"),
        ),
        # one for each hop, or only that of the first one
        (
            ["X-Forwarded-For: 192.0.2.1, 10.0.0.7", "X-Forwarded-Proto: https, http"],
            ProxiedClient("192.0.2.1", "https"),
        ),
        (["X-Forwarded-For: 192.0.2.1", "X-Forwarded-Proto: http, https"], ProxiedClient("192.0.2.1", "https")),
        (["X-Forwarded-For: 192.0.2.1, 10.0.0.7", "X-Forwarded-Proto: https"], ProxiedClient("192.0.2.1", "https")),
        (["X-Forwarded-For: 192.0.2.1, 10.0.0.7", "X-Forwarded-Host: a, b"], ProxiedClient("192.0.2.1", None, "a")),
        # other peers are not trusted
        (["X-Real-Ip: 192.0.2.1", "Client-Ip: 192.0.2.1", "X-Scheme: https", "Via: 1.1 a"], NOBODY),
    ],
)
def test_x_forwarded(lines: list[str], expected: ProxiedClient) -> None:
    assert told(*lines) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("for=192.0.2.1", ProxiedClient("192.0.2.1")),
        ("For=192.0.2.1;Proto=HTTPS;by=10.0.0.1;Host=a.org", ProxiedClient("192.0.2.1", "https", "a.org")),
        ('for="192.0.2.1:47011";host="a.org:8443"', ProxiedClient("192.0.2.1", None, "a.org:8443")),
        ('for="[2001:db9::17]:4711"', ProxiedClient("2001:db9::17")),
        ('for="192.\\0.2.1"', ProxiedClient("192.0.2.1")),
        ("proto=https", ProxiedClient(None, "https")),
        ("for=6.6.6.6;proto=http, for=192.0.2.1;proto=https", ProxiedClient("192.0.2.1", "https")),
        ("for=6.6.6.6, for=192.0.2.1;proto=https, for=10.0.0.7;proto=http", ProxiedClient("192.0.2.1", "https")),
        ("for=10.0.0.9,for=10.0.0.7", ProxiedClient("10.0.0.9")),
        ("for=192.0.2.1, for=_hidden, for=10.0.0.7", ProxiedClient("10.0.0.7")),
        ("for=unknown;proto=https", ProxiedClient(None, "https")),
        ('for="_gazonk"', NOBODY),
        (f"for=192.0.2.1;x={'y' * 3984}", ProxiedClient("192.0.2.1")),
        (f"for=192.0.2.1;x={'y' * 3985}", NOBODY),
        # a list with an invalid entry
        ("", NOBODY),
        ("for", NOBODY),
        ("for=", NOBODY),
        ("for=[::1]", NOBODY),
        ("for=192.0.2.1 proto=https", NOBODY),
        ("for=192.0.2.1;;proto=https", NOBODY),
        ('for=6.6.6.6;x=", for=192.0.2.1', NOBODY),
        ('for="6.6.6.6";x="a, for="[2001:db9::1]:80";proto=https', NOBODY),
        ('"', NOBODY),
    ],
)
def test_forwarded(value: str, expected: ProxiedClient) -> None:
    assert told(f"Forwarded: {value}") == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["Forwarded: for=192.0.2.1", "X-Forwarded-For: 192.0.2.1"], ProxiedClient("192.0.2.1")),
        (["Forwarded: for=192.0.2.1;proto=https", "X-Forwarded-For: 192.0.2.1"], ProxiedClient("192.0.2.1", "https")),
        (["Forwarded: for=192.0.2.1", "X-Forwarded-Proto: https"], ProxiedClient("192.0.2.1", "https")),
        (["Forwarded: for=6.6.6.6", "X-Forwarded-For: 192.0.2.1"], NOBODY),
        (["Forwarded: for=192.0.2.1", "X-Forwarded-For: 6.6.6.6"], NOBODY),
        (["Forwarded: proto=https", "X-Forwarded-For: 192.0.2.1", "X-Forwarded-Proto: http"], NOBODY),
    ],
)
def test_headers_of_two_kinds_that_differ_are_ignored(lines: list[str], expected: ProxiedClient) -> None:
    assert told(*lines) == expected
