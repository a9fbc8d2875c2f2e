"""Whether requests are welcome here. In: what the worker knows of itself, and what PostgreSQL answers. Out: ready or
busy, or the reason why not.

Busy is not gone: a server that has much to do stays with its load balancer, or all would leave it at once.

Probes may come as often as they like: an answer of PostgreSQL's holds for a second, and one question at most is under
way, on a connection of its own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Literal

from querybuild.errors import ApiError
from server.errors import NotReady, Unavailable
from server.observing import metrics
from server.postgres.database import Database

KNOWN_SECONDS = 1.0
PATIENCE_SECONDS = 0.9
"""How long a probe waits for PostgreSQL's answer. Those who ask give up after a second by default (Kubernetes), and are
to hear why."""

QUESTION_SECONDS = 5.0
"""How long PostgreSQL has to answer, a connection to it included; the next one who wants to know waits for that too."""

log = logging.getLogger("server")


class Health:
    """Of one worker."""

    def __init__(self, database: Database) -> None:
        self._is_stopping = False
        self._database = database
        self._watch = database.watch
        self._watch.meter.put(metrics.STOPPING, 0.0)
        self._answered_at = float("-inf")
        self._question: asyncio.Task[None] | None = None
        self._was_ready = True

    @property
    def is_stopping(self) -> bool:
        """Whether the worker has been told to end: alone, or with all others, which is the server's end."""
        return self._is_stopping

    @is_stopping.setter
    def is_stopping(self, is_stopping: bool) -> None:
        self._is_stopping = is_stopping
        self._watch.meter.put(metrics.STOPPING, float(is_stopping))

    async def check(self) -> Literal["ready", "busy"]:
        """Busy: every connection of the pool is in use, and requests wait for one.

        Raises NotReady, Unavailable, Busy.
        """
        try:
            self._check_worker()
            if time.monotonic() > self._answered_at + KNOWN_SECONDS:
                await self._ask()
        except ApiError as error:
            self._tell(False, error.detail)
            raise
        self._tell(True, "")
        return "busy" if self._database.pool_figures().is_busy else "ready"

    def close(self) -> None:
        if self._question is not None:
            self._question.cancel()

    def _check_worker(self) -> None:
        if self._watch.board.is_ending:
            raise NotReady("The server is stopping.")

    async def _ask(self) -> None:
        # One that is done has told those who waited for it: what it says is old.
        if self._question is None or self._question.done():
            self._question = asyncio.create_task(self._put_question())
            # What nobody waits for any more is not reported.
            self._question.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
        question = self._question
        await asyncio.wait((question,), timeout=PATIENCE_SECONDS)
        if not question.done():
            raise Unavailable("The database does not answer in time; try again.")
        question.result()

    async def _put_question(self) -> None:
        await self._database.check(QUESTION_SECONDS)
        self._answered_at = time.monotonic()

    def _tell(self, is_ready: bool, reason: str) -> None:
        if is_ready != self._was_ready:
            self._was_ready = is_ready
            log.log(
                logging.INFO if is_ready else logging.WARNING, "ready again" if is_ready else f"not ready: {reason}"
            )
