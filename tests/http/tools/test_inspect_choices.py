"""What `waterspout inspect` declares if tables are chosen, or if hints name them."""

from __future__ import annotations

import re
from difflib import ndiff
from pathlib import Path

import pytest

from server.settings import Settings, StartError
from server.startup.start import declarations
from tests.conftest import on_server
from tests.http.inspecting import hard_url, inspect

__all__ = ["hard_url"]


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
        f'the hints {hints}: there is no “key” in [tables."a b"]: known are id, type, path, label, facets, names.',
    ]


def test_a_type_in_the_hints_leaves_the_order_of_the_module(hard_url: str, tmp_path: Path) -> None:
    hints = tmp_path / "hints.toml"
    hints.write_text('[tables.countries]\ntype = "zone"\n')
    before, after = inspect(hard_url)[1], inspect(hard_url, "--hints", str(hints))[1]
    lines = [line for line in ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]
    assert 0 < len(lines) <= 12, lines


LABELS = {
    # columns besides the id -> the declared label
    "boats": ("name text, boat text", ""),
    "cities": ("motto text, city text", "city"),
    "products": ("company_name text, product_name text", "product_name"),
    "customers": ("contact_title text, companyname text, phone text", "companyname"),
    "employees": ("first_name text, last_name text, title text", "last_name"),
    "actors": ("first_name text, last_name text", "last_name"),
    "clerks": ("first_name text, last_name text, email text, password_hash text", "email"),
    "books": ("title text, last_page int", ""),
    "sessions": ("session_token text UNIQUE, public_key text UNIQUE, note text", ""),
    "parts": ("note text, sku text UNIQUE", "sku"),
    "invoices": ("note text, invoice_number text", "invoice_number"),
    "settings": ("value text, key text", "key"),
    "rentals": ("rented_at date, note text", ""),
    "moods": ("mood mood, sort_name text[], file_name text", "file_name"),
}


def test_labels(database_url: str) -> None:
    """A text that identifies a row, where no name of the usual ones says which it is."""
    tables = [f"CREATE TABLE own.{name} (id int PRIMARY KEY, {columns})" for name, (columns, _) in LABELS.items()]
    on_server(database_url, "CREATE SCHEMA own; CREATE TYPE mood AS ENUM ('good', 'bad')", *tables)
    resources = re.split(r"\n[A-Z]+ = Resource\(", inspect(database_url, "--schema", "own")[1])[1:]
    found = {}
    for text in resources:
        label = re.search(r'\n    label="(\w+)",\n', text)
        found[re.findall(r'"(\w+)"', text)[1]] = "" if label is None else label[1]
    assert found == {name: label for name, (_, label) in LABELS.items()}


def test_a_label_in_the_hints(database_url: str, tmp_path: Path) -> None:
    """It is a field as hints name it."""
    hints = tmp_path / "hints.toml"
    boats = '[tables."own.boats"]\nlabel = "motto"\nnames = { motto_text = "motto" }\n'
    hints.write_text(boats + '[tables."own.crews"]\nlabel = "seze"\n')
    on_server(
        database_url,
        "CREATE SCHEMA own; CREATE TABLE own.boats (id int PRIMARY KEY, name text, motto_text text)",
        "CREATE TABLE own.crews (id int PRIMARY KEY, last_name text, size int)",
    )
    _, text, remarks = inspect(database_url, "--schema", "own", "--hints", str(hints))
    assert re.findall(r'label="(\w+)"', text) == ["motto", "last_name"]
    assert remarks.splitlines()[0] == "own.crews: the hint about the label: “seze” is no text of it."


FEW_VALUES = (
    "CREATE SCHEMA own",
    "CREATE TYPE mood AS ENUM ('good', 'bad')",
    "CREATE TABLE own.crews (id int PRIMARY KEY)",
    "INSERT INTO own.crews VALUES (1), (2)",
    "CREATE TABLE own.boats (id int PRIMARY KEY, kind text, berths int, price numeric, length real, name text, "
    "flag text, built date, essay text, sail text[], mood mood, is_sold bool, harbour text, "
    "crew_id int REFERENCES own.crews)",
    "INSERT INTO own.boats SELECT n, 'kind ' || n % 3, n % 20, n % 7, n % 2, n, 'x', date '2026-01-01' + n % 4, "
    "repeat('x', 50 + n % 5), ARRAY[n % 2]::text[], 'good', n % 2 = 0, n % 40, 1 + n % 2 "
    "FROM generate_series(1, 200) n",
    "CREATE TABLE own.oars AS SELECT * FROM own.boats LIMIT 99",
    "ALTER TABLE own.oars ADD PRIMARY KEY (id)",
    "ANALYZE own.boats, own.oars, own.crews",
)


def test_facets(database_url: str, tmp_path: Path) -> None:
    """The attributes that have few values by the statistics of PostgreSQL. Hints name others, or none."""
    on_server(database_url, *FEW_VALUES)

    def facets(*options: str) -> list[str]:
        text = inspect(database_url, "--schema", "own", *options)[1]
        return re.findall(r'Attribute\("(\w+)", [^\n]*facet=True', text)

    assert facets() == ["kind", "berths", "price", "length"]
    hints = tmp_path / "hints.toml"
    hints.write_text('[tables."own.boats"]\nfacets = ["harbour", "built", "kin"]\n')
    assert facets("--hints", str(hints)) == ["built", "harbour"]
    remark = "own.boats: the hint about facets: “kin” is no attribute of it. Did you mean “kind”?"
    assert remark in inspect(database_url, "--schema", "own", "--hints", str(hints))[2].splitlines()
    hints.write_text('[tables."own.boats"]\nfacets = []\n')
    assert facets("--hints", str(hints)) == []
