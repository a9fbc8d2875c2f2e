"""Runs long work step by step, and lets other requests run in between.

It must not know: what the steps do.
"""

from __future__ import annotations

import asyncio
import time
from typing import TypeVar

from serializers.steps import Steps

TURN_SECONDS = 0.004
"""How long steps run before other requests get a turn. A step takes about as long."""

Result = TypeVar("Result")


async def run_steps(steps: Steps[Result]) -> Result:
    """Run the steps, and return their result. Other tasks run between them."""
    end = time.perf_counter() + TURN_SECONDS
    try:
        while True:
            next(steps)
            if time.perf_counter() > end:
                await asyncio.sleep(0)
                end = time.perf_counter() + TURN_SECONDS
    except StopIteration as done:
        result: Result = done.value
        return result
