"""/-/metrics of a server that has answered requests, scraped over its socket and read by Prometheus' parser."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families
from tornado.ioloop import IOLoop
from tornado.netutil import bind_sockets

from server.app import make_admin_server
from server.resources import built_in
from tests.http.conftest import Api, Serve, Start
from tests.http.operating import locked, operate, remove
from tests.http.wire import connected
from tests.waiting import until

SECONDS = 10.0
ID = "2000004711"
"""Digits that do not occur in a sum of durations by chance."""

Samples = dict[str, dict[tuple[str, ...], float]]


def read(text: str) -> Samples:
    """Return the values of each series, by its labels in the order of their names."""
    found: Samples = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values = tuple(value for _, value in sorted(sample.labels.items()))
            found[sample.name.removeprefix("waterspout_")][values] = sample.value
    return found


async def scrape(api: Api) -> Samples:
    answer = await api.get("/-/metrics")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return read(answer.body.decode())


async def until_metrics(api: Api, condition: Callable[[Samples], Any]) -> Samples:
    """Return the metrics, once this holds."""
    samples: Samples = await until(lambda: scrape(api), condition)
    return samples


async def test_requests(api: Api) -> None:
    """Labels have the shape of the route: no path, no id and no query string."""
    answers = [
        await api.get("/users"),
        await api.get("/users?page[size]=2&filter[first_name]=secret"),
        await api.get("/users?sort=secret"),
        await api.get(f"/users/{ID}"),
        await api.get(f"/secret/{ID}"),
        await api.post("/groups", {"data": {"type": "group", "attributes": {"name": "secret"}}}),
        await api.get("/groups/1/users"),
        await api.get("/groups/1/relationships/users"),
        await operate(api, remove("group", id="1")),
        await api.get("/"),
        await api.request("BREW", "/users"),
        await api.get("/-/live"),
    ]
    counted = {
        ("GET", "/{collection}", "200"): answers[0:2],
        ("GET", "/{collection}", "400"): answers[2:3],
        ("GET", "/{collection}/{id}", "404"): answers[3:4],
        ("GET", "unmatched", "404"): answers[4:5],
        ("POST", "/{collection}", "201"): answers[5:6],
        ("GET", "/{collection}/{id}/{relationship}", "200"): answers[6:7],
        ("GET", "/{collection}/{id}/relationships/{relationship}", "200"): answers[7:8],
        ("POST", "/operations", "204"): answers[8:9],
        ("GET", "/", "200"): answers[9:10],
        ("other", "/{collection}", "405"): answers[10:11],
        ("GET", "/-/live", "200"): answers[11:12],
    }
    text = (await api.get("/-/metrics")).body.decode()
    found = read(text)
    assert found["http_request_duration_seconds_count"] == {labels: len(those) for labels, those in counted.items()}
    assert found["http_response_bytes_total"] == {
        labels: sum(len(answer.body) for answer in those) for labels, those in counted.items()
    }
    total = sum(found["http_request_duration_seconds_sum"].values())
    assert 0 < total < SECONDS
    assert "secret" not in text
    assert ID not in text


async def test_a_head_has_no_body(api: Api) -> None:
    await api.request("HEAD", "/users")
    found = await scrape(api)
    assert found["http_response_bytes_total"] == {("HEAD", "/{collection}", "200"): 0}


async def test_connections(api: Api) -> None:
    async with connected(api.port), connected(api.port):
        await until_metrics(api, lambda found: found["http_connections"][()] == 3)
    await until_metrics(api, lambda found: found["http_connections"][()] == 1)


async def test_stages(api: Api) -> None:
    await api.get("/users")
    await api.get("/users?sort=x")
    await api.post("/groups", {"data": {"type": "group", "attributes": {"name": "a"}}})
    found = await scrape(api)
    assert found["stage_duration_seconds_count"] == {
        ("/{collection}", "plan"): 3,
        ("/{collection}", "parse"): 3,
        ("/{collection}", "execute"): 2,
        ("/{collection}", "encode"): 2,
    }


async def test_in_flight_and_the_pool(start: Start, database_url: str) -> None:
    """The figures while requests wait for a lock and for a connection."""
    api = await start(database_url, built_in(), pool_size=2, max_requests_per_client=2)
    await api.get("/users")
    before = await scrape(api)
    async with locked(api, "groups"):
        waiting = [asyncio.ensure_future(api.get("/groups")) for _ in range(3)]
        during = await until_metrics(
            api,
            lambda found: found["pool_waiting_requests"][()] == 1 and found["pool_connections"][("used",)] == 2,
        )
    assert [answer.status for answer in await asyncio.gather(*waiting)] == [200, 200, 200]
    after = await until_metrics(api, lambda found: found["pool_connections"][("used",)] == 0)
    assert [found["pool_connections"] for found in (before, during, after)] == [
        {("used",): 0, ("idle",): 1},
        {("used",): 2, ("idle",): 0},
        {("used",): 0, ("idle",): 2},
    ]
    assert [found["http_requests_in_flight"][()] for found in (before, during, after)] == [0, 3, 0]
    assert [found["pool_max_connections"][()] for found in (before, during)] == [2, 2]
    assert after["pool_connections_opened_total"][()] == 2
    assert after["pool_connections_lost_total"][()] == 0
    acquired = after["pool_acquire_duration_seconds_count"][()] - before["pool_acquire_duration_seconds_count"][()]
    assert acquired == 3


async def test_connections_that_break(api: Api) -> None:
    await api.get("/users")
    name = urlsplit(api.database_url).path[1:]
    await api.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()", name
    )
    found = await until_metrics(api, lambda found: found["pool_connections_lost_total"][()] == 1)
    assert found["pool_connections"] == {("used",): 0, ("idle",): 0}
    assert (await api.get("/users")).status == 200
    assert (await scrape(api))["pool_connections_opened_total"][()] == 2


async def test_a_connection_that_breaks_under_a_request(api: Api) -> None:
    """It is counted once, with the error of PostgreSQL."""
    name = urlsplit(api.database_url).path[1:]
    busy = "datname = $1 AND pid <> pg_backend_pid() AND wait_event_type = 'Lock'"
    end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {busy}"
    async with locked(api, "groups"):
        waiting = asyncio.ensure_future(api.get("/groups"))
        await until_metrics(api, lambda found: found["pool_connections"][("used",)] == 1)
        await until(lambda: api.sql(end, name))
    await waiting
    found = await scrape(api)
    assert found["pool_connections_lost_total"][()] == 1
    # The last message of PostgreSQL or the end of the connection, whichever is read first.
    [((_, sqlstate), count)] = found["database_errors_total"].items()
    assert (sqlstate in ("57", "08"), count) == (True, 1)


async def test_caches(api: Api) -> None:
    """A query string is kept from its second request on."""
    for _ in range(5):
        await api.get("/users?page[size]=3")
    found = await scrape(api)
    assert found["cache_misses_total"][("prepared_reads",)] == 2
    assert found["cache_hits_total"][("prepared_reads",)] == 3
    assert found["cache_entries"][("prepared_reads",)] == 1
    assert found["cache_bytes"][("prepared_reads",)] > 1000


async def test_database_errors(start: Start, database_url: str) -> None:
    """Errors that become a 4xx response are counted, too."""
    api = await start(database_url, built_in(), statement_timeout_seconds=0.2)
    group = {"data": {"type": "group", "attributes": {"name": "a"}}}
    assert [(await api.post("/groups", group)).status for _ in range(2)] == [201, 409]
    assert (await api.get("/users?filter[first_name][match]=(")).status == 400
    async with locked(api, "groups"):
        assert (await api.get("/groups")).status == 504
    found = await scrape(api)
    assert found["database_errors_total"] == {
        ("UniqueViolationError", "23"): 1,
        ("InvalidRegularExpressionError", "22"): 1,
        ("QueryCanceledError", "57"): 1,
    }


async def test_a_client_that_disconnects(api: Api) -> None:
    """The request is counted as 499, and its work is cancelled."""
    async with locked(api, "groups"):
        async with connected(api.port) as client:
            await client.send("GET /groups HTTP/1.1")
            await until_metrics(api, lambda found: found["http_requests_in_flight"][()] == 1)
        gone = ("GET", "/{collection}", "499")
        found = await until_metrics(api, lambda found: gone in found["http_request_duration_seconds_count"])
    assert found["http_request_duration_seconds_count"][gone] == 1
    assert found["http_requests_in_flight"][()] == 0


async def test_a_stream(api: Api) -> None:
    await api.sql("INSERT INTO persons (name) SELECT n::text FROM generate_series(1, 1500) n")
    answer = await api.get("/persons?page[size]=0")
    found = await scrape(api)
    assert len(answer.ids) == 1500
    assert (found["streams_total"][()], found["streams_running"][()]) == (1, 0)
    assert found["http_response_bytes_total"][("GET", "/{collection}", "200")] == len(answer.body)


async def test_a_stream_that_is_cut_off(start: Start, database_url: str) -> None:
    """It is counted with the status of its error, although another status was sent."""
    api = await start(database_url, built_in(), stream_seconds=0.3)
    await api.sql("INSERT INTO persons (name) SELECT repeat('x', 200) FROM generate_series(1, 60000) n")
    async with connected(api.port) as client:
        await client.send("GET /persons?page[size]=0 HTTP/1.1")
        found = await until_metrics(
            api, lambda found: ("GET", "/{collection}", "504") in found["http_request_duration_seconds_count"]
        )
    assert found["http_request_duration_seconds_count"].keys() == {
        ("GET", "/{collection}", "504"),
        ("GET", "/-/metrics", "200"),
    }


async def test_a_worker(api: Api) -> None:
    found = await scrape(api)
    assert found["workers"] == {(): 1}
    assert found["worker_generation"] == {("1",): 1}
    assert found["worker_resident_memory_bytes"][("1",)] > 10_000_000
    assert 3 < found["worker_open_fds"][("1",)] < found["worker_max_fds"][("1",)]
    assert found["worker_cpu_seconds_total"][("1",)] > 0.01
    [[python, version]] = found["build_info"]
    assert re.fullmatch(r"3\.\d+\.\d+.*", python)
    assert version


async def test_the_lag_of_the_event_loop(api: Api) -> None:
    updating = asyncio.ensure_future(api.app.gauges.run())
    try:
        await until_metrics(api, lambda found: found["event_loop_lag_seconds_count"][()] >= 1)
    finally:
        updating.cancel()


@pytest.fixture
def admin(io_loop: IOLoop, serve: Serve, database_url: str) -> Iterator[tuple[Api, Api]]:
    """Yield a server with an admin port, and that port."""
    api = serve(database_url, admin_port=0)
    server = make_admin_server(api.app, api.app.engine.settings)
    sockets = bind_sockets(0, "127.0.0.1")

    async def begin() -> Api:
        server.add_sockets(sockets)
        return Api(sockets[0].getsockname()[1], database_url)

    own = io_loop.run_sync(begin)
    yield api, own

    async def end() -> None:
        await own.close()
        server.stop()
        await server.close_all_connections()

    io_loop.run_sync(end)


async def test_an_admin_port(admin: tuple[Api, Api]) -> None:
    """It answers only health and metrics, and the main port does not answer them."""
    api, own = admin
    assert (await api.get("/users")).status == 200
    for path in ("/-/live", "/-/ready", "/-/metrics", "/-/live/"):
        assert [(await one.get(path)).status for one in (api, own)] == [404, 200], path
    for path in ("/users", "/user", "/", "/-/nothing"):
        answer = await own.get(path)
        assert (answer.status, answer.errors[0]["code"]) == (404, "route_not_found"), path
        assert answer.errors[0]["detail"] == f"There is nothing at “{path}”."
    assert (await own.request("POST", "/-/live", {})).headers["Allow"] == "GET, HEAD, OPTIONS"
    found = await scrape(own)
    assert found["http_request_duration_seconds_count"][("GET", "/{collection}", "200")] == 1


async def test_openmetrics(api: Api) -> None:
    answer = await api.get("/-/metrics", Accept="application/openmetrics-text;version=1.0.0,*/*;q=0.1")
    assert answer.headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert len(list(openmetrics_families(answer.body.decode()))) > 20


@pytest.mark.parametrize("accept", ["text/html", 'application/vnd.api+json;version="2"', "image/*;q=0"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_the_accept_header_is_ignored(reader: Api, method: str, accept: str) -> None:
    answer = await reader.request(method, "/-/metrics", headers={"Accept": accept})
    assert (answer.status, bool(answer.body)) == (200, method == "GET")
