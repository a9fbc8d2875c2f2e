"""Tasks that have no end. What comes in: work. What goes out: a task, which is started again when it ends all the same;
then also a line of the log and a count.

It must not know: what the work is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

AGAIN_SECONDS = 1.0
"""How long after its end a task is started again."""

OTHER = "other"
"""Tasks and callbacks that are not supervised, those of custom code among them, where they are counted."""

Work = Callable[[], Coroutine[Any, Any, None]]
Count = Callable[[str], None]

log = logging.getLogger("server")


class Supervised:
    """A task without an end. It is started again when it fails, returns or is cancelled by others. To be made in the
    loop."""

    def __init__(self, name: str, work: Work, count: Count) -> None:
        """count: is told the name at each end."""
        self._name = name
        self._work = work
        self._count = count
        self._is_stopped = False
        self._start()

    def stop(self) -> None:
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
        task.get_loop().call_later(AGAIN_SECONDS, self._start)


def tell_of_others(count: Count) -> None:
    """From here on the running loop tells of tasks and callbacks that nobody waits for as of any other fault: in one
    line with a traceback. They are counted as `OTHER`."""

    def tell(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        about = next((context[name] for name in ("task", "future", "handle") if name in context), None)
        log.error("%s: %s", context["message"], _shown(about), exc_info=context.get("exception"))
        count(OTHER)

    asyncio.get_running_loop().set_exception_handler(tell)


def _shown(about: object) -> str:
    """`fail, Task-7`"""
    if not isinstance(about, asyncio.Task):
        return repr(about)
    return f"{getattr(about.get_coro(), '__qualname__', about.get_coro())}, {about.get_name()}"
