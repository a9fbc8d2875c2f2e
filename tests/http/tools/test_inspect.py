"""`waterspout inspect` and `serve --inspect`: the module that it writes, and all rows and functions of it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tornado.ioloop import IOLoop

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.terms import quote_ident
from server.settings import Settings, StartError
from server.startup import start as startup
from server.startup.start import declarations, open_database_url, prepare_database
from tests.conftest import on_server, with_database
from tests.http.conftest import Serve, Start, from_tables
from tests.http.inspecting import HERE, NAME, from_file, hard_url, ids_of, inspect, rows_of, text_of

__all__ = ["hard_url"]

REMARKS = """\
Sales Dept.orders: its type is “sales_dept_order”: several tables are called “order”
orders: the column “type” is called “order_type”: “type” is reserved
orders: the column “links” is called “order_links”: “links” is reserved
orders: the column “a b” is called “order_a_b”: another field is called “a_b”
orders: the column “A_B” is called “order_a_b_2”: another field is called “a_b”
orders: the column “🙂” is called “column_13”: it has no letter and no digit
orders: the column “_” is called “column_14”: it has no letter and no digit
people: the relationship through interests is called “categories_through_interests”: \
another field is called “categories”
日本: the column “id” is called “日本_id”: “id” is reserved
people(): its path is “/people-function”: “/people” is taken
people(integer): its path is “/people-by-home”: “/people” is taken
Sales Dept.OrdersAbove(numeric, integer): SECURITY DEFINER: it does all that the role “waterspout” may do
Sales Dept.people(): its path is “/sales-dept-people”: “/people” is taken
25 resources and 15 functions of the database “hard”; 1 link table; 5 not served; 11 functions without a route; \
left out: 1 aggregate, 1 child table, 6 internal functions, 1 migration table, 2 partitions, 1 procedure, \
2 trigger functions
"""


def test_the_module_that_it_writes(hard_url: str) -> None:
    assert inspect(hard_url) == (0, (HERE / "hard_schema.py").read_text(encoding="utf-8"), REMARKS)


@pytest.fixture(params=[from_file, from_tables])
def catalog(request: pytest.FixtureRequest, hard_url: str) -> Catalog:
    made: Callable[[str], Catalog] = request.param
    return made(hard_url)


async def test_every_resource_is_listed_with_everything_it_refers_to(
    start: Start, hard_url: str, catalog: Catalog
) -> None:
    api = await start(hard_url, catalog)
    for resource in catalog:
        include = quote(",".join(one.name for one in resource.relationships))
        answer = await api.get(f"{quote(resource.path)}?page[size]=0&include={include}")
        assert answer.status == 200, (resource.type, answer.body)
        assert sorted(answer.ids) == sorted(await ids_of(hard_url, resource))
        names = {one.name for one in (*resource.attributes, *resource.relationships)}
        for one in answer.document["data"]:
            assert {*one.get("attributes", {}), *one.get("relationships", {})} == names


CALLS = {
    "/friend-of?arg_person=1": "friend_of(1)",
    "/gloomy?arg_mood=happy": "gloomy('happy')",
    "/mayor-of?arg_city=1": "mayor_of(1)",
    "/nothing": "NULL::text",
    "/people-function": "people()",
    "/people-by-home?arg_home=1": "people(1)",
    "/people-called?arg_name=%&filter[name]=Bob&include=interests": "people_called('Bob')",
    "/people-called?arg_name=%&arg_limit=1": "people_called('%', 1)",
    "/percents?arg_share=50": "percents(50)",
    "/say-hi?arg_filter=[&arg_page=2&arg_include=true&arg_sort=2024-02-29&arg_fields=a,b&arg_id=9007199254740993"
    "&arg_type=00000000-0000-0000-0000-000000000001&arg_select={}": (
        "\"say \"\"hi\"\"\"('[', 2, true, '2024-02-29', '{a,b}', 9007199254740993, "
        "'00000000-0000-0000-0000-000000000001', '{}')"
    ),
    "/shelves-in?arg_building=a,b\\": "shelves_in('a,b\\')",
    "/size-of?arg_what=abc": "size_of('abc')",
    '/spot-of?arg_spot={"x":1,"moods":["happy"],"price":"2.50"}&arg_moods=happy,so so&arg_share=50&arg_pieces=1,2,3': (
        "spot_of('(1,{happy},2.50)', '{happy,so so}', 50, '{1,2,3}')"
    ),
    '/spots?arg_spots=[{"x":1}]': "spots('{\"(1,,)\"}')",
    "/orders-above?arg_unit_price=1.5&arg_grosse=1": '"Sales Dept"."OrdersAbove"(1.5, 1)',
    "/sales-dept-people": '"Sales Dept".people()',
}
"""The URL of a function -> its call in SQL."""


async def test_every_function_returns_what_it_returns_in_sql(start: Start, hard_url: str, catalog: Catalog) -> None:
    api = await start(hard_url, catalog)
    assert {url.partition("?")[0] for url in CALLS} == {one.route_path for one in catalog.functions}
    for url, call in CALLS.items():
        answer = await api.get(quote(url, safe="/?&=[],"))
        assert answer.status == 200, (url, answer.body)
        function = catalog.functions_by_path[url.partition("?")[0]]
        if function.returns:
            columns = ",".join(
                f"r.{quote_ident(name)}::text" for name in catalog.by_type[function.returns].id.key.columns
            )
            expected = [text_of(row) for row in await rows_of(hard_url, f"SELECT {columns} FROM {call} r ORDER BY 1")]
            assert answer.ids == expected != [], url
        else:
            [[value]] = await rows_of(hard_url, f"SELECT to_json({call})")
            assert answer.document["meta"] == {"result": None if value is None else json.loads(value)}, url


def test_hints_publish_functions(serve: Serve, io_loop: IOLoop, hard_url: str, tmp_path: Path) -> None:
    hints = tmp_path / "hints.toml"
    hints.write_text(
        '[functions.rename]\nmethod = "POST"\nnames = { person = "who", person_id = "x" }\n'
        '[functions."ids_of_people()"]\nreturns = "person"\npath = "/all"\n'
        '[functions.ranked]\nmethod = "POST"\nreturns = "person"\n[functions.twice]\nmethod = "POST"\n'
        '[functions.friends_of]\nreturns = "persn"\n[functions.spots]\nreturns = "person"\n[functions.no]\n'
        '[functions."people(integer)"]\nreturns = "person"\n'
    )
    code, text, remarks = inspect(hard_url, "--hints", str(hints))
    assert code == 0
    assert '\nALL = Function("ids_of_people", path="/all", returns="person")\n' in text
    reasons = " ".join(text.partition("# Functions without a route:")[2].replace("\n#", "").split())
    for reason in (
        "friends_of(integer): the hints say that it returns “persn”: no such type. Did you mean “person”?",
        "people(integer): it returns int8, and not rows of the table “people”, or ids, which are int",
        "spots(spot[]): it returns _spot, and not rows of the table “people”, or ids, which are int",
        "twice(integer), unnamed(integer): its arguments have no names: CREATE OR REPLACE it with names",
    ):
        assert reason in reasons
    assert 'Function("people", path="/people-function")' in text
    assert "rename(integer, text): the hint about “person_id” fits no argument" in remarks.splitlines()
    assert "the hints name the function “no”, which is not inspected." in remarks
    api = serve(hard_url, declarations(Settings(database_url=hard_url, inspect=True, hints=hints)).catalog)
    assert io_loop.run_sync(lambda: api.get("/all")).ids == ["1", "2"]
    assert io_loop.run_sync(lambda: api.post("/ranked", {})).ids == ["1", "2"]
    answer = io_loop.run_sync(lambda: api.post("/rename?include=home", {"meta": {"who": 2, "name": "Bob"}}))
    assert (answer.status, answer.ids, answer.document["data"][0]["attributes"]) == (200, ["2"], {"name": "Bob"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"resources": "x"}, "inspect declares the resources itself: leave out --inspect or --resources"),
        ({"database_url": None}, "inspect is for a database with tables: say where it is with --database-url"),
        (
            {"migrate": True},
            "inspect reads the tables before the start: run `waterspout migrate up`, and leave out --migrate",
        ),
        ({"hints": Path("/no/hints")}, "the hints /no/hints cannot be read: No such file or directory"),
    ],
)
def test_what_cannot_be_inspected(hard_url: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(StartError) as raised:
        declarations(Settings(**({"database_url": hard_url, "inspect": True} | settings)))
    assert str(raised.value) == message


def test_inspect_without_tables_creates_no_database(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with ExitStack() as cleanup, pytest.raises(StartError, match="inspect is for a database with tables"):
        open_database_url(Settings(inspect=True, data_dir=data_dir), cleanup)
    assert not data_dir.exists()


def test_a_server_that_inspects_compares_the_tables_once(hard_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(startup, "read_live_schema")
    settings = Settings(database_url=hard_url, inspect=True)
    declared = declarations(settings)
    schema = asyncio.run(prepare_database(hard_url, settings, declared))
    assert schema.catalog is not None
    assert [one.type for one in schema.catalog] == [one.type for one in declared.catalog]


def test_the_example_of_the_docs(postgres_url: str, tmp_path: Path) -> None:
    page = (HERE.parents[1] / "docs" / "your-database.md").read_text(encoding="utf-8")
    tables, functions = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)[:2]
    resources, _, routes = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:3]
    hints = tmp_path / "hints.toml"
    hints.write_text("\n".join(re.findall(r"```toml\n(.*?)```", page, re.DOTALL)))
    name = f"{NAME}_shop"
    on_server(postgres_url, f"CREATE DATABASE {name}")
    on_server(with_database(postgres_url, name), tables, functions)
    code, text, _ = inspect(with_database(postgres_url, name))
    hinted, remarks = inspect(with_database(postgres_url, name), "--hints", str(hints))[1:]
    on_server(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")
    assert code == 0
    assert [line for line in remarks.splitlines() if "fits no" in line] == []
    assert 'ToOne("host", "customer", column="invited_by")' in hinted
    assert 'ToMany("guests", "customer", foreign_key="invited_by")' in hinted
    assert text.partition("CUSTOMER = ")[2].partition("\nRESOURCES")[0] == (
        f"{resources.partition('CUSTOMER = ')[2]}\n{routes}"
    )
