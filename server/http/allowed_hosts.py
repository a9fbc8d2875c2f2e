"""Checks the Host and the Origin of requests, so that a foreign web page cannot use a server that its browser can reach
(DNS rebinding).

It must not know: routes, documents.

Sources: RFC 9110, 7.4 (misdirected requests); RFC 6454 (origins).
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from server.http.request import NO_HOST, UNIX, Request, host_name
from server.settings import Settings

ALL = "*"
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
CACHED_NAMES = 128
"""How many results of address checks are cached."""

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}

Addresses = frozenset[IPv4Address | IPv6Address]


class AllowedHosts:
    """The host names that one server accepts: those of the setting `allowed_hosts`, or its own.

    Its own names are the addresses that it listens on, the loopback addresses, the host of `public_url` and the setting
    `host`. A server that listens on all addresses accepts every address: DNS can point a name at another machine, but
    not an address. The admin port always accepts its own names too.
    """

    def __init__(self, settings: Settings, *, is_admin: bool = False) -> None:
        given = frozenset((settings.allowed_hosts or "").split(",")) - {""}
        self._is_open = ALL in given
        self._has_own = is_admin or not given
        own = LOOPBACK_NAMES | _public_names(settings) | {settings.host.lower()}
        self._names = given | own if self._has_own else given
        self._is_own_address = lru_cache(CACHED_NAMES)(_is_own_address)
        self._origins = frozenset((settings.cors_origins or "").split(",")) - {""}
        if _public_names(settings):
            self._origins |= {_origin_of(settings.public_url or "")}

    def knows(self, request: Request) -> bool:
        """Return whether the request is for a name of the server. Requests on a Unix socket may have any name, unless
        `allowed_hosts` is set. HTTP/1.0 requests may have no name."""
        return request.host_name in self._names or self._is_open or self._is_own(request)

    def _is_own(self, request: Request) -> bool:
        if not self._has_own:
            return request.host == NO_HOST and "Host" not in request.headers
        peer = request.connection.context.remote_ip  # type: ignore[union-attr]  # which every connection of ours has
        return peer == UNIX or self._is_own_address(request.host_name, request.server_connection.addresses)

    def is_foreign(self, request: Request) -> bool:
        """Return whether a page of another origin sent the request, and `cors_origins` does not list that origin."""
        if "Origin" not in request.headers.by_name or ALL in self._origins:
            return False
        origin = request.headers["Origin"].lower()
        return origin not in self._origins and origin != own_origin(request)


def own_origin(request: Request) -> str:
    """Return the origin of the server, in the form that a browser sends."""
    port = request.host.lower().rpartition("]")[2].partition(":")[2]
    port = f":{port}" if port else ""
    protocol = request.protocol or "http"
    return f"{protocol}://{request.host_name}{'' if port == _DEFAULT_PORTS.get(protocol) else port}"


def _public_names(settings: Settings) -> frozenset[str]:
    netloc = "" if settings.public_url is None else urlsplit(settings.public_url).netloc
    return frozenset({host_name(netloc)} if netloc else ())


def _origin_of(url: str) -> str:
    parts = urlsplit(url.lower())
    return f"{parts.scheme}://{parts.netloc.removesuffix(_DEFAULT_PORTS.get(parts.scheme, ''))}"


def _is_own_address(name: str, listened: Addresses) -> bool:
    try:
        address = ip_address(name.strip("[]"))
    except ValueError:
        return False
    return address.is_loopback or address in listened or any(own.is_unspecified for own in listened)
