"""`searchText` and the operator `search`. `tests/property/test_search.py` compares them with a model."""

from __future__ import annotations

from typing import Any

import pytest
from tornado.ioloop import IOLoop

from tests.http.conftest import Api, Inspected
from tests.principals import HEADER, principal, trust_headers
from waterspout import ANYONE, INT, TEXT, TSVECTOR, Allow, Attribute, Catalog, Function, Resource, Role, ToMany, ToOne

DDL = """
CREATE TABLE notes (
    id bigint PRIMARY KEY, title text NOT NULL, body text, secret text NOT NULL DEFAULT '', parent_id bigint
);
ALTER TABLE notes ADD words tsvector GENERATED ALWAYS AS (to_tsvector('simple', title)) STORED;
INSERT INTO notes VALUES
    (1, 'red boat', 'a boat on the sea', 'whale', NULL), (2, 'fog', 'boats in fog and fog', '', 1),
    (3, 'harbour', 'nothing here', 'boat', 1), (4, 'sea', NULL, '', 2), (5, 'boat the boat', 'boat boat', '', 2);
CREATE TABLE plains (id bigint PRIMARY KEY, name text);
CREATE FUNCTION first_notes(many integer) RETURNS SETOF notes LANGUAGE sql STABLE
    AS 'SELECT * FROM notes ORDER BY id LIMIT many';
"""


def catalog(*rules: Allow, read_by: Any = ANYONE) -> Catalog:
    return Catalog(
        [
            Resource(
                "note",
                "/notes",
                "notes",
                (
                    Attribute("title", TEXT, required=True, searchable="english"),
                    Attribute("body", TEXT, nullable=True, searchable="english"),
                    Attribute("secret", TEXT, searchable="english", read_by=read_by),
                    Attribute("words", TSVECTOR, nullable=True),
                ),
                (ToOne("parent", "note"), ToMany("children", "note", foreign_key="parent_id")),
                client_ids=True,
                access=rules,
            ),
            Function("first_notes", arguments=(Attribute("many", INT, required=True),), returns="note"),
            Resource("plain", "/plains", "plains", (Attribute("name", TEXT, nullable=True),), client_ids=True),
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
        # the best first
        ("searchText=boat", "5123"),
        ("searchText=boats", "5123"),
        ("searchText=boat%20sea", "1"),
        ("searchText=whale%20red", "1"),
        ("searchText=boat%20-fog", "135"),
        ("searchText=fog%20or%20harbour", "23"),
        ("searchText=%22boat%20on%20the%20sea%22", "1"),
        ("searchText=boat&sort=-id", "5321"),
        ("searchText=boat&filter[body][isnot]=null&page[size]=1&page[number]=2", "1"),
        ("searchText=boat&page[size]=0", "5123"),
        ("searchText=", ""),
        ("searchText=the", ""),
        ("searchText=%22%20-%20!%20%26", ""),
        ("filter[body][search]=boat", "125"),
        ("filter[words][search]=boat", "15"),
        ('filter={"not":{"name":"body","op":"search","val":"boat"}}', "3"),
    ],
)
async def test_lists(api: Api, query: str, ids: str) -> None:
    assert await found(api, f"/notes?{query}") == ids


async def test_other_lists(api: Api) -> None:
    assert await found(api, "/notes/1/children?searchText=boat") == "23"
    assert await found(api, "/notes?include=children&includeFilter[children][title][search]=sea") == "12345"
    answer = await api.get("/notes?searchText=boat&include=children,parent")
    assert (answer.ids, [one["id"] for one in answer.document["included"]]) == (["5", "1", "2", "3"], ["4"])
    answer = await api.get("/notes?searchText=boat&groupBy=parent.id&aggregateAs[n]=count()")
    assert answer.document["meta"]["groups"] == [
        {"by": {"parent.id": "1"}, "n": 2},
        {"by": {"parent.id": "2"}, "n": 1},
        {"by": {"parent.id": None}, "n": 1},
    ]
    for url in ("/notes/1", "/notes/1/parent", "/notes/1/relationships/children"):
        assert (await api.get(f"{url}?searchText=boat")).status == 400


async def test_cursors_in_both_directions(api: Api) -> None:
    url, forwards, pages = "/notes?searchText=boat&page[size]=1&page[after]=", [], []
    while url:
        answer = await api.get(url)
        assert answer.status == 200, answer.body
        forwards += answer.ids
        pages.append(answer)
        url = answer.document["links"].get("next", "")
    assert "".join(forwards) == "5123"
    back = [(await api.get(page.document["links"]["prev"])).ids for page in pages[1:]]
    assert back == [["5"], ["1"], ["2"]]
    # A cursor belongs to one search.
    other = pages[0].document["links"]["next"].replace("boat", "fog")
    assert (await api.get(other)).errors[0]["code"] == "invalid_page"


async def test_other_words_of_a_form(api: Api) -> None:
    for words, ids in (("boat", "12"), ("fog", "2"), ("absent", ""), ("sea", "14")):
        assert await found(api, f"/notes?searchText={words}&sort=id&page[size]=2") == ids
    assert await found(api, "/notes?filter[title][ne]=fog&searchText=sea&filter[body][isnot]=null") == "1"
    assert await found(api, "/notes?filter[title][ne]=sea&searchText=fog&filter[body][isnot]=null") == "2"


@pytest.mark.parametrize(
    ("url", "detail"),
    [
        ("/plains?searchText=a", "No attribute of plain is searchable: use a filter."),
        ("/notes?searchText=a&searchText=b", "It occurs more than once."),
        ("/notes?searchText[a]=b", "There is no parameter “searchText[a]”. Did you mean “searchText”?"),
        ("/notes?searchtext=b", "There is no parameter “searchtext”. Did you mean “searchText”?"),
        (f"/notes?searchText={'a' * 1001}", "Expected a text of at most 1000 characters, not “aaa"),
        (f"/notes?searchText={'%F0%9F%99%82' * 600}", "Expected a text whose words have at most 2000 bytes"),
        ("/notes?searchText=a%00b", "Expected a text"),
    ],
)
async def test_refused(api: Api, url: str, detail: str) -> None:
    answer = await api.get(url)
    [error] = answer.errors
    assert (error["status"], error["code"], detail in error["detail"]) == ("400", "invalid_parameter", True), error


async def test_rules(inspected: Inspected) -> None:
    """Hidden rows are not found, and nothing is found in hidden attributes."""
    rules = (
        Allow(ANYONE, "read", rows={"name": "id", "op": "ne", "val": 5}),
        Allow(Role("hr"), "read"),
    )
    api = await inspected(DDL, catalog(*rules, read_by=Role("hr")))
    trust_headers(api.app.engine)

    async def seen(who: str, words: str) -> str:
        answer = await api.request("GET", f"/notes?searchText={words}", headers={HEADER: who})
        assert answer.status == 200, answer.body
        return "".join(answer.ids)

    anyone, hr = principal("a"), principal("b", roles=("hr",))
    assert [await seen(anyone, words) for words in ("boat", "whale")] == ["12", ""]
    assert [await seen(hr, words) for words in ("boat", "whale")] == ["5123", "1"]


async def test_functions(api: Api) -> None:
    assert await found(api, "/first-notes?arg_many=2&searchText=boat") == "12"
