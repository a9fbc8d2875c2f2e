"""The pause of the garbage collector while long answers are in memory."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from serializers.steps import Steps
from server.execution import pacing
from server.execution.pacing import pause_collector, run_steps


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A pause ends in the next iteration of the loop."""
    monkeypatch.setattr(pacing, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(pacing, "_paused_at", None)
    yield
    gc.enable()


async def next_iteration() -> None:
    for _ in range(2):
        await asyncio.sleep(0)


async def test_it_rests_while_steps_run_and_then_works_again() -> None:
    seen = []

    def steps() -> Steps[int]:
        seen.append(gc.isenabled())
        yield
        return 1

    assert (await run_steps(steps()), seen) == (1, [False])
    await next_iteration()
    assert gc.isenabled()


async def test_short_answers_that_wait_get_turns_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "SHORT_TURN_SECONDS", 0)
    monkeypatch.setattr(pacing, "TURN_SECONDS", 60)
    turns, waiting = [], [True, False, True]

    def steps() -> Steps[None]:
        for number in range(3):
            asyncio.get_running_loop().call_soon(turns.append, number)
            yield

    await run_steps(steps(), lambda: waiting.pop(0))
    assert turns == [0, 1, 2]
    turns.clear()
    await run_steps(steps())
    assert turns == []


async def test_a_later_step_makes_the_pause_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    pause_collector()
    monkeypatch.setattr(pacing, "PAUSE_SECONDS", 60)
    pause_collector()
    await next_iteration()
    assert not gc.isenabled()


async def test_it_works_some_time_if_long_answers_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    pause_collector()
    monkeypatch.setattr(pacing, "PAUSE_SECONDS", 60)
    monkeypatch.setattr(pacing, "MAX_PAUSE_SECONDS", -1)
    pause_collector()
    await next_iteration()
    assert gc.isenabled()
