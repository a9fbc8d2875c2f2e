"""Filters that are joined with `or` in the builder of a page."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import pytest

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.resource import Attribute, Resource
from querybuild.declarations.types import INT
from tests.http.conftest import Answer, Api, Inspected
from tests.http.pages.html import browse, get, table
from waterspout import ANYONE, Allow, Role

SQL = """
    CREATE TYPE mood AS ENUM ('sad', 'glad');
    CREATE TABLE owners (id int PRIMARY KEY, name text);
    INSERT INTO owners VALUES (1, 'Ann'), (2, 'B, ob');
    CREATE TABLE t (
        id int PRIMARY KEY, i int, b bigint, f float8, n numeric, s text, d date, ok bool, m mood, j jsonb, a text[],
        u uuid, owner_id int REFERENCES owners
    );
    INSERT INTO t VALUES
        (1, 5, 9007199254740993, 1.5, 0.1234567890123456789, '7', '2026-01-31', true, 'sad', '{"k": 1}', '{x,y}',
         '00000000-0000-0000-0000-000000000001', 1),
        (2, -5, 2, 2e300, 12, 'null', '2026-02-01', false, 'glad', '[1]', '{}',
         '00000000-0000-0000-0000-000000000002', 2),
        (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
"""


async def joined(api: Api, at: str, field: str, operator: str, value: str, join: str = "or-0") -> Answer:
    sent = urlencode({"at": at, "join": join, "field": field, "operator": operator, "value": value})
    return await get(api, f"/-/pages/go?{sent}")


async def ids(api: Api, url: str) -> list[str]:
    answer = await api.request("GET", url)
    assert answer.status == 200, answer.body
    return [one["id"] for one in answer.document["data"]]


@pytest.mark.parametrize(
    ("field", "operator", "value"),
    [
        ("i", "eq", "5"),
        ("i", "in_", "5,-5"),
        ("i", "between", "-6,0"),
        ("i", "is_", "null"),
        ("i", "isnot", "null"),
        ("b", "eq", "9007199254740993"),
        ("f", "gt", "1e299"),
        ("n", "eq", "0.1234567890123456789"),
        ("n", "in_", "12.0,1"),
        ("s", "eq", "7"),
        ("s", "eq", "null"),
        ("s", "in_", "7,null"),
        ("s", "ilike", "%U%"),
        ("d", "ge", "2026-02-01"),
        ("ok", "eq", "true"),
        ("ok", "ne", "true"),
        ("m", "eq", "glad"),
        ("m", "in_", "glad,sad"),
        ("j", "jsonb_contains", '{"k": 1}'),
        ("a", "in", "x"),
        ("u", "eq", "00000000-0000-0000-0000-000000000002"),
        ("id", "le", "2"),
        ("owner.name", "eq", "Ann"),
        ("owner.name", "in_", r"B\, ob,x"),
        ("owner.id", "eq", "2"),
    ],
)
async def test_it_finds_what_the_simple_filter_finds(
    inspected: Inspected, field: str, operator: str, value: str
) -> None:
    api = await inspected(SQL)
    simple = f"filter[{field}][{operator}]={quote(value)}"
    expected = await ids(api, f"/t?{simple}&sort=id")
    assert expected
    for first in ("filter[id]=0", 'filter=[{"name":"id","op":"eq","val":0}]', simple):
        answer = await joined(api, f"/t?sort=id&{first}", field, operator, value)
        assert answer.status == 303
        assert await ids(api, answer.headers["Location"]) == expected


@pytest.mark.parametrize(
    ("operator", "value", "found"),
    [
        ("ge", "2026-01-31", ["1", "2"]),
        ("gt", "2026-01-31 10:00 UTC", ["2"]),
        ("le", "2026-01-31 12:00:00 +02:00", ["1"]),
        ("eq", "2026-01-31T10:00:00Z", ["1"]),
        ("between", "2026-01-31,2026-02-01", ["1"]),
        ("is_", "null", ["3"]),
    ],
)
@pytest.mark.parametrize("field", ["at", "local", "parent.at"])
async def test_moments_as_pages_show_them(
    inspected: Inspected, field: str, operator: str, value: str, found: list[str]
) -> None:
    """A day is its first moment, in UTC."""
    api = await inspected(
        "CREATE TABLE t (id int PRIMARY KEY, at timestamptz, local timestamp, parent_id int REFERENCES t); "
        "INSERT INTO t VALUES (1, '2026-01-31 10:00Z', '2026-01-31 10:00', 1), "
        "(2, '2026-02-01 10:00Z', '2026-02-01 10:00', 2), (3, NULL, NULL, 3)"
    )
    for join, first in (("", ""), ("or-0", "&filter[id]=0")):
        answer = await joined(api, f"/t?sort=id{first}", field, operator, value, join)
        assert await ids(api, answer.headers["Location"]) == found, answer.headers["Location"]


async def test_three_alternatives_and_another_filter(inspected: Inspected) -> None:
    api = await inspected(SQL)
    url = "/t"
    for join, field, operator, value in (
        ("", "id", "le", "3"),
        ("or-0", "id", "gt", "99"),
        ("", "id", "eq", "1"),
        ("or-1", "s", "eq", "null"),
        ("or-1", "id", "eq", "3"),
    ):
        url = (await joined(api, url, field, operator, value, join)).headers["Location"]
    page = await browse(api, url)
    assert [one.text for one in page.one("ul", class_="chips").all("li")][:2] == [
        "id ≤ 3 or id > 99 ×",
        "id = 1 or s = null or id = 3 ×",
    ]
    assert [row["id"] for row in table(page)] == ["1", "2", "3"]
    without = page.one("ul", class_="chips").all("a")[0]["href"]
    assert await ids(api, without) == ["1", "2", "3"]
    assert [one.text for one in page.one("select", name="join").all("option")] == [
        "and",
        "or, with “id ≤ 3 or id > 99”",
        "or, with “id = 1 or s = null or id = 3”",
    ]
    assert not (await browse(api, "/t")).all("select", name="join")


async def test_any_filter_can_be_joined(inspected: Inspected) -> None:
    """Also one between others, in JSON or not, beside a search and a sort."""
    api = await inspected(SQL)
    filters = (
        "filter[id]=1",
        'filter=[{"name":"i","op":"eq","val":5},{"name":"s","op":"eq","val":"7"}]',
        "filter[b]=9",
    )
    at = "/t?sort=-id&" + "&".join(filters)
    texts = ["id = 1", "i = 5", "s = 7", "b = 9"]
    for number, text in enumerate(texts):
        url = (await joined(api, at, "id", "eq", "2", f"or-{number}")).headers["Location"]
        chips = [one.text for one in (await browse(api, url)).one("ul", class_="chips").all("bdi")]
        assert sorted(chips) == sorted([one for one in texts if one != text] + [f"{text} or id = 2"])
        assert "sort=-id" in url
    for wrong in ("or-4", "or-99999"):
        answer = await joined(api, at, "id", "eq", "2", wrong)
        assert (answer.status, b"There is no such filter" in answer.body) == (400, True)
    assert (await joined(api, "/t", "id", "eq", "2")).status == 400


async def test_a_search_cannot_be_joined(inspected: Inspected) -> None:
    api = await inspected("CREATE TABLE t (id int PRIMARY KEY, s text)")
    assert not (await browse(api, "/t?sort=id")).all("select", name="join")


async def test_numbers_of_related_rows(inspected: Inspected) -> None:
    api = await inspected(SQL)
    at = (await joined(api, "/owners", "t.count", "eq", "7", "")).headers["Location"]
    answer = await joined(api, at, "t.count", "ge", "1")
    assert await ids(api, answer.headers["Location"]) == ["1", "2"]


@pytest.mark.parametrize(("field", "value"), [("i", "x"), ("i", "1 2"), ("j", "{"), ("nope", "1"), ("owner.nope", "1")])
async def test_what_is_wrong_is_said_by_the_list(inspected: Inspected, field: str, value: str) -> None:
    api = await inspected(SQL)
    answer = await joined(api, "/t?filter[id]=1", field, "eq", value)
    assert answer.status == 303
    assert (await api.request("GET", answer.headers["Location"])).document["errors"][0]["code"] == "invalid_filter"


@pytest.mark.parametrize("text", ["x", "[", "[]", "1", "{}", "[" * 100_000])
async def test_a_filter_that_is_none(inspected: Inspected, text: str) -> None:
    api = await inspected(SQL)
    answer = await joined(api, f"/t?filter={text[:3000]}", "i", "eq", "1")
    assert (answer.status, b"another one can be joined" in answer.body) == (400, True)


async def test_it_tells_nothing_of_hidden_fields(inspected: Inspected) -> None:
    """A value of a known number would be written as one."""
    hidden = Resource(
        "t",
        "/t",
        "t",
        attributes=(
            Attribute("open", INT, nullable=True),
            Attribute("secret", INT, nullable=True, read_by=Role("editor")),
        ),
        access=(Allow(ANYONE, "read"),),
    )
    api = await inspected("CREATE TABLE t (id bigserial PRIMARY KEY, open int, secret int)", Catalog([hidden]))
    urls = [
        (await joined(api, "/t?filter[id]=1", name, "eq", "5")).headers["Location"]
        for name in ("secret", "nobody", "open")
    ]
    assert urls[0].replace("secret", "nobody") == urls[1]
    assert urls[2].replace("open", "nobody") != urls[1]
