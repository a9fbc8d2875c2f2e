"""Pages over databases that are hard to declare, and over one of 250 tables: each page opens, and none is slow."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import quote

import asyncpg
import pytest

from querybuild.declarations.catalog import Catalog
from tests import catalog as corner
from tests.http.conftest import Api, Inspected, Start, from_tables
from tests.http.inspecting import hard_url
from tests.http.pages.html import Element, browse, get, parse

__all__ = ["hard_url"]


async def every_page(api: Api, catalog: Catalog) -> set[int]:
    """Open the start page, and for each resource its list, its first rows, their relationships and all forms. Return
    the statuses."""
    statuses = set()

    async def visit(path: str) -> Element:
        answer = await get(api, path)
        assert answer.status < 500, (path, answer.body)
        assert answer.headers["Content-Type"].startswith("text/html"), path
        statuses.add(answer.status)
        return parse(answer.body)

    await visit("/")
    for resource in catalog:
        includes = ",".join([one.name for one in resource.relationships if one.includable][:5])
        page = await visit(resource.path)
        await visit(f"{resource.path}?include={quote(includes)}&sort=-id")
        await visit(f"/-/pages/facets{resource.path}")
        for action in ("new", "import"):
            if "create" in resource.methods:
                await visit(f"/-/pages/{action}{resource.path}")
        rows = [one["href"] for one in page.all("th", scope="row") for one in one.all("a")][:3]
        for row in rows:
            own = await visit(row)
            # Everything that the page of a resource leads to.
            for one in own.one("main").all("a"):
                if one["href"].startswith("/") and "/-/docs" not in one["href"] and "answerAs" not in one["href"]:
                    answer = await get(api, one["href"])
                    assert answer.status in (200, 303), (row, one["href"], answer.body)
    return statuses


async def test_a_hard_database(start: Start, hard_url: str) -> None:
    catalog = await asyncio.to_thread(from_tables, hard_url)
    api = await start(hard_url, catalog)
    assert await every_page(api, catalog) <= {200, 404, 405}


async def test_the_corners(start: Start, database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute(corner.DDL)
    await connection.close()
    api = await start(database_url, corner.CATALOG)
    await api.post("/samples", {"data": {"type": "sample", "attributes": corner.SAMPLE}})
    assert await every_page(api, corner.CATALOG) <= {200, 404, 405}


@pytest.mark.parametrize("count", [250])
async def test_many_tables(inspected: Inspected, count: int) -> None:
    """The drawing has clusters, and every collection is in the list."""
    words = ("order", "user", "stock", "audit", "page")
    tables = []
    for number in range(count):
        owner = f", owner_id bigint REFERENCES {words[(number // 5 - 1) % 5]}_{number // 5 - 1}" if number >= 10 else ""
        tables.append(f"CREATE TABLE {words[number % 5]}_{number} (id bigint PRIMARY KEY, name text{owner})")
    fixed = [sql if "REFERENCES" not in sql else sql.partition(", owner_id")[0] + ")" for sql in tables]
    keys = [
        f"ALTER TABLE {words[n % 5]}_{n} ADD owner_id bigint REFERENCES {words[(n - 5) % 5]}_{n - 5}"
        for n in range(5, count)
    ]
    api = await inspected(";".join([*fixed, *keys]))
    await browse(api, "/")
    begin = time.perf_counter()
    page = await browse(api, "/")
    assert time.perf_counter() - begin < 1
    assert len(page.one(id="collections").all("li")) == count
    drawn = page.one("svg").all("a")
    assert len(drawn) == len(words)
    found = await browse(api, "/" + drawn[0]["href"])
    assert len(found.one(id="collections").all("li")) == count // len(words)
    for one in page.one(id="collections").all("li")[:3]:
        await browse(api, one.all("a")[0]["href"])
