"""Runs long work step by step, and lets other requests run in between. The garbage collector is paused meanwhile.

It must not know: what the steps do.
"""

from __future__ import annotations

import asyncio
import gc
import time
from typing import TypeVar

from serializers.steps import Steps

TURN_SECONDS = 0.002
"""How long steps run before other requests get a turn. A step takes about as long."""

PAUSE_SECONDS = 1.0
"""How long the garbage collector is paused after a step of a long answer. The rows of the answer are freed
meanwhile."""

MAX_PAUSE_SECONDS = 60.0
"""The longest pause, if one long answer follows another. Reference cycles must be freed at some time."""

_paused_at: float | None = None
_last_pause = 0
"""When the pause began, and the number of the last call. The collector belongs to the whole process."""

Result = TypeVar("Result")


async def run_steps(steps: Steps[Result]) -> Result:
    """Run the steps, and return their result. Other tasks run between them."""
    pause_collector()
    end = time.perf_counter() + TURN_SECONDS
    try:
        while True:
            next(steps)
            if time.perf_counter() > end:
                pause_collector()
                await asyncio.sleep(0)
                end = time.perf_counter() + TURN_SECONDS
    except StopIteration as done:
        result: Result = done.value
        return result


def pause_collector() -> None:
    """Pause the garbage collector for PAUSE_SECONDS from now on. Call it in each step of a long answer.

    The collector looks at all new rows, which takes 10 to 170 ms if long answers are in memory, and no other request is
    answered meanwhile. It finds nothing there, because no row is part of a reference cycle.
    """
    global _paused_at, _last_pause
    if _paused_at is None:
        _paused_at = time.monotonic()
        gc.disable()
    _last_pause += 1
    asyncio.get_running_loop().call_later(PAUSE_SECONDS, _resume_collector, _last_pause)


def _resume_collector(pause: int) -> None:
    global _paused_at
    if _paused_at is not None and (pause == _last_pause or time.monotonic() - _paused_at > MAX_PAUSE_SECONDS):
        _paused_at = None
        gc.enable()
        if pause != _last_pause:
            # The next step would pause it again, before it has freed anything.
            gc.collect(1)
