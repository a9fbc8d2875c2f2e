"""Row security of PostgreSQL: requests run with the role and the claims of their principal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest

from tests.http.operating import until_blocked_by
from tests.http.supabase import ANN, BOB, CYD, POSTS, Open, Shop

ATOMIC = 'application/vnd.api+json;ext="https://jsonapi.org/ext/atomic"'
READERS = [None, ANN, BOB, CYD]


def post(title: str, author: str | None = None, **attributes: Any) -> dict[str, Any]:
    data: dict[str, Any] = {"type": "post", "attributes": {"title": title} | attributes}
    if author is not None:
        data["relationships"] = {"author": {"data": {"type": "profile", "id": author}}}
    return {"data": data}


def update(post_id: str, **attributes: Any) -> dict[str, Any]:
    return {"data": {"type": "post", "id": post_id, "attributes": attributes}}


@pytest.mark.parametrize("sub", READERS)
async def test_each_principal_reads_its_rows(shop: Shop, sub: str | None) -> None:
    for _ in range(2):
        answer = await shop.get(sub, "/posts?sort=id")
        assert (answer.status, answer.ids) == (200, POSTS[sub]), answer.body
        assert answer.document["meta"]["total"] == len(POSTS[sub])
    for number in ("1", "2", "3", "4", "5"):
        status = 200 if number in POSTS[sub] else 404
        assert (await shop.get(sub, f"/posts/{number}")).status == status


async def test_principals_alternate_on_one_connection(open_shop: Open) -> None:
    shop = await open_shop(pool_size=1)
    for _ in range(8):
        for sub in READERS:
            assert (await shop.get(sub, "/posts?sort=id")).ids == POSTS[sub]
            assert (await shop.get(sub, "/posts?sort=id&include=author,team")).ids == POSTS[sub]
        assert (await shop.get(CYD, "/posts?sort=id", **{"X-Role": "editor"})).ids == ["1", "2", "3", "4", "5"]


async def test_writes(shop: Shop) -> None:
    created = await shop.request(ANN, "POST", "/posts", post("new of Ann", ANN))
    assert created.status == 201, created.body
    new = created.document["data"]["id"]
    assert (await shop.request(ANN, "PATCH", f"/posts/{new}", update(new, title="newer"))).status == 200
    assert (await shop.request(BOB, "PATCH", f"/posts/{new}", update(new, title="taken"))).status == 404
    assert (await shop.request(BOB, "DELETE", f"/posts/{new}")).status == 404
    assert (await shop.request(ANN, "DELETE", f"/posts/{new}")).status == 200


async def test_what_policies_refuse(shop: Shop) -> None:
    refused: list[tuple[str | None, str, str, Any, int, str | None]] = [
        # WITH CHECK of an INSERT and of an UPDATE
        (ANN, "POST", "/posts", post("for Bob", BOB), 403, "/data"),
        (ANN, "PATCH", "/posts/1/relationships/author", {"data": {"type": "profile", "id": BOB}}, 403, "/data"),
        # a row that may be read, and not written
        (BOB, "PATCH", "/posts/1", update("1", title="taken"), 403, "/data"),
        (BOB, "DELETE", "/posts/1", None, 403, None),
        (BOB, "PATCH", "/posts/1", update("1"), 403, "/data"),
        # no privilege
        (None, "POST", "/posts", post("of nobody"), 401, "/data"),
        (None, "PATCH", "/posts/1", update("1", title="taken"), 401, "/data"),
        (None, "DELETE", "/posts/1", None, 401, None),
        (None, "GET", "/notes", None, 401, None),
    ]
    for sub, method, path, document, status, pointer in refused:
        answer = await shop.request(sub, method, path, document)
        assert answer.status == status, (method, path, answer.body)
        [error] = answer.errors
        code, detail = ("forbidden", "") if status == 403 else ("unauthenticated", " Send credentials.")
        assert (error["code"], error["detail"]) == (code, f"The database does not allow this.{detail}")
        assert error.get("source") == (None if pointer is None else {"pointer": pointer})
    assert (await shop.get(ANN, "/posts?sort=id")).ids == POSTS[ANN]


async def test_a_refused_operation_has_its_pointer(shop: Shop) -> None:
    operations = [
        {"op": "add", "data": post("new", ANN)["data"]},
        {"op": "update", "data": update("5", title="taken")["data"]},
    ]
    headers = {"Content-Type": ATOMIC, "Accept": ATOMIC}
    answer = await shop.request(ANN, "POST", "/operations", {"atomic:operations": operations}, **headers)
    pointers = [(one["code"], one["source"]["pointer"]) for one in answer.errors]
    assert (answer.status, pointers) == (403, [("forbidden", "/atomic:operations/1/data")])
    assert len((await shop.get(ANN, "/posts")).ids) == len(POSTS[ANN])


async def test_a_link_of_a_row_that_may_not_be_changed_is_not_removed(shop: Shop) -> None:
    owner = await asyncpg.connect(shop.database_url)
    await owner.execute("CREATE POLICY kept ON posts AS RESTRICTIVE FOR UPDATE USING (title <> 'public of Ann')")
    path, links = (
        f"/profiles/{ANN}/relationships/posts",
        "SELECT array_agg(id ORDER BY id) FROM posts WHERE author_id=$1",
    )
    before = await owner.fetchval(links, ANN)
    kept, other = {"type": "post", "id": "1"}, {"type": "post", "id": "2"}
    profile = {"data": {"type": "profile", "id": ANN, "relationships": {"posts": {"data": []}}}}
    refused: list[tuple[str, str, Any, str]] = [
        ("DELETE", path, {"data": [kept]}, "/data"),
        ("DELETE", path, {"data": [other, kept]}, "/data"),
        ("PATCH", path, {"data": [other]}, "/data"),
        ("PATCH", f"/profiles/{ANN}", profile, "/data/relationships/posts/data"),
    ]
    for method, url, document, pointer in refused:
        answer = await shop.request(ANN, method, url, document)
        assert (answer.status, answer.errors[0]["source"]) == (403, {"pointer": pointer}), (method, answer.body)
        assert await owner.fetchval(links, ANN) == before
    # A link that is not there, and one that stays.
    for method, document in (("DELETE", {"data": [{"type": "post", "id": "5"}]}), ("POST", {"data": [other]})):
        assert (await shop.request(ANN, method, path, document)).status == 200
    await owner.close()


async def test_a_to_one_is_not_written_where_a_row_may_only_be_read(shop: Shop) -> None:
    """First the team, and then the post that leads to it. Another try would not help."""
    change = {"data": {"type": "team", "id": "1", "attributes": {"name": "papers"}}}
    owner = await asyncpg.connect(shop.database_url)
    for sub, status in ((ANN, 403), (BOB, 403), (CYD, 404)):
        answer = await shop.request(sub, "PATCH", "/posts/3/team", change)
        assert (answer.status, answer.errors[0].get("source")) == (status, None), answer.body
    await owner.execute("CREATE POLICY all_teams ON teams FOR UPDATE USING (true)")
    for sub, status in ((BOB, 403), (CYD, 404), (ANN, 200)):
        answer = await shop.request(sub, "PATCH", "/posts/3/team", change)
        assert answer.status == status, answer.body
        assert await owner.fetchval("SELECT name FROM teams WHERE id = 1") == ("papers" if status == 200 else "press")
    await owner.close()


async def test_a_rows_schema_needs_only_the_privileges_of_the_role(shop: Shop) -> None:
    """The server's own role may not use the schema of this table."""
    for sub, texts in ((ANN, ["of Ann"]), (BOB, ["of Bob"]), (CYD, [])):
        answer = await shop.get(sub, "/notes")
        assert [one["attributes"]["text"] for one in answer.document["data"]] == texts
    created = await shop.request(CYD, "POST", "/notes", {"data": {"type": "note", "attributes": {"text": "of Cyd"}}})
    assert created.status == 201, created.body
    assert (await shop.get(CYD, f"/notes/{created.document['data']['id']}")).status == 200


async def test_an_estimate_does_not_count_hidden_rows(shop: Shop) -> None:
    for sub in READERS:
        meta = (await shop.get(sub, "/posts?page[total]=estimated&page[size]=1")).document["meta"]
        assert (meta["total"], meta.get("totalEstimated", False)) == (len(POSTS[sub]), False)


async def test_hidden_rows_are_in_no_condition(shop: Shop) -> None:
    """Bob's draft, and the team that Cyd is not in."""
    has_draft = quote(
        json.dumps([{"name": "posts", "op": "any", "val": {"name": "title", "op": "eq", "val": "draft of Bob"}}])
    )
    of_team = quote(json.dumps([{"name": "team.name", "op": "eq", "val": "press"}]))
    for sub, profiles, posts in ((BOB, [BOB], ["3"]), (ANN, [], ["3"]), (CYD, [], []), (None, [], [])):
        assert (await shop.get(sub, f"/profiles?filter={has_draft}")).ids == profiles
        assert (await shop.get(sub, f"/posts?filter={of_team}")).ids == posts


def linkage(type_name: str, *ids: str) -> dict[str, Any]:
    return {"data": [{"type": type_name, "id": one} for one in ids]}


async def test_relationships(shop: Shop) -> None:
    """A to-many locks the rows of both ends, and a lock only sees rows that may be updated."""
    of_ann, of_bob = [f"/profiles/{sub}/relationships/posts" for sub in (ANN, BOB)]
    asked: list[tuple[str | None, str, str, Any, int, str | None]] = [
        (ANN, "POST", of_ann, linkage("post", "2"), 200, None),
        (ANN, "POST", of_ann, linkage("post", "5"), 404, "related_not_found"),
        (ANN, "POST", of_ann, linkage("post", "4"), 404, "related_not_found"),
        (ANN, "POST", of_bob, linkage("post", "2"), 404, "resource_not_found"),
        # Without an author it would not be hers.
        (ANN, "DELETE", of_ann, linkage("post", "2"), 403, "forbidden"),
        (None, "POST", "/teams/1/relationships/members", linkage("profile", CYD), 401, "unauthenticated"),
        (ANN, "POST", f"/profiles/{ANN}/posts", post("of Ann"), 201, None),
        (ANN, "PATCH", "/posts/2/relationships/team", {"data": {"type": "team", "id": "1"}}, 200, None),
        # INSERT returns the row, which she may not read.
        (CYD, "POST", "/teams", {"data": {"type": "team", "attributes": {"name": "new"}}}, 403, "forbidden"),
        # A unique value of a hidden row
        (CYD, "POST", "/posts", post("draft of Bob", CYD), 409, "conflict"),
    ]
    for sub, method, path, document, status, code in asked:
        answer = await shop.request(sub, method, path, document)
        found = answer.errors[0]["code"] if answer.status >= 400 else None
        assert (answer.status, found) == (status, code), (method, path, answer.body)


async def test_foreign_keys_see_all_rows(shop: Shop) -> None:
    """It is so in PostgreSQL, whatever the policies of the other table are."""
    hidden = {"data": {"type": "team", "id": "2"}}
    assert (await shop.request(ANN, "PATCH", "/posts/2/relationships/team", hidden)).status == 200
    for path in ("/posts/2/relationships/team", "/posts/2/team"):
        assert (await shop.get(ANN, path)).document["data"] is None
    document = (await shop.get(ANN, "/posts/2?include=team")).document
    assert document["data"]["relationships"]["team"]["data"] == hidden["data"]
    assert document["included"] == []
    assert (await shop.get(ANN, "/teams/2")).status == 404


async def test_a_policy_that_fails(shop: Shop) -> None:
    assert (await shop.get("no uuid", "/posts")).status == 403
    assert (await shop.get(ANN, "/posts?sort=id")).ids == POSTS[ANN]


@asynccontextmanager
async def owner_of(shop: Shop) -> AsyncIterator[Any]:
    """Connect as the owner of the tables."""
    connection = await asyncpg.connect(shop.database_url)
    try:
        yield connection
    finally:
        await connection.close()


def with_filter(op: str, tests: Any, most: int = 10, **members: Any) -> dict[str, Any]:
    one = {"op": op, "ref": {"type": "post"}, "meta": {"filter": tests, "max": most}}
    return {"atomic:operations": [one | members]}


@pytest.mark.parametrize("sub", [ANN, BOB, CYD])
async def test_a_filter_finds_what_policies_let_write(shop: Shop, sub: str) -> None:
    """The others are neither changed nor counted."""
    async with owner_of(shop) as owner:
        own = await owner.fetchval("SELECT array_agg(id) FROM posts WHERE author_id = $1", sub) or []
        new = {"data": {"attributes": {"published": True}}}
        answer = await shop.request(sub, "POST", "/operations", with_filter("update", [], **new))
        assert answer.status == 200, answer.body
        assert answer.document["atomic:results"] == [{"data": None, "meta": {"count": len(own)}}]
        drafts = await owner.fetchval("SELECT count(*) FROM posts WHERE NOT published AND author_id <> $1", sub)
        assert await owner.fetchval("SELECT count(*) FROM posts WHERE NOT published") == drafts
        # A policy that lets nobody update, and the same delete.
        await owner.execute("CREATE POLICY fixed ON posts AS RESTRICTIVE FOR UPDATE USING (false)")
        answer = await shop.request(sub, "POST", "/operations", with_filter("update", [], **new))
        assert answer.document["atomic:results"] == [{"data": None, "meta": {"count": 0}}]
        if len(own) > 1:
            answer = await shop.request(sub, "POST", "/operations", with_filter("remove", [], len(own) - 1))
            assert answer.document["detail"]["errors"][0]["type"] == "too_many_changes"
        related = {"name": "author.name", "op": "isnot", "val": None}
        answer = await shop.request(sub, "POST", "/operations", with_filter("remove", related, len(own) or 1))
        assert answer.document["atomic:results"] == [{"data": None, "meta": {"count": len(own)}}]
        left = await owner.fetchval("SELECT array_agg(id) FROM posts")
        assert len(left) == 5 - len(own)
        assert not set(left) & set(own)


async def test_a_row_that_another_client_changes_before_it_is_deleted(shop: Shop) -> None:
    """The filter holds for the row as it is then."""
    async with owner_of(shop) as owner, owner_of(shop) as watcher:
        transaction = owner.transaction()
        await transaction.start()
        await owner.execute("UPDATE posts SET published = true WHERE id = 2")
        tests = {"name": "published", "op": "eq", "val": False}
        removing = asyncio.ensure_future(shop.request(ANN, "POST", "/operations", with_filter("remove", tests)))
        await until_blocked_by(watcher, owner.get_server_pid())
        await transaction.commit()
        assert (await removing).document["atomic:results"][0]["meta"] == {"count": 1}
        assert await owner.fetchval("SELECT array_agg(id ORDER BY id) FROM posts") == [1, 2, 4, 5]
