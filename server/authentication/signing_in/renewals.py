"""Lets the workers of a machine renew a session once, when several requests with it come at once: many issuers end a
session if a refresh token is used twice.

It must not know: what is renewed.
"""

from __future__ import annotations

import fcntl
import os
import struct
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from server.authentication.token_cache import digest_of
from server.settings import StartError

KEPT_SECONDS = 60.0
"""How long a renewed session is known to requests that still have the old one."""

SLOTS, SLOT_BYTES = 4096, 16_384
"""How many groups of tokens there are. The file has only the pages that were written: 4 KB for a usual session."""

_HEAD = struct.Struct("=32sdI")


class Renewals:
    """What was renewed lately, in a file without a name that all workers inherit. Each group of tokens has a slot for
    the last one, and a lock of its own. If a worker ends, the kernel releases its locks."""

    def __init__(self) -> None:
        """Raises StartError."""
        try:
            with tempfile.TemporaryFile(prefix="waterspout-") as file:
                file.truncate(SLOTS * SLOT_BYTES)
                self._file = os.dup(file.fileno())
        except OSError as error:
            raise StartError(f"sessions need a file in {tempfile.gettempdir()}: {error.strerror}") from None
        self._locked: set[int] = set()
        weakref.finalize(self, os.close, self._file)

    @contextmanager
    def locked(self, token: str) -> Iterator[bool]:
        """Lock the slot of a token, unless somebody else has locked it. Yields whether it is locked now."""
        slot = _slot(token)
        # The lock belongs to the process, so it does not keep requests of this worker apart.
        if slot in self._locked:
            yield False
            return
        start = slot * SLOT_BYTES
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, start)
        except OSError:
            yield False
            return
        self._locked.add(slot)
        try:
            yield True
        finally:
            self._locked.discard(slot)
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, start)

    def get(self, token: str) -> bytes | None:
        """Return what this token was renewed to, or None. Lock it before."""
        # The workers share the position of the file, so it is not used.
        kept = os.pread(self._file, SLOT_BYTES, _slot(token) * SLOT_BYTES)
        digest, at, size = _HEAD.unpack_from(kept)
        if digest != digest_of(token) or not 0 <= time.time() - at < KEPT_SECONDS:
            return None
        return kept[_HEAD.size : _HEAD.size + size]

    def put(self, token: str, renewed: bytes) -> None:
        """Keep what a token was renewed to, if there is room. Lock it before."""
        if len(renewed) <= SLOT_BYTES - _HEAD.size:
            content = _HEAD.pack(digest_of(token), time.time(), len(renewed)) + renewed
            os.pwrite(self._file, content, _slot(token) * SLOT_BYTES)


def _slot(token: str) -> int:
    return int.from_bytes(digest_of(token)[:2]) % SLOTS
