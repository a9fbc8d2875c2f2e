"""Waiting for what nothing tells of. What comes in: a question, asked again and again. What goes out: its first answer
that will do. A wait in vain fails and shows the last one."""

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
    """ask: gives the answer, or what gives it when it is awaited."""
    found: Any = None
    try:
        async with asyncio.timeout(seconds):
            while not is_enough(found := await _answer(ask())):  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(pause_seconds)
    except TimeoutError as error:
        raise AssertionError(f"waited in vain, at last for {found!r}") from error
    return found


async def _answer(asked: Any) -> Any:
    return await asked if inspect.isawaitable(asked) else asked


def wait_until(ask: Callable[[], Any], is_enough: Callable[[Any], Any] = bool) -> Any:
    """Of a test without a loop."""
    deadline = time.monotonic() + SECONDS
    while not is_enough(found := ask()):
        assert time.monotonic() < deadline, f"waited in vain, at last for {found!r}"
        time.sleep(PAUSE_SECONDS)
    return found
