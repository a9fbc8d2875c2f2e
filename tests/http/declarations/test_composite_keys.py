"""Ids and keys of several columns, on every route and in every kind of write."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import asyncpg
import msgspec
import pytest
from tornado.ioloop import IOLoop

from server.schema import live_references
from tests import composite
from tests.first_rows import set_first_rows
from tests.http.conftest import Api, Sent, Serve, Start
from tests.http.operating import add, by_lid, extended, link, remove, update
from tests.http.people import document, linked, of, one
from tests.planning import filter_query
from waterspout import ANYONE, Allow, Catalog

ODD = "2,ä\\,\\\\"
"""The id of the line with the product `ä,\\`."""

ALL = ["1,", "1,a\\,b", "1,c\\\\d", "1,tea", "2,tea", ODD]


async def _make(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(composite.DDL + composite.ROWS)
    await connection.close()


@pytest.fixture
def shop(io_loop: IOLoop, serve: Serve, database_url: str) -> Api:
    io_loop.run_sync(lambda: _make(database_url))
    return serve(database_url, composite.CATALOG)


def escaped(text: str) -> str:
    return quote(text, safe="")


def ids(document: Any) -> list[str]:
    data = document["data"]
    return [resource["id"] for resource in (data if isinstance(data, list) else [data]) if resource is not None]


def linkage(document: Any, name: str) -> dict[str, Any]:
    """The ids of the linkage of each primary resource."""
    data = document["data"]
    found: dict[str, Any] = {}
    for resource in data if isinstance(data, list) else [data]:
        one_or_many = resource["relationships"][name]["data"]
        is_list = isinstance(one_or_many, list)
        found[resource["id"]] = [each["id"] for each in one_or_many] if is_list else one_or_many and one_or_many["id"]
    return found


READS: list[tuple[str, list[str]]] = [
    ("/lines", ALL),
    ("/lines?sort=-id", ALL[::-1]),
    ("/lines?sort=-order.name,note&page[size]=2", ["2,ä\\,\\\\", "2,tea"]),
    ("/lines?page[number]=2&page[size]=4", ALL[4:]),
    ("/lines?page[size]=0&include=order,check,returns,labels,tags", ALL),
    ("/orders/1/lines", ALL[:4]),
    ("/orders/1/lines?sort=-quantity&page[size]=1", ["1,"]),
    ("/orders/1/relationships/lines", ALL[:4]),
    (f"/lines/{escaped(ODD)}", [ODD]),
    (f"/lines/{escaped(ODD)}/order", ["2"]),
    (f"/lines/{escaped(ODD)}/check", [ODD]),
    (f"/lines/{escaped(ODD)}/relationships/check", [ODD]),
    ("/lines/2,tea/check", []),
    ("/lines/1,tea/labels", ["a\\,t,\\\\", "at,1"]),
    ("/lines/1,tea/relationships/labels", ["a\\,t,\\\\", "at,1"]),
    ("/lines/1,tea/tags?sort=-id", ["2", "1"]),
    ("/labels/a%5C,t,%5C%5C/lines?include=order", ["1,tea", ODD]),
    ("/returns/4/line", [ODD]),
    ("/returns/3/line", []),
    ("/returns/4/relationships/line", [ODD]),
    # filters
    (f"/lines?filter[id]={escaped(ODD)}", [ODD]),
    ("/lines?filter[id][in_]=" + escaped("1\\,tea,2\\,tea,3\\,no"), ["1,tea", "2,tea"]),
    ("/lines?filter[id][notin_]=" + escaped("1\\,tea,2\\,tea"), ["1,", "1,a\\,b", "1,c\\\\d", ODD]),
    ("/lines?filter[id][ne]=1,tea", ["1,", "1,a\\,b", "1,c\\\\d", "2,tea", ODD]),
    ("/lines?filter[id][is_]=null", []),
    ("/lines?filter[check.id]=1,tea", ["1,tea"]),
    ("/lines?filter[check.id][is_]=null", ["1,", "1,a\\,b", "1,c\\\\d", "2,tea"]),
    ("/lines?filter[returns.id]=6", ["1,a\\,b"]),
    ("/lines?filter[labels.id]=at,1", ["1,tea"]),
    ("/lines?filter[labels.lines.order.id]=2", ["1,tea", ODD]),
    ("/returns?filter[line.id]=1,tea", ["1"]),
    ("/returns?filter[line_id]=1,tea", ["1"]),
    ("/returns?filter[line]=1,tea", ["1"]),
    ("/returns?filter[line.id][ne]=1,tea", ["4", "6"]),
    ("/returns?filter[line.id][is_]=null", ["2", "3", "5"]),
    ("/returns?filter[line.id][isnot]=null", ["1", "4", "6"]),
    ("/returns?filter[line.id][isnot]=1,tea", ["2", "3", "4", "5", "6"]),
    ("/returns?filter[line.order.name]=second", ["4"]),
    # sorts over a key that is null in part
    ("/returns?sort=line.id", ["6", "1", "4", "2", "3", "5"]),
    ("/returns?sort=-line.id,id", ["4", "1", "6", "2", "3", "5"]),
    ("/checks?sort=-line.quantity", [ODD, "1,tea"]),
]


async def test_reads(shop: Api) -> None:
    for path, expected in READS:
        answer = await shop.get(path)
        assert (answer.status, ids(answer.document)) == (200, expected), path


TREES: list[tuple[str, Any, list[str]]] = [
    ("/returns", {"not": {"name": "line.id", "op": "eq", "val": "1,tea"}}, ["4", "6"]),
    ("/returns", {"not": {"name": "line.id", "op": "in_", "val": ["1,tea", ODD]}}, ["6"]),
    ("/returns", {"name": "line", "op": "has", "val": {"name": "id", "op": "eq", "val": ODD}}, ["4"]),
    ("/lines", {"name": "returns", "op": "any", "val": {"name": "line.id", "op": "eq", "val": "1,tea"}}, ["1,tea"]),
    ("/returns", {"name": "line.id", "op": "eq", "field": "line.check.id"}, ["1", "4"]),
    ("/lines", {"name": "id", "op": "eq", "field": "check.line.id"}, ["1,tea", ODD]),
    ("/lines", {"or": [{"name": "id", "op": "eq", "val": "1,"}, {"name": "id", "op": "eq", "val": ODD}]}, ["1,", ODD]),
    ("/returns", {"name": "line.id", "op": "in_", "val": []}, []),
    ("/returns", {"name": "line.id", "op": "notin_", "val": ["1,tea"]}, ["4", "6"]),
]  # fmt: skip


async def test_filter_trees(shop: Api) -> None:
    for path, tree, expected in TREES:
        answer = await shop.filter(path, [tree])
        assert (answer.status, ids(answer.document)) == (200, expected), tree


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        ("order", {"1,tea": "1", "2,tea": "2"}),
        ("check", {"1,tea": "1,tea", "2,tea": None}),
        ("returns", {"1,tea": ["1"], "2,tea": []}),
        ("labels", {"1,tea": ["a\\,t,\\\\", "at,1"], "2,tea": []}),
        ("tags", {"1,tea": ["1", "2"], "2,tea": ["1"]}),
    ],
)
async def test_linkage_is_the_same_on_pages_and_in_streams(
    shop: Api, monkeypatch: pytest.MonkeyPatch, include: str, expected: dict[str, Any]
) -> None:
    """Includes are joined, in the same statement, or looked up; lists without pages are streamed."""
    for others in ("", ",order,check,returns,labels.lines,tags.lines"):
        path = f"/lines?filter[product]=tea&include={include}{others}"
        page = (await shop.get(path)).document
        assert linkage(page, include) == expected
        set_first_rows(monkeypatch, 1, shop.app.engine)
        stream = (await shop.get(f"{path}&page[size]=0")).document
        assert linkage(stream, include) == expected
        key = lambda one: (one["type"], one["id"])  # noqa: E731
        assert sorted(map(key, stream["included"])) == sorted(map(key, page["included"]))


@pytest.mark.parametrize("sort", ["", "id", "-id", "note", "-note", "order.name,-note", "-check.id"])
async def test_cursors_walk_over_all_rows(shop: Api, sort: str) -> None:
    whole = ids((await shop.get(f"/lines?page[size]=10&sort={sort}" if sort else "/lines")).document)
    assert sorted(whole) == sorted(ALL)
    for size in (1, 2, 4):
        path: str | None = f"/lines?page[size]={size}&page[after]=" + (f"&sort={sort}" if sort else "")
        seen, last = list[str](), ""
        while path is not None:
            answer = await shop.get(path.replace(f"http://127.0.0.1:{shop.port}", ""))
            assert answer.status == 200, answer.body
            seen += ids(answer.document)
            last, path = path, answer.document["links"].get("next")
        assert seen == whole, (sort, size, last)


COUNTED = [
    (False, "returns", {"name": "reason", "op": "ne", "val": "r6"}, ["1,tea", ODD]),
    (False, "check", {"name": "inspector", "op": "ne", "val": ""}, ["1,tea", ODD]),
    (True, "returns", {"name": "id", "op": "gt", "val": 0}, ["1,", "1,c\\\\d", "2,tea"]),
]
"""Whether a filter is negated, its relationship and condition, and the lines that it finds."""


async def test_totals(
    io_loop: IOLoop, start: Start, sent: Sent, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are counted where a foreign key guarantees that their rows are there. Some keys are null in part."""
    monkeypatch.setattr(live_references, "MIN_REFERENCE_BYTES", 0)
    await _make(database_url)
    shop = await start(database_url, composite.CATALOG)
    for is_negated, name, val, expected in COUNTED:
        sent.clear()
        tree = {"name": name, "op": "any" if name == "returns" else "has", "val": val}
        query = filter_query([{"not": tree} if is_negated else tree])
        answer = await shop.get(f"/lines?page[total]=exact&page[size]=1&{query}")
        assert (answer.document["meta"]["total"], ids(answer.document)) == (len(expected), expected[:1])
        keys = 'SELECT DISTINCT "t1"."order_id","t1"."product" FROM'
        assert any(keys in statement for statement in sent) is not is_negated


async def test_far_pages(shop: Api) -> None:
    await shop.sql("INSERT INTO shop.lines SELECT 2, ',' || i FROM generate_series(10000, 11999) i")
    for path in ("/lines", "/lines?include=order,check,labels", "/orders/2/lines", "/lines?sort=-note,id"):
        query = f"{path}{'&' if '?' in path else '?'}page[size]=7&page[number]="
        found = ids((await shop.get(f"{query}200")).document)
        whole = ids((await shop.get(f"{path}{'&' if '?' in path else '?'}page[size]=0")).document)
        assert found == whole[199 * 7 : 200 * 7], path


async def test_ids_that_are_none(shop: Api) -> None:
    wrong = ["1", "1,2,3", "x,tea", "01,tea", "1,t\\ea", "1,tea\\", ",tea", "9999999999,tea", "1,%00"]
    for text in wrong:
        path = "/lines/" + (text if "%" in text else escaped(text))
        assert (await shop.get(path)).status == 404, text
        for method, body in (("PATCH", document("line", {}, id=text)), ("DELETE", None)):
            assert (await shop.request(method, path, body)).status == 404, text
        if "%" not in text:
            answer = await shop.get(f"/lines?filter[id]={escaped(text)}")
            assert (answer.status, answer.document["errors"][0]["source"]) == (400, {"parameter": "filter[id]"}), text
            answer = await shop.patch("/returns/1/relationships/line", {"data": one("line", text)})
            assert (answer.status, answer.document["errors"][0]["source"]) == (404, {"pointer": "/data"}), text
    for op in ("lt", "le", "gt", "ge", "between", "like", "match"):
        for path, name in (("/lines", "id"), ("/returns", "line.id"), ("/returns", "line")):
            answer = await shop.get(f"{path}?filter[{name}][{op}]=1,tea")
            detail = f"“{name}” is int,text and has no operator “{op}”. “{name}” has: eq, ne, in_, notin_, is_, isnot."
            assert (answer.status, answer.errors[0]["detail"]) == (400, detail)


TEXTS = ["", ".", "..", ",", "\\", "\\,", ",\\", "a,b,c", "ä", "🧀", " ", "a\nb", '"', "'", "{}", "%", "/", "%2F",
         "NULL", "\\b", "\\c", "\\\\,,\\\\"]  # fmt: skip


async def test_every_row_can_be_named(shop: Api) -> None:
    """A row is created by its parts. Its id leads back to it in paths, filters, linkage and includes."""
    for text in TEXTS:
        made = await shop.post(
            "/lines", document("line", {"product": text}, relationships=linked(order=one("order", 2)))
        )
        line = made.document["data"]
        assert line["attributes"]["product"] == text
        answer = await shop.get(line["links"]["self"])
        assert (answer.status, ids(answer.document)) == (200, [line["id"]])
        found = await shop.filter("/lines", [{"name": "id", "op": "in_", "val": [line["id"]]}])
        assert ids(found.document) == [line["id"]]
        returned = await shop.post(
            "/returns?include=line",
            document("return", {"reason": "x"}, relationships=linked(line=one("line", line["id"]))),
        )
        assert (returned.status, ids({"data": returned.document["included"]})) == (201, [line["id"]])
        label = document("label", {"title": text}, id=f"{line['id'].partition(',')[2]},x")
        label["data"]["relationships"] = linked(lines=of("line", line["id"]))
        labelled = await shop.post("/labels?include=lines", label)
        assert (labelled.status, linkage(labelled.document, "lines")) == (201, {label["data"]["id"]: [line["id"]]})
        rows = await shop.sql("SELECT country, product FROM shop.line_labels WHERE product = $1", text)
        assert (text, text) in [tuple(row) for row in rows]


LINE, ORDER = "/data/relationships/line/data", "/data/relationships/order/data"


def line(attributes: Any = None, **members: Any) -> Any:
    return document("line", attributes, **members)


def to(**relationships: Any) -> dict[str, Any]:
    return {"relationships": linked(**relationships)}


def returned(**relationships: Any) -> Any:
    return document("return", {"reason": "u"}, **to(**relationships))


WRITES: list[tuple[str, str, Any, int, str | None]] = [
    # creates: the parts come from relationships, attributes, the id or the path
    ("POST", "/lines", line({"product": "new"}, **to(order=one("order", 1))), 201, None),
    ("POST", "/lines", line({"product": "new"}, **to(order=one("order", 1))), 409, ORDER),
    ("POST", "/lines", line({"product": "x"}, **to(order=one("order", 9))), 404, ORDER),
    ("POST", "/lines", line({"product": "x"}), 422, "/data/relationships/order"),
    ("POST", "/lines", line({}, **to(order=one("order", 1))), 422, "/data/id"),
    ("POST", "/lines", line({"quantity": 3}, id="1,milk"), 201, None),
    ("POST", "/lines", line({"quantity": 3}, id="1,milk"), 409, "/data/id"),
    ("POST", "/lines", line({"quantity": 3}, id="9,milk"), 404, "/data/id"),
    ("POST", "/lines", line({"quantity": 3}, id="9"), 422, "/data/id"),
    ("POST", "/lines", line({"product": "rice"}, id="1,rice", **to(order=one("order", 1))), 201, None),
    ("POST", "/lines", line({"product": "rye"}, id="1,rice"), 409, "/data/id"),
    ("POST", "/lines", line({}, id="1,rye", **to(order=one("order", 2))), 409, "/data/id"),
    ("POST", "/orders/1/lines", line({"product": "below"}), 201, None),
    ("POST", "/orders/1/lines", line({}, id="1,too"), 201, None),
    ("POST", "/orders/1/lines", line({}, id="2,too"), 409, "/data/id"),
    # below an owner: a wrong id is the same error as without an owner
    ("POST", "/orders/1/lines", line({"product": "x"}, **to(order=one("order", "x"))), 404, ORDER),
    ("POST", "/orders/1/lines", line({"product": "x"}, **to(order=one("order", 2))), 409, ORDER),
    ("POST", "/orders/1/lines", line({"product": "x"}, **to(order=one("tag", 1))), 409, f"{ORDER}/type"),
    ("POST", "/orders/1/lines", line({"product": "x"}, **to(order=None)), 422, ORDER),
    ("POST", "/orders/1/lines", line({"product": "x"}, id="x"), 422, "/data/id"),
    ("POST", "/lines/1,tea/returns", returned(line=one("line", "x")), 404, LINE),
    ("POST", "/lines/1,tea/returns", returned(order=one("order", "x")), 404, ORDER),
    ("POST", "/lines/1,tea/returns", returned(order=one("order", 2)), 422, ORDER),
    ("POST", "/orders/2/returns", returned(line=one("line", "1,tea")), 422, LINE),
    ("POST", "/returns", returned(line=one("line", "1,tea"), order=one("order", "x")), 404, ORDER),
    ("POST", "/checks", document("check", {"inspector": "u"}, **to(line=one("line", "2,tea"))), 201, None),
    ("POST", "/checks", document("check", {"inspector": "u"}, **to(line=one("line", "2,no"))), 404, LINE),
    ("POST", "/checks", document("check", {"inspector": "u"}), 422, "/data/relationships/line"),
    # relationships with a column in common
    ("POST", "/returns", returned(line=one("line", ODD), order=one("order", 2)), 201, None),
    ("POST", "/returns", returned(line=one("line", ODD), order=one("order", 1)), 422, LINE),
    ("POST", "/returns", returned(line=one("line", ODD), order=None), 422, LINE),
    ("POST", "/returns", returned(line=None, order=one("order", 2)), 201, None),
    ("POST", "/returns", returned(line=None, order=None), 201, None),
    # updates: what is part of the id never changes
    ("PATCH", "/lines/1,tea", line({"quantity": 9}, id="1,tea"), 200, None),
    ("PATCH", "/lines/1,tea", line({}, id="1,tea", **to(order=one("order", 1), tags=of("tag", 1))), 200, None),
    ("PATCH", "/lines/1,tea", line({}, id="1,tea", **to(order=one("order", 2))), 422, ORDER),
    ("PATCH", "/lines/1,tea", line({}, id="1,tea", **to(order=None)), 403, ORDER),
    ("PATCH", "/lines/1,tea/relationships/order", {"data": one("order", 1)}, 200, None),
    ("PATCH", "/lines/1,tea/relationships/order", {"data": one("order", 2)}, 422, "/data"),
    ("PATCH", "/lines/1,no/relationships/order", {"data": one("order", 1)}, 404, None),
    ("PATCH", "/checks/1,tea/relationships/line", {"data": one("line", "2,tea")}, 422, "/data"),
    ("PATCH", "/checks/1,tea/relationships/line", {"data": one("line", "2,zz")}, 422, "/data"),
    ("PATCH", "/checks/1,tea/line", line({"quantity": 77}, id="1,tea"), 200, None),
    ("PATCH", "/returns/1/line", line({"quantity": 78}, id="1,tea"), 200, None),
    ("PATCH", "/lines/1,tea", line({"product": "x"}, id="1,tea"), 422, "/data/attributes/product"),
    # to-one
    ("PATCH", "/returns/2/relationships/line", {"data": one("line", ODD)}, 422, "/data"),
    ("PATCH", "/returns/2", document("return", id="2", **to(line=one("line", ODD), order=one("order", 2))), 200, None),
    ("PATCH", "/returns/2/relationships/line", {"data": one("line", "2,tea")}, 200, None),
    ("PATCH", "/returns/2/relationships/line", {"data": one("line", ODD)}, 200, None),
    ("PATCH", "/returns/2/relationships/line", {"data": one("line", "2,no")}, 404, "/data"),
    ("PATCH", "/returns/4/relationships/order", {"data": one("order", 1)}, 422, "/data"),
    ("PATCH", "/returns/4/relationships/order", {"data": one("order", 9)}, 422, "/data"),
    ("PATCH", "/returns/2", document("return", {"reason": "z"}, id="2", **to(line=None)), 200, None),
    # another order would be that of another line
    ("POST", "/orders/1/relationships/returns", {"data": of("return", 7)}, 422, "/data/0"),
    ("PATCH", "/orders/1/relationships/returns", {"data": of("return", 7)}, 422, "/data/0"),
    ("POST", "/orders", document("order", {"name": "n"}, **to(returns=of("return", 7))), 422,
     "/data/relationships/returns/data/0"),
    ("POST", "/orders/9/relationships/returns", {"data": of("return", 7)}, 404, None),
    ("POST", "/orders/1/relationships/returns", {"data": of("return", 99)}, 404, "/data/0"),
    # to-many with the key in the other table
    ("PATCH", "/lines/1,tea/relationships/returns", {"data": of("return", 1, 2)}, 422, "/data/1"),
    ("PATCH", "/lines/1,tea/relationships/returns", {"data": of("return", 1, 6)}, 200, None),
    ("POST", f"/lines/{escaped(ODD)}/relationships/returns", {"data": of("return", 3)}, 422, "/data/0"),
    ("POST", f"/lines/{escaped(ODD)}/relationships/returns", {"data": of("return", 2)}, 200, None),
    ("PATCH", f"/lines/{escaped(ODD)}/relationships/returns", {"data": of("return", 4)}, 200, None),
    ("DELETE", f"/lines/{escaped(ODD)}/relationships/returns", {"data": of("return", 4)}, 200, None),
    ("POST", f"/lines/{escaped(ODD)}/returns", document("return", {"reason": "below"}), 201, None),
    ("POST", "/orders/1/relationships/lines", {"data": of("line", "2,tea")}, 403, "/data"),
    # link tables
    ("PATCH", f"/lines/{escaped(ODD)}/relationships/labels", {"data": of("label", "at,1")}, 200, None),
    ("POST", f"/lines/{escaped(ODD)}/relationships/labels", {"data": of("label", "a\\,t,\\\\", "at,1")}, 200, None),
    ("DELETE", f"/lines/{escaped(ODD)}/relationships/labels", {"data": of("label", "at,1")}, 200, None),
    ("PATCH", "/tags/1/relationships/lines", {"data": of("line", "1,milk", ODD)}, 200, None),
    ("PATCH", "/tags/1/relationships/lines", {"data": of("line", "1,milk", "2,\\x")}, 404, "/data/1"),
    ("POST", "/lines/1,tea/labels", document("label", {"title": "below"}, id="b,b"), 201, None),
    ("POST", "/labels/b,b/lines", line({"product": "bb"}, **to(order=one("order", 1))), 201, None),
    # deletes
    ("DELETE", "/lines/1,milk", None, 200, None),
    ("DELETE", "/lines/1,milk", None, 404, None),
    ("DELETE", "/lines/1,tea", None, 409, None),
    ("DELETE", "/checks/2,tea", None, 200, None),
]  # fmt: skip

CONTENTS = {
    "lines": "SELECT order_id || ':' || product || ':' || quantity FROM shop.lines ORDER BY 1",
    "checks": "SELECT order_id || ':' || product FROM shop.checks ORDER BY 1",
    "returns": "SELECT concat_ws(':', id, coalesce(order_id, 0), coalesce(product, '-')) FROM shop.returns ORDER BY id",
    "labels": "SELECT order_id || ':' || product || ':' || country || ':' || code FROM shop.line_labels ORDER BY 1",
    "tags": "SELECT tag_id || ':' || order_id || ':' || product FROM shop.line_tags ORDER BY 1",
}
WRITTEN = {
    "lines": ["1::4", "1:a,b:2", "1:bb:1", "1:below:1", "1:c\\d:3", "1:new:1", "1:rice:1", "1:tea:78", "1:too:1",
              "2:tea:5", "2:ä,\\:6"],
    "checks": ["1:tea", "2:ä,\\"],
    "returns": ["1:1:tea", "2:2:-", "3:0:tea", "4:2:-", "5:0:-", "6:1:tea", "7:2:-", "8:2:-", "9:0:-", "10:2:ä,\\"],
    "labels": ["1:bb:b:b", "1:tea:a,t:\\", "1:tea:at:1", "1:tea:b:b", "2:ä,\\:a,t:\\"],
    "tags": ["1:2:ä,\\"],
}  # fmt: skip


async def test_writes(shop: Api) -> None:
    for method, path, body, status, pointer in WRITES:
        answer = await shop.request(method, path, body)
        shown = (method, path, json.dumps(body), answer.body)
        assert answer.status == status, shown
        if status >= 400:
            assert answer.document["errors"][0].get("source", {}).get("pointer") == pointer, shown
            faults = [(one["detail"], one.get("source")) for one in answer.errors]
            assert not any(fault in faults[:index] for index, fault in enumerate(faults)), shown
    assert {name: sorted([row[0] for row in await shop.sql(sql)]) for name, sql in CONTENTS.items()} == {
        name: sorted(rows) for name, rows in WRITTEN.items()
    }


async def test_operations(shop: Api) -> None:
    new_order = add("order", {"name": "n"}, lid="o")
    new_line = add("line", {"product": "p,p"}, lid="l", **to(order=by_lid("order", "o")))
    removes = [remove("return", id="5"), remove("line", lid="l")]
    for others, count in (
        ([add("return", {"reason": "q"}, **to(line=by_lid("line", "l")))], 3),
        ([add("return", {"reason": "q"}, **to(line=by_lid("line", "l"), order=by_lid("order", "o")))], 3),
        ([add("check", {"inspector": "q"}, **to(line=by_lid("line", "l")))], 3),
        ([link("add", "line", "labels", of("label", "at,1"), lid="l")], 3),
        ([update("line", {"quantity": 5}, lid="l", **to(order=by_lid("order", "o")))], 3),
        ([update("return", {}, id="5", **to(line=by_lid("line", "l"), order=by_lid("order", "o"))), *removes], 5),
    ):  # fmt: skip
        answer = await extended(shop, new_order, new_line, *others)
        assert answer.status == (200 if count else 422), answer.body
        assert len(answer.document["atomic:results"]) == count
    places = "/atomic:operations/2/data/relationships/"
    answer = await extended(
        shop, new_order, new_line, add("return", {"reason": "q"}, **to(line=by_lid("line", "l"), order=one("order", 1)))
    )
    assert (answer.status, answer.document["errors"][0]["source"]["pointer"]) == (422, f"{places}line/data")
    answer = await extended(shop, new_order, new_line, update("line", {}, lid="l", **to(order=one("order", 1))))
    assert (answer.status, answer.document["errors"][0]["source"]["pointer"]) == (422, f"{places}order/data")


async def test_many_alike_adds(shop: Api) -> None:
    """They are written by statements of several rows."""
    numbers, order = range(100), to(order=one("order", "1"))
    for adds, expected in (
        ([add("line", {"product": f"m,{i}"}, **order) for i in numbers], [f"1,m\\,{i}" for i in numbers]),
        ([add("line", {"quantity": i}, id=f"2,n{i}") for i in numbers], [f"2,n{i}" for i in numbers]),
    ):
        answer = await extended(shop, *adds)
        assert answer.status == 200, answer.body
        assert [result["data"]["id"] for result in answer.document["atomic:results"]] == expected
    answer = await extended(shop, *[add("return", {"reason": "r"}, **to(line=one("line", f"2,n{i}"))) for i in numbers])
    assert answer.status == 200, answer.body
    rows = await shop.sql("SELECT product FROM shop.returns WHERE reason = 'r' ORDER BY id")
    assert [row[0] for row in rows] == [f"n{i}" for i in numbers]


def _ruled() -> Catalog:
    """Rules over composite keys: only lines of the first order and their returns may be read, and lines with a note x
    may be written."""
    first = {"name": "order.id", "op": "eq", "val": 1}
    writable = [first, {"name": "id", "op": "ne", "val": "1,tea"}]
    rules: dict[str, tuple[Allow, ...]] = {
        "line": (Allow(ANYONE, "read", rows=[first]), Allow(ANYONE, "create", "update", "delete", rows=writable)),
        "return": (Allow(ANYONE, "all", assign={"line": "1,a\\,b"}),),
    }
    others = (Allow(ANYONE, "all"),)
    return Catalog(
        [msgspec.structs.replace(one, access=rules.get(one.type, others)) for one in composite.CATALOG.resources]
    )


async def test_rules(io_loop: IOLoop, start: Start, database_url: str) -> None:
    await _make(database_url)
    shop = await start(database_url, _ruled())
    assert ids((await shop.get("/lines")).document) == ALL[:4]
    assert (await shop.get(f"/lines/{escaped(ODD)}")).status == 404
    assert linkage((await shop.get("/returns?include=line")).document, "line") == {
        "1": "1,tea", "2": None, "3": None, "4": None, "5": None, "6": "1,a\\,b",
    }  # fmt: skip
    assert linkage((await shop.get("/labels?include=lines")).document, "lines") == {
        "a\\,t,\\\\": ["1,tea"],
        "at,1": ["1,tea"],
    }
    assert ids((await shop.get(f"/returns?filter[line.id]={escaped(ODD)}")).document) == []
    assert ids((await shop.get("/returns?filter[line.id]=1,tea&sort=line.id")).document) == ["1"]
    assert (await shop.patch("/lines/1,tea", line({"quantity": 1}, id="1,tea"))).status == 401
    assert (await shop.patch("/lines/2,tea", line({"quantity": 1}, id="2,tea"))).status == 404
    assert (await shop.patch("/lines/1,", line({"quantity": 1}, id="1,"))).status == 200
    assert (await shop.post("/lines", line({"product": "x"}, **to(order=one("order", 2))))).status == 401
    assert (await shop.patch("/returns/2/relationships/line", {"data": one("line", ODD)})).status == 422
    hidden = document("return", id="2", **to(line=one("line", ODD), order=one("order", 2)))
    assert (await shop.patch("/returns/2", hidden)).status == 404
    assigned = await shop.post("/returns?include=line", document("return", {"reason": "x"}))
    assert (assigned.status, linkage(assigned.document, "line")) == (201, {"7": "1,a\\,b"})
    assert (await shop.post("/returns", returned(line=one("line", "1,tea")))).status == 401
    assert (await shop.post("/returns", returned(line=one("line", "1,a\\,b")))).status == 201


async def test_a_key_that_is_not_declared(start: Start, database_url: str) -> None:
    """The key of the line of a return shares a column with that of its order."""
    await _make(database_url)
    shop = await start(database_url, composite.without(("line", "returns"), ("return", "line")))
    for method, path, sent, status in (
        ("PATCH", "/returns/4/relationships/order", one("order", 1), 409),
        ("PATCH", "/returns/5/relationships/order", one("order", 9), 404),
        ("POST", "/orders/1/relationships/returns", of("return", 4), 409),
    ):
        answer = await shop.request(method, path, {"data": sent})
        assert (answer.status, answer.errors[0]["source"]) == (status, {"pointer": "/data"}), answer.body


SET_IN_PART = [
    (returned(), "1,a\\,b"),
    (returned(line=one("line", "2,tea")), "2,tea"),
    (returned(line=None), None),
    (returned(order=one("order", 1)), "1,a\\,b"),
    (returned(order=one("order", 2)), None),
    (returned(order=None), None),
]
"""Documents, and the line of the new return."""


async def test_a_rule_that_sets_what_is_not_sent(start: Start, database_url: str) -> None:
    """The columns of its key may be those of a field that is sent."""
    await _make(database_url)
    rules = (Allow(ANYONE, "all"), Allow(ANYONE, "create", assign={"line": "1,a\\,b"}))
    access = {"return": rules}
    resources = [
        msgspec.structs.replace(one, access=access.get(one.type, rules[:1])) for one in composite.CATALOG.resources
    ]
    shop = await start(database_url, Catalog(resources))
    for body, expected in SET_IN_PART * 2:
        answer = await shop.post("/returns?include=line", body)
        assert answer.status == 201, answer.body
        assert list(linkage(answer.document, "line").values()) == [expected], body
