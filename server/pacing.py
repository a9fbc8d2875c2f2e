"""Long work of one request, in turns with that of others. In: steps. Out: their result.

It must not know: what the steps do.
"""

from __future__ import annotations

import asyncio
import time
from typing import TypeVar

from serializers.steps import Steps

TURN_SECONDS = 0.004
"""How long steps go on before others have their turn: about as long as a step takes."""

Result = TypeVar("Result")


async def in_turns(steps: Steps[Result]) -> Result:
    """Runs them, and lets others run in between."""
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
