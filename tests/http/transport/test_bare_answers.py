"""Headers of every answer, also of those without a handler, and how values of clients appear in answers, logs and
metrics."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

import pytest

from server.resources import built_in
from tests.http.conftest import MEDIA_TYPE, Answer, Api, Start
from tests.http.streams import small_batches
from tests.http.wire import connected
from tests.waiting import until
from waterspout import CustomHandler

__all__ = ["small_batches"]

LONG = "n" * 1_000_000


def group(**members: Any) -> Any:
    return {"data": {"type": "group", **members}}


def linked(linkage: Any) -> Any:
    return {"data": {"type": "user", "relationships": {"group": linkage}}}


def operation(op: str, **members: Any) -> Any:
    return {"atomic:operations": [{"op": op, **members}]}


async def asked(api: Api, data: bytes, *, has_body: bool = True) -> Answer:
    async with connected(api.port) as wire:
        await wire.send_bytes(data)
        return await wire.answer(has_body=has_body)


# headers of every answer


class Bytes(CustomHandler):
    def get(self) -> None:
        self.set_header("Content-Type", "text/html")
        self.finish("<b>")


HEAD = " HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        *((f"GET {path}{HEAD}\r\n", 200) for path in ("/", "/users", "/users/1", "/-/live", "/-/metrics", "/bytes")),
        *((f"GET {path}{HEAD}\r\n", 404) for path in ("/nothing", "/users/99")),
        (f"GET /users?page[size]=0{HEAD}\r\n", 200),
        (f"GET /users?sort=nothing{HEAD}\r\n", 400),
        (f"OPTIONS /users{HEAD}Origin: https://a\r\nAccess-Control-Request-Method: GET\r\n\r\n", 204),
        (f"OPTIONS *{HEAD}\r\n", 204),
        (f"PUT /users{HEAD}\r\n", 405),
        (f"PATCH /users/1{HEAD}Content-Length: 1\r\n\r\nx", 415),
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        (f"GET /{'x' * 20_000}{HEAD}\r\n", 414),
        (f"GET /{HEAD}X: {'x' * 70_000}\r\n\r\n", 431),
        (f"GET /{HEAD}X: {'x' * 170_000}\r\n\r\n", 431),
        ("no request\r\n\r\n", 400),
        (f"{'M' * 33} /{HEAD}\r\n", 501),
        ("GET / HTTP/2.0\r\n\r\n", 505),
        (f"POST /groups{HEAD}Content-Type: {MEDIA_TYPE}\r\nTransfer-Encoding: chunked\r\n\r\nno", 400),
    ],
)
async def test_every_answer_has_date_and_nosniff(start: Start, rows_url: str, request_head: str, status: int) -> None:
    api = await start(rows_url, built_in(), [("/bytes", Bytes)], cors_origins="*", compression="gzip")
    answer = await asked(api, request_head.encode(), has_body=False)
    assert answer.status == status
    assert answer.headers.get_list("X-Content-Type-Options") == ["nosniff"]
    assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", answer.headers["Date"])


# bare answers


async def lines_of(capsys: pytest.CaptureFixture[str], count: int = 1) -> list[str]:
    written = ""

    def enough() -> list[str]:
        nonlocal written
        written += capsys.readouterr().err
        lines = written.splitlines()
        return lines if len(lines) >= count else []

    return await until(enough)


BARE = [
    (b"no request\r\n\r\n", 400, "Bad Request"),
    (b"GET / HTTP/2.0\r\n\r\n", 505, "HTTP Version Not Supported"),
    (b"GET / HTTP/1.1\r\n\r\n", 400, "Bad Request"),
    (b"M" * 100_000 + b" / HTTP/1.1\r\nHost: localhost\r\n\r\n", 501, "Not Implemented"),
    (b"x" * 200_000, 431, "Request Header Fields Too Large"),
]


@pytest.mark.parametrize(("data", "status", "phrase"), BARE)
async def test_a_bare_answer_is_logged_and_counted(
    start: Start, rows_url: str, caplog: pytest.LogCaptureFixture, data: bytes, status: int, phrase: str
) -> None:
    caplog.set_level(logging.INFO, "server.access")
    api = await start(rows_url, built_in())
    answer = await asked(api, data)
    assert (answer.status, answer.body, answer.headers["Connection"]) == (status, b"", "close")
    (record,) = [one for one in caplog.records if one.name == "server.access"]
    assert (record.levelname, record.getMessage()) == ("INFO", f"no valid request: {status} {phrase} for 127.0.0.1")
    fields = vars(record)["fields"]
    assert (fields["status"], fields["remote"], set(fields)) == (
        status,
        "127.0.0.1",
        {"status", "remote", "milliseconds"},
    )
    told = (await api.get("/-/metrics")).body.decode()
    labels = f'route="unmatched",method="other",status="{status}"'
    assert f"waterspout_http_request_duration_seconds_count{{{labels}}} 1" in told


async def test_a_late_head_is_logged_and_counted(start: Start, rows_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "server.access")
    api = await start(rows_url, built_in(), header_timeout_seconds=0.1)
    answer = await asked(api, b"GET /")
    assert (answer.status, "Date" in answer.headers) == (408, True)
    (record,) = [one for one in caplog.records if one.name == "server.access"]
    assert record.getMessage() == "no valid request: 408 Request Timeout for 127.0.0.1"
    assert vars(record)["fields"]["milliseconds"] >= 100
    assert b'status="408"' in (await api.get("/-/metrics")).body


# the whole server


@pytest.mark.parametrize(
    ("read_only", "allow"),
    [(False, "GET, POST, PATCH, DELETE, HEAD, QUERY, OPTIONS"), (True, "GET, HEAD, QUERY, OPTIONS")],
)
async def test_options_of_the_whole_server(start: Start, rows_url: str, read_only: bool, allow: str) -> None:
    api = await start(rows_url, built_in(), read_only=read_only, path_prefix="/api")
    answer = await asked(api, f"OPTIONS *{HEAD}\r\n".encode())
    assert (answer.status, answer.headers["Allow"], answer.body) == (204, allow, b"")


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE", "PURGE"])
async def test_only_options_accepts_the_asterisk(reader: Api, method: str) -> None:
    answer = await asked(reader, f"{method} *{HEAD}\r\n".encode())
    assert (answer.status, answer.body) == (400, b"")


# values of clients


async def test_values_of_a_request_in_logs(
    start: Start, rows_url: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, "server.access")
    api = await start(rows_url, built_in())
    for method, target in (
        ("GET", "/\x85\x9b\xe2\x80\xa8"),
        ("GET", "/%0A%1b[31m"),
        ("GET", "//\x85\x9b"),
        ("GET", "/" + "x" * 60_000),
        ("M" * 32, "/users/%31/"),
    ):
        await asked(api, f"{method} {target}{HEAD}\r\n".encode("latin-1"))
    shown = [line.partition("] ")[2].rpartition("ms ")[0].rpartition(" ")[0] for line in await lines_of(capsys, 5)]
    assert shown == [
        "GET /%85%9B%E2%80%A8 404",
        "GET /%0A%1B%5B31m 404",
        "GET //%85%9B 404",
        "GET /" + "x" * 999 + " 414",
        "M" * 32 + " /users/1 405",
    ]


@pytest.mark.parametrize(
    ("method", "path", "document"),
    [
        *(("POST", "/groups", group(attributes={name: 1})) for name in (LONG, "/" * 500_000)),
        ("POST", "/groups", group(attributes={f"{number}{'m' * 20_000}": 1 for number in range(100)})),
        ("POST", "/groups", group(relationships={LONG: {"data": None}})),
        ("POST", "/groups", {"data": {"type": LONG}}),
        *(("POST", "/groups", group(**{member: LONG})) for member in ("id", "lid", "attributes", "relationships")),
        ("POST", "/groups", group(attributes={"name": {LONG: 1}})),
        ("POST", "/photos", {"data": {"type": "photo", "attributes": {"words": {LONG: "\0"}}}}),
        ("POST", "/users", linked({"data": {"type": LONG, "id": "1"}})),
        ("POST", "/users", linked({"data": {"type": "group", "id": LONG}})),
        ("POST", "/users", linked({LONG: None})),
        ("PATCH", "/users/1/relationships/group", {"data": {"type": LONG, "id": "1"}}),
        ("PATCH", "/users/1/relationships/computers", {"data": [{"type": "computer", "id": LONG}]}),
        ("POST", "/operations", operation(LONG)),
        ("POST", "/operations", operation("add", **{LONG: 1})),
        ("POST", "/operations", operation("add", href=LONG)),
        ("POST", "/operations", operation("add", data={"type": LONG})),
        ("POST", "/operations", operation("add", **group(attributes={LONG: 1}))),
        ("POST", "/operations", operation("add", data={"type": "nothing", "attributes": {"name": LONG}})),
        ("POST", "/operations", operation("remove", ref={"type": "group", "id": LONG})),
        ("POST", "/operations", operation("remove", ref={"type": "group", "lid": LONG})),
        ("POST", "/operations", operation("remove", ref={"type": LONG, "lid": "x"})),
        ("POST", "/operations", operation("update", ref={"type": "group", "id": "1", "relationship": LONG}, data=None)),
    ],
)
async def test_a_long_name_is_shortened_in_errors(api: Api, method: str, path: str, document: Any) -> None:
    extended = f'{MEDIA_TYPE};ext="https://jsonapi.org/ext/atomic"'
    for media_type in (MEDIA_TYPE, extended) if path == "/operations" else (MEDIA_TYPE,):
        headers = {"Content-Type": media_type}
        answer = await api.request(method, path, headers=headers, body=json.dumps(document))
        assert 400 <= answer.status < 500
        errors = answer.document.get("errors") or [answer.document]
        assert len(answer.body) < 2500 * len(errors)


async def test_a_failed_operation_is_shortened_in_errors(api: Api) -> None:
    values = {"names": [[[]] * 10] * 1000, "a": "x" * 1000, "b": "x" * 1001, "n": 1.5, LONG: None}
    attributes = {name: values[name] for name in ("a", "b", "n", LONG, "names")}
    answer = await api.post("/operations", operation("add", data={"type": "nothing", "attributes": attributes}))
    shown = answer.document["detail"]["data"]["attributes"]
    assert [shown["a"], shown["b"], shown["n"], shown["n" * 253 + "..."]] == ["x" * 1000, "x" * 997 + "...", 1.5, None]
    assert (len(shown["names"]) < 100, len(answer.body) < 10_000) == (True, True)


@pytest.mark.parametrize(
    "query",
    [
        *("{}=1", "filter[{}]=1", "filter[name][{}]=1", "filter[{}.name]=1", "filter[group.{}]=1"),
        *("sort={}", "sort=group.{}", "include={}", "include=group.{}", "fields[{}]=name", "fields[user]={}"),
        *("page[{}]=1", "page[size]={}", "page[after]={}", "page[total]={}", "{}", "fields={}"),
        *('filter=[{{"name":"{}","op":"eq","val":1}}]', 'filter=[{{"name":"name","op":"{}","val":1}}]', "filter={}"),
        *('filter=[{{"name":"age","op":"eq","val":"{}"}}]', 'filter=[{{"{}":1}}]', 'filter={{"{}":1}}'),
        *(
            'filter=[{{"name":"name","op":"eq","field":"{}"}}]',
            'filter=[{{"name":"group","op":"has","val":{{"{}":1}}}}]',
        ),
    ],
)
async def test_a_long_parameter_is_shortened_in_errors(reader: Api, query: str) -> None:
    name = "n" * 16_000
    answer = await reader.get(
        f"/users?{query.format(name)}".replace('"', "%22").replace("{", "%7B").replace("}", "%7D")
    )
    assert (answer.status, len(answer.body) < 3000) == (400, True)


@pytest.mark.parametrize(
    "header",
    [
        *("Accept: application/vnd.api+json;{}=1", 'Accept: application/vnd.api+json;ext="{}"', "Content-Type: {}"),
        *("Content-Type: application/vnd.api+json;{}=1", 'Content-Type: application/vnd.api+json;ext="{}"'),
        *("Origin: {}", "Content-Encoding: {}", "If-Match: {}", "X-Request-Id: {}"),
    ],
)
async def test_a_long_header_is_shortened_in_errors(reader: Api, header: str) -> None:
    line = header.format("h" * 40_000)
    answer = await asked(reader, f"POST /groups{HEAD}{line}\r\nContent-Length: 1\r\n\r\nx".encode())
    assert (400 <= answer.status < 500, len(answer.body) < 3000) == (True, True)
    assert sum(len(value) for _, value in answer.headers.get_all()) < 1000
