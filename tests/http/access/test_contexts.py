"""Several principals of one server: each sees its own rows, and all of them share plans, statements and encoders."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from tornado.ioloop import IOLoop

from server.engine import Engine
from server.preparing.reads import ReadShape
from server.resources import built_in
from server.routes import ON_MANY
from tests.first_rows import set_first_rows
from tests.http.conftest import Answer, Api, Serve
from tests.principals import HEADER, principal, trust_headers
from waterspout import SIGNED_IN, SUBJECT, Allow, Catalog, Principal, Resource

GROUPS, USERS = 4, 12
ROWS = f"""
    INSERT INTO groups (name) SELECT 'group ' || n FROM generate_series(1, {GROUPS}) n;
    INSERT INTO users (first_name, last_name, age, group_id)
        SELECT 'first ' || n, 'last', n, 1 + n % {GROUPS} FROM generate_series(1, {USERS}) n;
    INSERT INTO computers (name, owner_id) SELECT 'computer ' || n, n FROM generate_series(1, {USERS}) n
"""
OWN = {
    "user": {"name": "group.id", "op": "eq", "val": SUBJECT},
    "group": {"name": "id", "op": "eq", "val": SUBJECT},
    "computer": {"name": "owner.group.id", "op": "eq", "val": SUBJECT},
}
"""The subject of a principal is the id of its group."""


def is_anonymous(principal: Principal) -> bool:
    return principal.is_anonymous


def with_rules(resource: Resource) -> Resource:
    """Return the resource with rules: the anonymous may do everything, the others only with rows of their group."""
    rules = (Allow(is_anonymous, "all"), Allow(SIGNED_IN, "all", rows=OWN.get(resource.type)))
    return msgspec.structs.replace(resource, access=rules)


CATALOG = Catalog([with_rules(resource) for resource in built_in()])


def own_rows(group: int) -> list[str]:
    return [str(number) for number in range(1, USERS + 1) if 1 + number % GROUPS == group]


class Principals:
    """Each request names its group in a header. A request without one sees everything."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.engine = api.app.engine
        trust_headers(self.engine)

    async def get(self, group: int, path: str) -> Answer:
        return await self.api.get(path, **{HEADER: principal(str(group))})

    async def write(self, group: int, method: str, path: str, document: Any = None) -> Answer:
        return await self.api.request(method, path, document, headers={HEADER: principal(str(group))})


@pytest.fixture
def principals(serve: Serve, database_url: str, io_loop: IOLoop) -> Principals:
    api = serve(database_url, CATALOG)

    async def fill() -> None:
        for statement in ROWS.split(";"):
            await api.sql(statement)

    io_loop.run_sync(fill)
    return Principals(api)


def included(answer: Answer, type_name: str) -> list[str]:
    return [one["id"] for one in answer.document.get("included", ()) if one["type"] == type_name]


@pytest.mark.parametrize("group", [1, 2, GROUPS + 1])
async def test_each_principal_sees_its_own_rows(principals: Principals, group: int) -> None:
    own, groups = own_rows(group), [str(group)] if group <= GROUPS else []
    for _ in range(2):
        answer = await principals.get(group, "/users?include=computers,group&sort=age")
        assert answer.status == 200, answer.body
        found = (answer.ids, included(answer, "computer"), included(answer, "group"), answer.document["meta"]["total"])
        assert found == (own, own, groups, len(own))
        assert (await principals.get(group, "/groups")).ids == groups
        has_computer = quote(
            json.dumps([{"name": "computers", "op": "any", "val": {"name": "id", "op": "gt", "val": 0}}])
        )
        assert (await principals.get(group, f"/users?filter={has_computer}&sort=age")).ids == own
        everything = await principals.api.get("/users?page[size]=0")
        assert len(everything.ids) == USERS


async def test_an_estimate_does_not_count_hidden_rows(principals: Principals) -> None:
    """PostgreSQL would estimate all rows, so they are counted."""
    meta = (await principals.get(1, "/users?page[total]=estimated&page[size]=2")).document["meta"]
    assert (meta["total"], meta.get("totalEstimated", False)) == (len(own_rows(1)), False)


async def test_what_another_principal_sees_is_not_there(principals: Principals) -> None:
    mine, other = own_rows(1)[0], own_rows(2)[0]
    document = {"data": {"type": "user", "id": other, "attributes": {"first_name": "changed"}}}
    for path in (f"/users/{other}", f"/users/{other}/computers", f"/users/{other}/relationships/group"):
        assert (await principals.get(1, path)).status == 404
        assert (await principals.get(2, path)).status == 200
    assert (await principals.write(1, "PATCH", f"/users/{other}", document)).status == 404
    assert (await principals.write(2, "PATCH", f"/users/{other}", document)).status == 200
    linkage = {"data": [{"type": "computer", "id": other}]}
    assert (await principals.write(1, "POST", f"/users/{mine}/relationships/computers", linkage)).status == 404
    operations = {"atomic:operations": [{"op": "remove", "ref": {"type": "user", "id": other}}]}
    answer = await principals.write(1, "POST", "/operations", operations)
    assert (answer.status, b'"resource_not_found"' in answer.body) == (422, True), answer.body
    assert len(await principals.api.sql("SELECT FROM users WHERE first_name = 'changed'")) == 1


async def test_a_stream_has_the_rows_of_its_principal(principals: Principals, monkeypatch: pytest.MonkeyPatch) -> None:
    set_first_rows(monkeypatch, 0, principals.engine)
    for group in (1, 2, 1):
        answer = await principals.get(group, "/users?page[size]=0&include=computers&sort=age")
        assert (answer.ids, sorted(included(answer, "computer"), key=int)) == (own_rows(group), own_rows(group))
        assert answer.headers["Transfer-Encoding"] == "chunked"


async def test_principals_at_once_get_their_own_answers(principals: Principals) -> None:
    groups = [1 + number % GROUPS for number in range(40)]
    answers = await asyncio.gather(*[principals.get(group, "/users?include=computers&sort=age") for group in groups])
    assert [answer.ids for answer in answers] == [own_rows(group) for group in groups]


def entries(engine: Engine) -> dict[str, int]:
    """Return the numbers of entries of all caches, but that of query strings."""
    return {name: len(cache) for name, cache in engine.caches.items() if name != "prepared_reads"}


async def test_principals_share_the_entries_of_the_caches(principals: Principals) -> None:
    async def ask(group: int) -> None:
        await principals.get(group, "/users?include=computers&sort=age")
        await principals.get(group, f"/users?filter[age][gt]={group}")
        await principals.get(group, "/users/1")
        document = {"data": {"type": "user", "id": "1", "attributes": {"first_name": f"by {group}"}}}
        await principals.write(group, "PATCH", "/users/1", document)

    for group in (1, 2, 2, 3):
        await ask(group)
    before, misses = entries(principals.engine), principals.engine.caches["compiled_reads"].misses
    for group in range(100, 150):
        await ask(group)
    assert entries(principals.engine) == before
    assert principals.engine.caches["compiled_reads"].misses == misses


async def test_thousands_of_subjects_add_no_entry_to_a_cache(principals: Principals) -> None:
    engine = principals.engine
    shape = ReadShape("collection", engine.catalog.by_type["user"], accepts=ON_MANY)

    def prepare(subjects: range) -> set[int]:
        accesses = set()
        for number in subjects:
            context = engine.context_of(Principal(subject=str(number), claims={"name": f"n{number}"}))
            assert context.values == (number,) * 3
            engine.reads.prepare(shape, "include=computers,group&sort=group.name", context)
            accesses.add(id(context.access))
        return accesses

    first = prepare(range(1, 3))
    before = {name: len(cache) for name, cache in engine.caches.items()}
    assert prepare(range(3, 5000)) == first
    assert {name: len(cache) for name, cache in engine.caches.items()} == before
