"""Clients that read, change and write the same rows and links at once, each with the tag that it has read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.http.conftest import Api
from tests.http.writes.test_versions import CHANGED, codes, library, patch, send

__all__ = ["library"]


@pytest.mark.parametrize("clients", [2, 8])
async def test_no_update_is_lost(library: Any, clients: int) -> None:
    """Clients read, change and write the same rows. Each adds its name until its write was done, so in the end all
    names are there, and each 412 was one whose version had changed."""
    api: Api = await library()

    async def count(path: str, type_name: str, field: str) -> int:
        failed = 0
        while True:
            read = await api.get(path)
            data = read.document["data"]
            body = patch(type_name, data["id"], **{field: data["attributes"][field] + "+"})
            answer = await send(api, "PATCH", path, body, If_Match=read.headers["ETag"])
            if answer.status == 200:
                return failed
            assert codes(answer) == CHANGED
            assert (await api.get(path)).headers["ETag"] != read.headers["ETag"]
            failed += 1

    targets = [("/authors/1", "author", "name"), ("/posts/1", "post", "title"), ("/tags/1", "tag", "name")]
    failed = await asyncio.gather(*[count(*target) for target in targets for _ in range(clients * 3)])
    for path, _, field in targets:
        text = (await api.get(path)).document["data"]["attributes"][field]
        assert text.count("+") == clients * 3
    assert sum(failed) > 0


@pytest.mark.parametrize("clients", [2, 8])
async def test_no_link_is_lost(library: Any, clients: int) -> None:
    """Clients replace the whole linkage of a row by what they have read and one link more."""
    api: Api = await library()
    await api.sql("INSERT INTO tags (name) SELECT 'tag ' || n FROM generate_series(1, 30) n")
    path = "/posts/2/relationships/tags"

    async def grow(number: int) -> None:
        while True:
            read = await api.get(f"{path}?page[size]=100")
            data = [*read.document["data"], {"type": "tag", "id": str(number)}]
            answer = await send(api, "PATCH", path, {"data": data}, If_Match=read.headers["ETag"])
            if answer.status == 200:
                return
            assert codes(answer) == CHANGED

    await asyncio.gather(*[grow(3 + number) for number in range(clients * 2)])
    assert len((await api.get(f"{path}?page[size]=100")).document["data"]) == clients * 2
