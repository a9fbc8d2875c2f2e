"""A resource without a write method cannot be written through the relationships of other resources."""

from __future__ import annotations

import msgspec
import pytest

from server.resources import built_in
from tests.http.conftest import Api, Start
from tests.http.operating import add, extended, link, operate, update
from tests.http.people import create_household, document, linked, of, one, select, user
from tests.http.refusals import Error, Refused, check_refused, error
from waterspout import RESOURCE_METHODS, TEXT, Attribute, Catalog, Link, Resource, ToMany

READS = frozenset({"list", "detail"})


def limited(methods: dict[str, frozenset[str]]) -> Catalog:
    """Return the built-in resources, some with fewer methods."""
    return Catalog([msgspec.structs.replace(one, methods=methods.get(one.type, one.methods)) for one in built_in()])


def closed(name: str, holder: str, pointer: str = "/data") -> Error:
    why = f"its key is in resources of type “{holder}”, which cannot be updated"
    detail = f"The relationship “{name}” cannot be written here: {why}."
    return error("write_forbidden", detail, pointer)


def shut(kind: str, type_name: str, allowed: str = "list, detail") -> Error:
    return error("write_forbidden", f"Resources of type “{type_name}” cannot be {kind} here; allowed are: {allowed}.")


@pytest.mark.parametrize("methods", [READS, RESOURCE_METHODS - {"update"}])
async def test_rows_that_hold_the_key_are_not_updated(start: Start, database_url: str, methods: frozenset[str]) -> None:
    api = await start(database_url, limited({"computer": methods, "user_bio": methods}))
    await create_household(api)
    computers, bio = closed("computers", "computer"), closed("bio", "user_bio")
    both = linked(computers=[], bio=None)
    refused = [
        closed("computers", "computer", "/data/relationships/computers/data"),
        closed("bio", "user_bio", "/data/relationships/bio/data"),
    ]
    await check_refused(
        api,
        [
            *(
                Refused(method, "/users/2/relationships/computers", {"data": of("computer", 3)}, [computers])
                for method in ("POST", "PATCH", "DELETE")
            ),
            Refused("PATCH", "/users/2/relationships/computers", {"data": []}, [computers]),
            Refused("PATCH", "/users/2/relationships/bio", {"data": one("user_bio", 1)}, [bio]),
            Refused("PATCH", "/users/2/relationships/bio", {"data": None}, [bio]),
            Refused("POST", "/users", user(computers=of("computer", 4)), refused[:1]),
            Refused("POST", "/users", user(bio=one("user_bio", 1)), refused[1:]),
            Refused("PATCH", "/users/2", document("user", id="2", relationships=both), refused),
            # The key is in the resource's own row.
            Refused("PATCH", "/computers/1/relationships/owner", {"data": None}, [closed("owner", "computer")]),
            Refused(
                "PATCH",
                "/users/1/bio",
                document("user_bio", {"birth_city": "Rome"}, id="1"),
                [shut("updated", "user_bio", "list, detail" + ", create, delete" * ("create" in methods))],
            ),
        ],
    )
    answer = await extended(
        api,
        add("group", {"name": "a"}),
        link("add", "user", "computers", of("computer", 4), id="1"),
    )
    assert (answer.status, answer.errors) == (403, [closed("computers", "computer", "/atomic:operations/1/data")])
    plain = await operate(api, update("user", id="1", relationships=linked(computers=[])))
    assert (plain.status, plain.document["detail"]["errors"][0]["type"]) == (422, "write_forbidden")


async def test_creates_and_deletes_by_relationships_are_refused(start: Start, database_url: str) -> None:
    api = await start(database_url, limited({"computer": READS, "user_bio": READS}))
    await create_household(api)
    new = document("computer", {"name": "eniac"})
    await check_refused(
        api,
        [
            Refused("POST", "/computers", new, [shut("created", "computer")]),
            Refused("POST", "/users/1/computers", new, [shut("created", "computer")]),
            Refused("DELETE", "/computers/1", None, [shut("deleted", "computer")]),
            Refused("DELETE", "/users/1/bio", None, [shut("deleted", "user_bio")]),
        ],
    )
    # Rows that a foreign key deletes with another row are deleted by the database.
    assert (await api.delete("/users/1")).status == 200
    assert await select(api, "SELECT count(*) FROM user_bios WHERE user_id = 1") == [(0,)]


async def test_writes_that_are_still_allowed(start: Start, database_url: str) -> None:
    """A new row contains its own keys. Other rows that refer to a read-only one can still be written."""
    api = await start(database_url, limited({"user": READS, "computer": RESOURCE_METHODS - {"update"}}))
    await create_household(api)
    owner = linked(owner=one("user", 1))
    for method, path, sent in (
        ("POST", "/users/1/computers", document("computer", {"name": "eniac"})),
        ("POST", "/computers", document("computer", {"name": "univac"}, relationships=owner)),
        ("PATCH", "/users/1/relationships/posts", {"data": of("post", 1, 2)}),
        ("PATCH", "/posts/1/relationships/user", {"data": one("user", 2)}),
        ("DELETE", "/computers/1", None),
    ):
        answer = await api.request(method, path, sent)
        assert answer.status in (200, 201), (path, answer.body)


NOTE = Resource(
    "note",
    "/notes",
    "notes",
    attributes=(Attribute("name", TEXT, nullable=True),),
    relationships=(ToMany("tags", "tag", through=Link("note_tags", source="note_id", target="tag_id")),),
)
TAG = Resource("tag", "/tags", "tags", attributes=(Attribute("name", TEXT, nullable=True),), methods=READS)
NOTES = [
    "CREATE TABLE notes (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, name text)",
    "CREATE TABLE tags (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, name text)",
    "CREATE TABLE note_tags (note_id bigint NOT NULL REFERENCES notes, tag_id bigint NOT NULL REFERENCES tags, "
    "PRIMARY KEY (note_id, tag_id))",
    "INSERT INTO notes (name) VALUES ('a')",
    "INSERT INTO tags (name) VALUES ('x')",
]


async def test_rows_of_a_link_table_are_not_a_resource(start: Start, database_url: str) -> None:
    door = Api(0, database_url)
    for statement in NOTES:
        await door.sql(statement)
    await door.close()
    api = await start(database_url, Catalog([msgspec.structs.replace(NOTE, methods=READS), TAG]))
    described = (await api.get("/-/openapi.json")).document["paths"]
    assert {"post", "patch", "delete"} <= described["/notes/{id}/relationships/tags"].keys()
    assert "/operations" in described
    for method in ("POST", "PATCH", "DELETE"):
        assert (await api.request(method, "/notes/1/relationships/tags", {"data": of("tag", 1)})).status == 200
    operations = [link(op, "note", "tags", of("tag", 1), id="1") for op in ("add", "update", "remove")]
    assert (await extended(api, *operations)).status == 200
    refused = shut("created", "tag")
    await check_refused(api, [Refused("POST", "/notes/1/tags", document("tag", {"name": "y"}), [refused])])
