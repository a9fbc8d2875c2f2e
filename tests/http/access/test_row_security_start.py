"""What the start and `waterspout check` say about roles and policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest
from msgspec import structs

from querybuild.declarations.catalog import Catalog
from server.postgres.row_security.roles import roles_of
from server.schema.live_schema import LiveSchema, read_live_schema
from server.settings import Settings, StartError
from server.startup.declarations import Declarations
from server.startup.start import prepare_database
from server.tools.inspecting.report import inspect_database
from tests.http.supabase import CATALOG, SETTINGS, as_authenticator
from waterspout import TEXT, Attribute, Resource

OWN = {"row_security": "postgresql", "auth_anonymous_role": "anon"}


async def found(
    url: str, *statements: str, catalog: Catalog = CATALOG, undo: Sequence[str] = (), **settings: Any
) -> LiveSchema:
    """Return what the start finds. statements: those of the owner before it. undo: roles outlive the database."""
    owner = await asyncpg.connect(url)
    connection = await asyncpg.connect(as_authenticator(url))
    try:
        for statement in statements:
            await owner.execute(statement)
        return await read_live_schema(connection, catalog, roles=roles_of(Settings(**settings)))
    finally:
        for statement in undo:
            await owner.execute(statement)
        await owner.close()
        await connection.close()


async def test_roles_and_policies_that_fit(shop_url: str) -> None:
    """The server's own role has no privileges."""
    schema = await found(shop_url, **SETTINGS)
    assert (schema.faults, schema.warnings) == ((), ())
    assert schema.catalog is not None


async def test_inspect_declares_what_the_roles_of_requests_may_do(shop_url: str) -> None:
    owner, connection = await asyncpg.connect(shop_url), await asyncpg.connect(as_authenticator(shop_url))
    try:
        for statement in (
            "CREATE TABLE people (id bigint PRIMARY KEY, name text, age int, email text)",
            "GRANT SELECT (id) ON people TO anon",
            "GRANT SELECT (id, name, age), INSERT (id, name), UPDATE (age, email) ON people TO authenticated",
            "CREATE TABLE closed (id bigint PRIMARY KEY)",
            "CREATE TABLE private.hidden (id bigint PRIMARY KEY)",
        ):
            await owner.execute(statement)
        inspection = (await inspect_database(connection, Settings(**SETTINGS))).inspection
        names = "auth_roles_allowed", "auth_anonymous_role"
        settings = Settings(**(SETTINGS | dict.fromkeys(names, "anon")))
        anonymous = (await inspect_database(connection, settings)).inspection
    finally:
        await owner.close()
        await connection.close()
    made = {one.type: one for one in inspection.resources}
    assert made.keys() == {"profile", "team", "post", "note", "person"}
    assert {"create", "update", "delete"} <= made["note"].methods
    person = made["person"]
    assert person.methods == {"list", "detail", "create", "update"}
    rights = [(one.name, one.creatable, one.updatable) for one in person.attributes]
    assert rights == [("name", True, False), ("age", False, True)]
    reasons = {one.full_name: one.reason for one in inspection.not_served}
    assert reasons == {
        "closed": 'the role may not read it: GRANT SELECT ON "public"."closed" TO "authenticated"',
        "private.hidden": 'the role may not read it: GRANT SELECT ON "private"."hidden" TO "authenticated"',
    }
    assert {one.type: one.methods for one in anonymous.resources} == dict.fromkeys(
        ("profile", "team", "post", "person"), frozenset({"list", "detail"})
    )


async def test_a_role_that_does_not_exist(shop_url: str) -> None:
    schema = await found(shop_url, **(SETTINGS | {"auth_roles_allowed": "authenticated,nobody"}))
    assert tuple(map(str, schema.faults)) == ("row_security: there is no role “nobody” in the database",)


async def test_a_role_that_the_server_may_not_set(shop_url: str) -> None:
    grant = "GRANT anon TO authenticator"
    schema = await found(shop_url, "REVOKE anon FROM authenticator", undo=[grant], **SETTINGS)
    assert tuple(map(str, schema.faults)) == (
        'row_security: the role “authenticator” may not set “anon”: GRANT "anon" TO "authenticator"',
    )


async def test_a_resource_that_no_role_can_read(shop_url: str) -> None:
    schema = await found(shop_url, "REVOKE ALL ON private.notes FROM authenticated", **SETTINGS)
    assert tuple(map(str, schema.faults)) == (
        "resource “note”: it cannot be read: permission denied for schema private",
    )


async def test_roles_that_policies_do_not_apply_to(shop_url: str) -> None:
    bypassing = ("ALTER ROLE editor BYPASSRLS", "ALTER TABLE posts OWNER TO anon", "ALTER TABLE teams OWNER TO anon")
    forced = "ALTER TABLE teams FORCE ROW LEVEL SECURITY"
    schema = await found(shop_url, *bypassing, forced, undo=["ALTER ROLE editor NOBYPASSRLS"], **SETTINGS)
    everything = "“notes”, “posts”, “profiles”, “team_members”, “teams”"
    end = "which owns them, is a superuser or has BYPASSRLS"
    assert schema.warnings == (
        f"the policies of {everything} do not apply to the role “editor”, {end}",
        f"the policies of “posts” do not apply to the role “anon”, {end}",
    )


async def test_policies_without_row_security(shop_url: str) -> None:
    owned = ("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO authenticator",)
    catalog = Catalog([Resource("team", "/teams", "teams", (Attribute("name", TEXT, required=True),))])
    schema = await found(shop_url, *owned, catalog=catalog)
    assert (schema.faults, schema.warnings) == ((), ())
    schema = await found(shop_url, "ALTER TABLE teams OWNER TO authenticator", catalog=catalog)
    assert schema.warnings == (
        "the policies of “teams” do not apply to the role “authenticator”, which owns them, is a superuser or has "
        "BYPASSRLS; the setting row_security is off",
    )


async def test_tables_without_policies_and_views_of_their_owner(shop_url: str) -> None:
    statements = (
        "CREATE VIEW theirs AS SELECT id, name FROM teams",
        "CREATE VIEW mine WITH (security_invoker) AS SELECT id, name FROM teams",
        "CREATE TABLE bare (id bigint PRIMARY KEY, name text)",
        "GRANT SELECT ON theirs, mine, bare TO anon",
    )
    name = Attribute("name", TEXT, nullable=True)
    only = {"methods": frozenset({"list"})}
    catalog = Catalog([Resource(one, f"/{one}", one, (name,), **only) for one in ("theirs", "mine", "bare")])
    schema = await found(shop_url, *statements, catalog=catalog, **OWN)
    assert schema.faults == ()
    assert [one for one in schema.warnings if "row_security" in one] == [
        "row_security: privileges alone decide about “bare”, without ENABLE ROW LEVEL SECURITY",
        "row_security: the views “theirs” read their tables with the rights of their owner, and not of the request: "
        "make them views WITH (security_invoker)",
    ]


async def test_a_start_with_a_wrong_role(shop_url: str) -> None:
    url = as_authenticator(shop_url)
    right = Settings(database_url=url, resources="tests", **SETTINGS)
    wrong = structs.replace(right, auth_anonymous_role="nobody")
    with pytest.raises(StartError, match="there is no role “nobody” in the database"):
        await prepare_database(url, wrong, Declarations(CATALOG))
    assert (await prepare_database(url, right, Declarations(CATALOG))).faults == ()
