"""Fetches documents of the issuer: limited in time and size, without redirects, and over https unless the settings
allow http.

It must not know: what is in a document.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus, urlencode

import msgspec
from tornado.httpclient import AsyncHTTPClient, HTTPError, HTTPRequest
from tornado.simple_httpclient import HTTPStreamClosedError, HTTPTimeoutError

from server.settings import Settings
from server.settings.access import is_loopback

FETCH_SECONDS = 5.0
"""How long an answer may take, with the time to connect."""

MAX_BODY_BYTES = 256 * 1024
MAX_CLIENTS = 50
"""How many questions are asked at once. Further ones wait, within their FETCH_SECONDS."""

JSON = "application/json"

Credentials = tuple[str, bytes]
"""The name and the secret of a client."""


log = logging.getLogger("server")


class FetchError(Exception):
    """The issuer did not answer, or not with what was asked for. The message is for the log. It contains no token and
    no secret. status, body: of the answer, if there was one."""

    def __init__(self, message: str, status: int | None = None, body: bytes = b"") -> None:
        super().__init__(message)
        self.status = status
        self.body = body


class Fetcher:
    """The HTTP client for the issuer. Use it in one event loop."""

    def __init__(self, settings: Settings) -> None:
        self._allows_http = settings.auth_allow_http
        self._client: AsyncHTTPClient | None = None

    async def get(self, url: str) -> bytes:
        """Return the document at a URL. Raises FetchError."""
        return await self._fetch(url, HTTPRequest(url, headers={"Accept": JSON}))

    async def post(self, url: str, form: Mapping[str, str], credentials: Credentials | None) -> bytes:
        """Send a form. Return the answer. Raises FetchError."""
        headers = {"Accept": JSON, "Content-Type": "application/x-www-form-urlencoded"}
        # RFC 6749, 2.3.1: both are form-encoded before they become Basic credentials.
        user, password = (
            (None, None) if credentials is None else (quote_plus(credentials[0]), quote_plus(credentials[1]))
        )
        request = HTTPRequest(url, "POST", headers, urlencode(form), auth_username=user, auth_password=password)
        return await self._fetch(url, request)

    def check_url(self, url: str) -> None:
        """Check that nobody on the way can read or change what is sent to a URL. Raises FetchError."""
        if not url.startswith("https://") and not (
            url.startswith("http://") and (self._allows_http or is_loopback(url))
        ):
            raise FetchError(f"{url[:200]} is not https")

    async def _fetch(self, url: str, request: HTTPRequest) -> bytes:
        self.check_url(url)
        request.follow_redirects = False
        request.decompress_response = False
        request.connect_timeout = request.request_timeout = FETCH_SECONDS
        if self._client is None:
            self._client = AsyncHTTPClient(True, max_clients=MAX_CLIENTS, max_body_size=MAX_BODY_BYTES)
        try:
            fetched = asyncio.ensure_future(self._client.fetch(request))
            # Tornado logs an error if its future is cancelled, and asyncio if nobody retrieves one.
            fetched.add_done_callback(lambda done: done.cancelled() or done.exception())
            return (await asyncio.shield(fetched)).body
        except HTTPTimeoutError:
            raise FetchError(f"{url} did not answer within {FETCH_SECONDS:g} s") from None
        except HTTPStreamClosedError:
            raise FetchError(f"{url} closed the connection, or its answer is over {MAX_BODY_BYTES} bytes") from None
        except HTTPError as error:
            body = b"" if error.response is None else error.response.body or b""
            raise FetchError(f"{url} answered {error.code}{_place(error)}", error.code, body) from None
        except Exception as error:
            # Broken TLS, HTTP or names: whatever it is, the issuer cannot be reached.
            raise FetchError(f"{url} cannot be reached: {type(error).__name__}: {str(error)[:200]}") from None

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()


class Outages:
    """Logs when something that the issuer is asked for begins to fail, and when it works again. works, fails: the lines
    for this."""

    def __init__(self, works: str, fails: str) -> None:
        self._works, self._fails = works, fails
        self._is_failing = False

    def failed(self, reason: str) -> None:
        """Log the begin of an outage."""
        if not self._is_failing:
            self._is_failing = True
            log.error("%s: %s", self._fails, reason)

    def worked(self) -> None:
        """Log the end of an outage."""
        if self._is_failing:
            self._is_failing = False
            log.info("%s", self._works)


def _place(error: HTTPError) -> str:
    """Return where a redirect leads to."""
    place = None if error.response is None else error.response.headers.get("Location")
    return "" if place is None else f", which leads to {place[:200]}: redirects are not followed"


def decode_object(body: bytes) -> dict[str, Any]:
    """Return the members of an answer. Raises FetchError."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise FetchError("the answer is not a JSON object") from None
