"""Names inside JSON, on every route and in every parameter that has names. `tests/property/test_filter_semantics.py`
and `tests/property/test_json_paths.py` compare filters and sorts with models."""

from __future__ import annotations

from typing import Any

import pytest
from tornado.ioloop import IOLoop

from tests.http.conftest import Api, Inspected
from tests.principals import HEADER, principal, trust_headers
from waterspout import (
    ANYONE,
    INT,
    JSONB,
    Allow,
    Attribute,
    Catalog,
    Claim,
    JsonPath,
    Resource,
    Role,
    ToMany,
    ToOne,
)

DDL = """
CREATE TABLE boxes (id bigint PRIMARY KEY);
CREATE TABLE things (id bigint PRIMARY KEY, box_id bigint REFERENCES boxes, facts jsonb);
INSERT INTO boxes VALUES (1), (2);
INSERT INTO things VALUES
    (1, 1, '{"color": "red", "n": 5, "size": {"cm": 3}, "tags": ["x", "y"], "a.b": 1, "c,d": "z", "e\\\\f": true}'),
    (2, 1, '{"color": "blue", "n": "5", "size": {"cm": 12}, "tags": []}'),
    (3, 1, '{"color": 5, "n": 1.5}'),
    (4, 2, '{"color": true, "n": 7}'),
    (5, 2, '{"color": null}'),
    (6, 2, '{"color": [1]}'),
    (7, 2, '["red"]'),
    (8, NULL, NULL);
"""


def catalog(*rules: Allow, read_by: Any = ANYONE) -> Catalog:
    facts = Attribute("facts", JSONB, nullable=True, paths=(JsonPath("n", INT),), read_by=read_by)
    return Catalog(
        [
            Resource(
                "box",
                "/boxes",
                "boxes",
                relationships=(ToMany("things", "thing", foreign_key="box_id"),),
                client_ids=True,
                access=(Allow(ANYONE, "read"),) if rules else (),
            ),
            Resource("thing", "/things", "things", (facts,), (ToOne("box", "box"),), client_ids=True, access=rules),
        ]
    )


@pytest.fixture
def api(io_loop: IOLoop, inspected: Inspected) -> Api:
    return io_loop.run_sync(lambda: inspected(DDL, catalog()))


async def found(api: Api, url: str) -> str:
    answer = await api.get(url)
    assert answer.status == 200, answer.body
    return "".join(answer.ids)


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("filter[facts.color]=red", "1"),
        ("filter[facts.color]=5", "3"),
        ('filter[facts.color]="5"', ""),
        ("filter[facts.color]=true", "4"),
        ("filter[facts.color][ne]=red", "2346"),
        ("filter[facts.color][in_]=red,5,true", "134"),
        ("filter[facts.color][notin_]=red,5", "246"),
        ("filter[facts.color][is_]=null", "578"),
        ("filter[facts.color][between]=a,c", "2"),
        ("filter[facts.color][like]=E", ""),
        ("filter[facts.color][ilike]=E", "12"),
        ("filter[facts.color][notlike]=red", "2"),
        ("filter[facts.color][match]=^b", "2"),
        ("filter[facts.size.cm][gt]=3", "2"),
        ("filter[facts.tags.1]=y", "1"),
        ("filter[facts.0]=red", "7"),
        ("filter[facts.a\\.b]=1", "1"),
        ("filter[facts.c,d]=z", "1"),
        ("filter[facts.c\\,d]=z", "1"),
        ("filter[facts.e\\\\f]=true", "1"),
        ("filter[facts.e\\f]=true", "1"),
        ("filter[facts.n][ge]=5", "14"),
        ("filter[facts.n][is_]=null", "235678"),
        # One of two fields is null.
        ('filter={"not":{"name":"facts.size","op":"eq","field":"facts.absent"}}', ""),
        ('filter={"not":{"name":"facts.color","op":"like","field":"facts.absent"}}', ""),
        ('filter={"not":{"name":"facts.size","op":"lt","field":"facts.color"}}', "12"),
        ("sort=facts.color", "21346578"),
        ("sort=-facts.color,id", "64312578"),
        ("sort=facts.c\\,d,-id", "18765432"),
        ("sort=-facts.n", "41876532"),
    ],
)
async def test_lists(api: Api, query: str, ids: str) -> None:
    assert await found(api, f"/things?{query}") == ids


async def test_other_values_of_a_form(api: Api) -> None:
    """The path is a value of the statement, and stays with the form of the request."""
    for color, ids in (("red", "1"), ("blue", "2"), ("green", ""), ("5", "3")):
        assert await found(api, f"/things?filter[facts.color]={color}&sort=facts.tags.0") == ids


async def test_routes_of_relationships(api: Api) -> None:
    assert await found(api, "/boxes/1/things?filter[facts.color]=red") == "1"
    assert await found(api, "/boxes/1/relationships/things?sort=-facts.size.cm") == "213"
    assert await found(api, "/boxes?filter[things.facts.color]=blue") == "1"
    seven = {"name": "things", "op": "any", "val": {"name": "facts.n", "op": "eq", "val": 7}}
    assert (await api.filter("/boxes", seven)).ids == ["2"]
    assert await found(api, "/things?sort=box.id,-facts.color&filter[facts.color][isnot]=null") == "31264"
    colored = {"name": "facts.color", "op": "isnot", "val": None}
    two = {"name": "things", "op": "count", "of": [colored], "val": {"op": "eq", "val": 2}}
    assert (await api.filter("/boxes", two)).ids == ["2"]
    chosen = (
        "includeFilter[things][facts.color][isnot]=null&includeSort[things]=-facts.color&includePage[things][size]=1"
    )
    answer = await api.get(f"/boxes?include=things&{chosen}")
    assert [one["id"] for one in answer.document["included"]] == ["3", "6"]


async def test_groups(api: Api) -> None:
    numbers = "aggregateAs[n]=count()&aggregateAs[sum]=sum(facts.n)&aggregateAs[last]=max(facts.color)"
    answer = await api.get(f"/things?groupBy=facts.tags.0&{numbers}")
    assert answer.document["meta"]["groups"] == [
        {"by": {"facts.tags.0": "x"}, "n": 1, "sum": 5, "last": "red"},
        {"by": {"facts.tags.0": None}, "n": 7, "sum": 7, "last": [1]},
    ]
    answer = await api.get("/things?groupBy=facts.c\\,d&aggregateAs[n]=count()&sort=-n")
    assert answer.document["meta"]["groups"] == [
        {"by": {"facts.c\\,d": None}, "n": 7},
        {"by": {"facts.c\\,d": "z"}, "n": 1},
    ]


NO_COMPARISON = "must be a text, a number, true or false: objects and arrays have only `is_` and `isnot` null"


@pytest.mark.parametrize(
    ("query", "code", "detail"),
    [
        ("filter[facts.color][in_]=", "", ""),
        (
            'filter={"name":"facts.color","op":"eq","val":[1]}',
            "invalid_filter",
            f"the value for “facts.color” {NO_COMPARISON}, not [1].",
        ),
        ('filter={"name":"facts.color","op":"is_","val":{}}', "invalid_filter", f"“facts.color” {NO_COMPARISON}"),
        ('filter={"name":"facts.color","op":"jsonb_contains","val":{}}', "invalid_filter", "has no operator"),
        ("filter[facts.]=1", "invalid_filter", "“facts.” holds an empty name."),
        ("filter[facts.a%00b]=1", "invalid_filter", "holds U+0000, which PostgreSQL cannot store."),
        ("filter[facts.n]=x", "invalid_filter", "the value for “facts.n” must be a whole number"),
        ("filter[facts.color.x][lt]=" + "9" * 500, "invalid_filter", "JSON whose numbers are less than 1e400"),
        ('filter={"name":"facts.color","op":"eq","field":"facts.n"}', "invalid_filter", "do not compare"),
        ("sort=facts", "invalid_sort", "“facts” holds JSON, which has no order. Sort by a value inside: facts.name."),
        ("sort=facts..a", "invalid_sort", "“facts..a” holds an empty name."),
        ("sort=facts.a%00", "invalid_sort", "holds U+0000, which PostgreSQL cannot store."),
        ("groupBy=facts.&aggregateAs[n]=count()", "invalid_groups", "“facts.” holds an empty name."),
        ("aggregateAs[n]=sum(facts.color)", "invalid_groups", "takes numbers"),
        ("aggregateAs[n]=sum(facts.%00)", "invalid_groups", "holds U+0000, which PostgreSQL cannot store."),
    ],
)
async def test_refused(api: Api, query: str, code: str, detail: str) -> None:
    answer = await api.get(f"/things?{query}")
    assert answer.status == (400 if code else 200), answer.body
    if code:
        [error] = answer.errors
        assert (error["code"], detail in error["detail"]) == (code, True), error


async def test_rules(inspected: Inspected) -> None:
    """A rule may have names inside JSON, and an attribute that is hidden has no name inside."""
    rules = (
        Allow(ANYONE, "read", rows={"name": "facts.color", "op": "eq", "val": Claim("color")}),
        Allow(Role("hr"), "all"),
    )
    api = await inspected(DDL, catalog(*rules, read_by=Role("hr")))
    trust_headers(api.app.engine)

    async def seen(who: str, query: str = "", *, status: int = 200) -> Any:
        answer = await api.request("GET", f"/things{query}", headers={HEADER: who})
        assert answer.status == status, answer.body
        return answer

    for color, ids in (("red", ["1"]), (5, ["3"]), (True, ["4"]), ("5", []), ([1], []), (None, [])):
        assert (await seen(principal("a", color=color))).ids == ids
    assert (await seen(principal("a", roles=("hr",)), "?sort=-facts.n&filter[facts.n][isnot]=null")).ids == ["4", "1"]
    for query in ("?sort=facts.n", "?filter[facts.n]=5", "?groupBy=facts.n"):
        answer = await seen(principal("a", color="red"), query, status=400)
        detail = answer.errors[0]["detail"]
        assert "facts" not in detail.replace("“facts.n”", "").replace("“facts”", "")
