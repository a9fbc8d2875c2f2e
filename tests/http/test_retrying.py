"""The client in Python of docs/retrying.md does each write once, while its connections break."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from server.resources import built_in
from tests.faults.network import Network
from tests.http.conftest import Start

PAGE = Path(__file__).parents[2] / "docs" / "retrying.md"
COUNT = 40


def client_of_the_page(language: str) -> str:
    """Return the client in this language."""
    [found] = re.findall(rf"```{language}\n(.*?)\n```", PAGE.read_text(), re.DOTALL)
    return str(found)


async def test_each_write_is_done_once(start: Start, database_url: str) -> None:
    names: dict[str, Any] = {}
    exec(client_of_the_page("python"), names)
    write: Callable[..., tuple[int, Any]] = names["write"]
    api = await start(database_url, built_in(), idempotency="on")
    network, is_over = Network(api.port), asyncio.Event()
    await network.open()

    async def break_connections() -> None:
        while not is_over.is_set():
            network.reset()
            await asyncio.sleep(0.01)

    async def create(name: str) -> tuple[int, Any]:
        document = {"data": {"type": "group", "attributes": {"name": name}}}
        return await asyncio.to_thread(write, "POST", f"http://127.0.0.1:{network.port}/groups", document, 100)

    breaking = asyncio.ensure_future(break_connections())
    try:
        answers = await asyncio.gather(*[create(f"g{number}") for number in range(COUNT)])
    finally:
        is_over.set()
        await breaking
        await network.close()
    assert {status for status, _ in answers} == {201}
    assert {document["data"]["attributes"]["name"] for _, document in answers} == {f"g{n}" for n in range(COUNT)}
    rows = await api.sql("SELECT id::text FROM groups")
    assert sorted(row[0] for row in rows) == sorted(document["data"]["id"] for _, document in answers)
    status, refused = await asyncio.to_thread(write, "POST", f"http://127.0.0.1:{api.port}/groups", {"data": 7})
    assert (status, refused["errors"][0]["code"]) == (422, "invalid_document")
