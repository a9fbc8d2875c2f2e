"""Background tasks that end: what is logged, and that they are restarted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
import uvloop

from server.observing import supervision
from server.observing.supervision import OTHER, Supervised, log_unhandled_errors
from tests.waiting import until


class Work:
    """Work that ends in some way the first time, and then runs on. begun: how often it was started."""

    def __init__(self, end: Callable[[], object]) -> None:
        self.begun = 0
        self._end = end

    async def __call__(self) -> None:
        self.begun += 1
        if self.begun == 1:
            self._end()
            return
        await asyncio.Event().wait()


def fail() -> None:
    raise ValueError("broken")


def cancel() -> None:
    raise asyncio.CancelledError


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "RESTART_SECONDS", 0.0)


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (fail, "the task gauges failed, and is started again"),
        (cancel, "the task gauges was cancelled, and is started again"),
        (int, "the task gauges ended, and is started again"),
    ],
)
async def test_a_task_that_ends_is_logged_and_restarted(
    caplog: pytest.LogCaptureFixture, end: Callable[[], object], message: str
) -> None:
    work, counted = Work(end), Counter[str]()
    task = Supervised("gauges", work, lambda name: counted.update([name]))
    await until(lambda: work.begun == 2)
    task.stop()
    await asyncio.sleep(0)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [("ERROR", message)]
    assert (caplog.records[0].exc_info is not None) == (end is fail)
    assert counted == {"gauges": 1}


async def test_a_stopped_task_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    work = Work(int)
    work.begun = 1
    task = Supervised("gauges", work, lambda _: None)
    await asyncio.sleep(0)
    task.stop()
    for _ in range(3):
        await asyncio.sleep(0)
    assert (work.begun, caplog.records) == (2, [])


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_errors_of_other_tasks_are_logged(caplog: pytest.LogCaptureFixture, run: Callable[..., None]) -> None:
    """Errors of callbacks, too."""
    counted = Counter[str]()

    async def broken() -> None:
        fail()

    async def main() -> None:
        log_unhandled_errors(lambda name: counted.update([name]))
        asyncio.create_task(broken(), name="mine")  # noqa: RUF006 - nobody may hold the task in this test
        asyncio.get_running_loop().call_soon(fail)
        await until(lambda: counted[OTHER] == 2)

    run(main())
    messages = sorted(caplog.messages)
    assert messages[0].startswith("Exception in callback ")
    assert (
        messages[1] == "Task exception was never retrieved: test_errors_of_other_tasks_are_logged.<locals>.broken, mine"
    )
    assert all("ValueError: broken" in (record.exc_text or caplog.text) for record in caplog.records)
