"""Runs background tasks, and restarts each one that ends.

What comes in: a coroutine function. What goes out: its task. Each end is logged and counted.

It must not know: what the work is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

RESTART_SECONDS = 1.0
"""How long after its end a task is restarted."""

OTHER = "other"
"""The name under which the failures of other tasks and callbacks are counted, for example those of custom code."""

Work = Callable[[], Coroutine[Any, Any, None]]
Count = Callable[[str], None]

log = logging.getLogger("server")


class Supervised:
    """A task that should never end. It is restarted when it fails, returns or is cancelled by others. Create it in
    the event loop."""

    def __init__(self, name: str, work: Work, count: Count) -> None:
        """count: is called with the name at each end."""
        self._name = name
        self._work = work
        self._count = count
        self._is_stopped = False
        self._start()

    def stop(self) -> None:
        """Cancel the task for good."""
        self._is_stopped = True
        self._task.cancel()

    def _start(self) -> None:
        if not self._is_stopped:
            self._task = asyncio.get_running_loop().create_task(self._work(), name=self._name)
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if self._is_stopped and error is None:
            return
        how = "was cancelled" if task.cancelled() else "ended" if error is None else "failed"
        log.error("the task %s %s, and is started again", self._name, how, exc_info=error)
        self._count(self._name)
        task.get_loop().call_later(RESTART_SECONDS, self._start)


def log_unhandled_errors(count: Count) -> None:
    """Make the running loop log the errors of tasks and callbacks that nobody awaits, with a traceback. They are
    counted as `OTHER`."""

    def log_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        source = next((context[name] for name in ("task", "future", "handle") if name in context), None)
        log.error("%s: %s", context["message"], _describe(source), exc_info=context.get("exception"))
        count(OTHER)

    asyncio.get_running_loop().set_exception_handler(log_error)


def _describe(source: object) -> str:
    """Return the name of a task, like `fail, Task-7`."""
    if not isinstance(source, asyncio.Task):
        return repr(source)
    return f"{getattr(source.get_coro(), '__qualname__', source.get_coro())}, {source.get_name()}"
