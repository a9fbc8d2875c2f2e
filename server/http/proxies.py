"""Finds the client's address, protocol and host behind proxies (RFC 7239, and the older X-Forwarded headers). What
comes in: the peer address of the connection, headers.

Only what a trusted proxy wrote is believed. Each proxy appends the address of its own peer to the list that it
received. So the lists are read from their end, as long as the address is that of a trusted proxy. Invalid values are
ignored."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property, lru_cache, partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import msgspec
from tornado.httputil import HTTPConnection, HTTPHeaders, HTTPInputError, RequestStartLine

from server.http.headers import Headers
from server.http.request import UNIX, Listener, MakeRequest, Request, host_name

MAX_HOPS = 20
MAX_FORWARDED_LENGTH = 4000
"""No proxy writes a longer header, and parsing it would take longer than the rest of the request."""

_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_PAIR = re.compile(rf'[ \t]*({_TOKEN})=(?:({_TOKEN})|"((?:[^"\\]|\\.)*)")[ \t]*(;|,|$)')
_PORT = r"(?::[0-9]{1,5})?"
_NODE = re.compile(rf"\[([0-9A-Fa-f:.]+)\]{_PORT}|([0-9.]+){_PORT}|([0-9A-Fa-f:.]+)")
_MAX_NODE_LENGTH = 60

Address = IPv4Address | IPv6Address


class Proxies(msgspec.Struct, frozen=True):
    """The trusted proxies. is_unix: whether the peers of a Unix socket are among them."""

    networks: tuple[IPv4Network | IPv6Network, ...]
    is_unix: bool

    def trusts(self, address: Address) -> bool:
        """Return whether the address is that of a trusted proxy."""
        return any(address in network for network in self.networks)

    def trusts_peer(self, peer: str) -> bool:
        """Return whether the peer of a connection is a trusted proxy. peer: an address, or `UNIX`."""
        address = read_address(peer)
        return self.is_unix if address is None else self.trusts(address)


class Hop(msgspec.Struct, frozen=True):
    """The information of one proxy about its peer. node: an address, with or without a port, or a word."""

    node: str = ""
    protocol: str | None = None
    host: str | None = None


class ProxiedClient(msgspec.Struct, frozen=True):
    """The client according to the proxies. Each field is None if it is not known."""

    address: str | None = None
    protocol: str | None = None
    host: str | None = None


def request_factory(trusted_proxies: str | None) -> MakeRequest:
    """Return the class or function that creates requests. trusted_proxies: the setting."""
    return partial(ProxiedRequest, parse_proxies(trusted_proxies)) if trusted_proxies else Request


def trusted_peer_check(trusted_proxies: str | None) -> Callable[[str], bool]:
    """Return a function that checks whether many clients may share an address: that of a proxy or of a Unix socket."""
    proxies = None if trusted_proxies is None else parse_proxies(trusted_proxies)
    return lambda peer: peer == UNIX or (proxies is not None and proxies.trusts_peer(peer))


def parse_proxies(trusted_proxies: str) -> Proxies:
    """Parse the setting `trusted_proxies`."""
    names = trusted_proxies.split(",")
    return Proxies(tuple(ip_network(name) for name in names if name != UNIX), UNIX in names)


def read_address(node: str) -> Address | None:
    """Return the address of a node, without its port, or None if it is not an address. IPv4-mapped IPv6 becomes IPv4.

    >>> read_address("[::1]:4711"), read_address("::ffff:10.0.0.1"), read_address("unknown")
    (IPv6Address('::1'), IPv4Address('10.0.0.1'), None)
    """
    return _read_node(node) if len(node) <= _MAX_NODE_LENGTH else None


@lru_cache(maxsize=1024)
def _read_node(node: str) -> Address | None:
    match = _NODE.fullmatch(node)
    if match is None:
        return None
    try:
        address = ip_address(match[1] or match[2] or match[3])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def sender(headers: HTTPHeaders, proxies: Proxies) -> ProxiedClient:
    """Return the client of a request that came from a trusted proxy.

    A proxy that writes one kind of header may pass on the client's own header of the other kind. So if the two differ,
    neither is believed.
    """
    proxied_client = _resolve(_x_forwarded(headers), proxies)
    if "Forwarded" not in headers:
        return proxied_client
    other = _resolve(_forwarded(headers), proxies)
    pairs = list(zip(msgspec.structs.astuple(proxied_client), msgspec.structs.astuple(other), strict=True))
    if any(None not in pair and pair[0] != pair[1] for pair in pairs):
        return ProxiedClient()
    return ProxiedClient(*(first or second for first, second in pairs))


def _resolve(hops: Iterator[Hop], proxies: Proxies) -> ProxiedClient:
    """Return the client at the end of the hops. hops: the nearest first."""
    known: str | None = None
    hop = Hop()
    for hop in hops:
        address = read_address(hop.node)
        if address is None:
            break
        known = str(address)
        if not proxies.trusts(address):
            break
    protocol = (hop.protocol or "").lower()
    return ProxiedClient(known, protocol if protocol in ("http", "https") else None, _host(hop.host))


def _host(text: str | None) -> str | None:
    """Return the host, if it is a valid one."""
    with suppress(HTTPInputError):
        if text and host_name(text):
            return text
    return None


def _x_forwarded(headers: HTTPHeaders) -> Iterator[Hop]:
    nodes, protocols, hosts = (_listed(headers, f"X-Forwarded-{name}") for name in ("For", "Proto", "Host"))
    for index in range(max(len(nodes), 1)):
        # Some proxies append only to X-Forwarded-For, and leave the other lists as the first proxy wrote them.
        yield Hop(_at(nodes, index) or "", _at(protocols, index), _at(hosts, index))


def _listed(headers: HTTPHeaders, name: str) -> list[str]:
    """Return the values of a header, the last one first."""
    text = headers.get(name)
    return [] if text is None else [hop.strip() for hop in reversed(text.rsplit(",", MAX_HOPS)[-MAX_HOPS:])]


def _at(values: list[str], index: int) -> str | None:
    return values[min(index, len(values) - 1)] if values else None


def _forwarded(headers: HTTPHeaders) -> Iterator[Hop]:
    """Yield the hops of Forwarded, the nearest first. If a part of the header is invalid, there are none: a client may
    have sent a quotation mark, and then the end of its part is not known."""
    text = headers["Forwarded"]
    if len(text) > MAX_FORWARDED_LENGTH:
        return
    elements: list[dict[str, str]] = [{}]
    position = 0
    while position < len(text):
        match = _PAIR.match(text, position)
        if match is None:
            return
        name, token, quoted, end = match.groups()
        elements[-1][name.lower()] = token if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        if end == ",":
            elements.append({})
        position = match.end()
    for element in reversed(elements):
        yield Hop(element.get("for", ""), element.get("proto"), element.get("host"))


class ProxiedRequest(Request):
    """A request that may have come through proxies. The client is resolved only when it is needed: by custom code, or
    for a log line."""

    def __init__(
        self,
        proxies: Proxies,
        connection: HTTPConnection,
        server: Listener,
        line: RequestStartLine,
        headers: Headers,
    ) -> None:
        super().__init__(connection, server, line, headers)
        self._proxies = proxies
        self._direct = ProxiedClient(self.remote_ip, self.protocol, self.host)
        del self.remote_ip, self.protocol, self.host, self.host_name

    @cached_property
    def _sender(self) -> ProxiedClient:
        direct = self._direct
        if not self._proxies.trusts_peer(direct.address or ""):
            return direct
        forwarded = sender(self.headers, self._proxies)
        return ProxiedClient(
            forwarded.address or direct.address,
            forwarded.protocol or direct.protocol,
            forwarded.host or direct.host,
        )

    @cached_property
    def remote_ip(self) -> str | None:  # type: ignore[override]  # tornado's are attributes
        return self._sender.address

    @cached_property
    def protocol(self) -> str | None:  # type: ignore[override]  # as above
        return self._sender.protocol

    @cached_property
    def host(self) -> str | None:  # type: ignore[override]  # as above
        return self._sender.host

    @cached_property
    def host_name(self) -> str:  # type: ignore[override]  # as above
        return host_name(self.host or "")
