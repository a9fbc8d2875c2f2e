"""Accept and Content-Type for application/vnd.api+json, its `ext` and `profile`. What comes in: header values.
What goes out: nothing, or NotAcceptable and UnsupportedMediaType; and what an answer varies with.

Sources: JSON:API 1.1 "Content Negotiation"; RFC 9110, sections 8.3 and 12.5.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from tornado.httputil import HTTPHeaders

from server.errors import NotAcceptable, UnsupportedMediaType

MEDIA_TYPE = "application/vnd.api+json"

_PARAMETER = re.compile(r';\s*([!#$%&\'*+.^_`|~0-9A-Za-z-]+)\s*(?:=\s*("(?:[^"\\]|\\.)*"|[^\s;,"]*))?\s*')
_QUOTED_PAIR = re.compile(r"\\(.)")
# A quote that is never closed goes to the end: to look for its end again from each place in it would be quadratic.
_ELEMENT = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*+(?:"|\\?\Z))++')

Parameters = dict[str, str]

HEADERS_KEPT = 16
"""Clients send the same headers again and again, and to read one takes up to 4 us. Those that are refused are not
kept. One may have 64 KB: all of them together are at most 1 MB, and those of both kinds 2."""


def add_vary(headers: HTTPHeaders, name: str) -> None:
    """Of an answer: that it depends on this header of the request too (RFC 9110, 12.5.5)."""
    headers["Vary"] = f"{headers['Vary']}, {name}" if "Vary" in headers else name


@lru_cache(maxsize=HEADERS_KEPT)
def check_content_type(value: str | None, extensions: frozenset[str]) -> frozenset[str]:
    """Of a request that has a body; gives the extensions that it applies. Raises UnsupportedMediaType."""
    if not value:
        raise UnsupportedMediaType(f"A body needs a Content-Type: {MEDIA_TYPE}.", header="Content-Type")
    media_type, parameters = _parsed(value)
    if media_type == "application/json":
        return frozenset()
    if media_type != MEDIA_TYPE:
        raise UnsupportedMediaType(f"The Content-Type must be {MEDIA_TYPE}.", header="Content-Type")
    unknown = _unfit(parameters, extensions)
    if unknown is not None:
        raise UnsupportedMediaType(f"The Content-Type has {unknown}.", header="Content-Type")
    return frozenset(parameters.get("ext", "").split())


@lru_cache(maxsize=HEADERS_KEPT)
def check_accept(value: str | None, extensions: frozenset[str]) -> None:
    """Raises NotAcceptable when the JSON:API media type is named, and every time with something that this
    route cannot serve."""
    if not value or MEDIA_TYPE not in value.lower():
        return
    problems = []
    for element in _ELEMENT.findall(value):
        media_type, parameters = _parsed(element)
        if media_type == MEDIA_TYPE:
            problem = _unfit(_before_weight(parameters), extensions)
            if problem is None:
                return
            problems.append(problem)
    if problems:
        raise NotAcceptable(f"Every {MEDIA_TYPE} of Accept has {problems[0]}.", header="Accept")


def _parsed(value: str) -> tuple[str, Parameters]:
    media_type, _, _ = value.partition(";")
    return media_type.strip().lower(), dict(_parameters(value))


def _parameters(value: str) -> Iterator[tuple[str, str]]:
    for name, text in _PARAMETER.findall(value):
        yield name.lower(), _QUOTED_PAIR.sub(r"\1", text[1:-1]) if text.startswith('"') else text


def _before_weight(parameters: Parameters) -> Parameters:
    """`q` and what follows it are Accept's own."""
    kept: Parameters = {}
    for name, text in parameters.items():
        if name == "q":
            break
        kept[name] = text
    return kept


def _unfit(parameters: Parameters, extensions: frozenset[str]) -> str | None:
    """What of the media type's parameters this route cannot serve. Profiles are never in the way."""
    for name, text in parameters.items():
        if name == "ext":
            unknown = [uri for uri in text.split() if uri not in extensions]
            if unknown:
                return f"an `ext` that this route does not have: {unknown[0][:100]}"
        elif name != "profile":
            return f"the parameter {name[:100]!r}, and JSON:API allows `ext` and `profile` alone"
    return None
