"""Waits for something that sends no signal. In: a function, which is called again and again. Out: its first sufficient
result. If the time is over, the test fails and shows the last result."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

SECONDS = 60.0
PAUSE_SECONDS = 0.002


async def until(
    ask: Callable[[], Any],
    is_enough: Callable[[Any], Any] = bool,
    *,
    seconds: float = SECONDS,
    pause_seconds: float = PAUSE_SECONDS,
) -> Any:
    """Call the function until its result is sufficient, and return that. ask: returns the result or an awaitable."""
    found: Any = None
    try:
        async with asyncio.timeout(seconds):
            while not is_enough(found := await _answer(ask())):  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(pause_seconds)
    except TimeoutError as error:
        raise AssertionError(f"the wait was not successful; the last result is {found!r}") from error
    return found


async def _answer(asked: Any) -> Any:
    return await asked if inspect.isawaitable(asked) else asked


def wait_until(ask: Callable[[], Any], is_enough: Callable[[Any], Any] = bool) -> Any:
    """Do the same in a test without an event loop."""
    deadline = time.monotonic() + SECONDS
    while not is_enough(found := ask()):
        assert time.monotonic() < deadline, f"the wait was not successful; the last result is {found!r}"
        time.sleep(PAUSE_SECONDS)
    return found
