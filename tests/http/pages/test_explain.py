"""The SQL of a read on a page, and who may see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.resource import Attribute, Resource
from querybuild.declarations.types import TEXT
from serializers.links import quote_segment
from tests.http.conftest import Api, Inspected
from tests.http.pages.html import browse, get
from waterspout import SUBJECT, Allow, Role

SQL = "CREATE TABLE notes (id bigserial PRIMARY KEY, owner text); INSERT INTO notes (owner) VALUES ('ann')"
NOTE = Resource(
    "note",
    "/notes",
    "notes",
    attributes=(Attribute("owner", TEXT, nullable=True),),
    access=(
        Allow(Role("editor"), "all"),
        Allow(Role("reader"), "read", rows={"name": "owner", "op": "eq", "val": SUBJECT}),
    ),
)


def page_of(url: str) -> str:
    return f"/-/pages/explain?url={quote_segment(url)}"


@pytest.mark.parametrize(
    ("url", "names"),
    [
        ("/users?filter[age][gt]=41&include=group", ["primary rows"]),
        ("/users/1", ["primary rows"]),
        ("/users/1/relationships/computers", ["primary rows"]),
        ("/groups?include=users.computers", ["primary rows", "rows of users", "rows of computers"]),
        ("/users?page[size]=0", ["first rows"]),
        ("/users?groupBy=age&aggregateAs[n]=count()", ["primary rows"]),
        ("/users?filter[first_name]=%3Cscript%3E", ["primary rows"]),
    ],
)
async def test_the_sql_of_a_read(api: Api, url: str, names: list[str]) -> None:
    page = await browse(api, page_of(url))
    heads = [one.text.partition(": ")[2] for one in page.all("h2") if one.text.startswith("Statement")]
    assert heads == names
    texts = [one.text for one in page.all("pre")]
    assert any(one.startswith(("SELECT", "WITH")) for one in texts)
    assert sum("cost=" in one for one in texts) == len(names)
    if "age][gt]" in url:
        assert "$1 = 41" in " ".join(texts)
        assert not any("41" in one for one in texts if one.startswith(("SELECT", "WITH")))


async def test_pages_lead_to_it(inspected: Inspected) -> None:
    api = await inspected("CREATE TABLE a (id int PRIMARY KEY, a_id int REFERENCES a); INSERT INTO a VALUES (1, 1)")
    for url in ("/a?sort=-id&include=a", "/a/1", "/a/1/a"):
        page = await browse(api, url)
        [link] = [one for one in page.all("a") if one.text == "Show the SQL and its plan"]
        assert link["href"] == page_of(url)
        assert (await browse(api, link["href"])).one("code").text == url


async def test_it_is_not_kept(api: Api) -> None:
    assert (await get(api, page_of("/users"))).headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("url", "status"),
    [
        ("", 400),
        ("x", 400),
        ("https://evil.example/users", 400),
        ("javascript:alert(1)", 400),
        ("//evil.example/users", 404),
        ("/nothing", 404),
        ("/users/x", 404),
        ("/users?nope=1", 400),
        ("/users?filter[nope]=1", 400),
        ("/-/live", 400),
        ("/-/pages/new/users", 400),
        ("/", 400),
        ("/%FF", 404),
        ("/users?filter[first_name]=%00", 400),
    ],
)
async def test_what_cannot_be_explained(api: Api, url: str, status: int) -> None:
    page = await browse(api, page_of(url), status=status)
    assert url == "/" or not page.all("a", href=url)


async def test_only_the_own_machine_without_authentication(api: Api) -> None:
    for header in ("X-Forwarded-For", "Via"):
        proxied = {header: "192.0.2.1"}
        assert (await browse(api, page_of("/users"), status=403, **proxied)).one("h1")
        assert "Show the SQL" not in (await browse(api, "/users", **proxied)).text
    assert (await api.request("GET", page_of("/users"), headers={"Via": "1.1 p"})).status == 403


async def test_who_may_see_it(inspected: Inspected, tmp_path: Path) -> None:
    file = tmp_path / "principals.json"
    file.write_text(json.dumps({"ann": {"roles": ["editor"]}, "bob": {"roles": ["reader"]}}))
    for admin, seen_by in (("reader", "bob"), ("editor", "ann"), (None, "")):
        api = await inspected(SQL, Catalog([NOTE]), development_principals=file, auth_admin=admin)
        assert (await get(api, page_of("/notes"))).status == 401
        for name in ("ann", "bob"):
            headers = {"Cookie": f"waterspout-principal={name}", "Sec-Fetch-Site": "same-origin"}
            answer = await get(api, page_of("/notes"), **headers)
            assert answer.status == (200 if name == seen_by else 403)
            assert (b"Show the SQL" in (await get(api, "/notes", **headers)).body) is (name == seen_by)
            # The rules of the principal are part of the read.
            assert (b"    rule " in answer.body) is (name == seen_by == "bob")


async def test_nothing_is_left_on_the_connection(inspected: Inspected) -> None:
    sql = """
        CREATE TABLE a (id bigint PRIMARY KEY, a_id bigint REFERENCES a, b_id bigint);
        INSERT INTO a VALUES (1, NULL)
    """
    api = await inspected(sql, pool_size=1)
    for _ in range(3):
        await browse(api, page_of("/a?include=a.a.a"))
        assert (await api.request("GET", "/a")).status == 200
