"""Tasks of a worker that end, and tasks of custom code that fail, in a server that is a separate program."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

from tests.http.running.test_metrics import read
from tests.http.running.test_process import end, serving
from tests.http.transport.test_limits_of_connections import answered
from tests.http.wire import connected
from tests.ready import port_of
from tests.waiting import until

NAMES = ("limits", "gauges", "reports", "pool")
RESOURCES = """
import asyncio
from server.resources import built_in
from waterspout import CustomHandler

RESOURCES = built_in()


async def fail():
    raise ValueError("broken")


class Break(CustomHandler):
    async def get(self):
        for task in asyncio.all_tasks():
            if task.get_name() in ("limits", "gauges", "reports", "pool"):
                task.cancel()
        asyncio.create_task(fail(), name="mine")
        self.finish({})


ROUTES = [("/break", Break)]
"""


async def ended(port: int) -> dict[str, float]:
    async with connected(port) as wire:
        await wire.send("GET /-/metrics HTTP/1.1")
        figures = read((await wire.answer()).body.decode())["background_tasks_failed_total"]
    return {name: count for (name,), count in figures.items()}


async def test_tasks_that_end_are_logged_and_restarted(database_url: str, tmp_path: Path) -> None:
    """Afterwards the timeouts are enforced as before."""
    path = tmp_path / "mine.py"
    path.write_text(RESOURCES)
    flags = ("--resources", f"{path}:RESOURCES", "--log-format", "json", "--idle-connection-seconds", "3")
    with serving("--port", "0", "--database-url", database_url, *flags) as (process, address):
        port = port_of(address)
        assert await answered(port, "/groups") > 0
        assert await answered(port, "/break") == 2
        await until(lambda: ended(port), lambda found: set(found.values()) == {1.0})
        assert await ended(port) == dict.fromkeys((*NAMES, "other"), 1.0)
        async with connected(port) as wire:
            assert await wire.rest() == b""
        _, errors = await asyncio.to_thread(end, process, signal.SIGTERM)
    lines = [json.loads(line) for line in errors.splitlines()]
    assert sorted((line["level"], line["message"].partition(" (")[0]) for line in lines) == [
        ("error", "Task exception was never retrieved: fail, mine"),
        *(("error", f"the task {name} was cancelled, and is started again") for name in sorted(NAMES)),
    ]
