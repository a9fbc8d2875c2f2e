"""Versions: tags of what is read, and writes that say which version they are meant for.

Source: RFC 9110, 8.8.3 and 13. Each write is tried with the tag that was read, and with one of another version.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from server.resources import built_in
from tests.http.conftest import MEDIA_TYPE, Answer, Api, Inspected, Start
from tests.http.operating import EXTENDED, add, link, operate, remove, update
from tests.http.people import create_household, document, linked, of, one
from tests.http.transport.test_gzip import ask
from waterspout import (
    ANYONE,
    INT,
    TEXT,
    Allow,
    Attribute,
    Catalog,
    Change,
    CustomHandler,
    Hooks,
    Id,
    Link,
    Resource,
    ToMany,
    ToOne,
    Version,
)

TABLES = """
CREATE TABLE authors (id bigserial PRIMARY KEY, name text NOT NULL, row_version int NOT NULL);
CREATE TABLE posts (id bigserial PRIMARY KEY, title text NOT NULL, author_id bigint REFERENCES authors,
    changed timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE tags (id bigserial PRIMARY KEY, name text NOT NULL);
CREATE TABLE post_tags (post_id bigint REFERENCES posts ON DELETE CASCADE, tag_id bigint REFERENCES tags,
    PRIMARY KEY (post_id, tag_id));
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN NEW.changed = clock_timestamp(); RETURN NEW; END $$;
CREATE TRIGGER touch BEFORE UPDATE ON posts FOR EACH ROW EXECUTE FUNCTION touch();
CREATE VIEW names AS SELECT id, name FROM tags;
CREATE TABLE parts (shelf int, number int, name text NOT NULL, PRIMARY KEY (shelf, number)) PARTITION BY LIST (shelf);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2);
INSERT INTO authors (name, row_version) VALUES ('ann', 1), ('bob', 1);
INSERT INTO posts (title, author_id) VALUES ('a', 1), ('b', 1), ('c', 2);
INSERT INTO tags (name) VALUES ('x'), ('y');
INSERT INTO post_tags VALUES (1, 1);
INSERT INTO parts VALUES (1, 1, 'bolt'), (2, 1, 'nut');
"""
NAME = Attribute("name", TEXT, required=True)
AUTHOR = Resource(
    *("author", "/authors", "authors"),
    attributes=(NAME, Attribute("row_version", INT)),
    relationships=(ToMany("posts", "post", foreign_key="author_id"),),
    version="row_version",
)
POST = Resource(
    *("post", "/posts", "posts"),
    attributes=(Attribute("title", TEXT, required=True),),
    relationships=(ToOne("author", "author"), ToMany("tags", "tag", through=Link("post_tags", "post_id", "tag_id"))),
    version=Version("changed"),
)
TAG = Resource("tag", "/tags", "tags", attributes=(NAME,), requires_match=True)
PLAIN = Resource("plain", "/plain", "names", attributes=(NAME,), methods=frozenset({"list", "detail", "update"}))
PART = Resource(
    *("part", "/parts", "parts"),
    attributes=(NAME,),
    id=Id(columns=("shelf", "number"), types=(INT, INT)),
    methods=frozenset({"list", "detail", "update", "delete"}),
)
CATALOG = Catalog([AUTHOR, POST, TAG, PLAIN, PART])


@pytest.fixture
def library(inspected: Inspected) -> Any:
    return lambda **settings: inspected(TABLES, CATALOG, **settings)


async def send(api: Api, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    return await api.request(method, path, body, headers={name.replace("_", "-"): one for name, one in headers.items()})


def version(answer: Answer) -> str:
    """Return the first part of the tag of an answer."""
    return answer.headers["ETag"].strip('"').rpartition(".")[0]


def codes(answer: Answer) -> tuple[int, list[str], list[Any]]:
    errors = answer.document["errors"]
    return answer.status, [one["code"] for one in errors], [one.get("source") for one in errors]


CHANGED = (412, ["precondition_failed"], [{"header": "If-Match"}])


def patch(type_name: str, id_text: str, **attributes: Any) -> dict[str, Any]:
    return document(type_name, attributes, id=id_text)


async def test_a_tag_has_the_version_and_a_hash_of_the_bytes(library: Any) -> None:
    api: Api = await library()
    whole, other = await api.get("/authors/1"), await api.get("/authors/1?fields[author]=name")
    assert whole.document["data"]["meta"] == other.document["data"]["meta"] == {"version": "1"}
    assert version(whole) == version(other) == "1"
    assert whole.headers["ETag"] != other.headers["ETag"]
    assert (await api.get("/authors/1")).headers["ETag"] == whole.headers["ETag"]
    listed = await api.get("/authors?include=posts")
    assert [each["meta"]["version"] for each in listed.document["data"]] == ["1", "1"]
    moments = [
        str(row[0]).replace(" ", "T").replace("+00:00", "Z") for row in await api.sql("SELECT changed FROM posts")
    ]
    assert [each["meta"]["version"] for each in listed.document["included"]] == moments
    assert listed.headers["ETag"].count(".") == 0
    [[xmin]] = await api.sql("SELECT xmin::text FROM tags WHERE id = 1")
    tag = await api.get("/tags/1")
    assert (version(tag), tag.document["data"].get("meta")) == (xmin, None)
    part = await api.get("/parts/2,1")
    assert version(part) == (await api.sql("SELECT xmin::text FROM parts WHERE shelf = 2"))[0][0]
    view = await api.get("/plain/1")
    assert view.headers["ETag"].count(".") == 0


@pytest.mark.parametrize("path", ["/authors/1", "/authors", "/authors/1/posts", "/posts/1/author", "/tags/2"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_client_that_has_the_document_gets_a_304(library: Any, method: str, path: str) -> None:
    api: Api = await library()
    etag = (await api.get(path)).headers["ETag"]
    weak = f"W/{etag}"
    for sent in (etag, weak, f'"x", {etag}', "*", etag[:-1] + '-gzip"'):
        answer = await send(api, method, path, If_None_Match=sent)
        assert (answer.status, answer.body, answer.headers["ETag"]) == (304, b"", etag), sent
        assert "Content-Type" not in answer.headers
    assert (await send(api, method, path, If_None_Match='"x"')).status == 200
    for table, column in (("authors", "name"), ("posts", "title"), ("tags", "name")):
        await api.sql(f"UPDATE {table} SET {column} = 'other'")
    assert (await send(api, method, path, If_None_Match=etag)).status == 200
    assert codes(await send(api, "GET", path, If_None_Match="x")) == (
        *(400, ["invalid_tag"]),
        [{"header": "If-None-Match"}],
    )


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_reads_with_both_preconditions(library: Any, method: str) -> None:
    """RFC 9110, 13.2.2: If-Match comes first."""
    api: Api = await library()
    etag = (await api.get("/authors/1")).headers["ETag"]
    for match, none_match, status in (
        (etag, None, 200),
        ('"1"', None, 200),
        ("*", None, 200),
        ('"2"', None, 412),
        (f"W/{etag}", None, 412),
        (etag, etag, 304),
        (etag, '"x"', 200),
        ('"2"', etag, 412),
        ('"2"', '"x"', 412),
        (None, f'"x", W/{etag}', 304),
    ):
        sent = {"If-Match": match, "If-None-Match": none_match}
        answer = await api.request(method, "/authors/1", headers={name: one for name, one in sent.items() if one})
        assert answer.status == status, sent
    assert (await send(api, method, "/authors/99", If_Match="*")).status == 404
    assert (await send(api, method, "/authors/99", If_None_Match="*")).status == 404


async def test_a_compressed_answer_has_another_tag(library: Any) -> None:
    api: Api = await library(compression="gzip")
    await api.sql("UPDATE authors SET name = repeat('n', 3000)")
    plain, packed = await ask(api, "/authors/1", None), await ask(api, "/authors/1", "gzip")
    assert packed.headers["ETag"] == plain.headers["ETag"][:-1] + '-gzip"'
    for etag in (plain.headers["ETag"], packed.headers["ETag"]):
        answer = await send(api, "GET", "/authors/1", Accept_Encoding="gzip", If_None_Match=etag)
        assert (answer.status, answer.headers["ETag"]) == (304, packed.headers["ETag"])
    answer = await send(api, "PATCH", "/authors/1", patch("author", "1", name="n"), If_Match=packed.headers["ETag"])
    assert answer.status == 200


WRITES: list[tuple[str, str, str, Any]] = [
    ("/authors/1", "PATCH", "/authors/1", patch("author", "1", name="new")),
    ("/authors/2?include=posts", "PATCH", "/authors/2", document("author", id="2", relationships=linked(posts=[]))),
    ("/posts/3", "DELETE", "/posts/3", None),
    ("/posts/1", "PATCH", "/posts/1?include=tags", patch("post", "1", title="new")),
    ("/posts/1", "PATCH", "/posts/1", document("post", id="1", relationships=linked(tags=of("tag", "2")))),
    ("/tags/2", "PATCH", "/tags/2", patch("tag", "2", name="new")),
    ("/tags/2", "DELETE", "/tags/2", None),
    ("/parts/2,1", "PATCH", "/parts/2,1", patch("part", "2,1", name="new")),
    ("/parts/2,1", "DELETE", "/parts/2,1", None),
    ("/posts/1/author", "PATCH", "/posts/1/author", patch("author", "1", name="new")),
    ("/posts/1/relationships/author", "PATCH", "/posts/1/relationships/author", {"data": one("author", "2")}),
    ("/authors/1/relationships/posts", "PATCH", "/authors/1/relationships/posts", {"data": of("post", "3")}),
    ("/authors/1/relationships/posts", "POST", "/authors/1/relationships/posts", {"data": of("post", "3")}),
    ("/authors/1/relationships/posts", "DELETE", "/authors/1/relationships/posts", {"data": of("post", "1")}),
    ("/posts/1/relationships/tags", "PATCH", "/posts/1/relationships/tags", {"data": of("tag", "2")}),
    ("/posts/1/relationships/tags", "POST", "/posts/1/relationships/tags", {"data": of("tag", "2")}),
    ("/posts/1/relationships/tags", "DELETE", "/posts/1/relationships/tags", {"data": of("tag", "1")}),
]


@pytest.mark.parametrize(("read", "method", "path", "body"), WRITES)
async def test_a_write_is_done_once_with_the_tag_that_was_read(
    library: Any, read: str, method: str, path: str, body: Any
) -> None:
    api: Api = await library()
    etag = (await api.get(read)).headers["ETag"]
    for wrong in ('"x"', f"W/{etag}", f'"y", W/"{etag.strip(chr(34))}"'):
        before = await rows_of(api)
        assert codes(await send(api, method, path, body, If_Match=wrong)) == CHANGED, wrong
        assert await rows_of(api) == before
    done = await send(api, method, path, body, If_Match=f'"x", {etag}')
    assert done.status == 200, done.body
    again = await send(api, method, path, body, If_Match=etag)
    assert again.status in (404, 412), again.body
    if method == "DELETE" and "relationships" not in path:
        assert (again.status, "ETag" in done.headers) == (404, False)
    else:
        assert version(done) == version(await api.get(read))
        assert (await send(api, method, path, body, If_Match=done.headers["ETag"])).status == 200


async def rows_of(api: Api) -> list[Any]:
    tables = ("authors", "posts", "tags", "post_tags", "parts")
    return [await api.sql(f"SELECT *, xmin::text FROM {table} ORDER BY 1, 2") for table in tables]


async def test_the_version_alone_is_enough(library: Any) -> None:
    api: Api = await library()
    answer = await send(api, "PATCH", "/authors/1", patch("author", "1", name="new"), If_Match='"1"')
    assert answer.document["data"]["meta"] == {"version": "2"}
    assert version(answer) == "2"
    assert codes(await send(api, "DELETE", "/authors/1", If_Match='"1"')) == CHANGED
    moment = (await api.get("/posts/3")).document["data"]["meta"]["version"]
    assert (await send(api, "DELETE", "/posts/3", If_Match=f'"{moment}"')).status == 200


@pytest.mark.parametrize("kind", ["any", "none"])
async def test_any_row_that_is_there(library: Any, kind: str) -> None:
    api: Api = await library()
    exists = kind == "any"
    path = "/authors/1" if exists else "/authors/99"
    answer = await send(api, "PATCH", path, patch("author", path[9:], name="new"), If_Match="*")
    assert answer.status == (200 if exists else 404)


async def test_a_write_of_a_to_many_changes_a_declared_version(library: Any) -> None:
    api: Api = await library()
    before = version(await api.get("/posts/1"))
    await send(api, "POST", "/authors/1/relationships/posts", {"data": of("post", "3")})
    assert version(await api.get("/authors/1")) == "2"
    await send(api, "PATCH", "/authors/1", document("author", id="1", relationships=linked(posts=of("post", "1"))))
    assert version(await api.get("/authors/1")) == "3"
    await send(api, "PATCH", "/posts/1/relationships/tags", {"data": of("tag", "2")})
    assert version(await api.get("/posts/1")) > before
    answer = await operate(api, link("add", "author", "posts", of("post", "2"), id="1"), media_type=EXTENDED)
    assert answer.document == {"atomic:results": [{"data": None, "meta": {"version": "4"}}]}


async def test_the_server_counts_from_one(library: Any) -> None:
    api: Api = await library()
    made = await send(api, "POST", "/authors", document("author", {"name": "new"}))
    assert (made.status, made.document["data"]["meta"], version(made)) == (201, {"version": "1"}, "1")
    refused = await send(api, "POST", "/authors", document("author", {"name": "new", "row_version": 7}))
    assert codes(refused) == (422, ["invalid_attribute"], [{"pointer": "/data/attributes/row_version"}])
    answer = await operate(api, *[add("author", {"name": str(number)}) for number in range(20)])
    assert {json.dumps(one["meta"]) for one in answer.document["atomic:results"]} == {'{"version": "1"}'}


async def test_operations_name_the_version(library: Any) -> None:
    api: Api = await library()
    moment = (await api.get("/posts/1")).document["data"]["meta"]["version"]
    matched = [
        update("author", {"name": "new"}, id="1") | {"meta": {"ifMatch": "1"}},
        update("post", {"title": "new"}, id="1") | {"meta": {"ifMatch": ['"x.y"', f'"{moment}.0"']}},
        remove("post", id="3") | {"meta": {"ifMatch": "*"}},
    ]
    answer = await operate(api, *matched)
    assert [one["meta"] for one in answer.document["atomic:results"]] == [
        {"version": "2"},
        {"version": version(await api.get("/posts/1"))},
        None,
    ]
    before = await rows_of(api)
    failed = await operate(api, update("author", {"name": "z"}, id="2"), matched[0], media_type=EXTENDED)
    pointer = "/atomic:operations/1/meta/ifMatch"
    assert codes(failed) == (412, ["precondition_failed"], [{"pointer": pointer}])
    assert (await operate(api, matched[0])).status == 422
    assert await rows_of(api) == before
    linkage = (await api.get("/authors/1/relationships/posts")).headers["ETag"]
    linking = link("update", "author", "posts", of("post", "1"), id="2") | {"meta": {"ifMatch": linkage}}
    assert (await operate(api, linking, media_type=EXTENDED)).status == 412
    linking["ref"]["id"] = "1"
    assert (await operate(api, linking, media_type=EXTENDED)).status == 200


@pytest.mark.parametrize("value", [7, None, {}, [], [""], "", '"', ["*"], [7], 'x"', " 7", ["7", []]])
async def test_a_malformed_if_match_of_an_operation(library: Any, value: Any) -> None:
    api: Api = await library()
    answer = await operate(
        api, update("author", {"name": "z"}, id="1") | {"meta": {"ifMatch": value}}, media_type=EXTENDED
    )
    pointer = "/atomic:operations/0/meta/ifMatch"
    assert codes(answer) == (400, ["malformed_operations"], [{"pointer": pointer}])
    adding = add("author", {"name": "z"}) | {"meta": {"ifMatch": "1"}}
    assert codes(await operate(api, adding, media_type=EXTENDED))[:2] == (400, ["malformed_operations"])


async def test_a_resource_that_requires_a_match(library: Any) -> None:
    api: Api = await library()
    for answer in (
        await send(api, "PATCH", "/tags/1", patch("tag", "1", name="new")),
        await send(api, "PATCH", "/tags/99", patch("tag", "99", nonsense=1)),
        await send(api, "DELETE", "/tags/1"),
    ):
        assert codes(answer) == (428, ["precondition_required"], [{"header": "If-Match"}])
    answer = await operate(api, add("tag", {"name": "z"}), remove("tag", id="1"), media_type=EXTENDED)
    assert codes(answer)[:2] == (428, ["precondition_required"])
    assert len(await api.sql("SELECT FROM tags")) == 2
    assert (await send(api, "POST", "/tags", document("tag", {"name": "z"}))).status == 201


UNSUPPORTED: list[tuple[str, str, Any, dict[str, str]]] = [
    ("PATCH", "/plain/1", patch("plain", "1", name="z"), {"If-Match": '"1"'}),
    ("POST", "/authors", document("author", {"name": "z"}), {"If-Match": '"1"'}),
    ("POST", "/authors", document("author", {"name": "z"}), {"If-None-Match": '"1"'}),
    ("PATCH", "/authors/1", patch("author", "1", name="z"), {"If-None-Match": "*"}),
    ("DELETE", "/authors/1", None, {"If-Unmodified-Since": "Thu, 26 Nov 2026 00:00:00 GMT"}),
    ("POST", "/operations", {"atomic:operations": [remove("author", id="1")]}, {"If-Match": "*"}),
]


@pytest.mark.parametrize(("method", "path", "body", "headers"), UNSUPPORTED)
async def test_a_precondition_that_a_route_does_not_have(
    library: Any, method: str, path: str, body: Any, headers: dict[str, str]
) -> None:
    api: Api = await library()
    before = await rows_of(api)
    answer = await api.request(method, path, body, headers=headers)
    [name] = headers
    assert codes(answer) == (400, ["precondition_unsupported"], [{"header": name}])
    assert await rows_of(api) == before


@pytest.mark.parametrize("text", ["7", '"7', '7"', '""x', "*,*", '"a" "b"', ",", "", '"a",*'])
async def test_malformed_tags(library: Any, text: str) -> None:
    api: Api = await library()
    answer = await send(api, "PATCH", "/authors/1", patch("author", "1", name="z"), If_Match=text)
    assert codes(answer) == (400, ["invalid_tag"], [{"header": "If-Match"}])


async def test_a_thousand_tags(library: Any) -> None:
    api: Api = await library()
    tags = ", ".join([f'"{number}"' for number in range(2, 1002)])
    body = patch("author", "1", name="z")
    assert codes(await send(api, "PATCH", "/authors/1", body, If_Match=tags)) == CHANGED
    assert (await send(api, "PATCH", "/authors/1", body, If_Match=f'{tags} , ,"1"')).status == 200


async def test_other_faults_come_before_the_precondition(library: Any) -> None:
    api: Api = await library()
    for path, body, status in (
        ("/authors/99", patch("author", "99", name="z"), 404),
        ("/authors/1", patch("author", "1", name=7), 422),
        ("/authors/1", patch("author", "2", name="z"), 409),
        ("/authors/1?sort=name", patch("author", "1", name="z"), 400),
    ):
        assert (await send(api, "PATCH", path, body, If_Match='"x"')).status == status
    sent = {"If-Match": '"x"', "Content-Type": "text/plain"}
    assert (await api.request("PATCH", "/authors/1", body=b"{}", headers=sent)).status == 415


async def test_a_related_resource_has_the_row_in_its_tag(library: Any) -> None:
    api: Api = await library()
    etag = (await api.get("/posts/1/author")).headers["ETag"]
    assert etag.startswith('"1:1.')
    await api.sql("UPDATE posts SET author_id = 2 WHERE id = 1")
    body = patch("author", "2", name="z")
    assert codes(await send(api, "PATCH", "/posts/1/author", body, If_Match=etag)) == CHANGED
    assert codes(await send(api, "DELETE", "/posts/1/author", If_Match='"1"')) == CHANGED


async def test_a_client_that_wants_a_new_resource(start: Start, database_url: str) -> None:
    resources = [msgspec.structs.replace(one, client_ids=one.type == "group") for one in built_in()]
    api = await start(database_url, Catalog(resources))
    body = document("group", {"name": "g"}, id="77")
    assert (await send(api, "POST", "/groups", body, If_None_Match="*")).status == 201
    answer = await send(api, "POST", "/groups", body, If_None_Match="*")
    assert codes(answer) == (412, ["precondition_failed"], [{"header": "If-None-Match"}])
    assert (await send(api, "POST", "/groups", body)).status == 409


async def test_a_client_that_wants_a_new_resource_and_does_not_say_which(start: Start, database_url: str) -> None:
    """Nor may `onConflict` update the resource that must not be there."""
    resources = [msgspec.structs.replace(one, client_ids=one.type == "group") for one in built_in()]
    api = await start(database_url, Catalog(resources))
    groups = await api.sql("SELECT * FROM groups ORDER BY id")
    for path, members in (("/groups", {}), ("/groups?onConflict=id", {"id": "1"}), ("/groups?onConflict=name", {})):
        body = document("group", {"name": "Analytical Engines"}, **members)
        answer = await send(api, "POST", path, body, If_None_Match="*")
        assert codes(answer) == (400, ["precondition_unsupported"], [{"header": "If-None-Match"}])
    assert await api.sql("SELECT * FROM groups ORDER BY id") == groups


async def test_linkage_has_one_tag_on_all_pages(library: Any) -> None:
    api: Api = await library(max_included=3)
    paths = [
        f"/authors/1/relationships/posts{query}" for query in ("", "?page[size]=1", "?page[number]=2&page[size]=1")
    ]
    assert len({version(await api.get(path)) for path in paths}) == 1
    await api.sql("INSERT INTO posts (title, author_id) SELECT 'many', 1 FROM generate_series(1, 2)")
    assert "ETag" not in (await api.get(paths[1])).headers
    answer = await send(api, "POST", paths[0], {"data": of("post", "3")}, If_Match='"x"')
    assert codes(answer) == (400, ["precondition_unsupported"], [{"header": "If-Match"}])


async def test_the_built_in_resources_have_the_versions_of_postgresql(api: Api) -> None:
    await create_household(api)
    read = await api.get("/users/1")
    [[xmin]] = await api.sql("SELECT xmin::text FROM users WHERE id = 1")
    assert version(read) == xmin
    answer = await send(api, "PATCH", "/users/1", document("user", {"first_name": "Z"}, id="1"), If_Match=f'"{xmin}"')
    assert version(answer) == version(await api.get("/users/1")) != xmin
    assert answer.headers["Content-Type"] == MEDIA_TYPE


async def replaced(writing: Any, changes: list[Change]) -> list[Change]:
    """A hook that makes new changes."""
    return [Change(kind=one.kind, type=one.type, id=one.id, attributes={"name": "hooked"}) for one in changes]


async def test_custom_code(inspected: Inspected) -> None:
    class Route(CustomHandler):
        async def put(self, row_id: str) -> None:
            change = Change(kind="update", type="author", id=row_id, attributes={"name": "routed"})
            await self.write(change, match=self.request.headers.get("If-Match"))
            self.finish("done")

    hooked = msgspec.structs.replace(AUTHOR, hooks=Hooks(before_update=replaced))
    catalog = Catalog([hooked, POST, TAG, PLAIN, PART])
    api = await inspected(TABLES, catalog, routes=[(r"/put/(\d)", Route)])
    assert codes(await send(api, "PATCH", "/authors/1", patch("author", "1", name="z"), If_Match='"2"')) == CHANGED
    assert codes(await api.request("PUT", "/put/1", body="", headers={"If-Match": '"2"'})) == CHANGED
    answer = await api.request("PUT", "/put/1", body="", headers={"If-Match": "x y"})
    assert codes(answer) == (400, ["invalid_tag"], [{"header": "If-Match"}])
    assert (await api.get("/authors/1")).document["data"]["attributes"]["name"] == "ann"
    for version_sent in ('"1"', "2", "*"):
        assert (await api.request("PUT", "/put/1", body="", headers={"If-Match": version_sent})).body == b"done"
    shown = (await api.get("/authors/1")).document["data"]
    assert (shown["attributes"]["name"], shown["meta"]) == ("hooked", {"version": "4"})


async def test_hidden_rows_change_no_tag(inspected: Inspected) -> None:
    """Rows that may not be read are a 404 before a 412, and a link to one of them is in no tag."""
    seen = Allow(ANYONE, "all", rows={"name": "title", "op": "ne", "val": "hidden"})
    catalog = Catalog([AUTHOR, msgspec.structs.replace(POST, access=(seen,)), TAG, PLAIN, PART])
    api = await inspected(TABLES, catalog)
    before = (await api.get("/authors/1/relationships/posts")).headers["ETag"]
    await api.sql("INSERT INTO posts (title, author_id) VALUES ('hidden', 1)")
    assert (await api.get("/authors/1/relationships/posts")).headers["ETag"] == before
    for method, body in (("PATCH", patch("post", "4", title="z")), ("DELETE", None)):
        assert (await send(api, method, "/posts/4", body, If_Match='"x"')).status == 404
    body = {"data": of("post", "3")}
    assert (await send(api, "POST", "/authors/1/relationships/posts", body, If_Match=before)).status == 200
    assert await api.sql("SELECT FROM posts WHERE title = 'hidden' AND author_id = 1")
