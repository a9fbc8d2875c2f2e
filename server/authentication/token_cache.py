"""Keeps the principals of tokens that were verified, so that a token is verified once and not for each request.

Tokens themselves are not kept: the keys of the cache are their SHA-256. It is bounded in entries and in bytes.
"""

from __future__ import annotations

import time
from hashlib import sha256

from querybuild.cache import BoundedCache
from querybuild.principal import Principal
from server.authentication.claims import Verified

MAX_ENTRIES = 10_000
MAX_BYTES = 32 * 1024 * 1024
ENTRY_BYTES = 1000
BYTES_PER_CHARACTER = 8
"""The assumed bytes of an entry, and those that each character of the token adds to it: objects, lists and texts.
According to tracemalloc a token of 700 characters takes 4 KB."""


def digest_of(token: str) -> bytes:
    """Return the key of a token."""
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


class TokenCache:
    """The principals of verified tokens."""

    def __init__(self) -> None:
        self.entries: BoundedCache[Verified] = BoundedCache(MAX_ENTRIES, MAX_BYTES)

    def get(self, digest: bytes) -> Principal | None:
        """Return the principal of a token that is still valid, or None."""
        known = self.entries.get(digest)
        if known is None:
            return None
        if known.expires_at > time.time():
            return known.principal
        self.entries.discard(digest)
        return None

    def put(self, digest: bytes, known: Verified, length: int) -> None:
        """Keep a principal. length: of the token."""
        self.entries.put(digest, known, ENTRY_BYTES + BYTES_PER_CHARACTER * length)

    def clear(self) -> None:
        """Forget all, because the keys have changed."""
        self.entries.clear()
