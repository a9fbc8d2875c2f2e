"""The audit log: a line for each written resource, also of writes that were refused or have failed."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from querybuild.principal import Principal
from server.observing import audit
from server.resources import built_in
from tests.http.conftest import MEDIA_TYPE, Answer, Api, Start
from tests.http.operating import add, extended, operate, until_at_rest
from tests.http.running.test_limits import GROUP, SLOW_COMMIT, holder, until_waiting
from tests.http.wire import connected
from tests.principals import authenticate_by
from tests.waiting import until
from waterspout import ANYONE, Allow, Catalog, Role

ISSUER = "https://login.example.org"
SECRET = "s3cr3t"


class Audited:
    """A server with an audit log."""

    def __init__(self, api: Api, path: Path) -> None:
        self.api = api
        self.path = path

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines so far, without their times and request ids."""
        found = [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]
        for line in found:
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line.pop("time"))
            assert line.pop("request_id")
        return found


@pytest.fixture
def audited(start: Start, database_url: str, tmp_path: Path, io_loop: Any) -> Audited:
    path = tmp_path / "audit.jsonl"
    return Audited(io_loop.run_sync(lambda: start(database_url, built_in(), audit_log=str(path))), path)


def line(kind: str | None, type_name: str | None, row_id: str | None, outcome: str = "done", **more: Any) -> Any:
    own = {"kind": kind, "type": type_name, "id": row_id, "outcome": outcome}
    return {"subject": None, "issuer": None} | own | more


LINKED = line("update", "user", "1", relationship="computers")


async def fill(api: Api) -> None:
    await api.sql("INSERT INTO groups (name) VALUES ('one'), ('two')")
    await api.sql("INSERT INTO users (first_name, last_name, age, group_id) VALUES ('a', 'b', 1, 1)")
    await api.sql("INSERT INTO computers (name, owner_id) VALUES ('c', 1), ('d', null)")


def resource(type_name: str, row_id: str | None = None, **attributes: Any) -> Any:
    identity = {} if row_id is None else {"id": row_id}
    return {"data": {"type": type_name, **identity, "attributes": attributes}}


COMPUTER = {"data": [{"type": "computer", "id": "2"}]}
OWNER = {"data": {"type": "user", "id": "1", "relationships": {"computers": COMPUTER}}}
"""Written in a transaction of several round trips."""

GROUP_2 = {"data": {"type": "group", "id": "2"}}


async def test_a_line_for_each_row_that_a_filter_finds(audited: Audited) -> None:
    api = audited.api
    await fill(api)
    computers = {"ref": {"type": "computer"}, "meta": {"filter": [], "max": 2}}
    data = {"data": {"attributes": {"serial": "x"}}}
    found = {"op": "update"} | computers | data
    nothing = {
        "op": "remove",
        "ref": {"type": "group"},
        "meta": {"filter": {"name": "id", "op": "eq", "val": 9}, "max": 1},
    }
    assert (await operate(api, add("group", {"name": "new"}), found, nothing, found)).status == 200
    written = [line("update", "computer", row_id) for row_id in ("1", "2")]
    assert audited.lines() == [line("create", "group", "3"), *written, *written]
    await api.sql("INSERT INTO computers (name) VALUES ('e')")
    assert (await operate(api, found)).status == 422
    assert audited.lines()[5:] == [line("update", "computer", None, "too_many_changes")]


@pytest.mark.parametrize(
    ("method", "path", "document", "expected"),
    [
        ("POST", "/groups", resource("group", name=SECRET), [line("create", "group", "3")]),
        ("PATCH", "/groups/2", resource("group", "2", name=SECRET), [line("update", "group", "2")]),
        ("DELETE", "/groups/2", None, [line("delete", "group", "2")]),
        ("POST", "/users/1/computers", resource("computer", name=SECRET), [line("create", "computer", "3")]),
        ("PATCH", "/users/1/group", resource("group", "1", name=SECRET), [line("update", "group", "1")]),
        *((method, "/users/1/relationships/computers", COMPUTER, [LINKED]) for method in ("POST", "PATCH", "DELETE")),
        ("PATCH", "/users/1/relationships/group", GROUP_2, [line("update", "user", "1", relationship="group")]),
        # refused
        ("POST", "/groups", resource("group", name=7), [line("create", "group", None, "invalid_attribute")]),
        ("POST", "/groups", resource("user"), [line("create", "group", None, "type_conflict")]),
        ("POST", "/groups", "no object", [line("create", "group", None, "invalid_document")]),
        ("PATCH", "/groups/9", resource("group", "9"), [line("update", "group", "9", "resource_not_found")]),
        ("DELETE", "/groups/9", None, [line("delete", "group", "9", "resource_not_found")]),
        ("DELETE", "/groups/x", None, [line("delete", "group", "x", "resource_not_found")]),
        ("DELETE", "/groups/1", None, [line("delete", "group", "1", "conflict")]),
        ("PUT", "/groups/1", None, [line(None, "group", "1", "method_not_allowed")]),
        ("PATCH", "/users/9/group", resource("group", "1"), [line("update", "group", None, "resource_not_found")]),
        (
            "PATCH",
            "/users/1/relationships/group",
            {"data": {"type": "group", "id": "9"}},
            [line("update", "user", "1", "related_not_found", relationship="group")],
        ),
        # not writes
        ("GET", "/groups", None, []),
        ("GET", "/groups/9", None, []),
        ("OPTIONS", "/groups", None, []),
        ("POST", "/nothing", None, []),
    ],
)
async def test_the_lines_of_a_request(
    audited: Audited, method: str, path: str, document: Any, expected: list[Any]
) -> None:
    await fill(audited.api)
    answer = await audited.api.request(method, path, document)
    assert audited.lines() == expected, answer.body
    assert SECRET not in audited.path.read_text(encoding="utf-8")


REMOVE = {"op": "remove", "ref": {"type": "computer", "id": "2"}}
LINK = {"op": "add", "ref": {"type": "user", "id": "1", "relationship": "computers"}, "data": COMPUTER["data"]}
UPDATE = {"op": "update", "data": {"type": "group", "id": "2", "attributes": {"name": f"another {SECRET}"}}}


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([add("group", {"name": SECRET})], [line("create", "group", "3")]),
        (
            [add("group", {"name": SECRET}), UPDATE, LINK, REMOVE],
            [
                line("create", "group", "3"),
                line("update", "group", "2"),
                line("update", "user", "1", relationship="computers"),
                line("delete", "computer", "2"),
            ],
        ),
        # The first is one statement, the second many rows with one plan.
        ([add("group", {"name": f"{n}"}) for n in range(3)], [line("create", "group", str(n)) for n in (3, 4, 5)]),
        ([add("group", {"name": f"{n}"}) for n in range(20)], [line("create", "group", str(n)) for n in range(3, 23)]),
        (
            [*(add("group", {"name": f"{n}"}) for n in range(20)), add("group", {"name": 7})],
            [line("create", "group", None, "invalid_attribute")] * 21,
        ),
        # Nothing of this is written.
        (
            [UPDATE, {"op": "remove", "ref": {"type": "group", "id": "9"}}],
            [line("update", "group", "2", "resource_not_found"), line("delete", "group", "9", "resource_not_found")],
        ),
        (
            [UPDATE, {"op": "remove"}],
            [line("update", "group", "2", "malformed_operations"), line("delete", None, None, "malformed_operations")],
        ),
        ([], [line(None, None, None, "malformed_operations")]),
    ],
)
async def test_operations_have_a_line_each(audited: Audited, operations: Sequence[Any], expected: list[Any]) -> None:
    await fill(audited.api)
    answer = await extended(audited.api, *operations)
    assert audited.lines() == expected, answer.body
    await operate(audited.api, add("nothing", {}))
    assert audited.lines()[len(expected) :] == [line("create", "nothing", None, "invalid_document")]


async def test_the_principal_and_the_request(audited: Audited) -> None:
    principal = Principal(subject='an"n\n', issuer=ISSUER, claims={"token": SECRET})
    authenticate_by(audited.api.app.engine, lambda _: principal)
    headers = {"X-Request-Id": "mine", "Authorization": f"Bearer {SECRET}"}
    await audited.api.request("POST", "/groups", resource("group", name="x"), headers=headers)
    [text] = audited.path.read_text(encoding="utf-8").splitlines()
    found = json.loads(text)
    assert (found["request_id"], found["subject"], found["issuer"]) == ("mine", 'an"n\n', ISSUER)
    assert list(found) == ["time", "request_id", "subject", "issuer", "kind", "type", "id", "outcome"]
    assert SECRET not in text


@pytest.mark.parametrize("is_later", [False, True])
async def test_a_refused_method_has_its_principal(audited: Audited, is_later: bool) -> None:
    """is_later: whether the issuer has to be asked who it is."""

    async def ask(_: Any) -> Principal:
        return Principal(subject="ann")

    authenticate_by(audited.api.app.engine, ask if is_later else lambda _: Principal(subject="ann"))
    assert (await audited.api.request("PUT", "/groups/1")).status == 405
    assert audited.lines() == [line(None, "group", "1", "method_not_allowed", subject="ann")]


async def test_a_principal_without_an_issuer(audited: Audited) -> None:
    authenticate_by(audited.api.app.engine, lambda _: Principal(subject="ann"))
    await audited.api.request("POST", "/groups", resource("group", name="x"))
    [text] = audited.path.read_text(encoding="utf-8").splitlines()
    found = json.loads(text)
    assert (found["subject"], found["issuer"]) == ("ann", None)


async def test_without_the_setting_there_is_no_audit_log(api: Api) -> None:
    assert api.app.database.telemetry.audit is None
    assert (await api.post("/groups", resource("group", name="x"))).status == 201


# clients that go, and times that end


async def test_a_client_that_goes(audited: Audited) -> None:
    """A statement of its own may have been committed. In a transaction, the rollback is certain."""
    api = audited.api
    await fill(api)
    for lock, method, path, body, expected in (
        ("LOCK TABLE groups", "POST", "/groups", GROUP, line("create", "group", None, "outcome_unknown")),
        (
            "LOCK TABLE computers",
            "PATCH",
            "/users/1",
            json.dumps(OWNER).encode(),
            line("update", "user", "1", "client_gone"),
        ),
    ):
        async with holder(api, lock) as watcher:
            async with connected(api.port) as wire:
                head = (f"{method} {path} HTTP/1.1", f"Content-Type: {MEDIA_TYPE}", f"Content-Length: {len(body)}")
                await wire.send(*head, body=body)
                await until_waiting(watcher, 1)
            await until(audited.lines, lambda lines, expected=expected: expected in lines)
    async with holder(api, "SELECT 1") as watcher:
        await until_at_rest(watcher)
    assert len(audited.lines()) == 2


async def test_a_write_that_is_committed_after_its_answer(
    start: Start, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first line says that the outcome is unknown. The second one says that it was done."""
    monkeypatch.setattr("server.handlers.base.GRACE_SECONDS", 0.1)
    path = tmp_path / "audit.jsonl"
    audited = Audited(await start(database_url, built_in(), audit_log=str(path), request_timeout_seconds=1.0), path)
    await fill(audited.api)
    for statement in SLOW_COMMIT.format(seconds=2.5).split(";\n"):
        await audited.api.sql(statement)
    assert (await audited.api.patch("/users/1", OWNER)).status == 503
    await until(audited.lines, lambda lines: len(lines) == 2)
    assert [one["outcome"] for one in audited.lines()] == ["outcome_unknown", "done"]


# a log that cannot be written


class Disk:
    """Replaces the writes of the audit log. room: how many bytes it still takes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int = 0) -> None:
        self.room = room
        self._write = os.write
        monkeypatch.setattr(audit.os, "write", self.write)

    def write(self, descriptor: int, piece: bytes) -> int:
        if not self.room:
            raise OSError(28, "No space left on device")
        written = self._write(descriptor, piece[: self.room])
        self.room -= written
        return written


def code(answer: Answer) -> tuple[int, str, str | None]:
    return answer.status, answer.errors[0]["code"], answer.headers.get("Retry-After")


async def test_a_full_disk(audited: Audited, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The first write is done, and its answer says that its line is missing. The next ones are not done. When there is
    room again, the missing line is written first."""
    api = audited.api
    disk = Disk(monkeypatch)
    first = await api.post("/groups", resource("group", name="one"))
    assert code(first) == (503, "audit_failed", None)
    for method, path in (("POST", "/groups"), ("DELETE", "/groups/1")):
        refused = await api.request(method, path, resource("group", name="two") if method == "POST" else None)
        assert code(refused) == (503, "audit_unavailable", "1")
    assert (await api.get("/groups")).ids == ["1"]
    assert audited.lines() == []
    disk.room = 10_000
    assert (await api.delete("/groups/1")).status == 200
    assert audited.lines() == [line("create", "group", "1"), line("delete", "group", "1")]
    messages = [record.message for record in caplog.records if record.name == "server"]
    assert messages == [
        f"the audit log {audited.path} cannot be written, so writes are refused: No space left on device",
        f"the audit log {audited.path} is written again",
    ]


async def test_a_refusal_that_cannot_be_recorded(audited: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer says so. The line is written later."""
    disk = Disk(monkeypatch)
    assert code(await audited.api.delete("/groups/9")) == (503, "audit_unavailable", "1")
    disk.room = 10_000
    assert (await audited.api.delete("/groups/8")).status == 404
    assert [one["id"] for one in audited.lines()] == ["9", "8"]


async def test_refused_writes_take_no_memory_while_the_log_cannot_be_written(
    audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    for number in range(20):
        assert code(await audited.api.request("PUT", f"/groups/{number}")) == (503, "audit_unavailable", "1")
    disk.room = 100_000
    await audited.api.request("PUT", "/groups/20")
    assert [one["id"] for one in audited.lines()] == ["0", "20"]


async def test_an_unknown_outcome_that_cannot_be_recorded(
    start: Start, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer stays: another one would tell the client to write again."""
    path = tmp_path / "audit.jsonl"
    api = await start(database_url, built_in(), audit_log=str(path), request_timeout_seconds=0.3)
    disk = Disk(monkeypatch)
    async with holder(api):
        assert code(await api.post("/groups", resource("group", name="x"))) == (503, "outcome_unknown", None)
    disk.room = 10_000
    await api.delete("/groups/9")
    assert [one["outcome"] for one in Audited(api, path).lines()] == ["outcome_unknown", "resource_not_found"]


async def test_a_relationship_that_is_hidden_is_an_unknown_path(
    start: Start, database_url: str, tmp_path: Path
) -> None:
    """It has no line, and the same answer as without an audit log."""
    path = tmp_path / "audit.jsonl"
    [user] = [one for one in built_in() if one.type == "user"]
    hidden = tuple(msgspec.structs.replace(one, read_by=Role("hr")) for one in user.relationships)
    shown = msgspec.structs.replace(user, relationships=hidden, access=(Allow(ANYONE, "all"),))
    catalog = Catalog([shown if one.type == "user" else one for one in built_in()])
    api = await start(database_url, catalog, audit_log=str(path))
    await fill(api)
    for one in ("/users/1/relationships/group", "/users/1/group"):
        assert (await api.patch(one, GROUP_2)).errors[0]["code"] == "route_not_found"
    assert Audited(api, path).lines() == []


async def test_a_line_that_was_cut_is_repeated(audited: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch, room=100_000)
    await audited.api.delete("/groups/7")
    disk.room = 20
    assert code(await audited.api.delete("/groups/8")) == (503, "audit_unavailable", "1")
    disk.room = 100_000
    await audited.api.delete("/groups/9")
    first, cut, second, third = audited.path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(one)["id"] for one in (first, second, third)] == ["7", "8", "9"]
    assert second.startswith(cut)
    assert len(cut) == 20


async def test_a_file_that_was_moved(audited: Audited) -> None:
    """As logrotate does it. Nothing has to be signalled."""
    api, path = audited.api, audited.path
    await api.delete("/groups/1")
    moved = path.rename(path.with_suffix(".1"))
    await api.delete("/groups/2")
    path.unlink()
    await api.delete("/groups/3")
    assert [json.loads(one)["id"] for one in moved.read_text(encoding="utf-8").splitlines()] == ["1"]
    assert [one["id"] for one in audited.lines()] == ["3"]
    assert path.stat().st_mode & 0o777 == 0o640
    with path.open("w", encoding="utf-8"):
        """As `copytruncate` does it."""
    await api.delete("/groups/4")
    assert [one["id"] for one in audited.lines()] == ["4"]


async def test_a_folder_that_has_gone(audited: Audited) -> None:
    """The write is refused before anything is done."""
    await fill(audited.api)
    audited.path.rename(audited.path.with_suffix(".1"))
    folder = audited.path.parent
    folder.rename(folder.with_suffix(".gone"))
    assert code(await audited.api.delete("/groups/2")) == (503, "audit_unavailable", "1")
    folder.with_suffix(".gone").rename(folder)
    assert (await audited.api.delete("/groups/2")).status == 200
    assert [one["outcome"] for one in audited.lines()] == ["done"]


async def test_many_writes_at_once(audited: Audited) -> None:
    answers = await asyncio.gather(*[audited.api.post("/groups", resource("group", name=f"{n}")) for n in range(50)])
    assert {answer.status for answer in answers} == {201}
    assert sorted(int(one["id"]) for one in audited.lines()) == list(range(1, 51))
