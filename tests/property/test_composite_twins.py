"""Resources whose ids and keys have several columns give the same documents as twins of them, whose ids are single
texts with the same values. The requests are drawn: filters, sorts, includes, pages, related resources and linkage. The
same rows are hidden from both, or none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from querybuild.planning import planner
from tests import composite
from tests.composite import join_id
from tests.property.choices import to_many_steps
from tests.property.served import NO_CRITERIA, Served, ruled, served
from waterspout import BIGINT, INT, TEXT, Catalog, Id, Link, Resource, ToMany, ToOne

PRODUCTS = ["tea", "a,b", "c\\d", "", "ä,\\"]
LINES = [(order, product) for order in (1, 2, 3) for product in PRODUCTS]
LABELS = [("at", "1"), ("a,t", "\\"), ("", ","), ("ch", "1")]
LINE_IDS = [join_id([str(order), product]) for order, product in LINES]
LABEL_IDS = [join_id(label) for label in LABELS]


def _values(*rows: tuple[object, ...]) -> str:
    def text(value: object) -> str:
        return "NULL" if value is None else "'" + str(value).replace("'", "''") + "'"

    return ",".join("(" + ",".join(map(text, row)) + ")" for row in rows)


ROWS = f"""
INSERT INTO shop.orders (name) VALUES ('a'), ('b'), ('c'), ('d');
INSERT INTO shop.lines (order_id, product, quantity, note)
    VALUES {_values(*[(*line, n, None if n % 3 else "x") for n, line in enumerate(LINES)])};
INSERT INTO shop.checks VALUES {_values(*[(*line, f"i{n}") for n, line in enumerate(LINES) if n % 2])};
INSERT INTO shop.returns (reason, order_id, product) VALUES {
    _values(
        *[(f"r{n}", *LINES[n * 7 % 15]) for n in range(12)], ("rx", 1, None), ("ry", None, "tea"), ("rz", None, None)
    )
};
INSERT INTO shop.labels VALUES {_values(*[(*label, f"t{n}") for n, label in enumerate(LABELS)])};
INSERT INTO shop.tags (name) VALUES ('u'), ('v'), ('w');
INSERT INTO shop.line_labels VALUES {_values(*[(*LINES[n % 15], *LABELS[n * n % 4]) for n in range(12)])};
INSERT INTO shop.line_tags VALUES {_values(*[(1 + n % 3, *LINES[n * 4 % 15]) for n in range(12)])};
"""
LINE_ID = r"order_id || ',' || replace(replace(product, '\', '\\'), ',', '\,')"
LABEL_ID = r"""replace(replace(country, '\', '\\'), ',', '\,') || ',' || replace(replace(code, '\', '\\'), ',', '\,')"""
TWINS = f"""
CREATE SCHEMA twin;
CREATE TABLE twin.lines AS SELECT {LINE_ID} AS id, * FROM shop.lines;
CREATE TABLE twin.checks AS SELECT {LINE_ID} AS id, {LINE_ID} AS line_id, inspector FROM shop.checks;
CREATE TABLE twin.returns AS SELECT id, reason, order_id, {LINE_ID} AS line_id FROM shop.returns;
CREATE TABLE twin.labels AS SELECT {LABEL_ID} AS id, title FROM shop.labels;
CREATE TABLE twin.line_labels AS SELECT {LINE_ID} AS line_id, {LABEL_ID} AS label_id FROM shop.line_labels;
CREATE TABLE twin.line_tags AS SELECT tag_id, {LINE_ID} AS line_id FROM shop.line_tags;
ALTER TABLE twin.lines ADD PRIMARY KEY (id), ALTER product SET NOT NULL, ALTER quantity SET NOT NULL,
    ALTER order_id SET NOT NULL;
ALTER TABLE twin.checks ADD PRIMARY KEY (id), ADD UNIQUE (line_id), ALTER inspector SET NOT NULL,
    ALTER line_id SET NOT NULL;
ALTER TABLE twin.returns ADD PRIMARY KEY (id), ALTER reason SET NOT NULL;
ALTER TABLE twin.labels ADD PRIMARY KEY (id), ALTER title SET NOT NULL;
ALTER TABLE twin.line_labels ADD PRIMARY KEY (line_id, label_id);
ALTER TABLE twin.line_tags ADD PRIMARY KEY (tag_id, line_id);
"""

_READ = frozenset({"read"})
_LIST = frozenset({"list", "detail"})


def _read_only(resource: Resource) -> Resource:
    relationships = tuple([_without_writes(one) for one in resource.relationships])
    return msgspec.structs.replace(resource, methods=_LIST, client_ids=False, relationships=relationships)


def _without_writes(one: ToOne | ToMany) -> Any:
    return msgspec.structs.replace(one, methods=_READ)


def _twin(name: str, id_type: Any, attributes: list[str], *relationships: Any, schema: str = "twin") -> Resource:
    declared = composite.CATALOG.by_type[name]
    shown = tuple([one for one in declared.attributes if one.name in attributes])
    return _read_only(
        Resource(name, declared.path, declared.table, shown, relationships, id=Id(type=id_type), schema=schema)
    )


TWIN_CATALOG = Catalog([
    _twin("order", INT, ["name"], ToMany("lines", "line", foreign_key="order_id"),
          ToMany("returns", "return", foreign_key="order_id"), schema="shop"),
    _twin("line", TEXT, ["product", "quantity", "note"], ToOne("order", "order", nullable=False),
          ToOne("check", "check", foreign_key="line_id"), ToMany("returns", "return", foreign_key="line_id"),
          ToMany("labels", "label", through=Link("line_labels", "line_id", "label_id", schema="twin")),
          ToMany("tags", "tag", through=Link("line_tags", "line_id", "tag_id", schema="twin"))),
    _twin("check", TEXT, ["inspector"], ToOne("line", "line", nullable=False)),
    _twin("return", BIGINT, ["reason"], ToOne("order", "order"), ToOne("line", "line")),
    _twin("label", TEXT, ["title"],
          ToMany("lines", "line", through=Link("line_labels", "label_id", "line_id", schema="twin"))),
    _twin("tag", INT, ["name"], ToMany("lines", "line", through=Link("line_tags", "tag_id", "line_id", schema="twin")),
          schema="shop"),
])  # fmt: skip
CATALOG = Catalog([_read_only(one) for one in composite.CATALOG])

CRITERIA = {
    "line": {"and": [{"name": "quantity", "op": "ne", "val": 7}, {"name": "id", "op": "notin_", "val": LINE_IDS[:2]}]},
    "label": {"name": "id", "op": "ne", "val": LABEL_IDS[1]},
    "check": {"not": {"name": "line.id", "op": "eq", "val": LINE_IDS[5]}},
}


@pytest.fixture(scope="module")
def servers(postgres_url: str) -> Iterator[tuple[Served, Served]]:
    ddl = composite.DDL + ROWS + TWINS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "FIRST_ROWS", 4)
        with served(postgres_url, CATALOG, ddl) as one, served(postgres_url, TWIN_CATALOG, ddl) as two:
            yield one, two


@pytest.fixture(scope="module", params=[False, True], ids=["all", "hidden"])
def pair(request: pytest.FixtureRequest, servers: tuple[Served, Served]) -> tuple[Served, Served]:
    for server, catalog in zip(servers, (CATALOG, TWIN_CATALOG), strict=True):
        server.use(ruled(catalog, CRITERIA if request.param else NO_CRITERIA))
    return servers


UNIQUE = {
    "order": "name",
    "line": "quantity",
    "check": "inspector",
    "return": "reason",
    "label": "title",
    "tag": "name",
}
"""An attribute of each resource whose values are unique: the order of ids is another one in the twins."""

IDS = {
    "order": ["1", "2", "4", "9"],
    "line": [*LINE_IDS, "4,tea", "1,\\,"],
    "check": LINE_IDS,
    "return": [str(number) for number in range(1, 16)],
    "label": [*LABEL_IDS, "x,y"],
    "tag": ["1", "2", "3"],
}


def _leaf(type_name: str, depth: int) -> st.SearchStrategy[Any]:
    ids = st.sampled_from(IDS[type_name])
    if type_name in ("order", "return", "tag"):
        ids = ids.map(int)
    of_id = st.one_of(
        st.tuples(st.sampled_from(["eq", "ne", "is_", "isnot"]), ids),
        st.tuples(st.sampled_from(["in_", "notin_"]), st.lists(ids, max_size=4)),
        st.tuples(st.sampled_from(["is_", "isnot"]), st.none()),
    )
    options = [of_id.map(lambda one: {"name": "id", "op": one[0], "val": one[1]})]
    for one in CATALOG.by_type[type_name].relationships if depth else ():
        inner = _tree(one.target, depth - 1)
        op = "any" if one.is_to_many else "has"
        options.append(inner.map(lambda found, op=op, name=one.name: {"name": name, "op": op, "val": found}))
        deeper = _leaf(one.target, 0)
        options.append(deeper.map(lambda found, name=one.name: {**found, "name": f"{name}.id"}))
    return st.one_of(options)


def _tree(type_name: str, depth: int) -> st.SearchStrategy[Any]:
    leaf = _leaf(type_name, depth)
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            inner.map(lambda one: {"not": one}),
            st.lists(inner, max_size=3).map(lambda some: {"and": some}),
            st.lists(inner, max_size=3).map(lambda some: {"or": some}),
        ),
        max_leaves=3,
    )


def _paths(type_name: str, depth: int) -> list[str]:
    found = []
    for one in CATALOG.by_type[type_name].relationships:
        found.append(one.name)
        found += [f"{one.name}.{below}" for below in (_paths(one.target, depth - 1) if depth > 1 else [])]
    return found


@st.composite
def _choices(draw: st.DrawFn, type_name: str, includes: list[str], prefix: str) -> list[tuple[str, str]]:
    """Draw what is chosen of included resources: the same for all paths to one relationship."""
    steps, chosen = to_many_steps(CATALOG, CATALOG.by_type[type_name], includes), dict[Any, list[tuple[str, str]]]()
    for owner, name in dict.fromkeys(steps.values()):
        one = CATALOG.by_type[owner].relationship(name)
        assert one is not None
        pairs = [("includeSort[{}]", draw(st.sampled_from(["", "-"])) + UNIQUE[one.target])]
        if draw(st.booleans()):
            pairs.append(("includePage[{}][size]", draw(st.sampled_from("0123"))))
            pairs.append(("includePage[{}][total]", draw(st.sampled_from(["exact", "none"]))))
        if draw(st.booleans()):
            pairs.append(("includeFilter[{}]", json.dumps(draw(_tree(one.target, 1)))))
        chosen[owner, name] = pairs if draw(st.booleans()) else []
    return [(name.format(prefix + path), text) for path, step in steps.items() for name, text in chosen[step]]


@st.composite
def _requests(draw: st.DrawFn) -> tuple[str, tuple[tuple[str, str], ...]]:
    type_name = draw(st.sampled_from(sorted(UNIQUE)))
    path, target, is_list = CATALOG.by_type[type_name].path, type_name, True
    kind = draw(st.sampled_from(["list", "list", "list", "resource", "related", "linkage"]))
    if kind != "list":
        path += "/" + quote(draw(st.sampled_from(IDS[type_name])), safe="")
        is_list = False
    prefix = ""
    if kind in ("related", "linkage"):
        one = draw(st.sampled_from(CATALOG.by_type[type_name].relationships))
        path += f"/{one.name}" if kind == "related" else f"/relationships/{one.name}"
        target, is_list = one.target, one.is_to_many
        prefix = f"{one.name}." if kind == "linkage" else ""
    pairs = []
    includes = draw(st.lists(st.sampled_from(_paths(target, 2)), max_size=3))
    if includes:
        pairs.append(("include", ",".join(prefix + one for one in includes)))
        pairs += draw(_choices(target, includes, prefix))
    if is_list:
        orders = [f"{one.name}.{UNIQUE[one.target]}" for one in CATALOG.by_type[target].relationships
                  if isinstance(one, ToOne)]  # fmt: skip
        sorts = draw(st.lists(st.sampled_from(orders or [UNIQUE[target]]), max_size=1))
        signs = draw(st.tuples(st.sampled_from(["", "-"]), st.sampled_from(["", "-"])))
        keys = [*sorts, UNIQUE[target]]
        pairs.append(("sort", ",".join(sign + key for sign, key in zip(signs, keys, strict=False))))
        pairs.append(("page[size]", draw(st.sampled_from(["0", "1", "3", "5", "150"]))))
        if pairs[-1][1] != "0":
            pairs.append(("page[number]", draw(st.sampled_from(["1", "2", "3"]))))
        trees = draw(st.lists(_tree(target, 2), max_size=2))
        if trees:
            pairs.append(("filter", json.dumps(trees)))
    return path, tuple(pairs)


def _sorted(tree: Any) -> Any:
    """Return a document whose linkage and included resources are in one order. Cursors have the columns of ids."""
    if isinstance(tree, dict):
        return {name: "a cursor" if "page%5Bafter%5D" in str(one)[:200] else _sorted(one) for name, one in tree.items()}
    if isinstance(tree, list) and all(isinstance(one, dict) and "type" in one for one in tree):
        return sorted([_sorted(one) for one in tree], key=lambda one: (one["type"], one["id"]))
    return tree


@given(asked=_requests())
def test_twins(pair: tuple[Served, Served], asked: tuple[str, tuple[tuple[str, str], ...]]) -> None:
    path, pairs = asked
    one, two = [server.get(path, *pairs) for server in pair]
    assert one.status == two.status, (one.body, two.body)
    event(f"status {one.status}")
    if one.status != 200:
        assert one.status in (400, 404), one.body
        return
    found, expected = one.document, two.document
    if isinstance(expected["data"], list):
        assert [each["id"] for each in found["data"]] == [each["id"] for each in expected["data"]]
    assert _sorted(found) == _sorted(expected)
