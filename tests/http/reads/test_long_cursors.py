"""Each link that the server writes is one that it accepts: cursors are bounded, and an id that no path can name has no
links."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import unquote

import pytest

from tests.http.conftest import Answer, Api, Inspected

DOCS = """
CREATE TABLE owners (id int PRIMARY KEY, name text);
INSERT INTO owners SELECT g, repeat(g::text, 9000) FROM generate_series(1, 9) g;
CREATE TABLE docs (id int PRIMARY KEY, body text, size numeric, words text[], owner_id int REFERENCES owners);
INSERT INTO docs SELECT g, CASE WHEN g % 4 = 0 THEN NULL ELSE repeat('a', 20000) || (g % 3) END,
    ('1' || repeat('0', 400) || (g % 3))::numeric, ARRAY[repeat('w', 20000), (g % 3)::text], g % 9 + 1
FROM generate_series(1, 12) g;
"""
SORTS = [
    "body",
    "-body",
    "size",
    "-size",
    "words",
    "-words",
    "owner.name",
    "-owner.name,body",
    "-body,-size",
    "body,-size",
]


async def pages(api: Api, path: str, link: str = "next") -> AsyncIterator[Answer]:
    """Yield the pages from this one on, by their links."""
    while path:
        answer = await api.get(path)
        assert answer.status == 200, (path[:200], answer.body[:500])
        yield answer
        path = answer.document["links"].get(link) or ""


@pytest.mark.parametrize("sort", SORTS)
async def test_pages_that_are_sorted_by_long_values(inspected: Inspected, sort: str) -> None:
    api = await inspected(DOCS)
    everything = (await api.get(f"/docs?sort={sort}")).ids
    walked, last = [], ""
    async for page in pages(api, f"/docs?sort={sort}&fields[doc]=size&page[after]=&page[size]=2"):
        walked += page.ids
        last = page.document["links"]["self"]
        assert len(page.document["links"].get("next", "")) < 2000
    assert walked == everything
    back: list[str] = []
    async for page in pages(api, last, "prev"):
        back = page.ids + back
    assert back == everything


@pytest.mark.parametrize("sort", ["body", "-body"])
async def test_a_row_that_is_gone_or_has_changed(inspected: Inspected, sort: str) -> None:
    api = await inspected(DOCS)
    everything = (await api.get(f"/docs?sort={sort}")).ids
    first = await api.get(f"/docs?sort={sort}&page[after]=&page[size]=3")
    for change in (
        f"UPDATE docs SET body = 'z' WHERE id = {first.ids[-1]}",
        f"DELETE FROM docs WHERE id = {first.ids[-1]}",
    ):
        await api.sql(change)
        walked = list(first.ids)
        async for page in pages(api, first.document["links"]["next"]):
            walked += page.ids
        # Rows may be repeated, and none is left out.
        assert set(everything[3:]) <= set(walked)


async def test_a_row_that_is_gone_and_whose_value_is_no_text(inspected: Inspected) -> None:
    api = await inspected(DOCS)
    first = await api.get("/docs?sort=size&page[after]=&page[size]=3")
    await api.sql(f"DELETE FROM docs WHERE id = {first.ids[-1]}")
    answer = await api.get(first.document["links"]["next"])
    assert (answer.status, answer.errors[0]["source"]) == (400, {"parameter": "page[after]"})


async def test_links_of_a_long_url(inspected: Inspected) -> None:
    limit = 8000
    api = await inspected(DOCS, max_url_bytes=limit)
    path = "/docs?page[after]=&page[size]=2&sort=body&filter[body][ne]="
    path += "'" * (limit - len(path))
    count = 0
    async for page in pages(api, path):
        count += len(page.ids)
        assert len(page.document["links"]["self"]) > limit
    assert count == 9
    assert (await api.get(path + "'" * 60)).status == 414


NAMES = """
CREATE TABLE codes (id text PRIMARY KEY, name text); INSERT INTO codes VALUES ('', 'empty'), ('.', 'dot'), ('a', 'a');
CREATE TABLE notes (id int PRIMARY KEY, code_id text REFERENCES codes); INSERT INTO notes VALUES (1, ''), (2, 'a');
"""


async def test_an_id_that_no_path_can_name_has_no_links(inspected: Inspected) -> None:
    api = await inspected(NAMES)
    for path in ("/codes", "/codes?page[size]=0", "/codes?include=notes", "/notes?include=code"):
        document = (await api.get(path)).document
        shown = [one for one in (*document["data"], *document.get("included", ())) if one["type"] == "code"]
        for one in shown:
            links = [one.get("links"), one.get("relationships", {}).get("notes", {}).get("links")]
            assert all(links) if one["id"] == "a" else links == [None, None]
        notes = {one["id"]: one.get("relationships", {}).get("notes", {}).get("data") for one in shown}
        if "include=notes" in path:
            assert notes == {"": [{"type": "note", "id": "1"}], ".": [], "a": [{"type": "note", "id": "2"}]}
    assert unquote((await api.get("/codes")).document["links"]["self"]) == "/codes"
