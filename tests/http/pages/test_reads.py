"""Pages of reads: who gets one, and what it shows."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import zlib
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec
import pytest

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.function import Function
from querybuild.declarations.resource import Attribute, Resource, ToMany, ToOne
from querybuild.declarations.types import INT, TEXT
from server.http import compression
from server.resources import built_in
from tests.http.conftest import MEDIA_TYPE, Api, Inspected, Start
from tests.http.pages.html import BROWSER, Element, browse, get, parse, table
from waterspout import ANYONE, Allow, Role

JSON = "application/vnd.api+json"
HTML = "text/html; charset=utf-8"
ROWS = """
    INSERT INTO groups (name) VALUES ('Boats'), ('Laboratory');
    INSERT INTO users (first_name, last_name, age, group_id)
        SELECT 'first ' || n, 'last ' || n, nullif(n, 3), CASE WHEN n % 3 < 2 THEN 1 + n % 3 END
        FROM generate_series(1, 40) n;
    INSERT INTO computers (name, owner_id) SELECT 'computer ' || n, 1 FROM generate_series(1, 8) n
"""


async def fill(api: Api) -> None:
    for statement in ROWS.split(";"):
        await api.sql(statement)


@pytest.mark.parametrize(
    ("accept", "is_page"),
    [
        (BROWSER, True),
        ("text/html", True),
        ("text/html;q=0.9, application/vnd.api+json;q=0.8", True),
        ("text/html, application/json;q=0.9", True),
        ("text/html, */*;q=0.8", True),
        ('text/html, application/vnd.api+json;foo="1";q=0.1', True),
        ("text/html;q=0.8, */*;q=0.8", False),
        ("text/html, */*", False),
        ("text/html, application/vnd.api+json", False),
        ("text/html;q=0.5, application/json", False),
        ("text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", False),
        ("text/*", False),
        ("application/xhtml+xml", False),
        ("*/*", False),
        ("text/html;q=0", False),
        (MEDIA_TYPE, False),
    ],
)
async def test_who_gets_a_page(api: Api, accept: str, is_page: bool) -> None:
    await fill(api)
    for path in ("/", "/users", "/users/1", "/users/1/group", "/users/1/computers", "/users/1/relationships/computers"):
        for method in ("GET", "HEAD"):
            answer = await get(api, path, accept, method)
            assert (answer.status, answer.headers["Content-Type"]) == (200, HTML if is_page else JSON)
    assert (await get(api, "/nothing", accept)).headers["Content-Type"] == (HTML if is_page else JSON)


async def test_the_same_address_has_json(api: Api) -> None:
    answer = await get(api, "/users?sort=id")
    assert answer.headers["Link"] == f'</users?sort=id>; rel="alternate"; type="{MEDIA_TYPE}"'
    assert (await api.get("/users?sort=id")).headers["Content-Type"] == MEDIA_TYPE


@pytest.mark.parametrize("path", ["/", "/users", "/users/1", "/users/1/relationships/computers"])
async def test_answer_as_comes_first(api: Api, path: str) -> None:
    await fill(api)
    assert (await get(api, f"{path}?answerAs=html", MEDIA_TYPE)).headers["Content-Type"] == HTML
    assert (await get(api, f"{path}?answerAs=json")).headers["Content-Type"] == JSON


async def test_a_server_without_pages(start: Start, database_url: str) -> None:
    api = await start(database_url, built_in(), pages=False)
    for path in ("/", "/users", "/users?answerAs=html", "/nothing", "/-/pages/pages.css"):
        assert (await get(api, path)).headers["Content-Type"] == JSON


@pytest.mark.parametrize("path", ["/-/nothing", "/-/pages", "/-/openapi.json/x"])
async def test_errors_below_the_admin_path_are_documents(api: Api, path: str) -> None:
    assert (await get(api, path)).headers["Content-Type"] == JSON


@pytest.mark.parametrize(
    ("path", "is_page"), [("/-/nothing", True), ("/api/-/nothing", False), ("/api/-/pages/nothing", True)]
)
async def test_errors_below_a_prefix(start: Start, database_url: str, path: str, *, is_page: bool) -> None:
    """What is beside the prefix is no path of the server's own."""
    api = await start(database_url, built_in(), path_prefix="/api")
    assert (await get(api, path)).headers["Content-Type"] == (HTML if is_page else JSON)


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
async def test_writes_are_answered_with_documents(api: Api, method: str) -> None:
    answer = await api.request(method, "/users", headers={"Accept": BROWSER, "Content-Type": MEDIA_TYPE}, body=None)
    assert answer.headers["Content-Type"] == JSON


async def test_the_headers_of_a_page(api: Api) -> None:
    answer = await get(api, "/users")
    assert answer.headers["Vary"].split(", ")[:3] == ["Accept", "Authorization", "Cookie"]
    assert answer.headers["Referrer-Policy"] == "same-origin"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    policy = answer.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert (await get(api, "/users?sort=nope")).headers["Cache-Control"] == "no-store"


async def test_no_page_has_a_script_or_a_style_of_its_own(api: Api) -> None:
    await fill(api)
    for path in ("/", "/users", "/users/1", "/nothing", "/users?groupBy=age"):
        page = parse((await get(api, path)).body)
        assert not page.all("style")
        assert not [one for one in page.all() if "style" in one.attributes]
        assert not [name for one in page.all() for name in one.attributes if name.startswith("on")]
        assert [one["src"].partition("?")[0] for one in page.all("script")] == ["/-/pages/pages.js"]
        urls = [one.attributes.get("href") or one.attributes.get("src") or "/" for one in page.all()]
        assert all(url.startswith(("/", "#", "?", "data:,")) for url in urls), urls


async def test_the_files_of_pages(api: Api) -> None:
    for name, media_type in (("pages.css", "text/css; charset=utf-8"), ("pages.js", "text/javascript; charset=utf-8")):
        answer = await api.request("GET", f"/-/pages/{name}")
        assert (answer.status, answer.headers["Content-Type"]) == (200, media_type)
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        again = await api.request("GET", f"/-/pages/{name}", headers={"If-None-Match": answer.headers["ETag"]})
        assert again.status == 304


async def test_a_list(api: Api) -> None:
    await fill(api)
    page = await browse(api, "/users?fields[user]=first_name,age,group&sort=id")
    rows = table(page)
    assert len(rows) == 30
    assert rows[:3] == [
        {"id": "1", "first_name": "first 1", "age": "1", "group": "Laboratory"},
        {"id": "2", "first_name": "first 2", "age": "2", "group": "null"},
        {"id": "3", "first_name": "first 3", "age": "null", "group": "Boats"},
    ]
    assert page.one("h1").text == "Users"
    assert "30 of 40 rows" in page.text
    first = page.one("tbody").all("tr")[0]
    assert [one["href"] for one in first.all("a")] == ["/users/1", "/groups/2"]


async def test_pages_go_by_cursor(api: Api) -> None:
    await fill(api)
    page = await browse(api, "/users?sort=-age&fields[user]=age")
    first = [row["id"] for row in table(page)]
    second = await browse(api, page.one("a", rel="next")["href"])
    assert not second.all("a", rel="next")
    rest = [row["id"] for row in table(second)]
    shown = (await api.get("/users?sort=-age&fields[user]=age&page[size]=0")).ids
    assert first + rest == shown
    back = await browse(api, second.one("a", rel="prev")["href"])
    assert [row["id"] for row in table(back)] == first


async def test_a_click_on_a_head_sorts(api: Api) -> None:
    await fill(api)
    path = "/users?fields[user]=age&filter[age][le]=5"
    seen = []
    for _ in range(3):
        page = await browse(api, path)
        head = page.one("thead").all("th")[1]
        seen.append((head.attributes.get("aria-sort"), [row["age"] for row in table(page)]))
        path = head.one("a")["href"]
    assert seen == [
        (None, ["1", "2", "4", "5"]),
        ("ascending", ["1", "2", "4", "5"]),
        ("descending", ["5", "4", "2", "1"]),
    ]
    assert "sort" not in dict(parse_qsl(urlsplit(path).query))


async def test_active_filters_can_be_removed(api: Api) -> None:
    await fill(api)
    nodes = '[{"name":"age","op":"le","val":9},{"name":"group.name","op":"isnot","val":null}]'
    path = f"/users?filter[age][ge]=3&filter={nodes}"
    page = await browse(api, path)
    chips = {one.text.removesuffix(" ×"): one.one("a")["href"] for one in page.one(class_="chips").all("li")[:-1]}
    assert list(chips) == ["age ≥ 3", "age ≤ 9", "group.name is not null"]
    left = {}
    for text, without in chips.items():
        found = (await browse(api, without)).one(class_="chips").all("li")
        left[text] = [one.text.removesuffix(" ×") for one in found]
    assert {text: others[:-1] for text, others in left.items()} == {
        "age ≥ 3": ["age ≤ 9", "group.name is not null"],
        "age ≤ 9": ["age ≥ 3", "group.name is not null"],
        "group.name is not null": ["age ≥ 3", "age ≤ 9"],
    }


@pytest.mark.parametrize(
    ("form", "query"),
    [
        ("field=age&operator=ge&value=30", [("sort", "id"), ("filter[age][ge]", "30")]),
        ("field=group.name&operator=eq&value=Boats", [("sort", "id"), ("filter[group.name]", "Boats")]),
        ("field=computers.count&operator=gt&value=2", [("sort", "id"), ("filter[computers][count][gt]", "2")]),
        (
            "choose=1&column=age&column=group&include=computers",
            [("sort", "id"), ("fields[user]", "age,group,computers"), ("include", "computers")],
        ),
        ("search=boat", [("sort", "id"), ("searchText", "boat")]),
        ("search=", [("sort", "id")]),
    ],
)
async def test_forms_lead_to_the_list(api: Api, form: str, query: list[tuple[str, str]]) -> None:
    answer = await api.request("GET", f"/-/pages/go?at=/users?sort=id%26page[number]=2&{form}")
    assert answer.status == 303
    found = urlsplit(answer.headers["Location"])
    assert (found.netloc, found.path, parse_qsl(found.query)) == ("", "/users", query)


@pytest.mark.parametrize(
    "at", ["//evil.example/users", "https://evil.example/", "/\\evil.example", "/nothing", "", "users"]
)
async def test_forms_lead_to_no_other_place(api: Api, at: str) -> None:
    answer = await api.request("GET", f"/-/pages/go?at={at}&search=x")
    assert answer.status == 400
    assert "Location" not in answer.headers


async def test_a_filter_of_each_operator_can_be_chosen(api: Api) -> None:
    """What the builder offers is no error."""
    await fill(api)
    page = await browse(api, "/users")
    offered = [
        (one["value"], one["data-operators"].split(), one["data-type"])
        for one in page.all("option", data_type="number")
    ]
    assert ("age", "ge") in [(name, operator) for name, operators, _ in offered for operator in operators]
    for name, operators, _ in offered:
        for operator in operators:
            value = (
                "1,2" if operator in ("in_", "notin_", "between") else "null" if operator in ("is_", "isnot") else "1"
            )
            go = f"/-/pages/go?at=/users&field={name}&operator={operator}&value={value}"
            found = await api.request("GET", go)
            await browse(api, found.headers["Location"])


async def test_related_rows_of_a_list(api: Api) -> None:
    await fill(api)
    page = await browse(api, "/users?include=computers&fields[user]=computers&fields[computer]=serial&sort=id")
    [first, second, *_] = page.one("tbody").all("tr")
    computers = [f"/computers/{number}" for number in range(1, 6)]
    assert [one["href"] for one in first.all("a")] == ["/users/1", "/users/1/computers", *computers]
    cell = first.all("td")[0].text
    assert (cell[:2], cell.endswith("computer 5 …")) == ("8:", True)
    assert second.all("td")[0].text == "0"
    page = await browse(api, "/users?include=computers&fields[user]=computers&includePage[computers][size]=2&sort=id")
    first = page.one("tbody").all("tr")[0]
    assert first.all("td")[0].text.startswith("all: computer 1")


async def test_related_rows_without_a_label(inspected: Inspected) -> None:
    """Their first numbers and moments tell them apart."""
    api = await inspected(
        "CREATE TABLE people (id int PRIMARY KEY, name text); "
        "CREATE TABLE payments (id int PRIMARY KEY, note text, updated_at timestamptz, amount numeric(5, 2), "
        "tags int[], paid_at timestamptz, fee int, person_id int REFERENCES people); "
        "INSERT INTO people VALUES (1, 'Ann'); "
        "INSERT INTO payments VALUES (7, 'x', now(), 2.50, '{1}', '2026-01-31 10:00:05+01', 3, 1), "
        "(8, 'y', now(), NULL, NULL, NULL, NULL, 1)"
    )
    page = await browse(api, "/people/1")
    [section] = page.all("section", class_="related")
    assert [one.text for one in section.one("ul").all("li")] == ["7 2.50 · 2026-01-31 09:00 UTC", "8"]
    page = await browse(api, "/payments/7")
    assert page.one("h1").text == "7"


async def test_a_summary_tells_nothing_of_hidden_fields(inspected: Inspected) -> None:
    payments = Resource(
        "payment",
        "/payments",
        "payments",
        attributes=(
            Attribute("amount", INT, nullable=True, read_by=Role("clerk")),
            Attribute("fee", INT, required=True),
        ),
        relationships=(ToOne("person", "person"),),
        access=(Allow(ANYONE, "read"),),
    )
    people = Resource(
        "person",
        "/people",
        "people",
        relationships=(ToMany("payments", "payment", foreign_key="person_id"),),
        access=(Allow(ANYONE, "read"),),
    )
    api = await inspected(
        "CREATE TABLE people (id bigserial PRIMARY KEY); INSERT INTO people VALUES (1); CREATE TABLE payments "
        "(id bigserial PRIMARY KEY, amount int, fee int NOT NULL, person_id bigint REFERENCES people); "
        "INSERT INTO payments VALUES (7, 12345, 3, 1)",
        Catalog([people, payments]),
    )
    page = await browse(api, "/people/1")
    assert page.one("section", class_="related").one("ul").text.split() == ["7", "3"]
    assert "12345" not in page.text


async def test_a_resource(api: Api) -> None:
    await fill(api)
    page = await browse(api, "/users/1")
    assert page.one("h1").text == "first 1 last 1"
    fields = page.one("dl", class_="fields")
    shown = dict(zip([one.text for one in fields.all("dt")], [one.text for one in fields.all("dd")], strict=True))
    assert (shown["first_name"], shown["email"], shown["group"]) == ("first 1", "null", "Laboratory")
    assert shown["bio"] == "null"
    sections = {one.one("h2").text: one for one in page.all("section", class_="related")}
    assert list(sections) == ["computers 8", "posts 0"]
    links = sections["computers 8"].one("ul").all("a")
    assert [(one["href"], one.text) for one in links] == [
        *[(f"/computers/{n}", f"computer {n}") for n in range(1, 6)],
        ("/users/1/computers", "all 8"),
    ]


async def test_an_empty_to_one(api: Api) -> None:
    await fill(api)
    page = await browse(api, "/users/2/group")
    assert "null" in page.one("main").text
    assert (await browse(api, "/users/1/group")).one("h1").text == "Laboratory"


async def test_related_resources_are_those_of_a_label(api: Api) -> None:
    await fill(api)
    for path in ("/users/1/computers", "/users/1/relationships/computers"):
        page = await browse(api, f"{path}?filter[name][like]=computer")
        assert page.one("title").text.startswith("computers of first 1 last 1")
        assert page.one("h1").text == "computers of first 1 last 1"
        assert page.all("a", href="/users/1")[0].text == "first 1 last 1"
    assert (await browse(api, "/users/99/computers", status=404)).one("h1")


@pytest.mark.parametrize(
    ("facts", "hidden", "shown"),
    [
        ({}, "", "uses of n"),
        ({"label": "code"}, "", "uses of c"),
        ({}, "name", "uses of c"),
        ({}, "name code", "uses of part 1"),
        # The resource itself may not be read.
        ({"methods": frozenset({"list"})}, "", "uses of part 1"),
    ],
)
async def test_whose_label_related_resources_show(
    inspected: Inspected, facts: dict[str, Any], hidden: str, shown: str
) -> None:
    sql = """
        CREATE TABLE parts (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, code text, name text, size int);
        CREATE TABLE uses (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, part_id bigint REFERENCES parts);
        INSERT INTO parts VALUES (1, 'c', 'n', 5); INSERT INTO uses VALUES (1, 1);
    """
    attributes = tuple(
        [
            Attribute(name, TEXT, nullable=True, read_by=Role("x") if name in hidden else ANYONE)
            for name in ("code", "name")
        ]
    )
    everybody = (Allow(ANYONE, "read"),)
    related = (ToMany("uses", "use", foreign_key="part_id"),)
    parts = Resource("part", "/parts", "parts", attributes, related, access=everybody, **facts)
    uses = Resource("use", "/uses", "uses", relationships=(ToOne("part", "part"),), access=everybody)
    api = await inspected(sql, Catalog([parts, uses]))
    for path in ("/parts/1/uses", "/parts/1/relationships/uses"):
        assert (await browse(api, path)).one("h1").text == shown


async def test_linkage(api: Api) -> None:
    await fill(api)
    page = await browse(api, "/users/1/relationships/computers")
    assert [one["href"] for one in page.one("tbody").all("a")] == [f"/computers/{n}" for n in range(1, 9)]


async def test_groups(api: Api) -> None:
    await fill(api)
    page = await browse(api, "/users?groupBy=group.name&aggregateAs[n]=count()&sort=-n")
    assert [tuple(row.values()) for row in table(page)] == [("Laboratory", "14"), ("Boats", "13"), ("null", "13")]


async def test_a_long_list_is_capped(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(api)
    for module in ("querybuild.sql.select", "server.execution.execute"):
        monkeypatch.setattr(f"{module}.CAPPED_TOTAL", 35)
    page = await browse(api, "/users?fields[user]=age")
    assert page.one(class_="head").text.startswith("Users 30 of more than")
    [exact] = [one["href"] for one in page.one(class_="head").all("a") if one.text == "count all"]
    assert "30 of 40 rows" in (await browse(api, exact)).text


async def test_all_rows_at_once_are_a_page(api: Api) -> None:
    """A browser shows no table of a million rows."""
    await api.sql("INSERT INTO groups (name) SELECT 'g' || n FROM generate_series(1, 1100) n")
    page = await browse(api, "/groups?page[size]=0")
    assert len(table(page)) == 1000
    assert len(table(await browse(api, page.one("a", rel="next")["href"]))) == 100


async def test_the_start_page(api: Api) -> None:
    await fill(api)
    await api.sql("ANALYZE")
    page = await browse(api, "/")
    listed = {one.all("a")[0].text: one for one in page.one(id="collections").all("li")}
    assert listed["Users"].all("a")[0]["href"] == "/users"
    assert "about 40 rows" in listed["Users"].text
    assert "linked with Computers" in listed["Users"].text
    assert len(page.one("svg").all("rect")) == len(listed)
    found = await browse(api, "/?findText=comp")
    assert [one.all("a")[0].text for one in found.one(id="collections").all("li")] == ["Computers"]


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/nothing", 404, "There is nothing at"),
        ("/-/pages/nothing", 404, "There is nothing at"),
        ("/users/999", 404, "999"),
        ("/users?sort=nope", 400, "nope"),
        ("/users?filter[age]=x&sort=nope", 400, "nope"),
        ("/users?page[after]=x", 400, "cursor"),
    ],
)
async def test_errors_are_pages(api: Api, path: str, status: int, text: str) -> None:
    page = await browse(api, path, status=status)
    document = (await api.request("GET", path)).document
    assert text in page.text
    assert [one.all("p")[0].text for one in page.one(class_="errors").all("li")] == [
        " ".join(error["detail"].split()) for error in document["errors"]
    ]


def run(command: str) -> bytes:
    return subprocess.run(["/bin/sh", "-c", command], check=True, capture_output=True).stdout


async def test_requests_to_copy(api: Api) -> None:
    """They are run in a shell, and quoted for it."""
    await api.sql("INSERT INTO groups (name) VALUES ($1), ('x')", 'it\'s $(id) `id` "<b>" \\')
    path = "/groups?filter[name]=it%27s%20%24%28id%29%20%60id%60%20%22%3Cb%3E%22%20%5C"
    page = await browse(api, path)
    texts = {
        dt.text: dd.text
        for dt, dd in zip(page.one(class_="learn").all("dt"), page.one(class_="learn").all("dd"), strict=True)
    }
    assert texts["URL"] == f"http://127.0.0.1:{api.port}{path.replace('[', '%5B').replace(']', '%5D')}"
    found = msgspec.json.decode(await asyncio.to_thread(run, texts["curl"]))
    assert [one["id"] for one in found["data"]] == ["1"]
    assert shlex.split(texts["curl"])[:3] == ["curl", "-g", "-H"]
    assert "<" not in texts["JavaScript"].split("fetch(")[1].split(",")[0]


EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;{{7*7}}"

HARD = """
    CREATE TABLE owners (id int PRIMARY KEY, name text);
    CREATE TABLE things (
        id text PRIMARY KEY, title text, data jsonb, tags text[], at timestamptz, body bytea, url text, n int,
        owner_id int REFERENCES owners
    );
    COMMENT ON TABLE things IS '<script>alert(3)</script>';
    COMMENT ON COLUMN things.title IS '<script>alert(4)</script>';
"""


async def evil(inspected: Inspected) -> Api:
    api = await inspected(HARD)
    await api.sql("INSERT INTO owners VALUES (1, $1)", EVIL)
    await api.sql(
        "INSERT INTO things VALUES ($1, $1, to_jsonb($1::text), ARRAY[$1], '2026-01-02 03:04:05+00', '', $2, 5, 1)",
        EVIL,
        "javascript:alert(5)",
    )
    await api.sql(
        "INSERT INTO things (id, title, url, data) VALUES ('2', NULL, 'https://x.example/?a=1&b=2', $1)", '{"a":"<b>"}'
    )
    await api.sql("INSERT INTO things (id, title, url) VALUES ('.', 'dot', 'see https://x.example')")
    return api


def check_harmless(page: Element) -> None:
    assert len(page.all("script")) == 1
    assert not page.all("img")
    assert not page.all("b")
    for one in page.all():
        assert not [name for name in one.attributes if name.startswith("on")]
        for name in ("href", "src", "action"):
            assert not one.attributes.get(name, "").lower().startswith("javascript")


async def test_values_are_no_markup(inspected: Inspected) -> None:
    api = await evil(inspected)
    for path in (
        "/things",
        "/",
        f"/things/{quote(EVIL, safe='')}",
        "/things/2",
        "/owners/1",
        "/owners/1/things",
        f"/things?filter[title]={quote(EVIL)}",
        f"/things?{quote(EVIL)}=1",
        f"/{quote(EVIL)}",
        f"/things?sort={quote(EVIL)}",
        f"/?findText={quote(EVIL)}",
        f"/things?filter={quote('[' + EVIL)}",
    ):
        answer = await get(api, path)
        assert answer.headers["Content-Type"] == HTML, path
        check_harmless(parse(answer.body))
    shown = table(await browse(api, "/things?sort=-id"))
    assert shown[0]["title"] == EVIL[:79] + "…" if len(EVIL) > 80 else EVIL


async def test_links_in_values(inspected: Inspected) -> None:
    """Only a whole value is a link, and only to a place that a browser opens without harm."""
    api = await evil(inspected)
    page = await browse(api, "/things?fields[thing]=url&sort=id")
    links = [one for one in page.one("tbody").all("a") if one.attributes.get("rel")]
    assert [(one["href"], one["rel"]) for one in links] == [
        ("https://x.example/?a=1&b=2", "noopener noreferrer nofollow")
    ]


async def test_ids_that_no_url_can_name_are_no_links(inspected: Inspected) -> None:
    api = await evil(inspected)
    page = await browse(api, "/things?filter[title]=dot")
    assert table(page)[0]["title"] == "dot"
    assert not page.one("tbody").all("a")


async def test_times_are_in_utc(inspected: Inspected) -> None:
    api = await evil(inspected)
    page = await browse(api, "/things?fields[thing]=at&sort=-id")
    [time] = page.one("tbody").all("time")
    assert (time["datetime"], time.text) == ("2026-01-02T03:04:05Z", "2026-01-02 03:04:05 UTC")
    assert "data-utc" in time.attributes


async def test_long_texts_and_json_are_folded(inspected: Inspected) -> None:
    api = await inspected("CREATE TABLE notes (id int PRIMARY KEY, body text, data jsonb)")
    await api.sql("INSERT INTO notes VALUES (1, $1, $2)", "word " * 200, '{"a": [' + ",".join(["1"] * 100) + "]}")
    page = await browse(api, "/notes/1")
    more = page.one("details", class_="more")
    assert page.one("dl", class_="fields").text.count("word") == 200
    assert len(more.one(class_="text").text) > 500
    assert len(table(await browse(api, "/notes"))[0]["body"]) <= 80


WIDE = f"CREATE TABLE wide (id int PRIMARY KEY, {', '.join(f'c{n} int' for n in range(1, 51))})"


async def test_a_wide_table_shows_its_first_fields(inspected: Inspected) -> None:
    api = await inspected(WIDE)
    await api.sql("INSERT INTO wide (id, c50) VALUES (1, 7)")
    page = await browse(api, "/wides")
    assert len(page.one("thead").all("th")) == 21
    assert "30 more fields" in page.text
    assert table(await browse(api, "/wides?fields[wide]=c50")) == [{"id": "1", "c50": "7"}]
    assert len(page.all("input", name="column")) == 50


LABELLED: dict[str, Any] = {
    "attributes": (
        Attribute("code", TEXT, nullable=True),
        Attribute("name", TEXT, nullable=True),
        Attribute("size", INT, nullable=True),
    )
}


@pytest.mark.parametrize(
    ("label", "row", "shown"),
    [
        ("", "(1, 'c', 'n', 5)", "n"),
        ("code", "(1, 'c', 'n', 5)", "c"),
        ("", "(1, 'c', NULL, 5)", "1"),
        ("", "(1, 'c', '  ', 5)", "1"),
        ("", "(1, 'c', repeat('x', 100), 5)", "x" * 79 + "…"),
    ],
)
async def test_labels(inspected: Inspected, label: str, row: str, shown: str) -> None:
    sql = f"""
        CREATE TABLE parts (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, code text, name text, size int);
        CREATE TABLE uses (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, part_id bigint REFERENCES parts);
        INSERT INTO parts VALUES {row}; INSERT INTO uses VALUES (1, 1);
    """
    parts = Resource("part", "/parts", "parts", **LABELLED, label=label)
    uses = Resource("use", "/uses", "uses", relationships=(ToOne("part", "part"),))
    api = await inspected(sql, Catalog([parts, uses]))
    for path in ("/uses", "/uses?include=part&fields[part]=size", "/uses/1"):
        page = await browse(api, path)
        assert [one.text for one in page.all("a", href="/parts/1")] == [shown]
    assert (await browse(api, "/parts/1")).one("h1").text == shown


IDENTITY = "id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"


async def test_a_page_has_no_more_than_its_limits(inspected: Inspected) -> None:
    """A resource with many relationships shows the rows of some of them, and links to all."""
    tables = "".join([f"CREATE TABLE t{n} ({IDENTITY}, hub_id bigint);" for n in range(30)])
    many = tuple([ToMany(f"r{n}", f"t{n}", foreign_key="hub_id") for n in range(30)])
    hub = Resource("hub", "/hubs", "hubs", relationships=many)
    others = [Resource(f"t{n}", f"/t{n}", f"t{n}") for n in range(30)]
    hubs = (
        "CREATE TABLE hubs (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY); INSERT INTO hubs DEFAULT VALUES;"
    )
    api = await inspected(hubs + tables, Catalog([hub, *others]))
    page = await browse(api, "/hubs/1")
    assert len(page.all("section", class_="related")) == 30
    await browse(api, "/hubs")


async def test_a_first_page_is_small(inspected: Inspected) -> None:
    """30 rows of 40 columns, with style and script, compressed."""
    columns = ", ".join([f"c{n} text" for n in range(39)])
    api = await inspected(f"CREATE TABLE wide (id int PRIMARY KEY, {columns})")
    values = ", ".join([f"md5(n::text || 'c{n}')" for n in range(39)])
    await api.sql(f"INSERT INTO wide SELECT n, {values} FROM generate_series(1, 30) n")
    size = 0
    for path in ("/wides", "/-/pages/pages.css", "/-/pages/pages.js"):
        size += len(zlib.compress((await get(api, path)).body, compression.LEVEL))
    assert size < 60 * 1024


PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
FILES = """
    CREATE TABLE files (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, body bytea, "odd/na me" bytea)
"""


async def test_bytes_are_saved(inspected: Inspected) -> None:
    api = await inspected(FILES)
    for body in (PNG, b"<svg onload=alert(1)>", b"RIFF1234WEBPxx", b"GIF89a", None, PNG + bytes(1_048_577)):
        await api.sql('INSERT INTO files (body, "odd/na me") VALUES ($1, $1)', body)
    for row_id, shown in ((1, "image/png"), (2, None), (3, "image/webp"), (4, "image/gif"), (6, None)):
        page = await browse(api, f"/files/{row_id}")
        assert bool(page.all("img")) == (shown is not None)
        [url, other] = [one["href"] for one in page.all("a") if "download" in one.attributes]
        answer = await get(api, url)
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "application/octet-stream"
        assert answer.headers["Content-Disposition"] == 'attachment; filename="body"'
        assert answer.headers["Content-Security-Policy"] == "sandbox; default-src 'none'"
        image = await get(api, f"{url}?shown=1")
        assert image.headers["Content-Type"] == (shown or "application/octet-stream")
        assert image.body == answer.body == (await get(api, other)).body
    for path in ("files/5/body", "files/9/body", "files/1/id", "files/1/nothing", "files/1"):
        assert (await get(api, f"/-/pages/bytes/{path}")).status == 404


async def test_facets(api: Api) -> None:
    """The values of enums, booleans and declared attributes, with the filters of the list."""
    await fill(api)
    await api.sql("UPDATE users SET status = 'block', gender = 'female' WHERE id <= 5")
    page = await browse(api, "/users?filter[age][le]=10&sort=age")
    url = page.one("a", data_load="")["href"]
    facets = await browse(api, url)
    sections = {one.one("h2").text: one for one in facets.all("section")}
    assert [one.text for one in sections["status"].all("li")] == ["active 5", "block 4"]
    assert [one.text for one in sections["gender"].all("li")] == ["null 5", "female 4"]
    urls = [one["href"] for name in ("status", "gender") for one in sections[name].all("a")]
    assert [len(table(await browse(api, url))) for url in urls] == [5, 4, 5, 4]


async def test_a_declared_facet(inspected: Inspected) -> None:
    part = Resource("part", "/parts", "parts", attributes=(Attribute("name", TEXT, nullable=True, facet=True),))
    sql = f"CREATE TABLE parts ({IDENTITY}, name text); INSERT INTO parts (name) VALUES ('a'), ('a'), (''), (NULL)"
    api = await inspected(sql, Catalog([part]))
    facets = await browse(api, "/-/pages/facets/parts")
    assert [one.text for one in facets.one(id="facets").all("li")] == ["a 2", "empty 1", "null 1"]
    assert [len(table(await browse(api, one["href"]))) for one in facets.one(id="facets").all("a")] == [2, 1, 1]


async def test_a_facet_that_takes_too_long(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.handlers.pages.facets.FACET_SECONDS", 1e-6)
    page = await browse(api, "/-/pages/facets/users?filter[age]=1")
    [text, *_] = [one.text for one in page.all("p", class_="muted")]
    assert text == "It took too long. Count all values"


async def test_facets_of_related_resources(inspected: Inspected) -> None:
    api = await inspected(
        """
        CREATE TYPE mood AS ENUM ('sad', 'glad');
        CREATE TABLE owners (id text PRIMARY KEY);
        CREATE TABLE pets (id int PRIMARY KEY, mood mood, owner_id text REFERENCES owners);
        INSERT INTO owners VALUES ('a/b'), ('none');
        INSERT INTO pets VALUES (1, 'sad', 'a/b'), (2, 'sad', 'a/b'), (3, 'glad', 'a/b'), (4, 'glad', NULL);
        """
    )
    page = await browse(api, "/owners/a%2Fb/pets?filter[id][lt]=9")
    url = page.one("a", data_load="")["href"]
    assert url == "/-/pages/facets/owners/a%2Fb/pets?filter%5Bid%5D%5Blt%5D=9"
    facets = await browse(api, url)
    assert [one.text for one in facets.one(id="facets").all("li")] == ["sad 2", "glad 1"]
    assert [len(table(await browse(api, one["href"]))) for one in facets.one(id="facets").all("a")] == [2, 1]
    assert [one["href"] for one in facets.one("header").all("a")][1] == "/owners/a%2Fb/pets?filter%5Bid%5D%5Blt%5D=9"
    facets = await browse(api, "/-/pages/facets/owners/none/pets")
    assert [one.text for one in facets.one(id="facets").all("li")] == ["no rows"]
    for path in ("/owners/nobody/pets", "/owners/a%2Fb/nothing", "/owners/a%2Fb"):
        assert (await get(api, f"/-/pages/facets{path}")).status == 404, path
    assert (await get(api, "/-/pages/facets/pets/1/owner")).status == 405


async def test_a_list_without_facets(inspected: Inspected) -> None:
    api = await inspected("CREATE TABLE plain (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, n int)")
    assert not (await browse(api, "/plains")).all("a", data_load="")


FUNCTIONS = f"""
    CREATE TABLE things ({IDENTITY}, name text);
    INSERT INTO things (name) VALUES ('a'), ('b'), ('c');
    CREATE FUNCTION many(n int) RETURNS SETOF things LANGUAGE sql STABLE AS $$ SELECT * FROM things WHERE id >= n $$;
    CREATE FUNCTION total() RETURNS jsonb LANGUAGE sql STABLE AS $$ SELECT '{{"a": "<b>"}}'::jsonb $$;
"""


async def test_functions(inspected: Inspected) -> None:
    thing = Resource("thing", "/things", "things", attributes=(Attribute("name", TEXT, nullable=True),))
    many = Function("many", arguments=(Attribute("n", INT, required=True),), returns="thing")
    api = await inspected(FUNCTIONS, Catalog([thing, many, Function("total")]))
    page = await browse(api, "/many?arg_n=2")
    assert [row["name"] for row in table(page)] == ["b", "c"]
    assert page.one("h1").text == "many"
    answer = await get(api, "/many?arg_n=2&answerAs=csv")
    assert answer.body == b'id,name\r\n2,"b"\r\n3,"c"\r\n'
    page = await browse(api, "/total")
    assert '"a": "<b>"' in page.one("pre", dir="auto").text
    assert (await get(api, "/total?nope=1")).status == 400
    assert [one["href"] for one in (await browse(api, "/")).all("a") if one.text == "total"] == ["/total"]
