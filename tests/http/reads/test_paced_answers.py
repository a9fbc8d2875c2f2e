"""Answers in steps, between which short requests run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from serializers.steps import ALONE, Pace
from server.execution import pacing
from server.handlers import reading
from server.limits.running import Running
from tests.http.conftest import Api, Serve
from tests.unit.server.test_limits import Request

PATHS = (
    "/users?page[size]=3",
    "/users?page[size]=0",
    "/users?include=computers,group&sort=-id",
    "/computers?include=owner.computers",
    "/groups/1?include=users.posts",
    "/users/1/computers?include=owner",
    "/users/2/relationships/computers?include=computers",
)


@pytest.fixture
def people(serve: Serve, rows_url: str) -> Api:
    """A server in this process, with the rows of `tests/http/rows.py`."""
    return serve(rows_url)


async def bodies(api: Api) -> list[bytes]:
    return [(await api.get(path)).body for path in PATHS]


async def test_an_answer_in_steps_is_the_same(people: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = await bodies(people)
    monkeypatch.setattr(reading, "SHARED", Pace(0, 1))
    monkeypatch.setattr(Running, "has_short", True)
    monkeypatch.setattr(pacing, "SHORT_TURN_SECONDS", 0)
    assert await bodies(people) == whole


async def test_long_answers_make_steps_for_short_ones_and_not_for_each_other(
    people: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Pace] = []
    document = reading.ReadingHandler.document

    def observed(*values: Any) -> Any:
        seen.append(values[-1])
        return document(*values)

    monkeypatch.setattr(reading.ReadingHandler, "document", observed)
    # An answer of two rows is not short.
    monkeypatch.setattr(reading, "SHARED", shared := Pace(1, 1))
    running, long = people.app.running, "/users?page[size]=1000"
    await asyncio.gather(*[people.get(long) for _ in range(5)])
    assert set(seen) == {ALONE}
    running.begin(short := Request())
    await people.get(long)
    await people.get("/users/1")
    running.end(short)
    assert seen[-2:] == [shared, ALONE]
    assert (running.at_work, running.long) == (0, 0)
