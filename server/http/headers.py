"""Defines the headers of a message: tornado's class, with a dictionary that can be read without a call.

Names of headers have no case, so each access to tornado's headers calls two functions. A request has about twenty
accesses, and most of them look for a header that is not there: 5 of every 100 microseconds.
"""

from __future__ import annotations

from functools import lru_cache

from tornado.httputil import HTTPHeaders

_CACHED_NAMES, _CACHED_BYTES = 256, 64
"""How many names are cached, and up to which length."""

_OF_SHARED_CACHES = frozenset({"public", "private", "s-maxage", "proxy-revalidate"})


class Headers(HTTPHeaders):
    """The headers of a message. by_name: the values of each header by its usual name, for example `Content-Type`. To
    change a header, use `put` or tornado's methods, because they also update other copies of the values."""

    def __init__(self, by_name: dict[str, list[str]] | None = None) -> None:
        # Tornado's constructor accepts other mappings, which takes as long as reading a request.
        self.by_name = self._as_list = {} if by_name is None else by_name
        self._combined_cache = {}

    @classmethod
    def of(cls, headers: HTTPHeaders) -> Headers:
        """Convert tornado's headers."""
        made = cls()
        for name, value in headers.get_all():
            made.add(name, value)
        return made

    def put(self, name: str, value: str) -> None:
        """Set a header. name: its usual name. Tornado's method looks for this name first, and `set_header` also checks
        the value, which `answering.py` does for all."""
        self.by_name[name] = [value]
        if name in self._combined_cache:
            del self._combined_cache[name]

    def __contains__(self, name: object) -> bool:
        return name in self.by_name or super().__contains__(name)

    def copy(self) -> Headers:
        return Headers({name: list(values) for name, values in self.by_name.items()})

    __copy__ = copy


def usual_name(name: bytes) -> str:
    """Return a name as tornado writes it.

    >>> usual_name(b"content-TYPE")
    'Content-Type'
    """
    return _cached_name(name) if len(name) <= _CACHED_BYTES else _usual_name(name)


def _usual_name(name: bytes) -> str:
    return "-".join([word.capitalize() for word in name.decode("ascii").split("-")])


_cached_name = lru_cache(_CACHED_NAMES)(_usual_name)


def private_directives(cache_control: str) -> str:
    """Return the directives of Cache-Control for an answer that only its client may keep (RFC 9111, 5.2.2).

    >>> private_directives("public, max-age=60, s-maxage=600")
    'private, max-age=60'
    """
    directives = [directive.strip() for directive in cache_control.split(",")]
    kept = [
        directive
        for directive in directives
        if directive and directive.lower().partition("=")[0] not in _OF_SHARED_CACHES
    ]
    return ", ".join(["private", *kept])
