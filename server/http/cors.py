"""Answers requests of web pages from other origins (CORS: Fetch Standard, 3.2), if the setting `cors_origins` lists
any. What comes in: the headers of a request. What goes out: headers of its answer.

It must not know: routes. A preflight gets the same answer for all paths, also for one that does not exist, so that
the page can read the 404 or 405 of its request. Cookies are not allowed. A page may send a token in Authorization."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.web import OutputTransform

from server.http.negotiation import add_vary

EXPOSED = (
    "Location, ETag, Preference-Applied, Idempotent-Replayed, X-Request-Id, Retry-After, Server-Timing, "
    "WWW-Authenticate"
)
METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, QUERY"
MAX_AGE_SECONDS = 7200
"""How long a browser may cache the answer to a preflight. This is Chromium's maximum."""

_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_HEADER_NAMES = re.compile(rf"{_TOKEN}(?: ?, ?{_TOKEN})*")
_MAX_NAMES_LENGTH = 2000

Transform = Callable[[HTTPServerRequest], OutputTransform]


def transforms(cors_origins: str | None) -> list[Transform]:
    """Return the transforms that tornado applies to each answer."""
    return [partial(Cors, cors_origins)] if cors_origins else []


def allowed_origin(headers: HTTPHeaders, cors_origins: str) -> str | None:
    """Return the value of Access-Control-Allow-Origin for this request, or None for no header. cors_origins: the
    setting."""
    origin = headers.get("Origin")
    if not origin:
        return None
    if cors_origins == "*":
        return "*"
    return origin if origin in cors_origins.split(",") else None


def is_preflight(request: HTTPServerRequest, cors_origins: str) -> bool:
    """Return whether this is a CORS preflight request from an allowed origin."""
    if request.method != "OPTIONS" or "Access-Control-Request-Method" not in request.headers:
        return False
    return allowed_origin(request.headers, cors_origins) is not None


def preflight_headers(headers: HTTPHeaders) -> dict[str, str]:
    """Return the headers of the answer to a preflight, besides those that every answer has."""
    answered = {"Access-Control-Allow-Methods": METHODS, "Access-Control-Max-Age": str(MAX_AGE_SECONDS)}
    names = headers.get("Access-Control-Request-Headers", "")
    if len(names) <= _MAX_NAMES_LENGTH and _HEADER_NAMES.fullmatch(names):
        answered["Access-Control-Allow-Headers"] = names
    return answered


class Cors(OutputTransform):
    """Adds the headers that let a page of an allowed origin read the answer."""

    def __init__(self, cors_origins: str, request: HTTPServerRequest) -> None:
        self._allowed = allowed_origin(request.headers, cors_origins)

    def transform_first_chunk(
        self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
    ) -> tuple[int, HTTPHeaders, bytes]:
        add_vary(headers, "Origin")
        if self._allowed is not None:
            headers["Access-Control-Allow-Origin"] = self._allowed
            headers["Access-Control-Expose-Headers"] = EXPOSED
        return status_code, headers, chunk
