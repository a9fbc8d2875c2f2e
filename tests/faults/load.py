"""Runs clients while the database fails, and checks their writes against the answers that they got. In: an Api over the
rows of `ROWS`. Out: every answer, checked; and which writes exist."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import Literal

import msgspec

from tests.http.conftest import MEDIA_TYPE, Answer, Api
from tests.http.people import document
from tests.waiting import until

ROWS = """
    INSERT INTO groups (name) VALUES ('rowers');
    INSERT INTO users (first_name, last_name, group_id) VALUES ('Ada', 'Byron', 1), ('Bea', 'Byron', 1);
    INSERT INTO computers (name, owner_id) VALUES ('abacus', 1), ('bombe', 1), ('cray', 2);
"""

AGAIN = {(503, "unavailable"), (503, "busy"), (504, "statement_timeout")}
"""Errors after which nothing was written, so the client may try again."""

MAYBE = {(503, "outcome_unknown")}

Fate = Literal["done", "not done", "maybe"]
Outcome = tuple[int, str]
"""The status, and the code of the error if there is one."""


class Answered(msgspec.Struct, frozen=True):
    """One answer. begin, end: seconds of the monotonic clock."""

    client: str
    begin: float
    end: float
    outcome: Outcome

    @property
    def is_good(self) -> bool:
        return self.outcome[0] < 300


class Load:
    """names: the names that were written, with the answer to each."""

    def __init__(self, api: Api, clients: Collection[str] = ()) -> None:
        self._api = api
        self._numbers = itertools.count(1)
        self._is_over = False
        self.answers: list[Answered] = []
        self.names: dict[str, Fate] = {}
        asking: dict[str, Callable[[], Awaitable[Answer]]] = {
            "read": self._read,
            "include": self._include,
            "create": self._create,
            "operations": self._operations,
        }
        self.clients = {name: ask for name, ask in asking.items() if name in clients or not clients}

    async def _read(self) -> Answer:
        answer = await self._api.get("/users/1?fields[user]=last_name")
        if answer.status == 200:
            assert answer.document["data"]["attributes"] == {"last_name": "Byron"}
        return answer

    async def _include(self) -> Answer:
        """Read with several statements in one snapshot."""
        answer = await self._api.get("/users?include=computers,group&filter[last_name]=Byron&fields[group]=name")
        if answer.status == 200:
            assert answer.ids == ["1", "2"]
            assert len(answer.document["included"]) == 4
        return answer

    async def _create(self) -> Answer:
        """Write with one statement."""
        name = f"single-{next(self._numbers)}"
        return self._written(await self._api.post("/groups", document("group", {"name": name})), name)

    async def _operations(self) -> Answer:
        """Write two rows in a transaction."""
        name = f"double-{next(self._numbers)}"
        data = [{"type": "group", "attributes": {"name": f"{name}-{part}"}} for part in "ab"]
        renamed = {"op": "update", "data": {"type": "computer", "id": "3", "attributes": {"name": name}}}
        operations = [*({"op": "add", "data": one} for one in data), renamed]
        answer = await self._api.post("/operations", {"atomic:operations": operations})
        for part in "ab":
            self._written(answer, f"{name}-{part}")
        return answer

    def _written(self, answer: Answer, name: str) -> Answer:
        outcome = outcome_of(answer)
        assert name not in self.names
        self.names[name] = "done" if answer.status < 300 else "maybe" if outcome in MAYBE else "not done"
        return answer

    async def work(self, client: str) -> None:
        ask = self.clients[client]
        while not self._is_over:
            begin = time.monotonic()
            answer = await ask()
            outcome = outcome_of(answer)
            self.answers.append(Answered(client, begin, time.monotonic(), outcome))
            is_write = client in ("create", "operations")
            assert answer.status < 300 or outcome in AGAIN | (MAYBE if is_write else set()), (client, outcome)
            if answer.status == 503:
                assert ("Retry-After" in answer.headers) == (outcome not in MAYBE)

    def end(self) -> None:
        self._is_over = True

    async def until_good(self, since: float, times: int = 3) -> None:
        """Wait until each client got this many good answers to requests that it sent after the call."""
        await self.until(lambda: all(self._count(client, since) >= times for client in self.clients))

    def _count(self, client: str, since: float) -> int:
        return sum(one.client == client and one.is_good and one.begin >= since for one in self.answers)

    async def until_answered(self, since: float, *outcomes: tuple[str, int, str]) -> None:
        """Wait until all these clients got this answer."""
        await self.until(
            lambda: set(outcomes) <= {(one.client, *one.outcome) for one in self.answers if one.end >= since}
        )

    async def until(self, is_so: Callable[[], bool]) -> None:
        try:
            await until(is_so, pause_seconds=0.02)
        except AssertionError as error:
            error.add_note(str(self.outcomes()))
            raise

    def outcomes(self, since: float = 0.0) -> Counter[tuple[str, int, str]]:
        return Counter((one.client, *one.outcome) for one in self.answers if one.end >= since)

    def recovery_seconds(self, since: float) -> float:
        """Return the time from the end of the fault until the last client has a good answer."""
        return max(
            min(one.end for one in self.answers if one.client == client and one.is_good and one.end >= since) - since
            for client in self.clients
        )

    def longest_seconds(self) -> float:
        return max(one.end - one.begin for one in self.answers)

    def wrong_writes(self, rows: Counter[str]) -> dict[str, tuple[Fate, int]]:
        """Return the writes that do not exist as often as their client was told. rows: the names of existing groups."""
        allowed = {"done": (1,), "not done": (0,), "maybe": (0, 1)}
        wrong = {name: (fate, rows[name]) for name, fate in self.names.items() if rows[name] not in allowed[fate]}
        halves = {name for name in self.names if name.endswith("-a") and rows[name] != rows[name[:-1] + "b"]}
        return wrong | {name: (self.names[name], -1) for name in halves}


def outcome_of(answer: Answer) -> Outcome:
    assert answer.headers["Content-Type"].startswith((MEDIA_TYPE, "application/json")), answer.status
    return answer.status, "" if answer.status < 300 else answer.document["errors"][0]["code"]


@asynccontextmanager
async def at_work(api: Api, *clients: str) -> AsyncIterator[Load]:
    """Run clients of each kind, or of the named kinds. The block begins after their first good answers. A client that
    fails fails the test."""
    load = Load(api, clients)
    async with asyncio.TaskGroup() as group:
        for client in load.clients:
            group.create_task(load.work(client))
        try:
            await load.until_good(0.0, times=5)
            yield load
        finally:
            load.end()


async def settled(load: Load, names: Callable[[], Awaitable[Counter[str]]]) -> None:
    """Check that the rows are those that the answers promised: nothing lost, nothing twice, no half of a
    transaction."""
    assert load.wrong_writes(await names()) == {}
    assert "done" in load.names.values()
