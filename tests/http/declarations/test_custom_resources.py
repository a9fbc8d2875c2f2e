"""Custom routes that read and write resources: as the principal of the request may."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tornado.ioloop import IOLoop

from tests.http.access.test_assigned import ADMIN, ANN, BOB, CATALOG, DDL
from tests.http.conftest import Api, Start
from tests.principals import HEADER, trust_headers
from waterspout import Change, CustomHandler


class Tasks(CustomHandler):
    async def get(self, row_id: str = "") -> None:
        query = self.get_query_argument("q", "")
        document = await (self.read("task", query, id=row_id) if row_id else self.read("task", query))
        self.finish({"found": document})

    async def post(self) -> None:
        changes = [Change(kind="create", type="task", attributes=one) for one in json.loads(self.body)]
        self.finish({"ids": await self.write(changes)})

    async def patch(self, row_id: str) -> None:
        change = Change(kind="update", type="task", id=row_id, attributes=json.loads(self.body))
        [written] = await self.write(change)
        self.send("wrote ")
        self.send(written)
        self.finish()

    async def delete(self, row_id: str) -> None:
        await self.write(Change(kind="delete", type="task", id=row_id))
        self.finish(
            {"rows": await self.database.read(lambda connection: connection.fetchval("SELECT count(*) FROM tasks"))}
        )


class Unasked(Tasks):
    """Never finds out who asks."""

    def prepare(self) -> None:
        pass


class WritingGet(Tasks):
    async def get(self, row_id: str = "") -> None:
        self.finish({"ids": await self.write([Change(kind="create", type="task", attributes={"title": "a"})])})


class Confused(Tasks):
    async def get(self, row_id: str = "") -> None:
        for wrong in ("text", {"a": 1}, [{"a": 1}]):
            with pytest.raises(TypeError, match="answer with `finish`"):
                self.write(wrong)  # type: ignore[arg-type]  # which is the mistake
        self.finish("asked")


ROUTES = [
    (r"/confused", Confused),
    (r"/own", Tasks),
    (r"/own/([0-9]+)", Tasks),
    (r"/unasked", Unasked),
    (r"/written", WritingGet),
]


async def served(start: Start, database_url: str, **settings: Any) -> Api:
    door = Api(0, database_url)
    for statement in DDL.split(";"):
        await door.sql(statement)
    await door.close()
    api = await start(database_url, CATALOG, ROUTES, **settings)
    trust_headers(api.app.engine)
    return api


@pytest.fixture
def api(io_loop: IOLoop, start: Start, database_url: str, tmp_path: Path) -> Api:
    return io_loop.run_sync(lambda: served(start, database_url, audit_log=str(tmp_path / "audit.log")))


async def ask(api: Api, who: str | None, method: str, row_id: str = "", data: Any = None) -> Any:
    body = None if data is None else json.dumps(data)
    return await api.request(
        method, f"/own/{row_id}".rstrip("/"), headers={} if who is None else {HEADER: who}, body=body
    )


async def test_write_is_for_resources(api: Api) -> None:
    assert (await api.get("/confused")).body == b"asked"


async def test_reads_and_writes_obey_the_rules(api: Api, tmp_path: Path) -> None:
    """What a rule sets is set, and nobody reads or writes the rows of others."""
    assert (await ask(api, ANN, "POST", data=[{"title": "a"}, {"title": "b"}])).document == {"ids": ["1", "2"]}
    assert (await ask(api, BOB, "POST", data=[{"title": "c"}])).document == {"ids": ["3"]}
    found = (await api.get("/own?q=sort%3D-title", **{HEADER: ANN})).document["found"]
    assert [(one["id"], one["attributes"]["owner"]) for one in found["data"]] == [("2", "ann"), ("1", "ann")]
    assert found["meta"] == {"count": 2, "total": 2, "totalPages": 1}
    assert (await ask(api, ANN, "GET", "1")).document["found"]["data"]["attributes"]["title"] == "a"
    assert [(await ask(api, ANN, "GET", one)).status for one in ("3", "9")] == [404, 404]
    assert (await ask(api, None, "GET")).status == 401

    assert (await ask(api, ANN, "PATCH", "1", {"title": "x"})).body == b"wrote 1"
    assert (await ask(api, BOB, "PATCH", "1", {"title": "y"})).status == 404
    assert (await ask(api, ANN, "PATCH", "1", {"owner": "bob"})).status == 403
    assert (await ask(api, ANN, "PATCH", "1", {"owners": "bob"})).status == 422
    assert (await ask(api, None, "PATCH", "1", {"title": "y"})).status == 401
    # One that is refused undoes the others.
    wrong = [{"title": "d"}, {"title": "e", "owner": "bob"}]
    assert (await ask(api, ANN, "POST", data=wrong)).status == 403
    assert (await ask(api, ADMIN, "DELETE", "3")).document == {"rows": 2}
    assert [tuple(row) for row in await api.sql("SELECT id, title, owner FROM tasks ORDER BY id")] == [
        (1, "x", "ann"),
        (2, "b", "ann"),
    ]
    lines = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    assert [(one["subject"], one["kind"], one["id"]) for one in lines] == [
        ("ann", "create", "1"),
        ("ann", "create", "2"),
        ("bob", "create", "3"),
        ("ann", "update", "1"),
        ("eve", "delete", "3"),
    ]


async def test_a_route_that_does_not_find_out_who_asks_obeys_the_rules_for_the_anonymous(api: Api) -> None:
    for headers in ({}, {HEADER: ADMIN}):
        assert (await api.get("/unasked", **headers)).status == 401
        assert (await api.request("POST", "/unasked", headers=headers, body='[{"title": "a"}]')).status == 401
    assert await api.sql("SELECT FROM tasks WHERE title = 'a'") == []


async def test_a_read_only_server_writes_nothing(start: Start, database_url: str) -> None:
    """Not even for a GET."""
    api = await served(start, database_url, read_only=True)
    answer = await api.get("/written", **{HEADER: ANN})
    assert (answer.status, answer.errors[0]["code"]) == (403, "read_only")
    assert await api.sql("SELECT FROM tasks WHERE owner = 'ann'") == []


async def test_a_write_that_cannot_be_recorded_is_not_done(api: Api, tmp_path: Path) -> None:
    (tmp_path / "audit.log").rename(tmp_path / "moved")
    (tmp_path / "audit.log").mkdir()
    answer = await ask(api, ANN, "POST", data=[{"title": "a"}])
    assert (answer.status, answer.errors[0]["code"]) == (503, "audit_unavailable")
    assert await api.sql("SELECT FROM tasks WHERE owner = 'ann'") == []


async def test_all_rows_are_read_in_pages(api: Api) -> None:
    await api.sql(
        "INSERT INTO tasks (title, owner, state, team_id) SELECT 't', 'ann', '', 1 FROM generate_series(1, 1200)"
    )
    answer = await api.get("/own?q=page%5Bsize%5D%3D0", **{HEADER: ANN})
    assert (answer.status, answer.errors[0]["code"]) == (400, "too_many_rows")
    answer = await api.get("/own?q=page%5Bsize%5D%3D1000", **{HEADER: ANN})
    assert len(answer.document["found"]["data"]) == 1000
