"""One timer for all waiting turns."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref

import pytest

from server.postgres.sharing.shares import Turn
from server.postgres.sharing.turn_timeouts import TurnTimeouts


def turn() -> Turn:
    return asyncio.get_running_loop().create_future()


async def test_each_turn_fails_at_its_own_time() -> None:
    timeouts, begin = TurnTimeouts(), time.monotonic()
    seconds = (0.15, 0.05, 0.1)
    turns = [turn() for _ in seconds]
    for one, after in zip(turns, seconds, strict=True):
        timeouts.add(one, after)
    ended: list[float] = []
    for one in (turns[1], turns[2], turns[0]):
        with pytest.raises(TimeoutError):
            await one
        ended.append(time.monotonic() - begin)
    assert [after <= took for after, took in zip(sorted(seconds), ended, strict=True)] == [True] * 3


async def test_a_turn_that_ended_before_its_timeout_does_not_fail() -> None:
    timeouts = TurnTimeouts()
    came, given_up, late = turn(), turn(), turn()
    for one in (came, given_up, late):
        timeouts.add(one, 0.01)
    came.set_result("connection")
    given_up.cancel()
    with pytest.raises(TimeoutError):
        await late
    assert came.result() == "connection"
    timeouts.add(again := turn(), 0.01)
    with pytest.raises(TimeoutError):
        await again


async def test_ended_turns_are_not_kept() -> None:
    timeouts = TurnTimeouts()
    gc.disable()
    try:
        seen = []
        for _ in range(1000):
            timeouts.add(one := turn(), 60.0)
            one.set_result(None)
            seen.append(weakref.ref(one))
        del one
        assert sum(found() is not None for found in seen) <= 1
    finally:
        gc.enable()
