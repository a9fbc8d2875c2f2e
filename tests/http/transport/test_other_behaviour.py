"""Behaviour that no other module tests."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from urllib.parse import quote

import asyncpg
import pytest
from tornado.ioloop import IOLoop

from querybuild.errors import ApiError
from server.error_answers import answer
from tests.http.conftest import Api, Serve
from tests.http.people import create_household
from tests.http.wire import connected
from tests.waiting import until


async def test_a_resource_may_be_sent_back_as_it_was_read(api: Api) -> None:
    await create_household(api)
    for path in ("/users/1", "/computers/1", "/groups/1"):
        read = (await api.get(path)).document
        answer = await api.patch(path, {"data": read["data"]})
        assert (answer.status, answer.document) == (200, read)


async def test_errors_of_query_and_document_are_reported_together(api: Api) -> None:
    document = {"data": {"type": "group", "attributes": {"name": 7}}}
    answer = await api.post("/groups?include=nope", document)
    assert (answer.status, [error["code"] for error in answer.errors]) == (
        400,
        ["invalid_attribute", "invalid_include"],
    )


def test_max_included_limits_linkage_too(serve: Serve, database_url: str, io_loop: IOLoop) -> None:
    api = serve(database_url, max_included=1)

    async def run() -> None:
        await create_household(api)
        linkage = "/users/1/relationships/computers"
        count = len((await api.get(linkage)).ids)
        assert count > 1
        refused = await api.get(f"{linkage}?include=computers")
        assert (refused.status, refused.errors[0]["code"]) == (400, "too_many_included")

    io_loop.run_sync(run)


def test_a_write_that_was_never_sent_has_no_unknown_outcome(serve: Serve, database_url: str, io_loop: IOLoop) -> None:
    api = serve(database_url, pool_size=1, acquire_timeout_seconds=0.2, statement_timeout_seconds=20)

    async def run() -> None:
        connection = await asyncpg.connect(database_url)
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("LOCK TABLE groups")
        document = {"data": {"type": "group", "attributes": {"name": "a"}}}
        first = asyncio.ensure_future(api.post("/groups", document))
        await until(lambda: connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))
        busy = await api.post("/groups", document)
        await transaction.rollback()
        await connection.close()
        assert (busy.status, busy.errors[0]["code"], busy.headers["Retry-After"]) == (503, "busy", "1")
        assert (await first).status == 201

    io_loop.run_sync(run)


async def test_many_conditions_over_relationships_are_planned_in_time(api: Api) -> None:
    await create_household(api)
    filters = [{"name": "group.users.group.users.age", "op": "ge", "val": number} for number in range(25)]
    begin = time.perf_counter()
    answer = await api.get(f"/users?filter={quote(json.dumps(filters))}")
    assert answer.status == 200
    assert time.perf_counter() - begin < 15


async def test_a_large_set_is_compared_in_time(api: Api) -> None:
    await api.sql("INSERT INTO users (first_name, last_name) VALUES ('a', 'b')")
    await api.sql("INSERT INTO computers (name, owner_id) SELECT 'c', 1 FROM generate_series(1, 16000)")
    data = [{"type": "computer", "id": str(number)} for number in range(1, 16001)]
    document = {"data": {"type": "user", "id": "1", "relationships": {"computers": {"data": data}}}}
    begin = time.process_time()
    assert (await api.patch("/users/1", document)).status == 200
    assert time.process_time() - begin < 3


@pytest.mark.parametrize("path", ["first_name.", ".first_name", "group..name", "group."])
async def test_an_empty_name_in_a_path(api: Api, path: str) -> None:
    answer = await api.get(f"/users?filter[{path}]=1")
    assert (answer.status, answer.errors[0]["detail"]) == (400, f"“{path}” holds an empty name.")


@pytest.mark.parametrize("length", ["9" * 5000, "\xb2"])
async def test_an_invalid_content_length(api: Api, length: str, caplog: pytest.LogCaptureFixture) -> None:
    """tornado or the server refuses it. It is not a fault."""
    with caplog.at_level(logging.ERROR, "server"):
        async with connected(api.port) as wire:
            lines = (
                "POST /groups HTTP/1.1",
                "Host: localhost",
                "Content-Type: application/json",
                f"Content-Length: {length}",
            )
            await wire.send_bytes("\r\n".join((*lines, "", "")).encode("latin-1"))
            assert (await wire.rest()).startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 413 "))
    assert caplog.records == []


def test_an_answer_of_custom_code_has_a_content_type() -> None:
    class Teapot(ApiError):
        status = 418

    class Plain(ApiError):
        pass

    made = [answer(error("short and stout"), "id") for error in (Teapot, Plain)]
    assert [(one.status, one.is_fault) for one in made] == [(418, False), (400, False)]
    assert all(b'"detail":"short and stout"' in one.body for one in made)
