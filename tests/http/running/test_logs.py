"""The log lines of requests and statements."""

from __future__ import annotations

import io
import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from server.execution import streams
from server.observing.logs import JsonFormatter
from server.resources import built_in
from tests.http.conftest import Api, Start
from tests.http.operating import add
from tests.http.running.test_metrics import locked, scrape, until_metrics
from tests.http.wire import connected

SECRET = "s3cr3t"

Access = Callable[[], list[str]]


class Lines:
    """The lines of the server's loggers, as JSON."""

    def __init__(self, stream: io.StringIO) -> None:
        self._stream = stream

    def __call__(self, **fields: str) -> list[dict[str, Any]]:
        """Return the lines that have these fields."""
        found = [json.loads(line) for line in self._stream.getvalue().splitlines()]
        return [line for line in found if fields.items() <= line.items()]


@pytest.fixture
def lines() -> Iterator[Lines]:
    logger, stream = logging.getLogger("server"), io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger.addHandler(handler)
    yield Lines(stream)
    logger.removeHandler(handler)


@pytest.fixture
def access(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Access:
    """Return the lines of the access log so far, which is not written by a logger."""
    caplog.set_level("INFO", "server.access")
    monkeypatch.setattr("server.observing.logs.GATHER_SECONDS", 0.0)
    return lambda: capsys.readouterr().err.splitlines()


ALWAYS = 1e-9
"""Seconds that every statement takes."""


async def test_a_slow_statement(start: Start, database_url: str, lines: Lines) -> None:
    """The line has the statement without values, its time and the route, but no value of the request."""
    api = await start(database_url, built_in(), slow_statement_seconds=ALWAYS)
    path = f"/users?filter[first_name]={SECRET}"
    assert (await api.request("GET", path, headers={"X-Request-Id": "mine"})).status == 200
    [line] = lines(request_id="mine")
    shape = line["sql"]
    assert shape.startswith('SELECT "t0"."id",')
    assert '"t0"."first_name"=$1' in shape
    assert (line["level"], line["route"], line["pid"]) == ("warning", "/{collection}", os.getpid())
    assert 0 <= line["seconds"] < 10
    assert line["message"] == f"a statement took {line['seconds']:.3f} s: /{{collection}}: {shape}"
    assert SECRET not in json.dumps(lines())


async def test_every_way_to_run_a_statement(start: Start, database_url: str, lines: Lines) -> None:
    """In a transaction, in a batch, in a stream."""
    api = await start(database_url, built_in(), slow_statement_seconds=ALWAYS)
    adds = [add("person", {"name": f"{SECRET}{number}"}) for number in range(20)]
    sent = {"atomic:operations": [*adds, add("group", {"name": SECRET})]}
    assert (await api.request("POST", "/operations", sent, headers={"X-Request-Id": "writes"})).status == 200
    words = [line["sql"].split()[0] for line in lines(request_id="writes")]
    assert (words[0], words[-1]) == ("BEGIN", "COMMIT;")
    # The persons are in two, a large one and a small one.
    assert words.count("INSERT") == 3
    await api.sql("INSERT INTO persons (name) SELECT n::text FROM generate_series(1, 1500) n")
    await api.request("GET", "/persons?page[size]=0", headers={"X-Request-Id": "reads"})
    rows = [line["sql"] for line in lines(request_id="reads") if line["sql"].startswith("SELECT")]
    # The statement that found too many rows, and each batch of the stream.
    assert len(rows) > 1 + 1500 / streams.BATCH_ROWS
    assert SECRET not in json.dumps(lines())
    counted = (await scrape(api))["slow_statements_total"][()]
    assert counted == (await scrape(api))["statement_duration_seconds_count"][()] == len(lines())


async def test_a_fast_statement_is_not_logged(start: Start, database_url: str, lines: Lines) -> None:
    for seconds in (1000.0, "off"):
        api = await start(database_url, built_in(), slow_statement_seconds=seconds)
        await api.get("/users")
        assert (await scrape(api))["slow_statements_total"][()] == 0
    assert lines() == []


async def test_a_fault_has_the_request(api: Api, lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(api.app.engine.reads, "prepare", broken)
    answer = await api.request("GET", "/users?filter[first_name]=x", headers={"X-Request-Id": "mine"})
    assert answer.status == 500
    [line] = lines()
    assert (line["level"], line["request_id"], line["message"]) == ("error", "mine", "request mine failed: GET /users")
    assert line["exception"].endswith("ValueError: broken")


LINE = rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d,\d{{3}} INFO \[{os.getpid()}\] (.*) \d+\.\dms (.*)"


async def test_the_access_log(api: Api, access: Access) -> None:
    """Probes and scrapes have no line."""
    for path in ("/users?filter[first_name]=secret", "/-/live", "/-/ready", "/-/metrics", "/nothing"):
        await api.request("GET", path, headers={"X-Request-Id": "mine"})
    found = [re.fullmatch(LINE, line) for line in access()]
    assert [match and match.groups() for match in found] == [("GET /users 200", "mine"), ("GET /nothing 404", "mine")]


async def test_the_access_log_at_level_debug(api: Api, access: Access, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "server.access")
    await api.get("/-/live")
    assert [" GET /-/live 200 " in line for line in access()] == [True]


async def test_the_access_log_for_journald(start: Start, database_url: str, access: Access) -> None:
    api = await start(database_url, built_in(), log_format="journald")
    await api.request("GET", "/users", headers={"X-Request-Id": "mine"})
    [line] = access()
    assert re.fullmatch(r"<6>GET /users 200 \d+\.\dms mine", line)


async def test_the_access_log_as_json(start: Start, database_url: str, access: Access) -> None:
    api = await start(database_url, built_in(), log_format="json")
    answer = await api.request("GET", "/users?sort=x", headers={"X-Request-Id": "mine"})
    [line] = map(json.loads, access())
    milliseconds = line.pop("milliseconds")
    assert datetime.fromisoformat(line.pop("time")).tzinfo is not None
    assert line == {
        "level": "info",
        "logger": "server.access",
        "pid": os.getpid(),
        "message": f"GET /users 400 {milliseconds:.1f}ms mine",
        "request_id": "mine",
        "method": "GET",
        "path": "/users",
        "status": 400,
        "bytes": len(answer.body),
        "remote": "127.0.0.1",
    }


async def test_a_client_that_disconnects(api: Api, access: Access) -> None:
    async with locked(api, "groups"):
        async with connected(api.port) as client:
            await client.send("GET /groups HTTP/1.1", "X-Request-Id: mine")
            await until_metrics(api, lambda found: found["http_requests_in_flight"][()] == 1)
        gone = ("GET", "/{collection}", "499")
        await until_metrics(api, lambda found: gone in found["http_request_duration_seconds_count"])
    [line] = access()
    match = re.fullmatch(LINE, line)
    assert match
    assert match.groups() == ("GET /groups 499", "mine")
