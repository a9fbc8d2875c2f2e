"""The benchmark with our server: it answers all requests, writes are restored, a server with other answers is left out,
and a running server can be measured."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from typing import Any

import asyncpg
import msgspec
import pytest
from click.testing import CliRunner

from bench.__main__ import main
from bench.ceilings import find_pgbench, run_script, same_script
from bench.client import ask, connected
from bench.contest import Course, Entrant, Plan, find_cursor, run_row, unchanged
from bench.growth import pages, stream
from bench.requests import BY_NAME, REQUESTS, USERS, Request
from bench.rows import compact, fingerprint, keep_copies, load_rows, make_users, restore
from bench.servers import Processes, Rows, Running
from bench.target import _usable_requests
from querybuild.declarations.catalog import Catalog
from server.resources import built_in
from tests.catalog import CATALOG
from tests.conftest import on_server, with_database
from tests.http.rows import reading_server

NEEDS_WRK = pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")


@pytest.fixture(scope="module")
def bench_rows(postgres_url: str, template: str) -> Iterator[Rows]:
    name = f"waterspout_bench_{os.getpid()}"
    on_server(postgres_url, f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name} TEMPLATE {template}")
    url = with_database(postgres_url, name)

    async def fill() -> None:
        connection = await asyncpg.connect(url)
        try:
            await load_rows(connection, USERS)
            await keep_copies(connection)
        finally:
            await connection.close()

    asyncio.run(fill())
    yield Rows(url, USERS, Processes(os.getpid()))
    on_server(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def running(bench_rows: Rows) -> Iterator[Running]:
    with reading_server(bench_rows.url, built_in()) as port:
        yield Running("waterspout", "ours", port, Processes(os.getpid()))


@pytest.fixture(scope="module")
def cursor(running: Running) -> str:
    return find_cursor(running)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.name)
def test_every_request_is_answered(request_: Request, running: Running, bench_rows: Rows, cursor: str) -> None:
    first = USERS + 1
    if request_.method == "DELETE":
        bench_rows.run(lambda connection: make_users(connection, first, 1))
    with connected(running.port) as connection:
        answer = ask(connection, request_, first, cursor)
    if request_.writes:
        bench_rows.run(restore)
    document = json.loads(answer.body)
    assert document.keys() & {"data", "atomic:results", "meta"}
    if request_.method == "GET":
        assert document["data"], "a request without rows measures nothing"
        assert "include=" not in request_.path or document["included"]
        assert ("total" in document.get("meta", {})) == (request_.total == "exact")


def test_the_cursor_and_the_number_lead_to_the_same_page(running: Running, cursor: str) -> None:
    with connected(running.port) as connection:
        deep = [json.loads(ask(connection, BY_NAME[name], 1, cursor).body) for name in ("deep-page", "deep-cursor")]
    assert deep[0]["data"] == deep[1]["data"]
    assert len(deep[0]["data"]) == 10


def test_writes_are_restored(running: Running, bench_rows: Rows) -> None:
    before = bench_rows.run(fingerprint)
    with connected(running.port) as connection:
        for name in ("create", "update", "replace", "operations-3"):
            ask(connection, BY_NAME[name], USERS + 1)
    assert bench_rows.run(fingerprint) != before
    bench_rows.run(restore)
    assert bench_rows.run(fingerprint) == before
    with connected(running.port) as connection:
        made = json.loads(ask(connection, BY_NAME["create"], USERS + 1).body)["data"]["id"]
    bench_rows.run(restore)
    assert made == str(USERS + 1)


def test_tables_are_compacted_to_their_first_size(bench_rows: Rows) -> None:
    async def size(connection: asyncpg.Connection[Any]) -> int:
        return int(await connection.fetchval("SELECT pg_total_relation_size('users')"))

    before = bench_rows.run(fingerprint)
    bench_rows.run(compact)
    small = bench_rows.run(size)
    bench_rows.run(lambda connection: make_users(connection, USERS + 1, USERS))
    bench_rows.run(restore)
    assert bench_rows.run(size) > small
    bench_rows.run(compact)
    assert (bench_rows.run(size), bench_rows.run(fingerprint)) == (small, before)


def with_other_size(request: Request) -> Request:
    return msgspec.structs.replace(request, path=request.path.replace("=30", "=29"))


def with_other_age(request: Request) -> Request:
    return msgspec.structs.replace(request, body=request.body.replace('"age":36', '"age":35'))


def not_there(request: Request) -> Request:
    return msgspec.structs.replace(request, path="/nowhere")


def course(running: Running, rows: Rows, *others: Entrant, has_load: bool = False) -> Course:
    plan = Plan(rounds=1, seconds=1, connections=(16,), warm_up=False)
    return Course((Entrant(running, unchanged), *others), rows, plan, has_load, "", lambda _: None)


def test_a_server_with_other_answers_is_left_out(running: Running, bench_rows: Rows) -> None:
    floor = msgspec.structs.replace(running, name="floor")
    peer = msgspec.structs.replace(running, name="peer")
    lost = msgspec.structs.replace(running, name="lost")
    plain = msgspec.structs.replace(running, name="plain-floor")
    floors = (Entrant(floor, with_other_size), Entrant(plain, with_other_size))
    others = (*floors, Entrant(peer, with_other_size), Entrant(lost, not_there))
    found = run_row(course(running, bench_rows, *others), BY_NAME["list-30"])
    voids = {name: cell.void for name, cell in found.cells.items()}
    assert voids["waterspout"] == ""
    assert voids["floor"].startswith("at byte ")
    assert voids["plain-floor"] == voids["floor"]
    assert voids["peer"].startswith("data: 30 resources, user/1, user/2, user/3; and 29, ")
    assert voids["lost"].startswith("list 30: 404 ")


def test_a_write_must_leave_the_same_rows(running: Running, bench_rows: Rows) -> None:
    peer, same = (msgspec.structs.replace(running, name=name) for name in ("peer", "same"))
    others = (Entrant(peer, with_other_age), Entrant(same, unchanged), Entrant(running, lambda _: None))
    found = run_row(course(running, bench_rows, *others), BY_NAME["create"])
    assert {name: cell.void for name, cell in found.cells.items()} == {
        "waterspout": "",
        "peer": "the rows after the write differ",
        "same": "",
    }


@NEEDS_WRK
def test_load_is_counted(running: Running, bench_rows: Rows) -> None:
    (cell,) = run_row(course(running, bench_rows, has_load=True), BY_NAME["update"]).cells.values()
    assert cell.void == ""
    (sample,) = cell.samples
    assert (sample.connections, sample.errors) == (16, 0)
    assert min(sample.requests, sample.p50_us, sample.cpu_us) > 0


@NEEDS_WRK
def test_each_run_has_enough_users_to_delete(
    running: Running, bench_rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice in a row: each run of the load creates all of them again, and deletes each once."""
    # A server in this process has a part of a core.
    monkeypatch.setattr("bench.contest.DELETED_PER_SECOND", 8000)
    plan = Plan(rounds=2, seconds=1, connections=(16,), warm_up=False)
    both = msgspec.structs.replace(course(running, bench_rows, has_load=True), plan=plan)
    (cell,) = run_row(both, BY_NAME["delete"]).cells.values()
    assert cell.void == ""
    assert [sample.errors for sample in cell.samples] == [0, 0]


@NEEDS_WRK
def test_an_error_under_load_makes_a_row_void(
    running: Running, bench_rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are only ten users to delete."""
    monkeypatch.setattr("bench.contest.DELETED_PER_SECOND", 0)
    (cell,) = run_row(course(running, bench_rows, has_load=True), BY_NAME["delete"]).cells.values()
    assert cell.void.endswith(" errors")
    assert cell.per_second(16) is None


def test_pages_and_the_whole_table(running: Running) -> None:
    found = list(pages(running, 200, lambda _: None))
    assert [(page.offset, page.by, page.sort) for page in found] == [
        (offset, by, sort) for sort in ("id", "last_name") for offset in (0, 100, 190) for by in ("number", "cursor")
    ]
    whole_table = stream(running, USERS)
    assert 0 < whole_table.first_byte_ms <= whole_table.seconds * 1000
    assert whole_table.megabytes > 1


def test_pgbench_runs_the_statements_of_the_server(bench_rows: Rows) -> None:
    pgbench = find_pgbench()
    if pgbench is None:
        pytest.skip("pgbench is not installed")
    script = same_script(bench_rows.url, BY_NAME["list-30-include"])
    assert script.text.count("SELECT") >= 1
    cpus = frozenset(os.sched_getaffinity(0))
    per_second, milliseconds = run_script(pgbench, bench_rows.url, script, seconds=1, clients=1, cpus=cpus)
    assert per_second > 0
    assert milliseconds > 0


@NEEDS_WRK
def test_a_running_server(running: Running) -> None:
    options = ["--seconds", "1", "--connections", "2", "--only", "detail,create", "--json"]
    result = CliRunner().invoke(main, [running.url, *options])
    assert result.exit_code == 0, result.output
    (line,) = json.loads(result.stdout)
    assert (line["request"], line["method"], line["connections"], line["errors"]) == ("detail", "GET", 2, 0)
    assert line["per_second"] > 0
    assert 0 < line["p50_ms"] <= line["p99_ms"]


def test_requests_to_a_running_server_depend_on_its_answers(running: Running, corner_url: str) -> None:
    reading = [request.name for request, _ in _usable_requests(running.url, "", (), writes=False, first=1)]
    assert reading == [one.name for one in REQUESTS if not one.writes and one.name != "everything"]
    assert [one.name for one, _ in _usable_requests(running.url, "", ("every",), writes=False, first=1)] == [
        "everything"
    ]
    on_server(corner_url, "INSERT INTO authors (author_no, given, family) VALUES (1, 'Ann', 'A')")
    assert isinstance(CATALOG, Catalog)
    with reading_server(corner_url, CATALOG) as port:
        found = [
            request.path for request, _ in _usable_requests(f"http://127.0.0.1:{port}", "", (), writes=False, first=1)
        ]
    assert found[:2] == ["/authors/1", "/authors?page[size]=30"]


@NEEDS_WRK
def test_no_server_at_the_url() -> None:
    result = CliRunner().invoke(main, ["http://127.0.0.1:9"])
    assert result.exit_code == 1
    assert result.output.startswith("Error: http://127.0.0.1:9 cannot be reached: ")
