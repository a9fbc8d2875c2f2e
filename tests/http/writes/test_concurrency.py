"""Many concurrent clients: no faults, no torn documents, and no growth of pool and memory. Two concurrent writes of one
relationship have the result of some order of the two."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psutil  # type: ignore[import-untyped]  # it has no hints of its own
import pytest

from tests.http.conftest import MEDIA_TYPE, Api
from tests.http.people import ADA, create_household, document, linked, of, one
from tests.http.reads.test_snapshot import agree
from tests.http.wire import Wire, connected
from tests.ready import announced_address, port_of
from tests.waiting import until

CLIENTS = 200
POOL_SIZE = 10
REQUESTS = 2000
WARM_UP = 1000
"""The number of requests before memory is measured first. By then every statement is compiled, and prepared on every
connection of the pool."""
GROWTH_BYTES = 4 * 2**20
"""How much fragmentation and buffers may add."""

ROWS = """
    INSERT INTO groups (name) SELECT 'g' || n FROM generate_series(1, 5) n;
    INSERT INTO users (first_name, last_name, group_id) SELECT 'u', n, 1 FROM generate_series(1, 40) n;
    INSERT INTO computers (name, owner_id) SELECT 'c', id FROM users, generate_series(1, 3);
"""


@pytest.fixture
def program(database_url: str) -> Iterator[subprocess.Popen[str]]:
    """Yield the server as a separate program, so that its memory can be measured. The first line that it prints ends in
    its address."""
    flags = ["--database-url", database_url, "--port", "0", "--pool-size", str(POOL_SIZE)]
    patience = ["--acquire-timeout-seconds", "30", "--log-level", "error"]
    command = [sys.executable, "-m", "server", "serve", *flags, *patience]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.terminate()
    assert process.returncode == 0


async def test_two_hundred_clients(program: subprocess.Popen[str], api: Api) -> None:
    assert program.stdout is not None
    port = port_of(announced_address(program.stdout))
    for statement in ROWS.split(";")[:-1]:
        await api.sql(statement)
    server = psutil.Process(program.pid)
    statuses: Counter[tuple[str, int]] = Counter()
    chances = [random.Random(number) for number in range(CLIENTS)]
    clients = asyncio.gather(*(_client(port, chance, statuses) for chance in chances))
    await until(lambda: clients.done() or statuses.total() >= WARM_UP)
    warm_bytes = server.memory_info().rss
    await clients
    end_bytes = server.memory_info().rss
    assert {status for _, status in statuses} <= {200, 201, 404, 409}, statuses
    assert {method for method, status in statuses if status < 300} == {"GET", "POST", "PATCH", "DELETE"}
    assert end_bytes - warm_bytes < GROWTH_BYTES
    assert 1 <= await _connections(api) <= POOL_SIZE


async def _connections(api: Api) -> int:
    """Return the connections of the program. None of them is still in a transaction."""
    states = await api.sql(
        "SELECT state FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'waterspout'"
    )
    assert {row["state"] for row in states} == {"idle"}
    # The fixture's own server holds one, unused.
    return len(states) - 1


async def _client(port: int, chance: random.Random, statuses: Counter[tuple[str, int]]) -> None:
    """Send one request after the other on one connection, until all clients together have sent enough."""
    mine: list[str] = []
    async with connected(port) as wire:
        while statuses.total() < REQUESTS:
            method, path, sent = _request(chance, mine)
            status, found = await _ask(wire, method, path, sent)
            statuses[method, status] += 1
            assert ("errors" in found) == (status >= 400), (method, path, found)
            if "data" in found:
                agree(found)
            if status == 201:
                mine.append(found["data"]["id"])


async def _ask(wire: Wire, method: str, path: str, sent: Any) -> tuple[int, Any]:
    body = b"" if sent is None else json.dumps(sent).encode()
    headers = [] if sent is None else [f"Content-Type: {MEDIA_TYPE}", f"Content-Length: {len(body)}"]
    await wire.send(f"{method} {path} HTTP/1.1", *headers, body=body)
    answer = await wire.answer()
    return answer.status, answer.document


def _request(chance: random.Random, mine: list[str]) -> tuple[str, str, Any]:
    user, group = str(chance.randint(1, 40)), str(chance.randint(1, 5))
    computers = of("computer", *chance.sample(range(1, 121), 3))
    match chance.randrange(10):
        case 0 | 1:
            return "GET", "/users?include=computers.owner,group.users&page[size]=10&sort=-id", None
        case 2:
            return "GET", f"/users/{user}?include=computers.owner,group", None
        case 3:
            return "GET", f"/computers?filter[owner.id]={user}&include=owner&sort=name", None
        case 4:
            return "PATCH", f"/users/{user}", document("user", {"age": chance.randint(0, 150)}, id=user)
        case 5:
            links = linked(computers=computers, group=one("group", group))
            return "PATCH", f"/users/{user}?include=computers.owner", document("user", id=user, relationships=links)
        case 6:
            id_value = computers[0]["id"]
            sent = document("computer", id=id_value, relationships=linked(owner=one("user", user)))
            return "PATCH", f"/computers/{id_value}?include=owner.group.users", sent
        case 7 if mine:
            return "DELETE", f"/users/{mine.pop()}", None
        case 8:
            return "POST", "/groups", document("group", {"name": f"g{group}"})
        case _:
            return (
                "POST",
                "/users?include=group",
                document("user", ADA, relationships=linked(group=one("group", group))),
            )


async def test_two_concurrent_replacements_of_one_to_many(api: Api) -> None:
    """The second one replaces the whole set; there is never a mixture."""
    await create_household(api)
    first, second = of("computer", "1", "2", "3"), of("computer", "3", "4")
    left = set()
    for _ in range(50):
        answers = await asyncio.gather(*(_replace(api, "1", linkage) for linkage in (first, second)))
        assert [answer["data"]["relationships"]["computers"]["data"] for answer in answers] == [first, second]
        rows = await api.sql("SELECT id FROM computers WHERE owner_id = 1 ORDER BY id")
        left.add(tuple(row["id"] for row in rows))
    assert left <= {(1, 2, 3), (3, 4)}


async def test_two_users_take_the_same_computers_concurrently(api: Api) -> None:
    """They name them in opposite order, which would deadlock if rows were locked in this order."""
    await create_household(api)
    for _ in range(50):
        await asyncio.gather(
            _replace(api, "1", of("computer", "1", "2", "3", "4")),
            _replace(api, "2", of("computer", "4", "3", "2", "1")),
        )
        owners = await api.sql("SELECT DISTINCT owner_id FROM computers")
        assert [row["owner_id"] for row in owners] in ([1], [2])


async def test_concurrent_writes_of_both_sides_of_a_relationship(api: Api) -> None:
    """User 1 takes computer 3 as its only one, while computer 1 is given to user 1. Either both hold, or only the
    first."""
    await create_household(api)
    for _ in range(50):
        await api.sql("UPDATE computers SET owner_id = 2")
        sent = document("computer", id="1", relationships=linked(owner=one("user", "1")))
        answers = await asyncio.gather(_replace(api, "1", of("computer", "3")), api.patch("/computers/1", sent))
        assert answers[1].status == 200
        rows = await api.sql("SELECT id FROM computers WHERE owner_id = 1 ORDER BY id")
        assert [row["id"] for row in rows] in ([1, 3], [3])


async def _replace(api: Api, user: str, computers: list[dict[str, Any]]) -> Any:
    answer = await api.patch(f"/users/{user}", document("user", id=user, relationships=linked(computers=computers)))
    assert answer.status == 200, answer.body
    return answer.document


async def test_a_row_that_another_client_creates_meanwhile(api: Api) -> None:
    """It is there or not there for a write. Its write was not cancelled by a trigger."""
    for number in range(1, 151):
        path, sent = f"/groups/{number}", document("group", {"name": "rowers"}, id=str(number))
        answers = await asyncio.gather(
            *[api.patch(path, sent) for _ in range(3)],
            api.post("/groups", document("group", {"name": "rowers"})),
            *[api.patch(path, sent) for _ in range(3)],
            *[api.delete(path) for _ in range(2)],
        )
        assert answers[3].document["data"]["id"] == str(number)
        assert {answer.status for answer in answers} <= {200, 201, 404}, [answer.body for answer in answers]
        # Names are unique, and both DELETEs may have come before the POST.
        await api.delete(path)
