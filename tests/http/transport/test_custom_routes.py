"""Custom routes: their arguments, their answers and exceptions, and the limits that apply to them. Errors in ROUTES."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tornado.ioloop import IOLoop
from tornado.web import HTTPError, RequestHandler

from server.resources import built_in
from server.settings import StartError
from server.startup.declarations import load_declarations
from tests.http.conftest import MEDIA_TYPE, Answer, Api, Start
from tests.http.people import create_household
from tests.http.running.test_metrics import scrape
from tests.http.wire import connected
from waterspout import BadRequest, CustomHandler


class Report(CustomHandler):
    async def get(self, name: str, year: str = "none") -> None:
        self.finish({"name": name, "year": year, "q": self.get_query_argument("q", "")})


class Plain(CustomHandler):
    """A handler whose methods are not coroutines."""

    def get(self) -> None:
        self.set_header("Content-Type", "text/plain")
        self.finish("plain")

    def put(self) -> None:
        self.set_status(204)


class Count(CustomHandler):
    async def get(self) -> None:
        count = await self.database.read(
            lambda connection: connection.fetchval("SELECT count(*) FROM users"), is_snapshot=False
        )
        self.finish_document(json.dumps({"meta": {"users": count}}).encode())

    async def post(self) -> None:
        name = self.body.decode()
        group_id = await self.database.write(
            lambda connection: connection.fetchval("INSERT INTO groups (name) VALUES ($1) RETURNING id", name)
        )
        self.set_status(201)
        self.finish(str(group_id))


class Echo(CustomHandler):
    async def post(self) -> None:
        self.set_header("Content-Type", self.request.headers.get("Content-Type", "text/plain"))
        self.finish(self.body)

    put = patch = delete = post


class Failing(CustomHandler):
    errors: ClassVar[dict[str, Exception]] = {
        "bad": BadRequest("Not so."),
        "pointed": BadRequest("Not so.", pointer="/data"),
        "conflict": HTTPError(409, "Taken."),
        "gone": HTTPError(410),
        "fault": KeyError("secret"),
        "server": HTTPError(500, "secret"),
    }

    async def get(self, kind: str) -> None:
        self.set_header("X-Before", "set")
        raise self.errors[kind]

    post = get


class Session(CustomHandler):
    """POST leaves something in the session. GET shows what is there."""

    async def post(self) -> None:
        statements = "SELECT pg_advisory_lock(7); SET TimeZone = 'Asia/Tokyo'; LISTEN channel"
        if self.get_query_argument("door") == "read":
            await self.database.read(lambda connection: connection.execute(statements), is_snapshot=False)
        else:
            await self.database.write(lambda connection: connection.execute(statements))

    async def get(self) -> None:
        state = """
            SELECT pg_backend_pid() AS pid, current_setting('TimeZone') AS zone,
                (SELECT count(*) FROM pg_listening_channels()) AS channels,
                (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) AS locks
        """
        row = await self.database.read(lambda connection: connection.fetchrow(state), is_snapshot=False)
        self.finish(dict(row or {}))


class Elsewhere(CustomHandler):
    """Its work on a connection fails for a reason other than the database."""

    async def get(self) -> None:
        await self.database.read(self.work, is_snapshot=False)

    async def post(self) -> None:
        await self.database.write(self.work)

    async def work(self, connection: Any) -> None:
        await connection.execute("SELECT 1")
        raise TimeoutError("secret")


class Writing(CustomHandler):
    """Writes by `read` or by `write`."""

    async def post(self) -> None:
        statement = self.body.decode()
        door, is_snapshot = self.get_query_argument("door"), self.get_query_argument("snapshot", "") == "yes"
        if door == "read":
            await self.database.read(lambda connection: connection.execute(statement), is_snapshot=is_snapshot)
        else:
            await self.database.write(lambda connection: connection.execute(statement))


class Operations(CustomHandler):
    async def post(self) -> None:
        self.finish({"mine": True})


ROUTES = [
    (r"/reports/([^/]+)(?:/([0-9]{4}))?", Report),
    (r"/plain", Plain),
    (r"/count", Count),
    (r"/echo", Echo),
    (r"/failing/(.*)", Failing),
    (r"/session", Session),
    (r"/elsewhere", Elsewhere),
    (r"/writing", Writing),
    (r"/operations", Operations),
    (r"/users/top", Report),
]


@pytest.fixture
def own(io_loop: IOLoop, start: Start, database_url: str) -> Api:
    api: Api = io_loop.run_sync(
        lambda: start(database_url, built_in(), ROUTES, max_body_bytes=1000, max_url_bytes=1000)
    )
    return api


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/reports/all/2024", {"name": "all", "year": "2024", "q": ""}),
        ("/reports/all/2024?q=a%20b", {"name": "all", "year": "2024", "q": "a b"}),
        ("/reports/a%20b%2Fc/2024", {"name": "a b/c", "year": "2024", "q": ""}),
        ("/reports/gr%C3%B6%C3%9Fe/2024", {"name": "größe", "year": "2024", "q": ""}),
        ("/reports/%25/2024", {"name": "%", "year": "2024", "q": ""}),
    ],
)
async def test_arguments(own: Api, path: str, shown: dict[str, str]) -> None:
    """Groups of the pattern are decoded once."""
    answer = await own.get(path)
    assert (answer.status, answer.document) == (200, shown)


async def test_a_group_that_did_not_match(own: Api) -> None:
    answer = await own.get("/reports/all")
    assert (answer.status, answer.document["name"]) == (200, "all")
    assert answer.document["year"] in ("", "none")


async def test_an_argument_that_is_not_utf8(own: Api) -> None:
    answer = await own.get("/reports/%FF/2024")
    assert (answer.status, [error["status"] for error in answer.errors]) == (400, ["400"])


@pytest.mark.parametrize("path", ["/reports/all/24", "/reports", "/reports/", "/plain/x", "/xplain"])
async def test_the_pattern_must_match_the_whole_path(own: Api, path: str) -> None:
    answer = await own.get(path)
    assert (answer.status, answer.errors[0]["code"]) == (404, "route_not_found")


async def test_the_answer_is_sent_as_it_is(own: Api) -> None:
    await create_household(own)
    plain = await own.get("/plain", Accept="text/html", **{"X-Request-Id": "mine"})
    assert (plain.status, plain.body, plain.headers["Content-Type"]) == (200, b"plain", "text/plain")
    assert plain.headers["X-Request-Id"] == "mine"
    assert "Server" not in plain.headers
    assert "Etag" not in plain.headers
    count = await own.get("/count")
    assert (count.headers["Content-Type"], count.document) == (MEDIA_TYPE, {"meta": {"users": 2}})
    report = await own.get("/reports/x/2024")
    assert report.headers["Content-Type"].startswith("application/json")
    assert (await own.request("PUT", "/plain", body="")).status == 204


async def test_a_write_of_a_custom_route(own: Api) -> None:
    answer = await own.request("POST", "/count", body="rowers")
    assert answer.status == 201
    found = await own.get(f"/groups/{answer.body.decode()}")
    assert found.document["data"]["attributes"] == {"name": "rowers"}


@pytest.mark.parametrize("door", ["read", "write"])
async def test_the_session_is_reset_after_a_handler(start: Start, database_url: str, door: str) -> None:
    api = await start(database_url, built_in(), ROUTES, pool_size=1)
    before = await api.get("/session")
    assert (await api.request("POST", f"/session?door={door}", body="")).status == 200
    assert (await api.get("/session")).document == before.document


@pytest.mark.parametrize("content_type", ["text/csv", "image/png", MEDIA_TYPE, f"{MEDIA_TYPE}; ext=x", "", None])
async def test_a_body_of_any_media_type(own: Api, content_type: str | None) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        headers = {} if content_type is None else {"Content-Type": content_type}
        answer = await own.request(method, "/echo", body=b"a,b\x00\xff", headers=headers)
        assert (answer.status, answer.body) == (200, b"a,b\x00\xff"), method


async def test_the_limit_of_a_body(own: Api) -> None:
    assert (await own.request("POST", "/echo", body="x" * 1000)).status == 200
    answer = await own.request("POST", "/echo", body="x" * 1001)
    assert (answer.status, answer.errors[0]["code"]) == (413, "body_too_large")
    async with connected(own.port) as wire:
        await wire.send("PUT /echo HTTP/1.1", "Transfer-Encoding: chunked")
        await wire.send_bytes(b"3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n")
        assert (await wire.answer()).status == 413


async def test_the_limit_of_a_url(own: Api) -> None:
    answer = await own.get("/plain?" + "x" * 1000)
    assert (answer.status, answer.errors[0]["code"]) == (414, "url_too_long")


async def test_a_read_only_server(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), ROUTES, read_only=True)
    assert (await api.get("/plain")).status == 200
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        answer = await api.request(method, "/echo", body="x")
        assert (answer.status, answer.errors[0]["code"]) == (403, "read_only")


def refused(answer: Answer) -> dict[str, Any]:
    (error,) = answer.errors
    return error


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        (
            "bad",
            400,
            {
                "status": "400",
                "code": "bad_request",
                "title": "Bad Request",
                "detail": "Not so.",
                "source": {"pointer": ""},
                "status_code": 400,
            },
        ),
        (
            "pointed",
            400,
            {
                "status": "400",
                "code": "bad_request",
                "title": "Bad Request",
                "detail": "Not so.",
                "source": {"pointer": "/data"},
                "status_code": 400,
            },
        ),
        ("conflict", 409, {"status": "409", "code": "conflict", "title": "Conflict", "detail": "Taken."}),
        ("gone", 410, {"status": "410", "code": "gone", "title": "Gone", "detail": "Gone"}),
    ],
)
async def test_exceptions_of_a_handler(own: Api, method: str, kind: str, status: int, expected: dict[str, Any]) -> None:
    answer = await own.request(method, f"/failing/{kind}", body="" if method == "POST" else None)
    assert (answer.status, refused(answer), answer.headers["Content-Type"]) == (status, expected, MEDIA_TYPE)
    assert "X-Before" not in answer.headers


@pytest.mark.parametrize("kind", ["fault", "server"])
async def test_a_fault(own: Api, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    answer = await own.get(f"/failing/{kind}")
    assert (answer.status, refused(answer)["status"], b"secret" in answer.body) == (500, "500", False)
    (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert record.exc_info is not None
    assert "secret" in str(record.exc_info[1])


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_network_error_of_a_handler_is_a_fault(own: Api, method: str, caplog: pytest.LogCaptureFixture) -> None:
    """It says nothing about the database. It is logged."""
    answer = await own.request(method, "/elsewhere", body="" if method == "POST" else None)
    assert (answer.status, refused(answer)["code"]) == (500, "internal_error")
    assert len([each for each in caplog.records if each.levelname == "ERROR"]) == 1


@pytest.mark.parametrize(
    ("path", "method", "allow"),
    [
        ("/plain", "POST", "GET, PUT, HEAD, OPTIONS"),
        ("/plain", "DELETE", "GET, PUT, HEAD, OPTIONS"),
        ("/echo", "GET", "POST, PUT, PATCH, DELETE, OPTIONS"),
        ("/echo", "HEAD", "POST, PUT, PATCH, DELETE, OPTIONS"),
        ("/operations", "GET", "POST, OPTIONS"),
        ("/reports/x/2024", "PATCH", "GET, HEAD, OPTIONS"),
        ("/reports/x/2024", "PURGE", "GET, HEAD, OPTIONS"),
    ],
)
async def test_other_methods(own: Api, path: str, method: str, allow: str) -> None:
    answer = await own.request(method, path)
    assert (answer.status, answer.headers["Allow"]) == (405, allow)
    if method != "HEAD":
        assert refused(answer)["code"] == "method_not_allowed"


@pytest.mark.parametrize("path", ["/plain", "/reports/x/2024", "/echo", "/failing/bad", "/operations"])
async def test_options(own: Api, path: str) -> None:
    answer = await own.request("OPTIONS", path)
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["Allow"].endswith("OPTIONS")


@pytest.mark.parametrize("path", ["/plain", "/reports/x/2024", "/count"])
async def test_head(own: Api, path: str) -> None:
    """Like GET without the body, for coroutines and plain methods, with and without arguments."""
    get, head = await own.get(path), await own.request("HEAD", path)
    assert (head.status, head.body) == (200, b"")
    for name in ("Content-Type", "Content-Length"):
        assert head.headers[name] == get.headers[name]
    async with connected(own.port) as wire:
        for _ in range(2):
            await wire.send(f"HEAD {path} HTTP/1.1")
            assert (await wire.answer(has_body=False)).status == 200


async def test_custom_routes_come_before_those_of_the_server(own: Api) -> None:
    operations = {"atomic:operations": [{"op": "add", "data": {"type": "person", "attributes": {"name": "n"}}}]}
    assert (await own.post("/operations", operations)).document == {"mine": True}
    assert await own.sql("SELECT * FROM persons") == []
    assert (await own.get("/users")).status == 200


async def test_a_method_with_arguments_for_a_pattern_without_groups_is_a_fault(own: Api) -> None:
    assert (await own.get("/users/top")).status == 500


# ROUTES


MODULE = """
from tornado.web import RequestHandler
from waterspout import Catalog, CustomHandler, Resource

class Mine(CustomHandler):
    pass

CATALOG = Catalog([Resource("person", "/persons", "persons")])
ROUTES = {routes}
"""
PAIRS = (
    "expected ROUTES of {path} to hold pairs of a pattern and a class made from waterspout.CustomHandler, not {shown}"
)


def loaded(folder: Path, routes: str) -> Any:
    path = folder / "mine.py"
    path.write_text(MODULE.format(routes=routes), encoding="utf-8")
    return load_declarations(str(path))


@pytest.mark.parametrize(
    ("routes", "patterns"), [("[]", []), ("()", []), ('[("/a", Mine), ["/b", Mine]]', ["/a", "/b"])]
)
def test_valid_routes(tmp_path: Path, routes: str, patterns: list[str]) -> None:
    assert [pattern.pattern for pattern, _ in loaded(tmp_path, routes).routes] == patterns


@pytest.mark.parametrize(
    ("routes", "shown"),
    [
        ('["/a"]', "'/a'"),
        ('[("/a",)]', "('/a',)"),
        ('[("/a", RequestHandler)]', "('/a', <class 'tornado.web.RequestHandler'>)"),
        ('[("/a", "Mine")]', "('/a', 'Mine')"),
        ("[(1, Mine)]", "(1, <class '_waterspout_resources_mine.Mine'>)"),
        ("[None]", "None"),
        ('("/a", Mine)', "'/a'"),
    ],
)
def test_routes_that_are_not_pairs(tmp_path: Path, routes: str, shown: str) -> None:
    with pytest.raises(StartError) as refusal:
        loaded(tmp_path, routes)
    assert str(refusal.value) == PAIRS.format(path=tmp_path / "mine.py", shown=shown)


@pytest.mark.parametrize("routes", ["None", "7", '{"/a": Mine}', "Mine"])
def test_routes_that_are_not_a_list(tmp_path: Path, routes: str) -> None:
    with pytest.raises(StartError) as refusal:
        loaded(tmp_path, routes)
    assert str(refusal.value).startswith(f"expected ROUTES of {tmp_path / 'mine.py'} to ")


def test_an_invalid_pattern(tmp_path: Path) -> None:
    with pytest.raises(StartError) as refusal:
        loaded(tmp_path, '[("/a(", Mine)]')
    assert str(refusal.value).startswith(f"the route /a( of {tmp_path / 'mine.py'} is no regular expression: ")


def test_a_custom_handler_is_a_tornado_handler() -> None:
    """So the documentation of tornado applies to it."""
    assert issubclass(CustomHandler, RequestHandler)


INSERT = "INSERT INTO groups (name) VALUES ('misplaced')"


@pytest.mark.parametrize("is_snapshot", [False, True])
async def test_a_write_in_a_read_is_a_fault(
    start: Start, database_url: str, caplog: pytest.LogCaptureFixture, is_snapshot: bool
) -> None:
    """Nothing is written, the log says why, and the pool keeps its connections."""
    api = await start(database_url, built_in(), ROUTES, pool_size=2)
    assert (await api.get("/groups")).status == 200
    path = "/writing?door=read" + ("&snapshot=yes" if is_snapshot else "")
    answers = [await api.request("POST", path, body=INSERT) for _ in range(3)]
    assert [(answer.status, answer.errors[0]["code"]) for answer in answers] == [(500, "internal_error")] * 3
    logged = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert logged == ["a write in database.read: use database.write"] * 3
    assert (await api.get("/groups")).document["data"] == []
    assert (await scrape(api))["pool_connections_opened_total"][()] == 1


async def test_custom_code_that_makes_its_own_transaction_read_only(
    start: Start, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """This says nothing about the server: the pool keeps its connections."""
    api = await start(database_url, built_in(), ROUTES, pool_size=2)
    body = f"SET TRANSACTION READ ONLY; {INSERT}"
    answers = [await api.request("POST", "/writing?door=write", body=body) for _ in range(3)]
    assert [(answer.status, answer.errors[0]["code"]) for answer in answers] == [(503, "unavailable")] * 3
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == ["a write was refused as read-only by a server that takes writes"] * 3
    assert (await scrape(api))["pool_connections_opened_total"][()] == 1
