"""No header of a proxy is a fault of the server: it is read or ignored."""

from __future__ import annotations

from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st
from tornado.httputil import HTTPHeaders

from server.http.proxies import parse_proxies, sender

TRUSTED = parse_proxies("10.0.0.0/8,2001:db8::/32,unix")
NAMES = ["Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host"]
WRITTEN = st.sampled_from(
    [*'=;,"\\[]:._ \t', "for=", "proto=", "host=", "10.0.0.1", "192.0.2.1", "2001:db8::1", "https", "ä"]
)


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.lists(WRITTEN, max_size=15).map("".join)), max_size=4))
def test_any_header_is_parsed_or_ignored(lines: list[tuple[str, str]]) -> None:
    """Without an error, and an address is one."""
    headers = HTTPHeaders()
    for name, value in lines:
        headers.add(name, value.strip(" \t"))
    found = sender(headers, TRUSTED)
    assert found.address is None or str(ip_address(found.address)) == found.address
    assert found.protocol in (None, "http", "https")
