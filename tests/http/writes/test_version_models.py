"""A model of clients that read, change and write at once with `If-Match`, over every route that writes what exists.

What a client has read is the state before its write. If each write that was done has really found this state, then the
writes are a path from the first state to the last one: as many have led to each state as have left it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any

import msgspec
import pytest

from tests.http.conftest import Answer, Api, Inspected
from tests.http.people import document
from tests.http.writes.test_versions import CATALOG, TABLES
from tests.principals import HEADER, principal, trust_headers
from waterspout import SIGNED_IN, Allow, Catalog

ROWS = """
INSERT INTO authors (name, row_version) SELECT 'author ' || n, 1 FROM generate_series(3, 9) n;
INSERT INTO posts (title, author_id) SELECT 'post ' || n, CASE WHEN n > 6 THEN 3 END FROM generate_series(4, 9) n;
INSERT INTO tags (name) SELECT 'tag ' || n FROM generate_series(3, 8) n;
"""
CALLED = {HEADER: principal("ann")}


class Cell(msgspec.Struct, frozen=True):
    """Something that clients change. path: reads it. state: what it is, in the data of a document. writes: for each
    route the path, which is read too, and a function: it takes the state and a text that no other write has, and
    returns the method, the body and the state afterwards. is_unique: whether no state comes again."""

    path: str
    state: Callable[[Any], Hashable]
    writes: tuple[tuple[str, Callable[[Any, str], tuple[str, Any, Hashable]]], ...]
    is_unique: bool = True


def text_cell(path: str, type_name: str, row_id: str, field: str, *paths: str) -> Cell:
    """Return the cell of a text, to which each client adds. paths: others at which the resource is written."""

    def patch(text: str, new: str) -> Any:
        return "PATCH", document(type_name, {field: text + new}, id=row_id), text + new

    def operate(text: str, new: str) -> Any:
        update = {"op": "update", "data": document(type_name, {field: text + new}, id=row_id)["data"]}
        return "OPERATION", update, text + new

    writes = (*[(one, patch) for one in (path, *paths)], (path, operate))
    return Cell(path, lambda data: data["attributes"][field], writes)


def linkage_cell(path: str, type_name: str, ids: range) -> Cell:
    """Return the cell of a to-many."""

    def state(data: Any) -> frozenset[str]:
        return frozenset([one["id"] for one in data])

    def body(chosen: Any) -> Any:
        return {"data": [{"type": type_name, "id": one} for one in sorted(chosen)]}

    def some() -> frozenset[str]:
        return frozenset(map(str, random.sample(ids, random.randrange(1, 4))))

    def replace(_: Any, __: str) -> Any:
        return "PATCH", body(chosen := some()), chosen

    def add(before: Any, _: str) -> Any:
        return "POST", body(chosen := some()), before | chosen

    def remove(before: Any, _: str) -> Any:
        return "DELETE", body(chosen := some()), before - chosen

    return Cell(path, state, tuple([(path, write) for write in (replace, add, remove)]), is_unique=False)


def to_one(before: Any, _: str) -> Any:
    chosen = random.choice([None, "4", "5", "6"])
    linkage = None if chosen is None else {"type": "author", "id": chosen}
    return "PATCH", {"data": linkage}, chosen


def id_of(data: Any) -> str | None:
    return None if data is None else str(data["id"])


CELLS = [
    text_cell("/authors/1", "author", "1", "name", "/posts/1/author"),
    text_cell("/posts/2", "post", "2", "title"),
    text_cell("/tags/1", "tag", "1", "name"),
    text_cell("/parts/2,1", "part", "2,1", "name"),
    Cell("/posts/4/relationships/author", id_of, (("/posts/4/relationships/author", to_one),), is_unique=False),
    linkage_cell("/posts/5/relationships/tags", "tag", range(1, 9)),
    linkage_cell("/authors/3/relationships/posts", "post", range(6, 10)),
]


@pytest.mark.parametrize("rules", [False, True], ids=["open", "rules"])
@pytest.mark.parametrize("clients", [2, 8])
async def test_a_model_of_clients(inspected: Inspected, clients: int, rules: bool) -> None:
    """No update is lost, and nobody gets a 412 whose version had not changed."""
    access = [Allow(SIGNED_IN, "all", rows={"name": "id", "op": "isnot", "val": None})]
    resources = [msgspec.structs.replace(one, access=access) if rules else one for one in CATALOG]
    api = await inspected(TABLES + ROWS, Catalog(resources))
    trust_headers(api.app.engine)
    done: dict[str, list[tuple[Hashable, Hashable]]] = {cell.path: [] for cell in CELLS}
    refused: Counter[str] = Counter()

    async def read(cell: Cell, path: str) -> tuple[Hashable, str]:
        answer = await api.get(path, **CALLED)
        return cell.state(answer.document["data"]), answer.headers["ETag"]

    async def write(cell: Cell, number: int) -> None:
        path, make = random.choice(cell.writes)
        state, etag = await read(cell, path)
        method, body, after = make(state, f" {number}")
        answer = await sent(api, method, path, body, etag)
        if answer.status == 412 or (method == "OPERATION" and answer.status == 422):
            refused[cell.path] += 1
            if cell.is_unique:
                assert (await read(cell, path))[1] != etag
            return
        assert answer.status in (200, 204), (cell.path, method, answer.body)
        done[cell.path].append((state, after))

    first = {cell.path: (await read(cell, cell.path))[0] for cell in CELLS}
    for turn in range(6):
        jobs = [write(cell, turn * 100 + number) for cell in CELLS for number in range(clients)]
        random.shuffle(jobs)
        await asyncio.gather(*jobs)
    for cell in CELLS:
        last, _ = await read(cell, cell.path)
        left = Counter([before for before, _ in done[cell.path]])
        reached = Counter([after for _, after in done[cell.path]])
        left[last] += 1
        reached[first[cell.path]] += 1
        assert left == reached, cell.path
        assert len(done[cell.path]) >= 6
    assert sum(refused.values()) > 0


async def sent(api: Api, method: str, path: str, body: Any, etag: str) -> Answer:
    """Send a write with the tag that was read."""
    if method == "OPERATION":
        operations = {"atomic:operations": [body | {"meta": {"ifMatch": etag}}]}
        answer = await api.request("POST", "/operations", operations, headers=CALLED)
        if answer.status == 422:
            assert answer.document["detail"]["errors"][0]["type"] == "precondition_failed", answer.body
        return answer
    return await api.request(method, path, body, headers={"If-Match": etag} | CALLED)


@pytest.mark.parametrize("clients", [2, 8])
async def test_a_delete_removes_what_was_read(inspected: Inspected, clients: int) -> None:
    """By its route and by an operation, while others change the row."""
    kept = """
        CREATE TABLE removed (id bigint, title text);
        CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN INSERT INTO removed VALUES (OLD.id, OLD.title); RETURN OLD; END $$;
        CREATE TRIGGER keep AFTER DELETE ON posts FOR EACH ROW EXECUTE FUNCTION keep();
    """
    api = await inspected(TABLES + ROWS + kept, CATALOG)
    removed: list[tuple[int, str]] = []

    async def change(row_id: str, number: int) -> None:
        while (answer := await api.get(f"/posts/{row_id}")).status == 200:
            title = f"{answer.document['data']['attributes']['title']} {number}"
            etag = answer.headers["ETag"]
            done = await sent(api, "PATCH", f"/posts/{row_id}", document("post", {"title": title}, id=row_id), etag)
            assert done.status in (200, 404, 412)

    async def remove(row_id: str, number: int) -> None:
        while (answer := await api.get(f"/posts/{row_id}")).status == 200:
            title, etag = answer.document["data"]["attributes"]["title"], answer.headers["ETag"]
            if number % 2:
                done = await sent(api, "DELETE", f"/posts/{row_id}", None, etag)
                is_done = done.status == 200
            else:
                operation = {"op": "remove", "ref": {"type": "post", "id": row_id}, "meta": {"ifMatch": etag}}
                done = await api.post("/operations", {"atomic:operations": [operation]})
                is_done = done.status == 204
            if is_done:
                removed.append((int(row_id), title))

    ids = [str(number) for number in range(1, 10)]
    jobs = [job(one, number) for one in ids for number in range(clients) for job in (change, remove)]
    await asyncio.gather(*jobs)
    rows = await api.sql("SELECT id, title FROM removed")
    assert sorted([tuple(row) for row in rows]) == sorted(removed)
    assert len(removed) == len(ids)
