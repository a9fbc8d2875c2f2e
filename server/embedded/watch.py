"""Keeps the embedded PostgreSQL up.

In: a postmaster that takes connections, and what another is started with. Out: another one when it ends by itself,
told in the log; or StartFailed. A disk that is full is waited for, however long. Nothing here waits, so that an event
loop may call it: a start goes on, through recovery, between one look and the next, and clients are refused meanwhile.
It must not know who looks, nor who the clients are.
"""

import logging
import time

from server.embedded import cluster
from server.embedded.folder import CLUSTER, StartFailed

FAILURES_AT_MOST = 3
FAILURES_SECONDS = 60.0
PAUSE_SECONDS = 1.0
ORPHAN_PAUSE_SECONDS = 0.1

ROOM_MIB = cluster.LOG_SEGMENT_BYTES >> 20

log = logging.getLogger("server")


class Watch:
    """The postmaster of a cluster: up, or being started, or waiting to be started."""

    def __init__(self, made: cluster.Cluster, postmaster: cluster.Postmaster) -> None:
        self._cluster = made
        self._launched: cluster.Launch | None = cluster.Launch(postmaster, 0)
        self._down_since: float | None = None
        self._again_at = 0.0
        self._failures: list[float] = []

    def look(self) -> None:
        """Raises StartFailed when PostgreSQL ended and `FAILURES_AT_MOST` starts in a row failed within
        `FAILURES_SECONDS`."""
        try:
            self._look()
        except OSError as error:
            self._failed(str(error))

    def _look(self) -> None:
        if self._launched is None:
            # On a full disk it ends again: no try is the last one for that.
            if time.monotonic() >= self._again_at and (not self._failures or cluster.has_room(self._cluster.data_dir)):
                self._start()
        elif (code := self._launched.postmaster.poll()) is not None:
            self._ended(self._launched, f"signal {-code}" if code < 0 else f"exit code {code}")
        elif self._down_since is not None and self._is_ready(self._launched):
            log.warning("PostgreSQL takes connections again after %.1f s", time.monotonic() - self._down_since)
            self._down_since = None
            self._failures.clear()

    def stop(self) -> None:
        """Stops what runs; nothing may look any more."""
        if self._launched is not None:
            cluster.stop(self._launched.postmaster)

    def _is_ready(self, launched: cluster.Launch) -> bool:
        return cluster.is_ready(launched.postmaster, self._cluster.data_dir / CLUSTER)

    def _start(self) -> None:
        self._launched = cluster.launch(self._cluster)

    def _ended(self, launched: cluster.Launch, how: str) -> None:
        self._launched = None
        if self._down_since is None:
            log.error("PostgreSQL ended (%s): it is started again", how)
            self._down_since = time.monotonic()
            self._start()
            return
        words = cluster.last_words(self._cluster, launched)
        if cluster.is_of_orphans(words) and time.monotonic() - self._down_since < cluster.ORPHAN_SECONDS:
            self._again_at = time.monotonic() + ORPHAN_PAUSE_SECONDS
            return
        self._failed(words)
        if not cluster.has_room(self._cluster.data_dir):
            log.error("the disk of PostgreSQL is full: it is started again when %d MiB are free", ROOM_MIB)

    def _failed(self, words: str) -> None:
        now = time.monotonic()
        log.error("PostgreSQL did not start: %s", words)
        self._failures = [*(at for at in self._failures if now - at < FAILURES_SECONDS), now]
        if len(self._failures) == FAILURES_AT_MOST:
            raise StartFailed(f"PostgreSQL ended and did not start again in {FAILURES_AT_MOST} tries; {words}")
        self._again_at = now + PAUSE_SECONDS
