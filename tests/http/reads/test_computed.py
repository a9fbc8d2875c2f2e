"""Attributes computed in Python: where they are shown, that they are computed once for a batch, and how they fail."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from msgspec.structs import replace
from tornado.web import HTTPError

from server.resources import built_in
from tests.catalog import CATALOG, SAMPLE, SAMPLE_TYPE
from tests.http.conftest import Answer, Start
from tests.http.people import ADA, create_household, document, linked, of, select
from tests.http.refusals import Refused, check_refused, error
from waterspout import INT, INTERVAL, JSONB, NUMERIC, TEXT, Attribute, BadRequest, Catalog, Template

Rows = Sequence[tuple[Any, ...]]


class Initials:
    """Computes initials, and keeps its arguments."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[Any, ...]]] = []

    def __call__(self, people: Rows) -> Iterable[str]:
        self.batches.append(list(people))
        return (f"{first[0]}{last[0]}" for first, last in people)

    @property
    def attribute(self) -> Attribute:
        return Attribute("initials", TEXT, of=("first_name", "last_name"), compute=self)


def with_attributes(type_name: str, *attributes: Attribute, catalog: Catalog | None = None) -> Catalog:
    """Return the built-in resources, or others, where one has further attributes. They are first, so that a test can
    see the order."""
    return Catalog(
        [
            replace(known, attributes=(*attributes, *known.attributes)) if known.type == type_name else known
            for known in catalog or built_in()
        ]
    )


def computed(answer: Answer, name: str = "initials") -> list[Any]:
    """Return the attribute in all resources of the type `user`, primary and included. Raises KeyError if it is not
    shown."""
    data = answer.document["data"]
    objects = (data if isinstance(data, list) else [data]) + answer.document.get("included", [])
    return [each["attributes"][name] for each in objects if each["type"] == "user"]


ADA_AND_BEA = [("Ada", "Byron"), ("Bea", "Byron")]


@pytest.mark.parametrize(
    ("path", "shown", "batches"),
    [
        ("/users?sort=id", ["AB", "BB"], [ADA_AND_BEA]),
        ("/users?sort=-id&page[size]=1", ["BB"], [[("Bea", "Byron")]]),
        ("/users/1", ["AB"], [[("Ada", "Byron")]]),
        ("/computers?include=owner&sort=id", ["AB", "BB"], [ADA_AND_BEA]),
        ("/computers/3?include=owner", ["BB"], [[("Bea", "Byron")]]),
        ("/computers/3/owner", ["BB"], [[("Bea", "Byron")]]),
        ("/groups/1/users", ["AB"], [[("Ada", "Byron")]]),
        ("/users/1?fields[user]=initials", ["AB"], [[("Ada", "Byron")]]),
        ("/users/1?fields[user]=initials,first_name", ["AB"], [[("Ada", "Byron")]]),
        # a type at two places of the document is computed for each
        ("/users?include=computers.owner&sort=id", ["AB", "BB"], [ADA_AND_BEA, ADA_AND_BEA]),
        ("/users/1?fields[user]=last_name", None, []),
        ("/users?fields[user]=", None, []),
        ("/computers?include=owner&fields[user]=age", None, []),
        ("/computers", None, []),
        ("/users?filter[first_name]=Nobody", [], [[]]),
    ],
)
async def test_where_a_computed_attribute_is_shown(
    start: Start, database_url: str, path: str, shown: list[str] | None, batches: list[Any]
) -> None:
    """It is computed once for all rows of a node, and not at all if the fieldset omits it."""
    initials = Initials()
    api = await start(database_url, with_attributes("user", initials.attribute))
    await create_household(api)
    answer = await api.get(path)
    assert answer.status == 200, answer.body
    if shown is None:
        assert b"initials" not in answer.body
    else:
        assert computed(answer) == shown
    assert [batch for batch in initials.batches if batch] == [batch for batch in batches if batch]


async def test_answers_to_writes(start: Start, database_url: str) -> None:
    api = await start(database_url, with_attributes("user", Initials().attribute))
    created = await api.post("/users?include=computers", document("user", ADA))
    assert (created.status, computed(created)) == (201, ["AB"])
    updated = await api.patch("/users/1", document("user", {"first_name": "Zoe"}, id="1"))
    assert (updated.status, computed(updated)) == (200, ["ZB"])
    related = await api.post("/groups", document("group", {"name": "g"}, relationships=linked(users=of("user", "1"))))
    assert related.status == 201
    assert computed(await api.post("/groups/1/users", document("user", ADA))) == ["AB"]
    operations = [
        {"op": "add", "data": {"type": "user", "attributes": {"first_name": each, "last_name": "X"}}} for each in "ab"
    ]
    results = (await api.post("/operations", {"atomic:operations": operations})).document["atomic:results"]
    assert [result["data"]["attributes"]["initials"] for result in results] == ["aX", "bX"]


async def test_a_computed_attribute_is_shown_in_the_order_of_declaration(start: Start, database_url: str) -> None:
    api = await start(database_url, with_attributes("user", Initials().attribute))
    await create_household(api)
    names = list((await api.get("/users/1")).document["data"]["attributes"])
    assert names[:4] == ["initials", "first_name", "last_name", "display_name"]


async def test_a_computed_attribute_is_read_only(start: Start, database_url: str) -> None:
    """Its current value is accepted in a PATCH, as for any read-only attribute."""
    api = await start(database_url, with_attributes("user", Initials().attribute))
    await create_household(api)
    echoed = await api.patch("/users/1", document("user", {"initials": "AB", "age": 1}, id="1"))
    assert (echoed.status, echoed.document["data"]["attributes"]["age"]) == (200, 1)
    for method, path, body, detail in (
        (
            "PATCH",
            "/users/1",
            document("user", {"initials": "XX", "age": 2}, id="1"),
            "“initials” is read-only: leave it out, or send the value it has.",
        ),
        ("POST", "/users", document("user", ADA | {"initials": "AB"}), "“initials” is read-only: leave it out."),
    ):
        answer = await api.request(method, path, body)
        assert (answer.status, answer.errors) == (
            422,
            [
                {
                    "status": "422",
                    "code": "invalid_attribute",
                    "title": "Invalid Attribute",
                    "detail": detail,
                    "source": {"pointer": "/data/attributes/initials"},
                }
            ],
        )
    assert await select(api, "SELECT age FROM users WHERE id = 1") == [(1,)]


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("filter[initials]=AB", "filter[initials]"),
        ("filter[initials][is_]=null", "filter[initials][is_]"),
        ('filter=[{"name":"initials","op":"eq","val":"AB"}]', "filter"),
        ('filter=[{"name":"first_name","op":"eq","field":"initials"}]', "filter"),
        ("sort=initials", "sort"),
        ("sort=-initials", "sort"),
        ("filter[initial]=AB", "filter[initial]"),
        ("sort=initial", "sort"),
    ],
)
async def test_a_computed_attribute_cannot_be_filtered_or_sorted(
    start: Start, database_url: str, query: str, parameter: str
) -> None:
    api = await start(database_url, with_attributes("user", Initials().attribute))
    answer = await api.get("/users?" + query.replace('"', "%22").replace("{", "%7B").replace("}", "%7D"))
    (error,) = answer.errors
    assert (answer.status, error["source"]) == (400, {"parameter": parameter})
    offered = error["detail"].partition("Did you mean")[2] + error["detail"].partition("There are:")[2]
    assert "initials" not in offered
    nested = await api.get("/computers?sort=owner.initials")
    assert (nested.status, nested.errors[0]["source"]) == (400, {"parameter": "sort"})


async def test_it_may_depend_on_attributes_that_are_not_shown(start: Start, database_url: str) -> None:
    has_password = Attribute(
        "has_password", TEXT, of=("password_hash",), compute=lambda rows: [hashed is not None for (hashed,) in rows]
    )
    hidden = Attribute("password_hash", TEXT, nullable=True, readable=False)
    api = await start(database_url, with_attributes("user", has_password, hidden))
    await create_household(api)
    await api.sql("UPDATE users SET password_hash = 'secret' WHERE id = 1")
    answer = await api.get("/users?sort=id&fields[user]=has_password")
    assert computed(answer, "has_password") == [True, False]
    assert b"secret" not in (await api.get("/users/1")).body
    assert (await api.get("/users?fields[user]=password_hash")).status == 400


async def test_it_may_depend_on_no_attributes(start: Start, database_url: str) -> None:
    constant = Attribute("constant", INT, compute=lambda rows: [7 for () in rows])
    api = await start(database_url, with_attributes("user", constant))
    await create_household(api)
    assert computed(await api.get("/users"), "constant") == [7, 7]


async def test_it_may_depend_on_attributes_computed_in_sql(start: Start, database_url: str) -> None:
    shout = Attribute("shout", TEXT, of=("display_name",), compute=lambda rows: [name.upper() for (name,) in rows])
    api = await start(database_url, with_attributes("user", shout))
    await create_household(api)
    assert computed(await api.get("/users?fields[user]=shout&sort=id"), "shout") == ["ADA BYRON", "BEA BYRON"]


async def test_two_computed_attributes_of_one_resource(start: Start, database_url: str) -> None:
    first = Attribute("first", TEXT, of=("first_name",), compute=lambda rows: [name[:1] for (name,) in rows])
    both = Initials()
    api = await start(database_url, with_attributes("user", first, both.attribute))
    await create_household(api)
    answer = await api.get("/users?fields[user]=initials,age,first&sort=id")
    assert [each["attributes"] for each in answer.document["data"]] == [
        {"first": "A", "initials": "AB", "age": 36},
        {"first": "B", "initials": "BB", "age": None},
    ]


EXPECTED_CLASSES: dict[str, type] = {
    "flag": bool,
    "large": int,
    "exact": str,
    "price": str,
    "double": float,
    "words": str,
    "fixed": str,
    "mood": str,
    "token": UUID,
    "day": date,
    "clock": str,
    "moment": datetime,
    "instant": datetime,
    "span": bytes,
    "blob": bytes,
    "plain_json": str,
    "tree": str,
    "numbers": list,
    "amounts": list,
    "days": list,
    "moments": list,
    "instants": list,
    "spans": list,
    "tokens": list,
}


async def test_its_arguments_by_type(start: Start, corner_url: str) -> None:
    """As documented in docs/custom-code.md."""
    names = tuple(EXPECTED_CLASSES)
    given: list[tuple[Any, ...]] = []

    def note(rows: Rows) -> list[str]:
        given.extend(rows)
        return ["noted"] * len(rows)

    noted = Attribute("noted", TEXT, of=names, compute=note)
    api = await start(corner_url, with_attributes(SAMPLE_TYPE.type, noted, catalog=CATALOG))
    await api.create("/samples", "sample", SAMPLE)
    assert (await api.get("/samples/1?fields[sample]=noted")).document["data"]["attributes"] == {"noted": "noted"}
    found = dict(zip(names, given[-1], strict=True))
    wrong = {name: type(found[name]) for name, kind in EXPECTED_CLASSES.items() if not isinstance(found[name], kind)}
    assert wrong == {}
    assert (found["exact"], found["price"], json.loads(found["tree"])) == (SAMPLE["exact"], "12.50", SAMPLE["tree"])
    assert (found["moment"].tzinfo is not None, found["day"]) == (True, date(2024, 2, 29))
    kinds = {name: type(found[name][0]) for name in ("days", "moments", "instants", "spans")}
    assert kinds == {"days": date, "moments": datetime, "instants": datetime, "spans": bytes}
    assert isinstance(found["tokens"][0], UUID)
    # attributes that custom code depends on are read in another way, but shown in the same form
    shown = ",".join(("noted", *names))
    answer = await api.get(f"/samples/1?fields[sample]={shown}")
    assert answer.document["data"]["attributes"] == {"noted": "noted"} | {name: SAMPLE[name] for name in names}


async def test_its_results(start: Start, database_url: str) -> None:
    """Any JSON value, and any value that the type shows: a date, a numeric."""
    made = (
        Attribute("made_date", TEXT, of=("age",), compute=lambda rows: [date(2024, 1, 2)] * len(rows)),
        Attribute("made_object", JSONB, of=("age",), compute=lambda rows: ['{"a": [1, null]}'] * len(rows)),
        Attribute("made_number", NUMERIC, of=("age",), compute=lambda rows: ["1.50"] * len(rows)),
        Attribute("made_null", INT, of=("age",), nullable=True, compute=lambda rows: [None] * len(rows)),
        Attribute("made_span", INTERVAL, of=("age",), compute=lambda rows: [bytes(15) + b"\2"] * len(rows)),
    )
    api = await start(database_url, with_attributes("user", *made))
    await create_household(api)
    names = ",".join(each.name for each in made)
    answer = await api.get(f"/users/1?fields[user]={names}")
    assert answer.document["data"]["attributes"] == {
        "made_date": "2024-01-02",
        "made_object": {"a": [1, None]},
        "made_number": "1.50",
        "made_null": None,
        "made_span": "P2M",
    }


# exceptions


def raising(error: Exception) -> Attribute:
    def fail(rows: Rows) -> list[str]:
        if not rows:
            return []
        raise error

    return Attribute("failing", TEXT, of=("first_name",), compute=fail)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (BadRequest("No."), 400, "bad_request"),
        (HTTPError(409, "No."), 409, "conflict"),
        (ValueError("x"), 500, "internal_error"),
    ],
)
async def test_its_exceptions(start: Start, database_url: str, error: Exception, status: int, code: str) -> None:
    api = await start(database_url, with_attributes("user", raising(error)))
    await create_household(api)
    for path in ("/users", "/users/1", "/computers?include=owner"):
        answer = await api.get(path)
        assert (answer.status, [each["code"] for each in answer.errors]) == (status, [code])
    assert (await api.get("/users?fields[user]=age")).status == 200
    if status == 400:
        assert (await api.get("/users")).errors == [
            {
                "status": "400",
                "code": "bad_request",
                "title": "Bad Request",
                "detail": "No.",
                "source": {"pointer": ""},
                "status_code": 400,
            }
        ]


@pytest.mark.parametrize("path", ["/users", "/groups/1/users", "/operations"])
async def test_its_exceptions_roll_back_the_write(start: Start, database_url: str, path: str) -> None:
    """A client may repeat a failed request, so nothing may be written."""
    api = await start(database_url, with_attributes("user", raising(BadRequest("No."))))
    await create_household(api)
    operations = {"atomic:operations": [{"op": "add", "data": document("user", ADA)["data"]}]}
    answer = await api.post(path, operations if path == "/operations" else document("user", ADA))
    assert answer.status == (422 if path == "/operations" else 400)
    assert await select(api, "SELECT count(*) FROM users") == [(2,)]


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_a_wrong_number_of_values_is_a_fault(
    start: Start, database_url: str, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Too few or too many."""
    few = Attribute("few", TEXT, of=("first_name",), compute=lambda rows: ["x"] * count)
    api = await start(database_url, with_attributes("user", few))
    await create_household(api)
    answer = await api.get("/users")
    assert (answer.status, [each["code"] for each in answer.errors]) == (500, ["internal_error"])
    assert len([each for each in caplog.records if each.levelname == "ERROR"]) == 1


async def test_a_function_of_sql_that_reads_rows(start: Start, database_url: str) -> None:
    """The answer to a write shows the value after it, as a read does."""
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        "CREATE FUNCTION label_of(own bigint) RETURNS text LANGUAGE sql STABLE"
        " AS $$ SELECT 'is ' || name FROM groups WHERE id = own $$"
    )
    await connection.close()
    label = Attribute("label", TEXT, sql=lambda column: Template("label_of({})", column("id")))
    api = await start(database_url, with_attributes("group", label))
    made = await api.post("/groups", document("group", {"name": "old"}))
    assert made.document["data"]["attributes"]["label"] == "is old"
    own = made.document["data"]["id"]
    changed = await api.patch(f"/groups/{own}", document("group", {"name": "new"}, id=own))
    assert changed.document["data"]["attributes"]["label"] == "is new"


async def test_a_written_value_that_makes_a_computed_one_impossible(start: Start, database_url: str) -> None:
    """The value is computed when the answer is read, after the write."""
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        "CREATE FUNCTION share_of(own bigint) RETURNS int LANGUAGE sql STABLE"
        " AS $$ SELECT 10 / (length(name) - 3) FROM groups WHERE id = own $$"
    )
    await connection.close()
    share = Attribute("share", INT, sql=lambda column: Template("share_of({})", column("id")))
    api = await start(database_url, with_attributes("group", share))
    assert (await api.post("/groups", document("group", {"name": "even"}))).status == 201
    refused = error(
        "body_value_refused", "PostgreSQL refuses a value of the document: a number is divided by zero.", "/data"
    )
    await check_refused(
        api,
        [
            Refused("POST", "/groups", document("group", {"name": "odd"}), [refused]),
            Refused("PATCH", "/groups/1", document("group", {"name": "odd"}, id="1"), [refused]),
        ],
    )
