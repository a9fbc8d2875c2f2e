"""Restarts the embedded PostgreSQL when it ends by itself.

What comes in: a cluster and its running postmaster. What goes out: a restarted postmaster, or StartFailed. While the
disk is full it retries without end. No call blocks: a start, with its recovery, continues between two checks, and
PostgreSQL refuses clients meanwhile.

It must not know: who calls it, who the clients are.
"""

import logging
import time

from server.embedded import cluster
from server.embedded.folder import CLUSTER, StartFailed

MAX_FAILURES = 3
FAILURES_SECONDS = 60.0
RETRY_SECONDS = 1.0
ORPHAN_RETRY_SECONDS = 0.1

ROOM_MIB = cluster.LOG_SEGMENT_BYTES >> 20

log = logging.getLogger("server")


class Supervisor:
    """Supervises the postmaster of a cluster, which is up, starting, or waiting for the next start."""

    def __init__(self, made: cluster.Cluster, postmaster: cluster.Postmaster) -> None:
        self._cluster = made
        self._launched: cluster.Launch | None = cluster.Launch(postmaster, 0)
        self._down_since: float | None = None
        self._retry_at = 0.0
        self._failures: list[float] = []

    def check(self) -> None:
        """Restart PostgreSQL if it has ended. Raises StartFailed when `MAX_FAILURES` starts in a row failed within
        `FAILURES_SECONDS`."""
        try:
            self._check()
        except OSError as error:
            self._failed(str(error))

    def _check(self) -> None:
        if self._launched is None:
            # On a full disk PostgreSQL would end again. Wait for free space, so that the failures do not add up.
            if time.monotonic() >= self._retry_at and (
                not self._failures or cluster.has_free_space(self._cluster.data_dir)
            ):
                self._start()
        elif (code := self._launched.postmaster.poll()) is not None:
            self._ended(self._launched, f"signal {-code}" if code < 0 else f"exit code {code}")
        elif self._down_since is not None and self._is_ready(self._launched):
            log.warning("PostgreSQL takes connections again after %.1f s", time.monotonic() - self._down_since)
            self._down_since = None
            self._failures.clear()

    def stop(self) -> None:
        """Stop PostgreSQL. `check` must not be called afterwards."""
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
        output = cluster.startup_log(self._cluster, launched)
        if cluster.is_orphan_error(output) and time.monotonic() - self._down_since < cluster.ORPHAN_SECONDS:
            self._retry_at = time.monotonic() + ORPHAN_RETRY_SECONDS
            return
        self._failed(output)
        if not cluster.has_free_space(self._cluster.data_dir):
            log.error("the disk of PostgreSQL is full: it is started again when %d MiB are free", ROOM_MIB)

    def _failed(self, output: str) -> None:
        now = time.monotonic()
        log.error("PostgreSQL did not start: %s", output)
        self._failures = [*(at for at in self._failures if now - at < FAILURES_SECONDS), now]
        if len(self._failures) == MAX_FAILURES:
            raise StartFailed(f"PostgreSQL ended and did not start again in {MAX_FAILURES} tries; {output}")
        self._retry_at = now + RETRY_SECONDS
