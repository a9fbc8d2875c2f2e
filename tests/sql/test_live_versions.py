"""What tells whether a row has changed, as the start of a server and `check` find it out."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from server.schema.live_schema import read_live_schema
from server.schema.live_versions import check_versions
from waterspout import TEXT, Attribute, Catalog, CatalogError, Resource, Version

TABLES = """
DROP SCHEMA public CASCADE; CREATE SCHEMA public;
CREATE TABLE things (id bigserial PRIMARY KEY, name text NOT NULL, number int NOT NULL, at timestamptz, plain date,
    made int GENERATED ALWAYS AS (length(name)) STORED, code uuid DEFAULT gen_random_uuid());
INSERT INTO things (name, number, at) VALUES ('a', 1, '2026-01-01'), ('b', 1, '2026-01-01');
CREATE VIEW shown AS SELECT id, name, number FROM things;
"""
TRIGGER = """
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {}; RETURN NEW; END $$;
CREATE TRIGGER touch BEFORE UPDATE ON things FOR EACH ROW EXECUTE FUNCTION touch();
"""
WHERE = "resource “thing”: version: the column "


def thing(version: Any, **facts: Any) -> Resource:
    table = facts.pop("table", "things")
    facts = {"methods": frozenset({"list", "detail", "update"})} | facts
    return Resource("thing", "/things", table, attributes=(Attribute("name", TEXT),), version=version, **facts)


async def found(url: str, resource: Resource, sql: str = "") -> tuple[list[str], Any, tuple[str, ...]]:
    """Return the faults, the version, and what `check` reports of it."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(TABLES + sql)
        schema = await read_live_schema(connection, Catalog([resource]))
        if schema.catalog is None:
            return [str(fault) for fault in schema.faults], None, ()
        before = await connection.fetch("SELECT *, xmin::text FROM things")
        checked = await check_versions(connection, schema.catalog)
        assert await connection.fetch("SELECT *, xmin::text FROM things") == before
        return [], schema.catalog.resources[0].abilities.version, checked
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("version", "fault"),
    [
        ("numbr", "resource “thing”: version: the table “things” has no column “numbr”. Did you mean “number”?"),
        ("plain", WHERE + "“plain” is date: a version is a whole number, a timestamp or a uuid"),
        ("name", WHERE + "“name” is text: a version is a whole number, a timestamp or a uuid"),
        (
            Version("at", by="server"),
            WHERE + '“at” is timestamptz, and the server can only count whole numbers: declare by="database"',
        ),
        ("made", WHERE + '“made” is computed by the database, so the server cannot count it: declare by="database"'),
    ],
)
async def test_faults(database_url: str, version: Any, fault: str) -> None:
    assert (await found(database_url, thing(version)))[0] == [fault]


def test_a_wrong_word() -> None:
    with pytest.raises(CatalogError, match="`by` must be"):
        Catalog([thing(Version("number", by="trigger"))])


@pytest.mark.parametrize(
    ("version", "trigger", "message"),
    [
        ("number", "", None),
        ("number", "NEW.number = OLD.number + 1", '“number”: a trigger changes it too: declare by="database"'),
        (Version("number", by="database"), "NEW.number = OLD.number + 1", None),
        (
            Version("number", by="database"),
            "",
            '“number”: no write changes it: it needs a trigger, or declare it by="server"',
        ),
        ("at", "NEW.at = clock_timestamp()", None),
        (
            "at",
            "NEW.at = now()",
            "“at”: it is the same after two writes of one transaction: take clock_timestamp() instead of now()",
        ),
        (Version("code"), "NEW.code = gen_random_uuid()", None),
        (Version("made", by="database"), "", None),
        ("number", "RAISE EXCEPTION 'closed'", "“number”: a row cannot be written: closed"),
    ],
)
async def test_what_check_reports(database_url: str, version: Any, trigger: str, message: str | None) -> None:
    faults, known, checked = await found(database_url, thing(version), TRIGGER.format(trigger) if trigger else "")
    assert (faults, known.column) == ([], version.column if isinstance(version, Version) else version)
    assert checked == (() if message is None else (WHERE + message,))


async def test_a_resource_that_does_not_count(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute(TABLES)
        others = [
            Resource(
                name, f"/{name}", "things", attributes=(Attribute("name", TEXT),), methods=frozenset({"list", *more})
            )
            for name, more in (("writes", ["update"]), ("reads", []))
        ]
        schema = await read_live_schema(connection, Catalog([thing("number"), *others]))
        assert schema.catalog is not None
        assert await check_versions(connection, schema.catalog) == (
            "resource “writes”: version: it writes rows of “thing”: declare the same version",
        )
    finally:
        await connection.close()


async def test_without_a_declaration(database_url: str) -> None:
    _, version, _ = await found(database_url, thing(None))
    assert (version.column, version.attribute.column, version.is_counted) == ("", "xmin", False)
    assert (await found(database_url, thing(None, table="shown", methods=frozenset({"list"}))))[1] is None
