"""A process with several clients: `python -m tests.soak.client PORTS NAME CONNECTIONS FILE` runs until its input ends.
In: the ports of servers with the rows of `tests.soak.faults`, with commas between. Out: the file, with the clients'
`Account`. Each client sends the next request as soon as it has an answer, and opens a new connection when the old one
is closed. Only writes with a key go to other servers than the first."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import uvloop

from tests.soak.account import Account, Fate, Row

USERS = 1000
"""Each user has three computers, which no client changes."""

NOT_DONE = {
    (429, "too_many_requests"),
    (503, "unavailable"),
    (503, "busy"),
    (504, "statement_timeout"),
    (504, "request_timeout"),
}
MAYBE = {(503, "outcome_unknown")}
PATIENCE_SECONDS = 60.0
"""This is longer than any limit of the server, so a request that takes longer hangs."""

PAUSE_SECONDS = 0.05
"""The pause after an answer that asks the client to try again later."""

Answer = tuple[int, dict[str, Any]]


class Lost(Exception):
    """The connection ended before an answer arrived. is_sent: whether the server may have received the request."""


class Client:
    """Sends requests one after the other on one connection."""

    def __init__(self, ports: list[int], name: str, account: Account, answers: Counter[str]) -> None:
        self._ports = ports
        self._port = ports[0]
        self._name = name
        self._account = account
        self._answers = answers
        self._number = 0
        self._own = ""
        self._spare: list[tuple[str, str]] = []
        self._stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        kinds: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self._detail, 20),
            (self._include, 15),
            (self._filter, 10),
            (self._look, 15),
            (self._create, 15),
            (self._operations, 10),
            (self._update, 10),
            (self._delete, 5),
            (self._keyed, 25),
        ]
        self._kinds, self._weights = [kind for kind, _ in kinds], [weight for _, weight in kinds]

    async def work(self, end: asyncio.Event) -> None:
        await self._begin()
        while not end.is_set():
            [kind] = random.choices(self._kinds, self._weights)
            begin = time.monotonic()
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await kind()
            except TimeoutError:
                self._wrong(f"{kind.__name__} hangs")
                self._drop()
            except AssertionError as error:
                self._wrong(f"{kind.__name__}: {error}")
            self._account.longest_seconds = max(self._account.longest_seconds, time.monotonic() - begin)

    async def _begin(self) -> None:
        """Create the client's own row, before the faults begin."""
        status, document = await self._ask("POST", "/computers", _computer(f"{self._name}-own", serial="0"))
        assert status == 201, document
        self._own = document["data"]["id"]
        self._account.rows[self._own] = Row("0")

    # A read is wrong if it returns something other than what was written. A read that fails is only counted.

    async def _detail(self) -> None:
        number = str(random.randint(1, USERS))
        document = await self._read("detail", f"/users/{number}")
        assert document is None or document["data"]["id"] == number, document

    async def _include(self) -> None:
        page = random.randint(1, USERS // 30)
        document = await self._read("include", f"/users?page[size]=30&page[number]={page}&include=computers,group")
        if document is not None:
            assert [one["id"] for one in document["data"]] == [str(30 * page - 29 + place) for place in range(30)]
            assert Counter(one["type"] for one in document["included"])["computer"] == 90, document["included"]

    async def _filter(self) -> None:
        number = random.randint(1, USERS)
        document = await self._read("filter", f"/computers?filter[owner.id]={number}&include=owner&sort=-name")
        if document is not None:
            assert [one["attributes"]["name"] for one in document["data"]] == [f"{number}-{part}" for part in (3, 2, 1)]
            assert [one["id"] for one in document["included"]] == [str(number)]

    async def _look(self) -> None:
        """Read the client's own row: what it has written must be visible at once."""
        document = await self._read("look", f"/computers/{self._own}")
        if document is not None:
            row, value = self._account.rows[self._own], document["data"]["attributes"]["serial"]
            assert row.may_be(value), f"{value} is not {row}"
            # A value that can be read has been committed.
            row.told(value, "done")

    async def _read(self, kind: str, path: str) -> dict[str, Any] | None:
        try:
            status, document = await self._ask("GET", path)
        except Lost:
            self._lose(kind)
            return None
        await self._tell(kind, status, document)
        return document if status == 200 else None

    async def _create(self) -> None:
        name = self._next()
        fate, document = await self._write("create", "POST", "/computers", _computer(name))
        self._account.created[name] = fate
        if fate == "done":
            self._spare.append((name, document["data"]["id"]))

    async def _operations(self) -> None:
        """Send a transaction, which creates two rows or none."""
        name = self._next()
        added = [{"op": "add", **_computer(f"{name}-{part}")} for part in "ab"]
        renamed = {"op": "update", **_computer(f"{self._name}-own", id=self._own)}
        fate, _ = await self._write("operations", "POST", "/operations", {"atomic:operations": [*added, renamed]})
        self._account.created |= {f"{name}-{part}": fate for part in "ab"}

    async def _update(self) -> None:
        value = self._next()
        document = _computer(f"{self._name}-own", id=self._own, serial=value)
        fate, _ = await self._write("update", "PATCH", f"/computers/{self._own}", document)
        self._account.rows[self._own].told(value, fate)

    async def _delete(self) -> None:
        if self._spare:
            name, own = self._spare.pop()
            fate, _ = await self._write("delete", "DELETE", f"/computers/{own}")
            self._account.deleted[name] = fate

    async def _keyed(self) -> None:
        """Create a row, or two in a transaction, with a key, and send the request until it is answered: sometimes to
        all servers at once, sometimes without waiting for the answer. Then send it once more."""
        name, is_pair = self._next(), random.random() < 0.3
        rows = [f"{name}-{part}" for part in "ab"] if is_pair else [name]
        self._account.created |= dict.fromkeys(rows, "maybe")
        added = [_computer(row) for row in rows]
        path, document = (
            ("/operations", {"atomic:operations": [{"op": "add", **one} for one in added]})
            if is_pair
            else ("/computers", added[0])
        )
        answers = await self._until_answered(path, document, uuid4().hex)
        assert len({body for body, _ in answers}) == 1, answers
        assert [is_replayed for _, is_replayed in answers].count("false") <= 1, answers
        assert answers[-1][1] == "true", answers
        self._account.created |= dict.fromkeys(rows, "done")

    async def _until_answered(self, path: str, document: Any, key: str) -> list[tuple[bytes, str]]:
        """Return the body of each answer of a write that was done, and what its Idempotent-Replayed says."""
        answers: list[tuple[bytes, str]] = []
        while True:
            is_done = bool(answers)
            ports = self._ports if random.random() < 0.3 else [random.choice(self._ports)]
            answers += [
                answer
                for answer in await asyncio.gather(*[self._send_keyed(port, path, document, key) for port in ports])
                if answer is not None
            ]
            if is_done and len(answers) > 1 and answers[-1][1] == "true":
                return answers
            if is_done or not answers:
                await asyncio.sleep(PAUSE_SECONDS)

    async def _send_keyed(self, port: int, path: str, document: Any, key: str) -> tuple[bytes, str] | None:
        """Send a write with a key on a connection of its own. Returns None if it was not answered."""
        body = json.dumps(document).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nIdempotency-Key: {key}\r\n"
        head += f"Content-Type: application/vnd.api+json\r\nContent-Length: {len(body)}\r\n\r\n"
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return None
        try:
            cut = random.random()
            writer.write((head.encode() + body)[: random.randrange(len(head)) if cut < 0.05 else None])
            if cut < 0.15:
                await asyncio.sleep(random.choice((0, 0.002, 0.01)))
                return None
            answered_head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = int(answered_head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
            answered = await reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError):
            return None
        finally:
            writer.close()
        status = int(answered_head.split(" ", 2)[1])
        if status < 300:
            self._answers[f"keyed {status}"] += 1
            return answered, answered_head.partition("idempotent-replayed: ")[2].partition("\r\n")[0]
        outcome = status, _code(json.loads(answered))
        self._answers[f"keyed {status} {outcome[1]}"] += 1
        assert outcome in NOT_DONE | MAYBE | {(409, "idempotency_in_progress")}, (status, answered)
        return None

    async def _write(self, kind: str, method: str, path: str, document: Any = None) -> tuple[Fate, dict[str, Any]]:
        try:
            status, told = await self._ask(method, path, document)
        except Lost as lost:
            self._lose(kind)
            return ("maybe" if lost.args[0] else "not done"), {}
        await self._tell(kind, status, told, may_be_unknown=True)
        if status < 300:
            return "done", told
        return ("maybe" if (status, _code(told)) in MAYBE else "not done"), told

    async def _tell(self, kind: str, status: int, document: Any, *, may_be_unknown: bool = False) -> None:
        outcome = (status, "" if status < 300 else _code(document))
        self._answers[f"{kind} {status} {outcome[1]}".rstrip()] += 1
        if status >= 300:
            if outcome not in NOT_DONE | (MAYBE if may_be_unknown else set()):
                self._wrong(f"{kind}: {status} {document}")
            await asyncio.sleep(PAUSE_SECONDS)

    def _lose(self, kind: str) -> None:
        self._answers[f"{kind} connection lost"] += 1
        self._account.lost.append(time.monotonic())
        self._drop()

    def _wrong(self, what: str) -> None:
        self._account.wrong.append(what[:500])

    def _next(self) -> str:
        self._number += 1
        return f"{self._name}-{self._number}"

    async def _ask(self, method: str, path: str, document: Any = None) -> Answer:
        """Send a request and return its status and document. A connection that was closed between two requests is
        opened again, as HTTP clients do. Raises Lost."""
        body = b"" if document is None else json.dumps(document).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        head += "Content-Type: application/vnd.api+json\r\n\r\n" if body else "\r\n"
        is_sent = False
        try:
            if self._stream is None or self._stream[0].at_eof():
                self._drop()
                self._stream = await asyncio.open_connection("127.0.0.1", self._port)
            reader, writer = self._stream
            writer.write(head.encode() + body)
            is_sent = True
            head_lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = int(head_lines.partition("content-length: ")[2].partition("\r\n")[0] or 0)
            answered = await reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise Lost(is_sent) from error
        if "connection: close" in head_lines:
            self._drop()
        return int(head_lines.split(" ", 2)[1]), json.loads(answered) if answered else {}

    def _drop(self) -> None:
        if self._stream is not None:
            self._stream[1].close()
            self._stream = None


def _computer(name: str, id: str = "", serial: str | None = None) -> dict[str, Any]:
    attributes = {"name": name} | ({} if serial is None else {"serial": serial})
    return {"data": {"type": "computer", "attributes": attributes} | ({"id": id} if id else {})}


def _code(document: Any) -> str:
    found: str = document["errors"][0]["code"] if "errors" in document else str(document)
    return found


async def run(ports: list[int], name: str, connections: int) -> Account:
    account, answers, end = Account(), Counter[str](), asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, end.set)
    async with asyncio.TaskGroup() as group:
        for number in range(connections):
            group.create_task(Client(ports, f"{name}-{number}", account, answers).work(end))
    account.answers = dict(answers)
    return account


if __name__ == "__main__":
    PORTS, NAME, CONNECTIONS, FILE = sys.argv[1:]
    LISTED = [int(port) for port in PORTS.split(",")]
    Path(FILE).write_bytes(msgspec.json.encode(uvloop.run(run(LISTED, NAME, int(CONNECTIONS)))))
