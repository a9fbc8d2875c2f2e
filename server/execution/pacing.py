"""Runs long work step by step, and lets other requests run in between. The garbage collector is paused meanwhile.

It must not know: what the steps do.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from typing import TypeVar

from serializers.steps import Steps

TURN_SECONDS = 0.002
"""How long steps run before other requests get a turn. A step takes about as long."""

SHORT_TURN_SECONDS = 0.001
"""The same while short answers wait."""

PAUSE_SECONDS = 1.0
"""How long the garbage collector is paused after a step of a long answer. The rows of the answer are freed
meanwhile."""

MAX_PAUSE_SECONDS = 60.0
"""The longest pause, if one long answer follows another. Reference cycles must be freed at some time."""

_paused_at: float | None = None
_last_call_at = 0.0
"""When the pause began, and when it was last made longer. The collector belongs to the whole process."""

Result = TypeVar("Result")


def nobody_waits() -> bool:
    """Return that no short answer waits."""
    return False


async def run_steps(steps: Steps[Result], is_waited_for: Callable[[], bool] = nobody_waits) -> Result:
    """Run the steps, and return their result. Other tasks run between them. is_waited_for: whether short answers
    wait."""
    pause_collector()
    begin = time.perf_counter()
    try:
        while True:
            next(steps)
            seconds = time.perf_counter() - begin
            if seconds > TURN_SECONDS or (seconds > SHORT_TURN_SECONDS and is_waited_for()):
                pause_collector()
                await asyncio.sleep(0)
                begin = time.perf_counter()
    except StopIteration as done:
        result: Result = done.value
        return result


def pause_collector() -> None:
    """Pause the garbage collector for PAUSE_SECONDS from now on. Call it in each step of a long answer.

    The collector looks at all new rows, which takes 10 to 170 ms if long answers are in memory, and no other request is
    answered meanwhile. It finds nothing there, because no row is part of a reference cycle.
    """
    global _paused_at, _last_call_at
    _last_call_at = time.monotonic()
    if _paused_at is None:
        _paused_at = _last_call_at
        gc.disable()
        asyncio.get_running_loop().call_later(PAUSE_SECONDS, _resume_collector)


def _resume_collector() -> None:
    global _paused_at
    assert _paused_at is not None
    now = time.monotonic()
    left_seconds = _last_call_at + PAUSE_SECONDS - now
    is_too_long = now - _paused_at > MAX_PAUSE_SECONDS
    if left_seconds > 0 and not is_too_long:
        asyncio.get_running_loop().call_later(left_seconds, _resume_collector)
        return
    _paused_at = None
    gc.enable()
    if is_too_long:
        # The next step would pause it again, before it has freed anything.
        gc.collect(1)
