"""Settings with a format: the canonical form of good texts, and the errors of bad ones."""

from __future__ import annotations

import re

import pytest

from server.settings import checks

ORIGINS = (
    "expected origins such as https://app.example.org or http://localhost:3000, without a path, with commas between, "
    "or * alone for all of them; not {}"
)
NETWORKS = (
    "expected addresses or networks such as 10.0.0.5 or 10.0.0.0/8, with commas between, and unix for a Unix socket; "
    "not {}"
)
DIRECTIVES = "expected directives such as no-cache or public, max-age=60; not {}"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("*", "*"),
        (" * ", "*"),
        ("https://app.example.org", "https://app.example.org"),
        ("HTTPS://App.Example.ORG", "https://app.example.org"),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://a:443,https://a:80", "http://a:443,https://a:80"),
        ("https://a, https://b ,https://a", "https://a,https://b"),
        ("http://192.0.2.1:8080", "http://192.0.2.1:8080"),
        ("http://[0:0::1]:65535", "http://[::1]:65535"),
        ("https://xn--bcher-kva.example", "https://xn--bcher-kva.example"),
        ("capacitor://localhost,chrome-extension://abc_d", "capacitor://localhost,chrome-extension://abc_d"),
    ],
)
def test_origins(text: str, kept: str) -> None:
    assert checks.cors_origins(text) == kept


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("app.example.org", ORIGINS.format("'app.example.org'")),
        ("https://a/", ORIGINS.format("'https://a/'")),
        ("https://a/b", ORIGINS.format("'https://a/b'")),
        ("https://a?b", ORIGINS.format("'https://a?b'")),
        ("https://u@a", ORIGINS.format("'https://u@a'")),
        ("https://*.example.org", ORIGINS.format("'https://*.example.org'")),
        ("https://bücher.example", ORIGINS.format("'https://bücher.example'")),
        ("https://a..b", ORIGINS.format("'https://a..b'")),
        ("https://a:0", ORIGINS.format("'https://a:0'")),
        ("https://a:", ORIGINS.format("'https://a:'")),
        ("https://a b", ORIGINS.format("'https://a b'")),
        ("https://a,", ORIGINS.format("''")),
        ("*,https://a", ORIGINS.format("'*'")),
        ("null", ORIGINS.format("'null'")),
        ("https://a:443", "'https://a:443' is no origin as browsers write it: leave out :443"),
        ("http://a:80", "'http://a:80' is no origin as browsers write it: leave out :80"),
        ("http://a:65536", "'http://a:65536' is no origin as browsers write it: leave out :65536"),
        ("http://[::1::2]", "[::1::2] is no IPv6 address"),
    ],
)
def test_no_origins(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        checks.cors_origins(text)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("unix", "unix"),
        ("127.0.0.1", "127.0.0.1/32"),
        ("10.0.0.0/8, ::1 ,unix,10.0.0.0/8", "10.0.0.0/8,::1/128,unix"),
        ("0.0.0.0/0,::/0", "0.0.0.0/0,::/0"),
        ("2001:DB8::/32", "2001:db8::/32"),
        ("10.0.0.0/255.0.0.0", "10.0.0.0/8"),
    ],
)
def test_proxies(text: str, kept: str) -> None:
    assert checks.trusted_proxies(text) == kept


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("proxy.internal", NETWORKS.format("'proxy.internal'")),
        ("*", NETWORKS.format("'*'")),
        ("10.0.0.0/33", NETWORKS.format("'10.0.0.0/33'")),
        ("10.0.0.1,", NETWORKS.format("''")),
        ("10.0.0.1:80", NETWORKS.format("'10.0.0.1:80'")),
        ("Unix", NETWORKS.format("'Unix'")),
        ("10.0.0.1/8", "10.0.0.1/8 has bits beyond its length: write 10.0.0.0/8"),
        ("2001:db8::1/32", "2001:db8::1/32 has bits beyond its length: write 2001:db8::/32"),
    ],
)
def test_no_proxies(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        checks.trusted_proxies(text)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", ""),
        ("no-cache", "no-cache"),
        ("public,max-age=60", "public, max-age=60"),
        ("private, max-age=0,  stale-while-revalidate=30", "private, max-age=0, stale-while-revalidate=30"),
        ('no-cache="Set-Cookie"', 'no-cache="Set-Cookie"'),
        ("immutable, x-own=a.b", "immutable, x-own=a.b"),
    ],
)
def test_cache_control(text: str, kept: str) -> None:
    assert checks.cache_control(text) == kept


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no cache", DIRECTIVES.format("'no cache'")),
        ("no-cache,", DIRECTIVES.format("''")),
        ("no-cache\r\nX: y", DIRECTIVES.format(r"'no-cache\r\nX: y'")),
        ("max-age=60;public", DIRECTIVES.format("'max-age=60;public'")),
        ('a="b', DIRECTIVES.format("""'a="b'""")),
        ("a=ü", DIRECTIVES.format("'a=ü'")),
        ("public, max-age", "max-age wants a number of seconds: max-age=60"),
        ("S-MaxAge=1, S-MAXAGE=1h", "S-MAXAGE wants a number of seconds: S-MAXAGE=60"),
        ("max-age=-1", "max-age wants a number of seconds: max-age=60"),
    ],
)
def test_no_cache_control(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        checks.cache_control(text)
