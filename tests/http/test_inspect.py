"""`waterspout inspect` and `serve --inspect`, over a database that is hard to declare (`hard_schema.sql`)."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from difflib import ndiff
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest
from tornado.ioloop import IOLoop

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.database_types.texts import CITEXT
from querybuild.declarations.resource import Id, Resource, ToOne
from querybuild.declarations.terms import quote_ident
from server.__main__ import main
from server.schema.fault import Fault
from server.schema.live_schema import read_live_schema
from server.settings import Settings, StartError
from server.startup import start as startup
from server.startup.declarations import load_declarations
from server.startup.start import declarations, open_database_url, prepare_database
from server.tools.inspecting.catalog.choosing import Choice
from server.tools.inspecting.report import inspect_database
from server.tools.inspecting.text.module import python_module
from tests.conftest import on_server, with_database
from tests.faults.cluster import Cluster
from tests.http.conftest import Serve, Start, from_tables
from tests.http.test_text_types import debian_cluster  # noqa: F401

HERE = Path(__file__).parent
NAME = f"waterspout_hard_{os.getpid()}"

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


@pytest.fixture(scope="module")
def hard_url(postgres_url: str) -> Iterator[str]:
    """Yield the URL of a database with the tables and rows of `hard_schema.sql`."""
    url = with_database(postgres_url, NAME)
    on_server(postgres_url, f"DROP DATABASE IF EXISTS {NAME}", f"CREATE DATABASE {NAME}")
    on_server(url, (HERE / "hard_schema.sql").read_text(encoding="utf-8"))
    yield url
    on_server(postgres_url, f"DROP DATABASE {NAME} WITH (FORCE)")


def inspect(url: str, *arguments: str) -> tuple[int, str, str]:
    """Return the exit code of the command, the module that it writes, and its remarks."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err, pytest.raises(SystemExit) as end:
        main(("inspect", "--database-url", url, *arguments), prog_name="waterspout")
    assert isinstance(end.value.code, int)
    return end.value.code, out.getvalue().replace(NAME, "hard"), err.getvalue().replace(NAME, "hard")


def test_the_module_that_it_writes(hard_url: str) -> None:
    assert inspect(hard_url) == (0, (HERE / "hard_schema.py").read_text(encoding="utf-8"), REMARKS)


def from_file(url: str) -> Catalog:
    return load_declarations(str(HERE / "hard_schema.py")).catalog


def text_of(parts: Sequence[str]) -> str:
    """Return the id of a row."""
    return parts[0] if len(parts) == 1 else ",".join(re.sub(r"([\\,])", r"\\\1", part) for part in parts)


async def rows_of(url: str, sql: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetch(sql)
    finally:
        await connection.close()


async def ids_of(url: str, resource: Resource) -> list[str]:
    table = f"{quote_ident(resource.schema or 'public')}.{quote_ident(resource.table)}"
    columns = [quote_ident(name) for name in resource.id.key.columns]
    shown = ",".join(f"{column}::text" for column in columns)
    return [text_of(row) for row in await rows_of(url, f"SELECT {shown} FROM {table} ORDER BY {','.join(columns)}")]


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


def test_functions_of_the_choice(hard_url: str) -> None:
    for arguments, made in (
        (("--only", "people*"), ["people", "people", "people", "people_called"]),
        (("--only", "people", "--only", "sp*()"), ["people", "people", "people", "spot_of", "spots"]),
        (("--skip", "*()"), []),
        (("--schema", "Sales Dept"), ["OrdersAbove", "people"]),
    ):
        text = inspect(hard_url, *arguments)[1]
        names = re.findall(r'^\w+ = Function\(\s*"(\w+)"', text, re.MULTILINE)
        assert sorted(names) == sorted(made), arguments


def test_choices(hard_url: str, tmp_path: Path) -> None:
    hints = tmp_path / "hints.toml"
    hints.write_text(
        'schemas = ["public"]\nskip = ["sam*", "*()"]\n'
        '[tables.names]\nid = "name"\ntype = "first_name"\npath = "/who"\n'
        'names = { people = "count", peopel = "x" }\n'
        '[tables.people]\nnames = { boss = "x", categories = "led" }\n[tables.persons]\n'
    )
    only = ("--only", "pe*", "--only", "names")
    code, text, remarks = inspect(hard_url, *only, "--skip", "prof*", "--hints", str(hints))
    assert code == 0
    assert '    "first_name",\n    "/who",\n    "names",\n    id=Id("name", TEXT, unique=True),\n' in text
    assert 'Attribute("count", BIGINT, column="people", nullable=True)' in text
    assert text.endswith("RESOURCES = [\n    FIRST_NAME,\n    PERSON,\n]\n")
    assert remarks.splitlines() == [
        "the hints name the table “persons”, which is not inspected.",
        "names: the hint about “peopel” fits no column and no field. Did you mean “people”?",
        "people: the hint about “boss” fits no column and no field.",
        "people: the hint about “categories” fits no column and no field.",
        "2 resources of the database “hard”; left out: 30 other functions, 31 other tables, 4 skipped functions",
    ]


def test_a_key_to_a_table_that_is_left_out(hard_url: str) -> None:
    """A table of another schema has the schema in its name."""
    for arguments, comment in (
        (("--only", "cities"), "# “mayor” refers to people, which is not served"),
        (("--skip", "countries"), "# “country_code” refers to countries, which is not served"),
        (("--only", "Sales Dept.orders"), "# “Status ID” refers to Sales Dept.OrderStatuses, which is not served"),
    ):
        assert comment in inspect(hard_url, *arguments)[1].splitlines(), arguments


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["--only", "profils"], ["there is no table “profils”. Did you mean “profiles”?"]),
        (["--only", "peple", "--skip", "tmp_*"], ["there is no table “peple”. Did you mean “people”?"]),
        (["--skip", "public.peple"], ["there is no table “public.peple”. Did you mean “public.people”?"]),
        (
            ["--schema", "pubic", "--only", "zzz"],
            ["there is no table in a schema “pubic”. Did you mean “public”?", "there is no table “zzz”."],
        ),
        (["--only", "zzz*"], ["no table of the database is chosen: check --schema, --only, --skip and the hints"]),
    ],
)
def test_a_name_that_fits_no_table(hard_url: str, arguments: list[str], lines: list[str]) -> None:
    assert inspect(hard_url, *arguments) == (1, "", f"Error: {chr(10).join(lines)}\n")


def test_a_name_in_the_hints_that_fits_no_table(hard_url: str, tmp_path: Path) -> None:
    """A table may be dropped after the hints were written, so this is no error."""
    hints = tmp_path / "hints.toml"
    hints.write_text('skip = ["peple", "sam*"]\n')
    code, _, remarks = inspect(hard_url, "--hints", str(hints))
    assert (code, remarks.splitlines()[0]) == (0, "the hints: there is no table “peple”. Did you mean “people”?")


def test_a_type_or_a_path_in_the_hints_that_another_table_has(hard_url: str, tmp_path: Path) -> None:
    """The hints come first, and a line says what the other table is called."""
    hints = tmp_path / "hints.toml"
    only = ("--only", "countries", "--only", "profiles", "--hints", str(hints))
    hints.write_text('[tables.profiles]\npath = "/countries"\n')
    code, text, remarks = inspect(hard_url, *only)
    assert (code, '    "/countries",\n    "profiles",\n' in text) == (0, True)
    assert "countries: its path is “/countries_”: another resource has “/countries”" in remarks.splitlines()
    hints.write_text('[tables.profiles]\ntype = "country"\n')
    code, text, remarks = inspect(hard_url, *only)
    assert (code, '    "country",\n    "/countries",\n    "profiles",\n' in text) == (0, True)
    assert "countries: its type is “countries”: another table has “country”" in remarks.splitlines()


def test_a_schema_in_the_hints_without_tables(hard_url: str, tmp_path: Path) -> None:
    hints = tmp_path / "hints.toml"
    hints.write_text('schemas = ["pubic"]\n')
    assert inspect(hard_url, "--hints", str(hints)) == (
        1,
        "",
        "Error: no table of the database is chosen: check --schema, --only, --skip and the hints\n"
        "the hints: there is no table in a schema “pubic”. Did you mean “public”?\n",
    )


def test_a_foreign_table_that_cannot_be_read(shop_url: str) -> None:
    on_server(
        shop_url,
        "CREATE FOREIGN DATA WRAPPER idle",
        "CREATE SERVER nowhere FOREIGN DATA WRAPPER idle",
        "CREATE FOREIGN TABLE unreachable (id int) SERVER nowhere",
    )
    code, text, _ = inspect(shop_url)
    assert (code, "# unreachable: it cannot be read: its foreign data wrapper has no handler\n" in text) == (0, True)


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


def test_a_proposed_hint_is_toml(database_url: str) -> None:
    statements = 'CREATE TABLE "a ""b" ("c ""d" text)'
    on_server(database_url, f"DROP SCHEMA public CASCADE; CREATE SCHEMA public; {statements}")
    _, text, _ = inspect(database_url)
    assert r'[tables."a \"b"]: id = "c \"d"' in " ".join(text.split()).replace(" # ", " ")


LONG = """
    CREATE TABLE auth_user (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, name text NOT NULL);
    CREATE TABLE auth_group (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY);
    CREATE TABLE django_group (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY);
    CREATE TABLE warehouse_delivery_confirmation (
        id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
        first_responsible_signing_person_id bigint REFERENCES auth_user,
        second_responsible_signing_person_id bigint REFERENCES auth_user
    )
"""


def test_prefixes_and_long_names(database_url: str, tmp_path: Path) -> None:
    on_server(database_url, f"DROP SCHEMA public CASCADE; CREATE SCHEMA public; {LONG}")
    hints = tmp_path / "hints.toml"
    hints.write_text('prefixes = ["django_", "auth_"]')
    found = declarations(Settings(database_url=database_url, inspect=True, hints=hints)).catalog
    assert {(one.type, one.path) for one in found} == {
        ("user", "/users"),
        # Without the prefix, both would be the same.
        ("auth_group", "/auth_groups"),
        ("django_group", "/django_groups"),
        ("warehouse_delivery_confirmation", "/warehouse_delivery_confirmations"),
    }
    names = [one.name for one in found.by_type["user"].relationships]
    assert names == [
        "delivery_confirmations_by_first_person",
        "delivery_confirmations_by_second_person",
    ]


def test_hints_that_are_not_text(hard_url: str, tmp_path: Path) -> None:
    hints = tmp_path / "hints.toml"
    hints.write_bytes(b"\xff\xfe")
    with pytest.raises(StartError, match=r"hints\.toml are not TOML: 'utf-8' codec can't decode"):
        declarations(Settings(database_url=hard_url, inspect=True, hints=hints))


def test_hints_with_unknown_keys(hard_url: str, tmp_path: Path) -> None:
    hints = tmp_path / "hints.toml"
    hints.write_text('skipp = ["a"]\n[tables."a b"]\nnames = {}\nkey = "x"\n')
    with pytest.raises(StartError) as raised:
        declarations(Settings(database_url=hard_url, inspect=True, hints=hints))
    assert str(raised.value).splitlines() == [
        f"the hints {hints}: there is no “skipp”: known are schemas, only, skip, prefixes, tables, functions. "
        "Did you mean “skip”?",
        f'the hints {hints}: there is no “key” in [tables."a b"]: known are id, type, path, names.',
    ]


def test_a_type_in_the_hints_leaves_the_order_of_the_module(hard_url: str, tmp_path: Path) -> None:
    hints = tmp_path / "hints.toml"
    hints.write_text('[tables.countries]\ntype = "zone"\n')
    before, after = inspect(hard_url)[1], inspect(hard_url, "--hints", str(hints))[1]
    lines = [line for line in ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]
    assert 0 < len(lines) <= 12, lines


UNCERTAIN = """
CREATE TABLE feature (feature_id int PRIMARY KEY, name text);
CREATE TABLE loc (loc_id serial PRIMARY KEY, feature_id int NOT NULL REFERENCES feature, nbeg int);
CREATE VIEW v AS SELECT f.feature_id, f.name, l.nbeg FROM loc l, feature f WHERE f.feature_id = l.feature_id;
CREATE VIEW w AS SELECT * FROM v;
CREATE TABLE base (id int PRIMARY KEY); CREATE TABLE kid () INHERITS (base);
CREATE TABLE bare (id int, name text);
"""


def test_keys_that_only_rows_can_show(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    on_server(database_url, "DROP SCHEMA public CASCADE; CREATE SCHEMA public", UNCERTAIN)
    empty = inspect(database_url)[1]
    told = re.sub(r"\n# ?", " ", empty)
    assert "v, w: it has no rows that would show which key they have: name one in the hints, such as [tables.v]" in told
    assert (
        "it has no key: add a primary key, or a unique index over columns that are NOT NULL, or name columns in the "
        in told
    )
    assert '[tables.bare]: id = "id"' in told
    assert "unique=True" not in empty
    on_server(
        database_url,
        "INSERT INTO feature VALUES (1, 'a'), (2, 'b'); INSERT INTO loc (feature_id) VALUES (1), (2); "
        "INSERT INTO base VALUES (1); INSERT INTO kid VALUES (2)",
    )
    assert inspect(database_url)[1].count("unique=True") == 3
    on_server(database_url, "INSERT INTO loc (feature_id) VALUES (1); INSERT INTO kid VALUES (1)")
    told = re.sub(r"\n# ?", " ", inspect(database_url)[1])
    assert "unique=True" not in told
    # The key that the rows repeat is not proposed.
    assert '[tables.v]: id = "name"' in told
    assert "Several of its rows have the same id" in told
    (tmp_path / "inspect.toml").write_text('[tables.v]\nid = ["feature_id", "nbeg"]\n[tables.bare]\nid = "id"\n')
    assert inspect(database_url)[1].count("unique=True") == 2


def test_reading_views_has_a_limit(database_url: str) -> None:
    slow = ";".join([f"CREATE VIEW slow_{n} AS SELECT id FROM base, pg_sleep(9)" for n in range(4)])
    on_server(
        database_url,
        "DROP SCHEMA public CASCADE; CREATE SCHEMA public",
        f"CREATE TABLE base (id int PRIMARY KEY); INSERT INTO base VALUES (1); {slow}",
    )
    begin = time.monotonic()
    _, text, _ = inspect(database_url, "--view-seconds", "0.5")
    assert time.monotonic() - begin < 30
    told = re.sub(r"\n# ?", " ", text)
    assert "slow_0, slow_1, slow_2, slow_3: it is too slow to look at its rows for a key" in told


def test_views_without_a_known_key(database_url: str, tmp_path: Path) -> None:
    """It proposes a column that can be an id, and the nearest one for a hint that names none."""
    on_server(
        database_url,
        "CREATE VIEW a_report AS SELECT '{}'::jsonb AS body",
        "CREATE VIEW sums AS SELECT '{}'::jsonb AS body, 'x' AS category",
        "CREATE VIEW tops AS SELECT 'x' AS category",
    )
    hints = tmp_path / "hints.toml"
    hints.write_text('[tables.tops]\nid = "catgory"\n')
    code, text, _ = inspect(
        database_url, "--only", "a_report", "--only", "sums", "--only", "tops", "--hints", str(hints)
    )
    lines = " ".join(text.replace("\n#", " ").split())
    assert code == 0
    assert "a_report: no column of the view can be an id: add the key of its rows" in lines
    assert 'name one in the hints, in [tables.sums]: id = "category"' in lines
    assert "id “catgory”, and it has no such column. Did you mean “category”?" in lines


VIEWS = """
CREATE TABLE shelf (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY);
CREATE TABLE crate (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, shelf_id bigint NOT NULL REFERENCES shelf,
    label text NOT NULL, kind text NOT NULL DEFAULT 'a', mark text NOT NULL, note text);
CREATE FUNCTION mark() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.mark := 'm'; RETURN NEW; END $$;
CREATE TRIGGER mark BEFORE INSERT ON crate FOR EACH ROW EXECUTE FUNCTION mark();
CREATE VIEW plain AS SELECT * FROM crate WHERE label <> (SELECT 'x' AS label);
CREATE VIEW nested AS SELECT id, shelf_id, label AS title, kind, mark, note FROM plain;
CREATE VIEW triggered AS SELECT * FROM crate;
CREATE TRIGGER mark INSTEAD OF INSERT ON triggered FOR EACH ROW EXECUTE FUNCTION mark();
CREATE VIEW ruled AS SELECT c.id, c.shelf_id, d.label FROM crate c LEFT JOIN crate d ON false;
CREATE RULE add AS ON INSERT TO ruled DO INSTEAD NOTHING;
CREATE RULE change AS ON UPDATE TO ruled DO INSTEAD NOTHING;
CREATE VIEW above AS SELECT * FROM ruled;
"""


def test_a_view_that_postgresql_writes_needs_what_its_table_needs(
    serve: Serve, io_loop: IOLoop, database_url: str
) -> None:
    on_server(database_url, VIEWS, "INSERT INTO shelf DEFAULT VALUES")
    catalog = declarations(Settings(database_url=database_url, inspect=True)).catalog
    found = {one.type: one for one in catalog}
    fields = {
        name: {one.name: (one.nullable, one.required, one.filled) for one in found[name].attributes}
        for name in ("plain", "nested", "triggered", "ruled", "above")
    }
    needed, given, free = (False, True, False), (False, False, False), (True, False, False)
    assert fields == {
        "plain": {"label": needed, "kind": given, "mark": given, "note": free},
        "nested": {"title": needed, "kind": given, "mark": given, "note": free},
        "triggered": {"label": free, "kind": free, "mark": free, "note": free},
        "ruled": {"label": free},
        "above": {"label": free},
    }
    links = {name: found[name].relationships[0] for name in fields}
    shelves = {name: (one.nullable, one.is_required) for name, one in links.items() if isinstance(one, ToOne)}
    assert shelves == dict.fromkeys(("plain", "nested"), (False, True)) | dict.fromkeys(
        ("triggered", "ruled", "above"), (True, False)
    )
    api = serve(database_url, catalog)
    linkage = {"shelf": {"data": {"type": "shelf", "id": "1"}}}
    document = {"data": {"type": "nested", "attributes": {"title": "t"}, "relationships": linkage}}
    assert io_loop.run_sync(lambda: api.post("/nesteds", document)).status == 201


GENERATED = """
CREATE TABLE vat (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, number int GENERATED ALWAYS AS IDENTITY, litres numeric,
    gallons numeric GENERATED ALWAYS AS (litres / 4.5) STORED
);
CREATE VIEW tub AS SELECT id, number, litres, gallons AS "Gallons" FROM vat;
CREATE VIEW bath AS SELECT id AS key, litres, "Gallons" AS gallons FROM tub;
CREATE VIEW pool AS SELECT * FROM bath;
CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO vat (litres) VALUES (coalesce(NEW.litres, NEW.gallons * 4.5)) RETURNING id, litres, gallons INTO NEW;
    RETURN NEW;
END $$;
CREATE TRIGGER fill INSTEAD OF INSERT OR UPDATE ON pool FOR EACH ROW EXECUTE FUNCTION fill();
"""


def test_a_view_of_generated_columns(serve: Serve, io_loop: IOLoop, database_url: str) -> None:
    """PostgreSQL refuses to write such a column through a view, as it does in the table. A trigger may take a value."""
    on_server(database_url, GENERATED)
    catalog = declarations(Settings(database_url=database_url, inspect=True)).catalog
    found = {
        name: {one.name: (one.creatable, one.updatable) for one in catalog.by_type[name].attributes}
        for name in ("vat", "tub", "bath", "pool")
    }
    fixed, free = (False, False), (True, True)
    assert found == {
        "vat": {"number": fixed, "litres": free, "gallons": fixed},
        "tub": {"number": fixed, "litres": free, "gallons": fixed},
        "bath": {"litres": free, "gallons": fixed},
        "pool": {"litres": free, "gallons": free},
    }
    api = serve(database_url, catalog)
    document = {"data": {"type": "bath", "attributes": {"litres": "9"}}}
    assert io_loop.run_sync(lambda: api.post("/baths", document)).status == 201
    # What is read may be sent back as it is.
    read = io_loop.run_sync(lambda: api.get("/baths/1"))
    assert read.document["data"]["attributes"]["gallons"] == "2.0000000000000000"
    sent = {"data": {"type": "bath", "id": "1", "attributes": read.document["data"]["attributes"]}}
    assert io_loop.run_sync(lambda: api.patch("/baths/1", sent)).status == 200


NOT_VALID = """
CREATE TABLE sack (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, number bigint UNIQUE, name text, mark text);
INSERT INTO sack (number, name, mark) VALUES (1, 'x', 'm'), (2, NULL, 'n'), (NULL, 'y', 'o');
ALTER TABLE sack ADD NOT NULL number NOT VALID, ADD NOT NULL name NOT VALID, ADD NOT NULL mark NOT VALID;
ALTER TABLE sack VALIDATE CONSTRAINT sack_mark_not_null;
CREATE VIEW bag AS SELECT * FROM sack;
"""


def postgresql_version(url: str) -> int:
    async def major() -> int:
        connection = await asyncpg.connect(url)
        try:
            return connection.get_server_version().major
        finally:
            await connection.close()

    return asyncio.run(major())


def test_not_null_that_is_not_valid_may_be_null(serve: Serve, io_loop: IOLoop, database_url: str) -> None:
    """Rows that are older than the constraint may have nulls."""

    if postgresql_version(database_url) < 18:
        pytest.skip("NOT NULL may be NOT VALID from PostgreSQL 18 on")
    on_server(database_url, NOT_VALID)
    catalog = declarations(Settings(database_url=database_url, inspect=True)).catalog
    assert {
        one.type: {field.name: field.nullable for field in one.attributes}
        for one in catalog
        if one.type in ("sack", "bag")
    } == {name: {"number": True, "name": True, "mark": False} for name in ("sack", "bag")}
    api = serve(database_url, catalog)
    for path in ("/sacks", "/bags"):
        page, found = f"{path}?sort=name&page[size]=1&page[after]=", []
        while page:
            answer = io_loop.run_sync(partial(api.get, page))
            found += answer.ids
            page = answer.document["links"].get("next")
        assert found == ["1", "3", "2"], path
    by_number = Resource("sack", path="/sacks", table="sack", id=Id("number"))

    async def unenforced() -> list[tuple[str, str]]:
        connection = await asyncpg.connect(database_url)
        try:
            return list((await read_live_schema(connection, Catalog([by_number]))).unenforced_keys)
        finally:
            await connection.close()

    assert asyncio.run(unenforced()) == [("sack", "")]


DOMAINS = """
CREATE DOMAIN flag AS int NOT NULL;
CREATE TABLE room (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, name text NOT NULL);
CREATE TABLE lamp (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    room_id bigint UNIQUE REFERENCES room, a flag, b flag DEFAULT 7);
CREATE VIEW light AS SELECT * FROM lamp;
CREATE VIEW place AS SELECT r.id, r.name, l.a FROM room r LEFT JOIN lamp l ON l.room_id = r.id;
CREATE MATERIALIZED VIEW kept AS SELECT * FROM place;
INSERT INTO room (name) VALUES ('x'), ('y'), ('z'), ('u');
INSERT INTO lamp (room_id, a) VALUES (2, 5), (4, 6);
REFRESH MATERIALIZED VIEW kept;
"""


def test_a_domain_that_is_not_null_may_be_null_in_a_view(serve: Serve, io_loop: IOLoop, database_url: str) -> None:
    on_server(database_url, DOMAINS)
    catalog = declarations(Settings(database_url=database_url, inspect=True)).catalog
    needed, given, free = (False, True), (False, False), (True, False)
    fields = {
        one.type: {field.name: (field.nullable, field.required) for field in one.attributes}
        for one in catalog
        if one.type in ("lamp", "light", "place", "kept")
    }
    assert fields == {
        "lamp": {"a": needed, "b": given},
        "light": {"a": needed, "b": given},
        "place": {"name": free, "a": free},
        "kept": {"name": free, "a": free},
    }
    api = serve(database_url, catalog)
    light = {"data": {"type": "light", "attributes": {"a": 1}}}
    made = io_loop.run_sync(lambda: api.post("/lights", light))
    assert made.document["data"]["attributes"] == {"a": 1, "b": 7}
    for path in ("/places", "/kepts"):
        found, page = [], f"{path}?sort=-a&page[size]=1&page[after]="
        while page:
            answer = io_loop.run_sync(partial(api.get, page))
            found += answer.ids
            page = answer.document["links"].get("next")
        assert found == ["4", "2", "3", "1"], path


def test_checks_that_allow_no_value_do_not_hide_the_other_tables(database_url: str) -> None:
    on_server(database_url, "CREATE TABLE odds (id bigint PRIMARY KEY, few int CHECK (few >= 5 AND few <= 1))")
    inspected = {one.type: one for one in declarations(Settings(database_url=database_url, inspect=True)).catalog}
    [few] = inspected["odd"].attributes
    assert (few.minimum, few.maximum, "user" in inspected) == (None, None, True)


def test_a_composite_type_without_fields_is_shown_as_text(serve: Serve, io_loop: IOLoop, database_url: str) -> None:
    on_server(
        database_url,
        "CREATE TYPE nothing AS (); CREATE TYPE part AS (a nothing, b int)",
        "CREATE TABLE blanks (id bigint PRIMARY KEY, one nothing, many nothing[], part part)",
        "INSERT INTO blanks VALUES (1, ROW(), NULL, ROW(NULL, 2))",
    )
    code, text, _ = inspect(database_url, "--only", "blanks")
    assert (code, text.count("has no type of its own: it is shown as text, and read-only\n")) == (0, 3)
    api = serve(database_url, declarations(Settings(database_url=database_url, inspect=True)).catalog)
    answer = io_loop.run_sync(lambda: api.get("/blanks?filter[one]=()"))
    assert answer.document["data"][0]["attributes"] == {"one": "()", "many": None, "part": "(,2)"}


def test_a_column_of_citext_is_declared_as_such(request: pytest.FixtureRequest) -> None:
    """An id of citext that is declared as TEXT has several spellings, and is refused at the start."""
    cluster: Cluster = request.getfixturevalue("debian_cluster")
    on_server(cluster.url(), "DROP DATABASE IF EXISTS mails WITH (FORCE)", "CREATE DATABASE mails")
    on_server(
        cluster.url("mails"),
        "CREATE EXTENSION citext",
        "CREATE TABLE mails (address citext PRIMARY KEY, owner citext NOT NULL)",
    )
    [mail] = declarations(Settings(database_url=cluster.url("mails"), inspect=True)).catalog
    assert (mail.id.type, mail.attributes[0].type) == (CITEXT, CITEXT)

    async def faults() -> tuple[Fault, ...]:
        connection = await asyncpg.connect(cluster.url("mails"))
        try:
            return (await read_live_schema(connection, Catalog([mail]))).faults
        finally:
            await connection.close()

    assert asyncio.run(faults()) == ()


CASELESS = """
CREATE EXTENSION citext;
CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE DOMAIN state AS citext CHECK (VALUE IN ('on', 'off'));
CREATE TABLE things (id int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, a citext CHECK (a IN ('on', 'off')),
    b text COLLATE ci CHECK (b IN ('on', 'off')), c state, d text CHECK (d IN ('on', 'off')));
INSERT INTO things (a, b, c, d) VALUES ('On', 'On', 'On', 'on');
"""


async def test_a_list_of_texts_is_compared_as_postgresql_compares_them(
    start: Start, request: pytest.FixtureRequest
) -> None:
    cluster: Cluster = request.getfixturevalue("debian_cluster")
    url = cluster.url("caseless")
    await asyncio.to_thread(
        on_server, cluster.url(), "DROP DATABASE IF EXISTS caseless WITH (FORCE)", "CREATE DATABASE caseless"
    )
    await asyncio.to_thread(on_server, url, CASELESS)
    api = await start(url, await asyncio.to_thread(from_tables, url))
    shown = (await api.get("/things/1")).document["data"]["attributes"]
    assert shown == {"a": "On", "b": "On", "c": "On", "d": "on"}
    for name, value in shown.items():
        for sent, status in ((value, 200), ("OFF", 422 if name == "d" else 200), ("q", 422)):
            answer = await api.patch("/things/1", {"data": {"type": "thing", "id": "1", "attributes": {name: sent}}})
            assert answer.status == status, (name, sent)
        found = await api.filter("/things", [{"name": name, "op": "eq", "val": "on" if name == "d" else "oFf"}])
        assert (found.status, found.ids) == (200, ["1"])


def test_a_column_that_has_to_be_left_out_closes_create(request: pytest.FixtureRequest) -> None:
    """No field sets a column that needs a value, so that no POST could succeed."""
    cluster: Cluster = request.getfixturevalue("debian_cluster")
    on_server(cluster.url(), "DROP DATABASE IF EXISTS aside WITH (FORCE)", "CREATE DATABASE aside")
    on_server(
        cluster.url("aside"),
        "CREATE SCHEMA aside",
        "CREATE EXTENSION citext SCHEMA aside",
        "CREATE TABLE mails (id serial PRIMARY KEY, name text NOT NULL, owner aside.citext NOT NULL)",
        "CREATE TABLE notes (id text PRIMARY KEY, owner aside.citext, kind aside.citext NOT NULL DEFAULT 'a')",
        "CREATE TABLE tags (id aside.citext PRIMARY KEY)",
        "CREATE TABLE tagged (id serial PRIMARY KEY, tag_id aside.citext NOT NULL REFERENCES tags)",
    )
    settings = Settings(database_url=cluster.url("aside"))

    async def work() -> Any:
        connection = await asyncpg.connect(cluster.url("aside"))
        try:
            return (await inspect_database(connection, settings)).found
        finally:
            await connection.close()

    found = asyncio.run(work())
    assert {one.resource.type: (sorted(one.resource.methods), one.notes) for one in found.inspected} == {
        "mail": (
            ["delete", "detail", "list", "update"],
            ("It cannot be created: “owner” is NOT NULL, and its field is left out: give it a default",),
        ),
        "note": (["create", "delete", "detail", "list", "update"], ()),
        "tagged": (
            ["delete", "detail", "list", "update"],
            ("It cannot be created: “tag_id” is NOT NULL, and its field is left out: give it a default",),
        ),
    }
    [mail] = [one for one in found.resources if one.type == "mail"]
    assert [(one.name, one.required) for one in mail.attributes] == [("name", False)]
    [tags] = found.not_served
    assert (tags.full_name, tags.reason) == (
        "tags",
        "the type citext of its column “id” is in the schema “aside”, which is not in the search path: PostgreSQL "
        "would not find the operators of the type. Add the schema to the role's search_path",
    )


def test_without_a_privilege_there_is_no_method(shop_cluster: Cluster) -> None:
    on_server(
        shop_cluster.url(),
        "CREATE DATABASE granted",
        "CREATE ROLE clerk LOGIN PASSWORD 'clerk'",
        "CREATE ROLE lender",
    )
    on_server(
        shop_cluster.url("granted"),
        "CREATE TABLE readable (id int PRIMARY KEY, name text NOT NULL)",
        "CREATE TABLE partly (id serial PRIMARY KEY, shown text, hidden text, fixed text, "
        "readable_id int REFERENCES readable)",
        "CREATE TABLE closed (id int PRIMARY KEY)",
        "CREATE TABLE keyless (id int PRIMARY KEY, name text)",
        "CREATE TABLE keyed (id serial PRIMARY KEY, name text)",
        "CREATE TABLE blind (id serial PRIMARY KEY, name text NOT NULL, note text)",
        "CREATE FUNCTION secret(of int[]) RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "REVOKE EXECUTE ON FUNCTION secret FROM PUBLIC",
        "CREATE VIEW secrets AS SELECT id, secret('{}') AS secret FROM readable",
        'CREATE SCHEMA "a ""b"""',
        'CREATE TABLE "a ""b""".inside (id int PRIMARY KEY)',
        'GRANT SELECT ON "a ""b""".inside TO clerk',
        "CREATE TABLE coded (id int PRIMARY KEY, code text UNIQUE)",
        "CREATE TABLE coding (id int PRIMARY KEY, code text REFERENCES coded (code))",
        "GRANT SELECT (id) ON coded TO clerk",
        "GRANT SELECT ON coding TO clerk",
        "GRANT SELECT ON readable, secrets TO clerk",
        "GRANT SELECT (id, shown, fixed, readable_id), INSERT (shown, fixed), UPDATE (shown) ON partly TO clerk",
        "GRANT DELETE ON partly TO clerk",
        "GRANT USAGE ON SEQUENCE partly_id_seq TO clerk",
        "GRANT SELECT (name) ON keyless TO clerk",
        "GRANT ALL ON keyed TO clerk",
        "GRANT SELECT (id, note), INSERT, UPDATE ON blind TO clerk",
        "GRANT USAGE ON SEQUENCE blind_id_seq TO clerk",
        "CREATE TABLE numbered (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text)",
        "GRANT SELECT (id), INSERT (name) ON numbered TO clerk",
        "CREATE SCHEMA typed",
        "CREATE TYPE typed.colour AS ENUM ('red')",
        "CREATE DOMAIN typed.shade AS typed.colour",
        "CREATE TYPE typed.place AS (x int)",
        "CREATE TABLE typing (id int PRIMARY KEY, colour typed.colour, colours typed.colour[], shade typed.shade, "
        "place typed.place, places typed.place[])",
        "CREATE TABLE coloured (colour typed.colour PRIMARY KEY)",
        "GRANT SELECT ON typing, coloured TO clerk",
        "CREATE TABLE stock (id serial PRIMARY KEY, name text, size int, "
        "twice int GENERATED ALWAYS AS (2 * size) STORED)",
        "CREATE VIEW lent AS SELECT id, name, size, twice FROM stock",
        "ALTER VIEW lent OWNER TO lender",
        "GRANT SELECT, INSERT, UPDATE (name) ON stock TO lender",
        "GRANT ALL ON lent TO clerk",
        "CREATE TABLE labels (id int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, "
        "readable_id int REFERENCES readable)",
        "CREATE TABLE labelled (readable_id int REFERENCES readable, label_id int REFERENCES labels, "
        "PRIMARY KEY (readable_id, label_id))",
        "GRANT ALL ON labels, labelled TO clerk",
        "CREATE TABLE mended (id int PRIMARY KEY, name text, readable_id int REFERENCES readable)",
        "GRANT SELECT, UPDATE (name) ON mended TO clerk",
    )

    async def work() -> Any:
        connection = await asyncpg.connect(shop_cluster.url("granted"))
        try:
            await connection.execute("SET ROLE clerk")
            return (await inspect_database(connection, Settings(), Choice())).found
        finally:
            await connection.close()

    found = asyncio.run(work())
    assert {one.type: sorted(one.methods) for one in found.resources} == {
        "blind": ["detail", "list", "update"],
        "coded": ["detail", "list"],
        "coding": ["detail", "list"],
        "keyed": ["delete", "detail", "list", "update"],
        "label": ["create", "delete", "detail", "list", "update"],
        "lent": ["detail", "list", "update"],
        "mended": ["detail", "list", "update"],
        "numbered": ["detail", "list"],
        "partly": ["create", "delete", "detail", "list", "update"],
        "readable": ["detail", "list"],
        "typing": ["detail", "list"],
    }
    [mended, partly] = [one for one in found.resources if one.type in ("mended", "partly")]
    assert [(one.name, one.creatable, one.updatable) for one in partly.attributes] == [
        ("shown", True, True),
        ("fixed", True, False),
    ]
    for of in (mended, partly):
        assert [(one.name, sorted(one.methods)) for one in of.relationships] == [("readable", ["read"])]
    # A new link locks the rows of both ends, and this role may not lock those of “readable”.
    [readable] = [one for one in found.resources if one.type == "readable"]
    linked = {one.name: one.methods for one in readable.relationships if one.target == "label"}
    assert linked == dict.fromkeys(("labels", "labelleds"), frozenset({"read"}))
    [lent] = [one for one in found.resources if one.type == "lent"]
    assert [(one.name, one.updatable) for one in lent.attributes] == [
        ("name", True),
        ("size", False),
        ("twice", False),
    ]
    notes = {one.resource.type: (*one.notes, *one.unstated) for one in found.inspected}
    untyped = (
        'the role “clerk” may not use the schema “typed” of the type of “{}”: GRANT USAGE ON SCHEMA "typed" TO "clerk"'
    )
    assert notes == {
        "blind": (
            'It cannot be created: the role may not read “name”: GRANT SELECT ("name") ON "public"."blind" TO "clerk"',
            "the role may not read “name”",
        ),
        "coded": ("the role may not read “code”",),
        "coding": (
            '“code” refers to coded: the role may not read it: GRANT SELECT ("code") ON "public"."coded" TO "clerk"',
        ),
        "keyed": (
            "It cannot be created: the role may not use a sequence: GRANT USAGE ON SEQUENCE public.keyed_id_seq "
            'TO "clerk"',
        ),
        "label": (),
        "lent": (
            "It cannot be created: the role may not use a sequence: GRANT USAGE ON SEQUENCE public.stock_id_seq "
            'TO "clerk"',
        ),
        "mended": (),
        "numbered": (
            "It cannot be created: the role may write none of its columns that it may read: "
            'GRANT INSERT ("id") ON "public"."numbered" TO "clerk"',
            "the role may not read “name”",
        ),
        "partly": ("the role may not read “hidden”",),
        "readable": (),
        "typing": tuple([f"attribute “{one}”: {untyped.format(one)}" for one in ("shade", "place", "places")]),
    }
    assert [(one.full_name, one.reason) for one in found.not_served] == [
        ('a "b".inside', 'the role may not use the schema: GRANT USAGE ON SCHEMA "a ""b""" TO "clerk"'),
        ("closed", 'the role may not read it: GRANT SELECT ON "public"."closed" TO "clerk"'),
        ("coloured", untyped.format("colour")),
        ("keyless", 'the role may not read its key: GRANT SELECT ("id") ON "public"."keyless" TO "clerk"'),
        ("secrets", "it cannot be read: permission denied for function secret"),
        ("stock", 'the role may not read it: GRANT SELECT ON "public"."stock" TO "clerk"'),
    ]
    assert [(one.full_name, one.reason) for one in found.not_called] == [
        (
            "secret(integer[])",
            'the role may not call it: GRANT EXECUTE ON FUNCTION "public"."secret"(integer[]) TO "clerk"',
        )
    ]
    grants = [line for line in python_module(found, "granted").splitlines() if "GRANT" in line]
    assert all(line.startswith("#     GRANT ") and line.endswith(' TO "clerk";') for line in grants), grants
    on_server(shop_cluster.url("granted"), *[line.removeprefix("#     ") for line in grants])
    found = asyncio.run(work())
    assert {one.type for one in found.resources} >= {"closed", "inside", "keyless", "secret"}
    assert [one.relationships[0].name for one in found.resources if one.type in ("coded", "coding")] == [
        "codings",
        "code",
    ]
    assert all("create" in one.methods for one in found.resources if one.type in ("keyed", "lent", "numbered"))
    [typing] = [one for one in found.resources if one.type == "typing"]
    assert [one.name for one in typing.attributes] == ["colour", "colours", "shade", "place", "places"]


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
