"""Finds and keeps the keys of an issuer. What goes out: the keys that are known now.

Keys are fetched in the background, by discovery or from their URL. While the issuer is away, the known ones stay in
use for `auth_keys_hours`.

It must not know: tokens, requests.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any

from server.authentication.discovery import fetch_metadata
from server.authentication.fetching import Fetcher, FetchError
from server.authentication.keys import Keys, KeysError, read_key_set

REFRESH_SECONDS = 300.0
"""How often keys are fetched again."""

ASK_SECONDS = 10.0
"""The least time between two fetches for tokens with an unknown key."""

RETRY_SECONDS = 1.0, 60.0
"""How long the background waits after a fetch that failed: at first, and at most."""

MAX_WAITING = 100
"""How many requests wait for keys at once. Further ones are answered with the keys that are known."""

Fetch = Callable[[], Awaitable[Keys]]

log = logging.getLogger("server")


class FixedKeys:
    """The keys of a file. They change with a reload."""

    can_ask = False

    def __init__(self, keys: Keys) -> None:
        self.keys: Keys | None = keys

    async def ask(self) -> None:
        """Do nothing: there are no others."""


class FetchedKeys:
    """The keys that an issuer publishes."""

    def __init__(self, fetch: Fetch, keep_seconds: float, on_change: Callable[[], None]) -> None:
        """fetch: returns the keys; raises FetchError, KeysError. keep_seconds: how long they are used if no others can
        be fetched. on_change: is called when they are not the same as before."""
        self._fetch = fetch
        self._keep_seconds = keep_seconds
        self._on_change = on_change
        self._keys: Keys | None = None
        self._fetched_at = self._begun_at = float("-inf")
        self._fetching: asyncio.Task[None] | None = None
        self._waiting = 0
        self._last: tuple[bool, bool] | None = None
        """Whether the last fetch has reached the issuer, and found usable keys."""

    @property
    def keys(self) -> Keys | None:
        """The known keys, or None."""
        if self._keys is not None and time.monotonic() - self._fetched_at > self._keep_seconds:
            log.error("the keys of the issuer are too old: no token is accepted until it answers")
            self._keys = None
            self._on_change()
        return self._keys

    @property
    def can_ask(self) -> bool:
        """Whether a request may wait for other keys."""
        if self._fetching is not None:
            return self._waiting < MAX_WAITING
        return time.monotonic() - self._begun_at >= ASK_SECONDS

    async def ask(self) -> None:
        """Wait for the fetch that is under way, or begin one. Call it if `can_ask`."""
        fetching = self._begin()
        self._waiting += 1
        try:
            await asyncio.wait((fetching,))
        finally:
            self._waiting -= 1

    async def run(self) -> None:
        """Fetch the keys for ever."""
        delay, longest = RETRY_SECONDS
        while True:
            await asyncio.wait((self._begin(),))
            if self._last is not None and self._last[0]:
                delay = RETRY_SECONDS[0]
                await asyncio.sleep(REFRESH_SECONDS)
            else:
                await asyncio.sleep(delay)
                delay = min(2 * delay, longest)

    def close(self) -> None:
        """Cancel the fetch that is under way."""
        if self._fetching is not None:
            self._fetching.cancel()

    def _begin(self) -> asyncio.Task[None]:
        if self._fetching is None:
            self._begun_at = time.monotonic()
            # In an empty context: its log lines belong to no request.
            self._fetching = asyncio.get_running_loop().create_task(self._fetch_once(), context=Context())
            self._fetching.add_done_callback(self._ended)
        return self._fetching

    def _ended(self, _: asyncio.Task[None]) -> None:
        self._fetching = None

    async def _fetch_once(self) -> None:
        try:
            keys = await self._fetch()
        except (FetchError, KeysError) as error:
            self._log_change((False, False), f"no keys from the issuer: {error}")
        except Exception:
            self._last = (False, False)
            log.exception("no keys from the issuer")
        else:
            count = len(keys.keys)
            # Withdrawn keys are not used any more, also if there are no others.
            self._log_change((True, count > 0), f"the issuer has {count or 'no'} usable keys")
            self._fetched_at = time.monotonic()
            if self._keys is None or self._keys.source != keys.source:
                self._keys = keys
                # A token is verified again: its key may have been withdrawn.
                self._on_change()

    def _log_change(self, outcome: tuple[bool, bool], message: str) -> None:
        if outcome != self._last:
            self._last = outcome
            log.log(logging.INFO if all(outcome) else logging.ERROR, "%s", message)


async def fetch_by_discovery(fetcher: Fetcher, issuer: str, accepted: Any) -> Keys:
    """Return the keys of an issuer. Raises FetchError, KeysError."""
    metadata = await fetch_metadata(fetcher, issuer)
    return await fetch_keys(fetcher, metadata.jwks_uri, accepted)


async def fetch_keys(fetcher: Fetcher, url: str, accepted: Any) -> Keys:
    """Return the keys at a URL. Raises FetchError, KeysError."""
    try:
        return read_key_set(await fetcher.get(url), accepted, may_be_empty=True)
    except KeysError as error:
        raise KeysError(f"{url}: {error}") from None
