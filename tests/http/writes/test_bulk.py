"""Operations with a filter: an update or a remove of all resources that it finds."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from tests.http.conftest import Answer, Api, Inspected, Sent, Start
from tests.http.operating import EXTENDED, add, operate, remove, session, unchanged, until_blocked_by, update
from tests.http.people import document
from tests.principals import HEADER, principal, trust_headers
from waterspout import (
    BOOL,
    INT,
    SIGNED_IN,
    SUBJECT,
    TEXT,
    Allow,
    Attribute,
    Catalog,
    Change,
    Hooks,
    Id,
    Resource,
    Role,
    ToMany,
    ToOne,
)

TABLES = """
CREATE TABLE boxes (id bigserial PRIMARY KEY, name text NOT NULL);
CREATE TABLE items (
    id bigserial PRIMARY KEY, name text NOT NULL UNIQUE, amount int CHECK (amount < 1000), note text,
    owner text, box_id bigint REFERENCES boxes, edition bigint NOT NULL DEFAULT 1
);
CREATE TABLE lines (
    order_id int, line_no int, text text, done bool NOT NULL DEFAULT false, PRIMARY KEY (order_id, line_no)
);
INSERT INTO boxes (name) VALUES ('red'), ('blue'), ('empty');
INSERT INTO items (name, amount, owner, box_id)
    SELECT 'i' || n, n, CASE WHEN n % 2 = 0 THEN 'ann' ELSE 'bob' END, 1 + n % 2 FROM generate_series(1, 20) n;
INSERT INTO lines (order_id, line_no, text) SELECT n / 3, n % 3, 't' || n FROM generate_series(0, 8) n;
"""
CANCELLING = """
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN IF OLD.name = 'kept' THEN RETURN NULL; END IF; IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW;
    END $$;
CREATE TRIGGER keep BEFORE UPDATE OR DELETE ON items FOR EACH ROW EXECUTE FUNCTION keep();
"""


class Way(msgspec.Struct, frozen=True):
    """How the rows are written: by one statement, also with a trigger, or with a hook one by one."""

    tables: str = TABLES
    hooks: Hooks | None = None


async def _unchanged(_: Any, changes: list[Change]) -> list[Change]:
    return changes


EACH = Way(hooks=Hooks(before_update=_unchanged, before_delete=_unchanged))
WAYS = pytest.mark.parametrize("way", [Way(), Way(TABLES + CANCELLING), EACH], ids=["whole", "trigger", "each"])


def item(*, hooks: Hooks | None = None, **options: Any) -> Resource:
    return Resource(
        "item",
        "/items",
        "items",
        (
            Attribute("name", TEXT, required=True, match=True),
            Attribute("amount", INT, nullable=True),
            *[Attribute(name, TEXT, nullable=True) for name in ("note", "owner")],
        ),
        (ToOne("box", "box"),),
        version="edition",
        **({} if hooks is None else {"hooks": hooks}),
        **options,
    )


OTHERS = (
    Resource(
        "box",
        "/boxes",
        "boxes",
        (Attribute("name", TEXT, required=True),),
        (ToMany("items", "item", foreign_key="box_id"),),
    ),
    Resource(
        "line",
        "/lines",
        "lines",
        (Attribute("text", TEXT, nullable=True), Attribute("done", BOOL), Attribute("line_no", INT)),
        id=Id(columns=("order_id", "line_no"), types=(INT, INT)),
        client_ids=True,
    ),
)
CATALOG = Catalog((item(), *OTHERS))


def found(op: str, tests: Any, attributes: Any = None, *, of: str = "item", most: Any = 100) -> dict[str, Any]:
    """Return an operation on the resources that a filter finds."""
    data = {} if op == "remove" else {"data": {"attributes": attributes}}
    return {"op": op, "ref": {"type": of}, "meta": {"filter": tests, "max": most}, **data}


def where(name: str, op: str, val: Any) -> dict[str, Any]:
    return {"name": name, "op": op, "val": val}


def counts(answer: Answer) -> list[int]:
    assert answer.status == 200, answer.body
    results = answer.document["atomic:results"]
    assert all(one["data"] is None for one in results)
    return [one["meta"]["count"] for one in results]


async def items(api: Api, columns: str = "id, name, amount, note, owner, box_id, edition") -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await api.sql(f"SELECT {columns} FROM items ORDER BY id")]


TESTS = [
    ([], 20),
    (where("amount", "le", 5), 5),
    ([where("amount", "gt", 5), where("owner", "eq", "ann")], 8),
    ([{"or": [where("name", "eq", "i3"), {"not": where("amount", "ge", 2)}]}], 2),
    ([where("box.name", "eq", "red")], 10),
    ([{"name": "box", "op": "has", "val": where("items.amount", "eq", 20)}], 10),
    ([{"name": "note", "op": "is_", "val": None}], 20),
    ([where("id", "in_", [1, 2, 77])], 2),
    ([where("name", "eq", "nothing")], 0),
    ([where("name", "match", "^i1.$")], 10),
]


@WAYS
@pytest.mark.parametrize(("tests", "count"), TESTS)
async def test_updated(inspected: Inspected, way: Way, tests: Any, count: int) -> None:
    api = await inspected(way.tables, Catalog((item(hooks=way.hooks), *OTHERS)))
    listed = await api.get(f"/items?page[size]=100&filter={quote(json.dumps(tests))}")
    ids = {int(one["id"]) for one in listed.document["data"]}
    assert len(ids) == count
    assert counts(await operate(api, found("update", tests, {"note": "new", "amount": 7}))) == [count]
    changed = await items(api)
    assert {row[0] for row in changed if row[3] == "new"} == ids
    assert all((row[2], row[6]) == ((7, 2) if row[0] in ids else (row[0], 1)) for row in changed)


@WAYS
@pytest.mark.parametrize(("tests", "count"), TESTS)
async def test_removed(inspected: Inspected, way: Way, tests: Any, count: int) -> None:
    api = await inspected(way.tables, Catalog((item(hooks=way.hooks), *OTHERS)))
    listed = await api.get(f"/items?page[size]=100&filter={quote(json.dumps(tests))}")
    ids = {int(one["id"]) for one in listed.document["data"]}
    assert counts(await operate(api, found("remove", tests))) == [count]
    assert [row[0] for row in await items(api)] == [number for number in range(1, 21) if number not in ids]


@WAYS
@pytest.mark.parametrize("op", ["update", "remove"])
async def test_too_many(inspected: Inspected, way: Way, op: str) -> None:
    """More rows than `max`: nothing is written."""
    api = await inspected(way.tables, Catalog((item(hooks=way.hooks), *OTHERS)))
    less = where("amount", "le", 10)
    async with unchanged(api):
        answer = await operate(api, update("item", {"note": "x"}, id="20"), found(op, less, {"note": "new"}, most=9))
    assert answer.status == 422
    assert answer.document["detail"]["errors"] == [
        {
            "loc": ["meta", "max"],
            "msg": f"The filter finds more than 9 resources of type item to {'delete' if op == 'remove' else op}, so "
            "nothing was written.",
            "type": "too_many_changes",
        }
    ]
    assert answer.document["detail"]["message"] == f"Validation error on operation {op} (at position 1)"
    assert counts(await operate(api, found(op, less, {"note": "new"}, most=10))) == [10]


async def test_among_other_operations(inspected: Inspected) -> None:
    """Each sees what the earlier ones have done; a request with a count is answered 200."""
    api = await inspected(TABLES, CATALOG)
    answer = await operate(
        api,
        add("item", {"name": "new", "amount": 500}),
        found("update", where("amount", "ge", 20), {"note": "big"}),
        update("item", {"amount": 1}, id="20"),
        found("remove", [where("note", "eq", "big"), where("amount", "gt", 1)]),
        found("remove", where("amount", "eq", -1)),
        remove("item", id="19"),
    )
    assert answer.status == 200, answer.body
    assert [one["meta"] for one in answer.document["atomic:results"]] == [
        {"version": "1"},
        {"count": 2},
        {"version": "3"},
        {"count": 1},
        {"count": 0},
        None,
    ]
    assert [row[0] for row in await items(api)] == [*range(1, 19), 20]
    assert counts(await operate(api, found("remove", []))) == [19]


async def test_composite_ids(inspected: Inspected) -> None:
    api = await inspected(TABLES, CATALOG)
    sent = found("update", where("text", "in_", ["t1", "t4", "t8"]), {"done": True}, of="line")
    assert counts(await operate(api, sent)) == [3]
    rows = await api.sql("SELECT order_id, line_no FROM lines WHERE done ORDER BY 1, 2")
    assert [tuple(row) for row in rows] == [(0, 1), (1, 1), (2, 2)]
    assert counts(await operate(api, found("remove", where("done", "eq", True), of="line"))) == [3]
    # A part of the id cannot change.
    async with unchanged(api):
        refused = await operate(api, found("update", [], {"line_no": 0}, of="line"))
    assert refused.status == 422
    same = found("update", where("id", "in_", ["0,0", "1,0"]), {"line_no": 0, "text": "first"}, of="line")
    assert counts(await operate(api, same)) == [2]


async def test_one_statement(inspected: Inspected, sent: Sent) -> None:
    api = await inspected(TABLES, CATALOG)
    for amount in (3, 4):
        sent.clear()
        assert counts(await operate(api, found("update", where("amount", "le", amount), {"note": "x"}))) == [amount]
    [statement] = [one for one in sent if "items" in one]
    assert statement == (
        'WITH "the found rows" AS (SELECT "t0"."id" FROM "items" "t0" WHERE "t0"."amount"<=$1 ORDER BY "t0"."id" '
        'LIMIT $2 FOR NO KEY UPDATE) UPDATE "items" SET "note"=$3,"edition"=COALESCE("edition",0)+1 WHERE "id" IN '
        '(SELECT * FROM "the found rows") AND (SELECT count(*) FROM "the found rows")<$2 RETURNING "items"."id",'
        '(SELECT count(*) FROM "the found rows")'
    )


# What is refused.


@pytest.mark.parametrize(
    ("operation", "loc", "code"),
    [
        (found("update", [], {"note": "x"}, most=0), ["meta", "max"], "malformed_operations"),
        (found("update", [], {"note": "x"}, most=-3), ["meta", "max"], "malformed_operations"),
        (found("update", [], {"note": "x"}, most=101), ["meta", "max"], "malformed_operations"),
        (found("update", [], {"note": "x"}, most="5"), ["meta", "max"], "malformed_operations"),
        (found("update", [], {"note": "x"}, most=True), ["meta", "max"], "malformed_operations"),
        (found("update", [], {"note": "x"}, most=5.5), ["meta", "max"], "malformed_operations"),
        (found("update", [], {"note": "x"}, most=None), ["meta", "max"], "malformed_operations"),
        (found("remove", []) | {"meta": {"filter": []}}, ["meta", "max"], "malformed_operations"),
        (found("remove", []) | {"meta": {"max": 5}}, ["meta", "filter"], "malformed_operations"),
        (found("remove", "name"), ["meta", "filter"], "invalid_filter"),
        (found("remove", None), ["meta", "filter"], "invalid_filter"),
        (found("remove", [[]]), ["meta", "filter", 0], "invalid_filter"),
        (found("remove", [where("nothing", "eq", 1)]), ["meta", "filter", 0], "invalid_filter"),
        (found("remove", [where("amount", "eq", "x")]), ["meta", "filter", 0], "invalid_filter"),
        (
            found("remove", [where("id", "eq", 1), {"or": [where("amount", "what", 1)]}]),
            ["meta", "filter", 1, "or", 0],
            "invalid_filter",
        ),
        (found("remove", where("name", "match", "(")), ["meta", "filter"], "body_value_refused"),
        (found("remove", [where("name", "eq", "a\0b")]), ["meta", "filter", 0], "body_value_refused"),
        (found("remove", []) | {"meta": {"filter": [], "max": 5, "ifMatch": "*"}}, ["meta", "ifMatch"], None),
        (found("remove", []) | {"ref": {"type": "item", "id": "1"}}, ["ref"], "malformed_operations"),
        (found("remove", []) | {"ref": {"type": "item", "lid": "1"}}, ["ref"], "malformed_operations"),
        (found("remove", []) | {"ref": {}}, ["ref", "type"], "invalid_document"),
        (found("remove", []) | {"ref": {"type": 7}}, ["ref", "type"], "invalid_document"),
        (found("remove", []) | {"ref": None}, ["ref", "type"], "invalid_document"),
        (found("remove", [], of="nothing"), ["ref", "type"], "invalid_document"),
        (found("update", []), ["data", "attributes"], "invalid_document"),
        (found("update", [], [1]), ["data", "attributes"], "invalid_document"),
        (found("update", [], {"nothing": 1}), ["data", "attributes", "nothing"], "invalid_attribute"),
        (found("update", [], {"amount": "x"}), ["data", "attributes", "amount"], "invalid_attribute"),
        (found("update", [], {"amount": 1000}), ["data", "attributes", "amount"], "invalid_attribute"),
        (found("update", [], {"name": "same"}), ["data", "attributes", "name"], "conflict"),
        (found("update", [], {"name": None}), ["data", "attributes", "name"], "invalid_attribute"),
        (found("update", [], {"note": "a\0b"}), ["data", "attributes", "note"], "invalid_attribute"),
        (found("update", []) | {"data": {}}, ["data"], "malformed_operations"),
        (found("update", []) | {"data": {"attributes": {}, "id": "1"}}, ["data", "id"], "invalid_document"),
        (
            found("update", []) | {"data": {"attributes": {}, "relationships": {}}},
            ["data", "relationships"],
            "invalid_document",
        ),
        (found("update", []) | {"data": {"attributes": {}, "type": "box"}}, ["data", "type"], "invalid_document"),
        (found("remove", [], of="box"), [], "conflict"),
    ],
)
async def test_refused(start: Start, inspected: Inspected, operation: Any, loc: Any, code: str | None) -> None:
    api = await inspected(TABLES, CATALOG, max_bulk_rows=100)
    async with unchanged(api):
        answer = await operate(api, update("item", {"note": "first"}, id="1"), operation)
    assert answer.status == 422, answer.body
    [error] = answer.document["detail"]["errors"]
    assert (error["loc"], error["type"]) == (loc, code or "malformed_operations"), error


async def test_not_with_the_extension(inspected: Inspected) -> None:
    api = await inspected(TABLES, CATALOG)
    async with unchanged(api):
        answer = await operate(api, found("remove", []), media_type=EXTENDED)
    assert (answer.status, [one["source"] for one in answer.errors]) == (
        400,
        [{"pointer": "/atomic:operations/0/meta"}],
    )


async def test_where_it_is_not_possible(inspected: Inspected) -> None:
    for resource, status in (
        (item(requires_match=True), "precondition_required"),
        (item(methods=frozenset({"list", "detail", "create"})), "write_forbidden"),
        (item(in_operations=False), "invalid_document"),
    ):
        api = await inspected(TABLES, Catalog((resource, *OTHERS)))
        for operation in (found("update", [], {"note": "x"}), found("remove", [])):
            async with unchanged(api):
                answer = await operate(api, operation)
            assert (answer.status, answer.document["detail"]["errors"][0]["type"]) == (422, status)


@pytest.mark.parametrize("hooks", [None, EACH.hooks], ids=["whole", "each"])
@pytest.mark.parametrize("tests", [[], where("id", "eq", 4)], ids=["all", "one"])
async def test_a_row_that_a_trigger_keeps(inspected: Inspected, hooks: Hooks | None, tests: Any) -> None:
    tables = TABLES + "UPDATE items SET name = 'kept' WHERE id = 4;" + CANCELLING
    api = await inspected(tables, Catalog((item(hooks=hooks), *OTHERS)))
    for operation in (found("update", tests, {"note": "x"}), found("remove", tests)):
        async with unchanged(api):
            answer = await operate(api, operation)
        assert [one["type"] for one in answer.document["detail"]["errors"]] == ["not_written"]


async def test_read_only_attributes(inspected: Inspected) -> None:
    """As in a PATCH, they may be sent with the value that each row has."""
    attributes = (
        Attribute("name", TEXT, required=True, updatable=False),
        Attribute("note", TEXT, nullable=True),
    )
    resource = Resource("item", "/items", "items", attributes)
    api = await inspected(TABLES, Catalog((resource,)))
    assert counts(await operate(api, found("update", where("id", "eq", 3), {"name": "i3", "note": "x"}))) == [1]
    async with unchanged(api):
        answer = await operate(api, found("update", where("id", "in_", [3, 4]), {"name": "i3", "note": "y"}))
    assert [one["loc"] for one in answer.document["detail"]["errors"]] == [["data", "attributes", "name"]]


# Rules.

OWN = {"name": "owner", "op": "eq", "val": SUBJECT}


async def operated(api: Api, *operations: Any, by: str = "ann") -> Answer:
    return await api.request("POST", "/operations", {"atomic:operations": operations}, headers={HEADER: principal(by)})


@WAYS
async def test_rules_say_which_rows(inspected: Inspected, way: Way) -> None:
    """Rows that may not be read, or not written, are neither changed nor counted."""
    access = [
        Allow(SIGNED_IN, "read", rows={"name": "amount", "op": "gt", "val": 4}),
        Allow(SIGNED_IN, "update", rows=OWN),
        Allow(SIGNED_IN, "delete", rows=[OWN, {"name": "amount", "op": "gt", "val": 16}]),
    ]
    api = await inspected(way.tables, Catalog((item(hooks=way.hooks, access=access), *OTHERS)))
    trust_headers(api.app.engine)
    assert counts(await operated(api, found("update", [], {"note": "x"}))) == [8]
    assert [row[0] for row in await items(api) if row[3]] == [6, 8, 10, 12, 14, 16, 18, 20]
    # `max` counts those that may be written.
    assert counts(await operated(api, found("update", [], {"note": "y"}, most=8))) == [8]
    assert counts(await operated(api, found("remove", [], most=2))) == [2]
    assert [row[0] for row in await items(api)] == [*range(1, 18), 19]
    assert counts(await operated(api, found("update", where("id", "in_", [1, 2, 3]), {"note": "z"}))) == [0]


@WAYS
async def test_rules_about_other_rows(inspected: Inspected, way: Way) -> None:
    access = [Allow(SIGNED_IN, "all", rows={"name": "box.name", "op": "eq", "val": "red"})]
    boxes = [with_rules(one, [Allow(SIGNED_IN, "all")]) for one in OTHERS]
    api = await inspected(way.tables, Catalog((item(hooks=way.hooks, access=access), *boxes)))
    trust_headers(api.app.engine)
    assert counts(await operated(api, found("update", [], {"note": "x"}))) == [10]
    assert counts(await operated(api, found("remove", where("box.items.amount", "eq", 20)))) == [10]


def with_rules(one: Resource, access: list[Allow]) -> Resource:
    """Return a resource with other rules."""
    return msgspec.structs.replace(one, access=access)


@WAYS
async def test_rules_check_what_is_written(inspected: Inspected, way: Way) -> None:
    access = [Allow(SIGNED_IN, "all", rows=OWN, check=[OWN, where("amount", "lt", 100)])]
    api = await inspected(way.tables, Catalog((item(hooks=way.hooks, access=access), *OTHERS)))
    trust_headers(api.app.engine)
    for sent in ({"amount": 100}, {"owner": "bob"}, {"amount": 1000}):
        async with unchanged(api):
            answer = await operated(api, found("update", [], sent))
        assert answer.status == 422, answer.body
        errors = answer.document["detail"]["errors"]
        assert [one["type"] for one in errors] == ["forbidden"], (sent, errors)
    assert counts(await operated(api, found("update", [], {"amount": 99}))) == [10]


@pytest.mark.parametrize("op", ["update", "remove"])
async def test_rules_refuse_the_action(inspected: Inspected, op: str) -> None:
    for actions in (["read"], ["update", "delete"]):
        access = [Allow(SIGNED_IN, *actions)]  # type: ignore[arg-type]
        api = await inspected(TABLES, Catalog((item(access=access), *OTHERS)))
        trust_headers(api.app.engine)
        async with unchanged(api):
            answer = await operated(api, found(op, [], {"note": "x"}))
        assert [one["type"] for one in answer.document["detail"]["errors"]] == ["forbidden"]


async def test_a_filter_sees_no_hidden_field(inspected: Inspected) -> None:
    attributes = (
        Attribute("name", TEXT, required=True),
        Attribute("owner", TEXT, nullable=True, read_by=[Role("boss")]),
    )
    resource = Resource("item", "/items", "items", attributes, access=[Allow(SIGNED_IN, "all")])
    api = await inspected(TABLES, Catalog((resource,)))
    trust_headers(api.app.engine)
    answer = await operated(api, found("remove", [where("owner", "eq", "ann")]))
    assert [one["type"] for one in answer.document["detail"]["errors"]] == ["invalid_filter"]


# Custom code.


async def test_hooks(inspected: Inspected) -> None:
    ran: list[Any] = []

    async def before(_: Any, changes: list[Change]) -> list[Change]:
        ran.append(("before", [(one.kind, one.id, one.attributes, one.bulk) for one in changes]))
        return [one.assign(owner=f"of {one.id}") for one in changes] if changes[0].kind == "update" else changes

    async def after(_: Any, done: Any) -> None:
        ran.append(("after", [one.id for one in done]))

    async def committed(done: Any) -> None:
        ran.append(("committed", [(one.change.kind, one.change.id, one.id) for one in done]))

    hooks = Hooks(before_update=before, before_delete=before, after_update=after, after_commit=committed)
    api = await inspected(TABLES, Catalog((item(hooks=hooks), *OTHERS)))
    assert counts(await operate(api, found("update", where("amount", "le", 2), {"note": "x"}))) == [2]
    assert ran == [
        ("before", [("update", "1", {"note": "x"}, None), ("update", "2", {"note": "x"}, None)]),
        ("after", [1, 2]),
        ("committed", [("update", "1", 1), ("update", "2", 2)]),
    ]
    assert [row[3:5] for row in (await items(api))[:3]] == [("x", "of 1"), ("x", "of 2"), (None, "bob")]
    ran.clear()
    assert counts(await operate(api, found("remove", where("amount", "le", 2)))) == [2]
    assert [name for name, _ in ran] == ["before", "committed"]
    ran.clear()
    # No rows: no hook runs.
    assert counts(await operate(api, found("update", where("amount", "le", 2), {"note": "x"}))) == [0]
    assert ran == []
    # Faults of the attributes and of the filter are found with hooks too.
    for sent in (
        found("update", where("amount", "le", 3), {"amount": "x"}),
        found("update", where("x", "eq", 3), {}),
    ):
        async with unchanged(api):
            assert (await operate(api, sent)).status == 422


async def test_after_commit_alone(inspected: Inspected, sent: Sent) -> None:
    """It does not prevent the one statement."""
    ran: list[Any] = []

    async def committed(done: Any) -> None:
        ran.append([(one.change.kind, one.change.id, one.id) for one in done])

    api = await inspected(TABLES, Catalog((item(hooks=Hooks(after_commit=committed)), *OTHERS)))
    assert counts(await operate(api, found("remove", where("amount", "le", 2)))) == [2]
    assert ran == [[("delete", "1", 1), ("delete", "2", 2)]]
    assert counts(await operate(api, found("remove", where("box.name", "eq", "empty")))) == [0]
    assert len(ran) == 1
    assert len([one for one in sent if "the found rows" in one]) == 1


# Clients at once.


@WAYS
async def test_rows_that_change_meanwhile(inspected: Inspected, way: Way) -> None:
    """The filter holds for the rows as they are when they are locked."""
    api = await inspected(way.tables, Catalog((item(hooks=way.hooks), *OTHERS)))
    async with session(api) as connection, session(api) as watcher:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("UPDATE items SET amount = 900 + id WHERE id <= 2")
        writing = asyncio.ensure_future(operate(api, found("update", where("amount", "le", 3), {"note": "x"})))
        await until_blocked_by(watcher, connection.get_server_pid())
        await transaction.commit()
        assert counts(await writing) == [1]
    assert [(row[0], row[2], row[3]) for row in (await items(api))[:3]] == [(1, 901, None), (2, 902, None), (3, 3, "x")]


@WAYS
async def test_rows_that_change_and_are_still_found(inspected: Inspected, way: Way) -> None:
    api = await inspected(way.tables, Catalog((item(hooks=way.hooks), *OTHERS)))
    async with session(api) as connection, session(api) as watcher:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("UPDATE items SET amount = 3, owner = 'new' WHERE id <= 2")
        writing = asyncio.ensure_future(operate(api, found("update", where("amount", "le", 3), {"note": "x"}, most=3)))
        await until_blocked_by(watcher, connection.get_server_pid())
        await transaction.commit()
        assert counts(await writing) == [3]
    assert [row[2:5] for row in (await items(api))[:3]] == [(3, "x", "new"), (3, "x", "new"), (3, "x", "bob")]


async def test_many_clients(inspected: Inspected) -> None:
    """Each adds to nothing that another has taken: rows are written by exactly one of them."""
    api = await inspected(TABLES, CATALOG)

    async def take(name: str) -> int:
        tests = [{"name": "note", "op": "is_", "val": None}, where("amount", "le", 10 + len(name))]
        return counts(await operate(api, found("update", tests, {"note": name})))[0]

    taken = await asyncio.gather(*[take("n" * number) for number in range(1, 9)])
    rows = [row[3] for row in await items(api)]
    assert sum(taken) == len([one for one in rows if one is not None]) == 18
    assert [rows.count("n" * number) for number in range(1, 9)] == list(taken)


# Beside other features.


async def test_with_a_key(inspected: Inspected) -> None:
    api = await inspected(TABLES, CATALOG, idempotency="on")
    body = {"atomic:operations": [found("update", where("amount", "le", 3), {"amount": 50})]}
    answers = [await api.request("POST", "/operations", body, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert [counts(one) for one in answers] == [[3], [3]]
    assert [one.headers["Idempotent-Replayed"] for one in answers] == ["false", "true"]


async def test_a_try(inspected: Inspected) -> None:
    api = await inspected(TABLES, CATALOG)
    body = {"atomic:operations": [found("remove", where("amount", "le", 3))]}
    async with unchanged(api):
        answer = await api.request("POST", "/operations", body, headers={"Prefer": "tx=rollback"})
    assert counts(answer) == [3]


MODEL = """
CREATE TABLE whole (LIKE items INCLUDING ALL);
CREATE TABLE each (LIKE items INCLUDING ALL);
INSERT INTO whole SELECT * FROM items;
INSERT INTO each SELECT * FROM items;
"""


async def test_a_model(inspected: Inspected) -> None:
    """The same as a list with the filter, and a PATCH or DELETE of each resource in it."""
    names = ("whole", "each")
    more = [
        msgspec.structs.replace(item(hooks=hooks), type=name, path=f"/{name}", table=name)
        for name, hooks in zip(names, (None, EACH.hooks), strict=True)
    ]
    api = await inspected(TABLES + MODEL, Catalog((item(), *more, *OTHERS)))
    drawn = random.Random(7)

    def some(depth: int = 0) -> Any:
        choice = drawn.randrange(8 if depth < 2 else 5)
        match choice:
            case 0:
                return where("amount", drawn.choice(["lt", "ge", "ne"]), drawn.randrange(30))
            case 1:
                return where("owner", drawn.choice(["eq", "ne"]), drawn.choice(["ann", "bob", "x"]))
            case 2:
                return {"name": "note", "op": drawn.choice(["is_", "isnot"]), "val": None}
            case 3:
                return where("box.name", "eq", drawn.choice(["red", "blue"]))
            case 4:
                return where("name", "like", f"i%{drawn.randrange(10)}")
            case 5:
                return {"not": some(depth + 1)}
            case _:
                return {drawn.choice(["or", "and"]): [some(depth + 1) for _ in range(drawn.randrange(1, 4))]}

    written = 0
    for number in range(60):
        tests = [some() for _ in range(drawn.randrange(3))]
        sent = {"note": drawn.choice([None, "a", "b"]), "amount": drawn.randrange(30)}
        op = "remove" if number % 12 == 11 else "update"
        listed = await api.get(f"/items?page[size]=100&filter={quote(json.dumps(tests))}")
        ids = [one["id"] for one in listed.document["data"]]
        written += len(ids)
        for row_id in ids:
            if op == "remove":
                assert (await api.delete(f"/items/{row_id}")).status == 200
            else:
                assert (await api.patch(f"/items/{row_id}", document("item", sent, id=row_id))).status == 200
        for name in names:
            assert counts(await operate(api, found(op, tests, sent, of=name))) == [len(ids)], tests
            assert [tuple(row) for row in await api.sql(f"SELECT * FROM {name} ORDER BY id")] == [
                tuple(row) for row in await api.sql("SELECT * FROM items ORDER BY id")
            ], tests
    assert written > 100


# Other tables.


INSTEAD = """
CREATE VIEW items AS SELECT id, name, n FROM base UNION ALL SELECT 0, 'none', 0 WHERE FALSE;
CREATE FUNCTION write() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    CASE TG_OP
        WHEN 'INSERT' THEN INSERT INTO base (name, n) VALUES (NEW.name, NEW.n) RETURNING id INTO NEW.id;
        WHEN 'UPDATE' THEN UPDATE base SET name = NEW.name, n = NEW.n WHERE id = OLD.id;
        ELSE DELETE FROM base WHERE id = OLD.id; RETURN OLD;
    END CASE;
    RETURN NEW;
END $$;
CREATE TRIGGER write INSTEAD OF INSERT OR UPDATE OR DELETE ON items FOR EACH ROW EXECUTE FUNCTION write();
"""


@pytest.mark.parametrize("kind", ["partitioned", "view", "instead", "xmin", "itself"])
async def test_other_tables(inspected: Inspected, kind: str) -> None:
    columns = "(id bigserial PRIMARY KEY, name text, n int"
    plain = f"CREATE TABLE base {columns});"
    tables = {
        "partitioned": f"CREATE TABLE items {columns}) PARTITION BY HASH (id);"
        "CREATE TABLE items_0 PARTITION OF items FOR VALUES WITH (MODULUS 2, REMAINDER 0);"
        "CREATE TABLE items_1 PARTITION OF items FOR VALUES WITH (MODULUS 2, REMAINDER 1);",
        "view": plain + "CREATE VIEW items AS SELECT id, name, n FROM base;",
        "instead": plain + INSTEAD,
        "xmin": f"CREATE TABLE items {columns});",
        "itself": f"CREATE TABLE items {columns}, above bigint REFERENCES items);",
    }
    rows = "INSERT INTO items (name, n) SELECT 'i' || n, n FROM generate_series(1, 9) n;"
    if kind == "itself":
        rows += "UPDATE items SET above = 10 - id WHERE id <> 5;"
    attributes = (Attribute("name", TEXT, nullable=True), Attribute("n", INT, nullable=True))
    row_id = Id(unique=True) if kind in ("view", "instead") else Id()
    resource = Resource("item", "/items", "items", attributes, id=row_id)
    api = await inspected(tables[kind] + rows, Catalog((resource,)))
    assert counts(await operate(api, found("update", where("n", "le", 4), {"name": "new"}))) == [4]
    shown = [tuple(row) for row in await api.sql("SELECT n, name FROM items ORDER BY n")]
    assert shown == [(n, "new" if n <= 4 else f"i{n}") for n in range(1, 10)]
    if kind == "itself":
        # Each refers to another one: only one statement can remove both.
        async with unchanged(api):
            refused = await operate(api, found("remove", where("n", "le", 4)))
        assert [one["type"] for one in refused.document["detail"]["errors"]] == ["conflict"]
    assert counts(await operate(api, found("remove", where("n", "notin_", [5])))) == [8]
    assert [tuple(row) for row in await api.sql("SELECT n FROM items")] == [(5,)]
