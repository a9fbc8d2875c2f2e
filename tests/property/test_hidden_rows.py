"""If the context hides rows, every answer is byte for byte the answer of a server whose database does not have them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote, urlencode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.resource import Resource, ToOne
from querybuild.planning import planner
from server.engine import Engine
from server.resources import built_in
from tests import catalog as corner
from tests.first_rows import set_first_rows
from tests.property.choices import choices
from tests.property.filters import CORNER_TYPES, TO_MANY, TYPES, filters, sorts
from tests.property.model import Row, Rows
from tests.property.rows import make_corner_rows, make_rows, store, store_corner
from tests.property.served import Answer, Served, served
from tests.property.test_groups import asked
from tests.property.test_operations import EXTENDED
from tests.property.test_operations import bodies as operation_bodies
from tests.property.values import dump, near
from tests.property.wild import quote_all, targets

Hides = Mapping[str, tuple[Any, Callable[[Row, Rows], bool]]]
"""By type: the filter that visible rows meet, and the same test in plain Python."""

HEADERS = (("X-Request-Id", "the-same"),)


def row_of(rows: Rows, type_name: str, id_value: Any) -> Row:
    """Return the row with this id. If there is none, all its values are null."""
    return next((row for row in rows[type_name] if row["id"] == id_value), dict.fromkeys(rows[type_name][0]))


PEOPLE: Hides = {
    "user": ({"name": "status", "op": "ne", "val": "archive"}, lambda row, _: row["status"] != "archive"),
    "group": ({"name": "id", "op": "notin_", "val": [1, 2]}, lambda row, _: row["id"] not in (1, 2)),
    "computer": (
        {"or": [{"name": "owner.age", "op": "ge", "val": 2}, {"name": "serial", "op": "is_", "val": None}]},
        lambda row, rows: (row_of(rows, "user", row["owner_id"])["age"] or 0) >= 2 or row["serial"] is None,
    ),
    "post": ({"name": "id", "op": "between", "val": [0, 9]}, lambda row, _: 0 <= row["id"] <= 9),
    "user_bio": (
        {"not": {"name": "user.gender", "op": "is_", "val": "male"}},
        lambda row, rows: row_of(rows, "user", row["user_id"])["gender"] != "male",
    ),
    "photo": ({"name": "words", "op": "isnot", "val": None}, lambda row, _: row["words"] is not None),
}
CORNER: Hides = {
    "author": (
        [{"name": "born", "op": "isnot", "val": 1}, {"name": "id", "op": "ne", "val": 2}],
        lambda row, _: row["born"] != 1 and row["id"] != 2,
    ),
    "tag": ({"name": "id", "op": "ge", "val": 1}, lambda row, _: row["id"] >= 1),
    "article": (
        {"not": {"name": "editor.born", "op": "is_", "val": 1}},
        lambda row, rows: row_of(rows, "author", row["editor_id"])["born"] != 1,
    ),
    "node": ({"name": "weight", "op": "ne", "val": 2}, lambda row, _: row["weight"] != 2),
    "desk": ({"name": "id", "op": "ne", "val": 4}, lambda row, _: row["id"] != 4),
    "profile": (
        {"name": "author.größe", "op": "isnot", "val": 4},
        lambda row, rows: row_of(rows, "author", row["author_id"])["größe"] != 4,
    ),
}
KEYS = {
    **{("user", "group_id"): "group", ("computer", "owner_id"): "user", ("post", "user_id"): "user"},
    **{("user_bio", "user_id"): "user", ("article", "author_id"): "author", ("article", "editor_id"): "author"},
    **{("profile", "author_id"): "author", ("desk", "author_id"): "author", ("node", "parent_id"): "node"},
}
"""The keys in the rows, with the type that each refers to."""
OPEN_KEYS = """
ALTER TABLE posts ALTER user_id DROP NOT NULL; ALTER TABLE user_bios ALTER user_id DROP NOT NULL;
"""
OPEN_CORNER_KEYS = """
ALTER TABLE corner.articles ALTER author_id DROP NOT NULL; ALTER TABLE corner.profiles ALTER author_no DROP NOT NULL;
"""
"""The key of a hidden row is shown as null."""


NEXT_IDS = """
SELECT setval(s.oid, $1) FROM pg_class s WHERE s.relkind = 'S' AND s.relnamespace::regnamespace::text IN
    ('public', 'corner')
"""


def without_hidden(rows: Rows, hides: Hides) -> Rows:
    visible = dict(rows)
    for name, (_, is_visible) in hides.items():
        visible[name] = [row for row in rows[name] if is_visible(row, rows)]
    ids = {name: {row["id"] for row in found} for name, found in visible.items() if name != "article_tags"}
    for (name, key), target in KEYS.items():
        if name in visible:
            visible[name] = [{**row, key: row[key] if row[key] in ids[target] else None} for row in visible[name]]
    if "article_tags" in rows:
        links = [row for row in rows["article_tags"] if row["article_id"] in ids["article"]]
        visible["article_tags"] = [row for row in links if row["tag_id"] in ids["tag"]]
    return visible


def nullable(catalog: Catalog, hides: Mapping[str, Any]) -> Catalog:
    """Return the catalog with nullable keys to all types with hidden rows."""
    return Catalog(
        [msgspec.structs.replace(one, relationships=_nullable(one)) if one.type in hides else one for one in catalog]
    )


def _nullable(resource: Resource) -> tuple[Any, ...]:
    return tuple(
        msgspec.structs.replace(one, nullable=True) if isinstance(one, ToOne) else one for one in resource.relationships
    )


class Pair(msgspec.Struct):
    """Two servers. hiding: its context hides rows. bare: its database does not have these rows. rows: those of
    `hiding`. visible: those of `bare`. fill: stores rows in the tables of a server."""

    hiding: Served
    bare: Served
    catalog: Catalog
    types: tuple[str, ...]
    rows: Rows
    visible: Rows
    fill: Callable[[Served, Rows], None]

    @property
    def engines(self) -> tuple[Engine, Engine]:
        return self.hiding.engine, self.bare.engine

    def write(self, method: str, path: str, document: Any) -> tuple[Answer, Answer]:
        """Send a write to both servers. Return both answers."""
        body = None if document is None else dump(document).encode()
        headers = (*HEADERS, ("Content-Type", "application/vnd.api+json"))
        hiding, bare = [server.raw(method, path.encode(), headers, body) for server in (self.hiding, self.bare)]
        return hiding, bare

    def reset(self) -> None:
        """Fill the tables of both servers again."""
        for server, rows in ((self.hiding, self.rows), (self.bare, self.visible)):
            self.fill(server, rows)
        self.number(1)

    def number(self, thousands: int) -> None:
        """Set the sequences of both servers so that new ids differ from all existing ones. A write that is refused may
        have used a number on one of them."""
        for server in (self.hiding, self.bare):
            server.sql((NEXT_IDS, thousands * 1000))

    def check(self, target: bytes) -> Answer:
        """Check that both servers give the same answer."""
        answers = [server.raw("GET", target, HEADERS) for server in (self.hiding, self.bare)]
        hiding, bare = [(answer.status, answer.body) for answer in answers]
        assert hiding == bare, target
        assert hiding[0] < 500, target
        return answers[0]


SOME = ("computer", "user_bio", "article", "tag")
"""The types with hidden rows in the tests in which other types have no criteria."""


@pytest.fixture(scope="module", params=["people", "corner", "some people", "some of the corner"])
def pair(postgres_url: str, request: pytest.FixtureRequest) -> Iterator[Pair]:
    is_people = request.param.endswith("people")
    catalog, ddl = (built_in(), "") if is_people else (corner.CATALOG, corner.DDL)
    hides, types = (PEOPLE, TYPES) if is_people else (CORNER, CORNER_TYPES)
    open_catalog = nullable(catalog, hides)
    if request.param.startswith("some"):
        hides = {name: (one, test) for name, (one, test) in hides.items() if name in SOME}
    rows = make_rows(0) if is_people else make_corner_rows(0)
    fill = store if is_people else store_corner
    criteria = {name: one for name, (one, _) in hides.items()}
    open_keys = ddl + (OPEN_KEYS if is_people else OPEN_CORNER_KEYS)
    with (
        served(postgres_url, catalog, ddl, criteria) as hiding,
        served(postgres_url, open_catalog, open_keys) as bare,
        pytest.MonkeyPatch.context() as patch,
    ):
        if request.param.startswith("some"):
            # As if each key had an index.
            patch.setattr(planner, "chosen_fetch", lambda _, size: "keys" if size is None else "each")
        fill(hiding, rows)
        visible = without_hidden(rows, hides)
        assert all(0 < len(visible[name]) < len(rows[name]) for name in hides), "something of each type is hidden"
        fill(bare, visible)
        yield Pair(hiding, bare, catalog, types, rows, visible, fill)


def test_every_route_of_every_row(pair: Pair) -> None:
    """Each resource, hidden or not, with each include, its relationships and its related resources."""
    statuses = set()
    for type_name in pair.types:
        resource = pair.catalog.by_type[type_name]
        names = [relationship.name for relationship in resource.relationships]
        queries = ["", *[f"?include={name}" for name in names], *[f"?include={','.join(names)}"] * bool(names)]
        for row in pair.rows[type_name]:
            path = f"{resource.path}/{quote_all(str(row['id']))}"
            for query in queries:
                statuses.add(pair.check((path + query).encode()).status)
            for name in names:
                for route in (f"{path}/{name}", f"{path}/relationships/{name}"):
                    statuses.add(pair.check(route.encode()).status)
                    pair.check(f"{route}?include={name}".encode())
    assert statuses == {200, 404}


@given(data=st.data())
def test_lists(pair: Pair, data: DataObject) -> None:
    type_name = data.draw(st.sampled_from(pair.types))
    resource = pair.catalog.by_type[type_name]
    pairs = [("filter", json.dumps([data.draw(filters(type_name, pair.rows))]))] if data.draw(st.booleans()) else []
    if data.draw(st.booleans()):
        pairs.append(("sort", data.draw(sorts(type_name))))
    if data.draw(st.booleans()):
        pairs += chosen_includes(pair, resource, data)
    pairs += data.draw(pages)
    target = f"{resource.path}?{urlencode(pairs, quote_via=quote)}"
    found = pair.check(target.encode())
    if found.status == 200 and (onward := found.document["links"].get("next")):
        pair.check(onward.removeprefix("http://api.example.org").encode())


def chosen_includes(pair: Pair, resource: Resource, data: DataObject) -> list[tuple[str, str]]:
    """Draw `include`, and what is chosen of the included resources."""
    paths = data.draw(includes(pair.catalog, resource))
    return [("include", ",".join(paths)), *data.draw(choices(pair.catalog, resource, paths, pair.rows))[0]]


@given(data=st.data())
def test_groups(pair: Pair, data: DataObject) -> None:
    """Rows are hidden before they are grouped and counted, and related rows before they are joined."""
    type_name = data.draw(st.sampled_from(pair.types))
    one = data.draw(asked(pair.catalog, type_name))
    pairs = [*one.pairs, ("page[size]", "1000")]
    if data.draw(st.booleans()):
        pairs.append(("filter", json.dumps([data.draw(filters(type_name, pair.rows))])))
    path = pair.catalog.by_type[type_name].path
    assert pair.check(f"{path}?{urlencode(pairs, quote_via=quote)}".encode()).status == 200


def test_totals_that_are_counted_by_keys(pair: Pair) -> None:
    """Resources that have at least one related resource: `counting.py` finds such filters."""
    for type_name in pair.types:
        resource = pair.catalog.by_type[type_name]
        for name in [one.name for one in resource.relationships if not one.is_own_key]:
            op = "any" if name in TO_MANY else "has"
            for number in (1, 2, 99):
                pairs = [("filter", json.dumps([{"name": name, "op": op, "val": []}]))]
                pairs += [("page[size]", "2"), ("page[number]", str(number)), ("page[total]", "exact")]
                pair.check(f"{resource.path}?{urlencode(pairs, quote_via=quote)}".encode())


@st.composite
def includes(draw: Any, catalog: Catalog, resource: Resource) -> list[str]:
    paths = []
    for _ in range(draw(st.integers(1, 3))):
        names: list[str] = []
        at = resource
        while at.relationships and len(names) < 3:
            relationship = draw(st.sampled_from(at.relationships))
            names.append(relationship.name)
            at = catalog.target(relationship)
            if draw(st.booleans()):
                break
        if names:
            paths.append(".".join(names))
    return paths


_totals = st.sampled_from(("exact", "none"))
pages: Any = st.one_of(
    st.just([]),
    st.just([("page[size]", "0")]),
    st.tuples(st.integers(1, 5), st.integers(1, 3), _totals).map(
        lambda at: [("page[size]", str(at[0])), ("page[number]", str(at[1])), ("page[total]", at[2])]
    ),
    st.integers(1, 5).map(lambda size: [("page[size]", str(size)), ("page[after]", "")]),
)


@given(data=st.data())
def test_wild_requests(pair: Pair, data: DataObject) -> None:
    target = data.draw(targets(pair.catalog).filter(lambda found: b"estimated" not in found and b"/-/" not in found))
    pair.check(target)


@given(data=st.data())
def test_streams(pair: Pair, data: DataObject) -> None:
    """With so few rows, answers without pages are only streamed because the limits are low."""
    type_name = data.draw(st.sampled_from(pair.types))
    resource = pair.catalog.by_type[type_name]
    pairs = [("page[size]", "0")]
    if data.draw(st.booleans()):
        pairs.append(("filter", json.dumps([data.draw(filters(type_name, pair.rows))])))
    if resource.relationships:
        pairs += chosen_includes(pair, resource, data)
    with pytest.MonkeyPatch.context() as patch:
        set_first_rows(patch, 0, *pair.engines)
        answer = pair.check(f"{resource.path}?{urlencode(pairs, quote_via=quote)}".encode())
    assert answer.status != 200 or not answer.ids or answer.headers["transfer-encoding"] == "chunked"


HIDDEN = 3
"""At least this many rows of each type are hidden from writes. No write makes one of them visible."""
REQUIRED = (("post", "user_id"), ("user_bio", "user_id"), ("article", "author_id"), ("profile", "author_id"))
"""The keys that are not null. A row that refers to a hidden row by such a key is hidden, too."""


def hidden_ids(rows: Rows, types: tuple[str, ...]) -> dict[str, list[Any]]:
    found = {name: sorted(row["id"] for row in rows[name])[:HIDDEN] for name in types}
    for name, key in REQUIRED:
        if name in types:
            found[name] += [row["id"] for row in rows[name] if row[key] in found[KEYS[name, key]]]
    return found


@pytest.fixture(scope="module", params=["people", "corner"])
def written_pair(postgres_url: str, request: pytest.FixtureRequest) -> Iterator[Pair]:
    is_people = request.param == "people"
    catalog, ddl = (built_in(), "") if is_people else (corner.CATALOG, corner.DDL)
    types = TYPES if is_people else CORNER_TYPES
    rows = make_rows(1) if is_people else make_corner_rows(1)
    ids = hidden_ids(rows, types)
    hides: Hides = {
        name: ({"name": "id", "op": "notin_", "val": some}, lambda row, _, some=some: row["id"] not in some)
        for name, some in ids.items()
    }
    criteria = {name: one for name, (one, _) in hides.items()}
    with served(postgres_url, catalog, ddl, criteria) as hiding, served(postgres_url, catalog, ddl) as bare:
        visible, fill = without_hidden(rows, hides), store if is_people else store_corner
        assert all(visible[name] for name in types)
        yield Pair(hiding, bare, catalog, types, rows, visible, fill)


@given(data=st.data())
def test_writes(written_pair: Pair, data: DataObject) -> None:
    """For a write, hidden rows do not exist, and they are not changed."""
    pair = written_pair
    pair.reset()
    before = hidden(pair)
    has_deleted = False
    for thousands in range(1, 4):
        pair.number(thousands)
        method, path, document = data.draw(writes(pair))
        hiding, bare = pair.write(method, path, document)
        assert hiding.status < 500, (method, path, document, hiding)
        if 409 in (hiding.status, bare.status):
            # The unique value or the foreign key of a hidden row may refuse a write.
            return
        assert (hiding.status, hiding.body) == (bare.status, bare.body), (method, path, document)
        has_deleted = has_deleted or (method == "DELETE" and "/relationships/" not in path)
    for type_name in pair.types:
        resource = pair.catalog.by_type[type_name]
        names = [relationship.name for relationship in resource.relationships]
        include = f"&include={','.join(names)}" if names else ""
        pair.check(f"{resource.path}?page[size]=0{include}".encode())
    # Deleting a visible row may delete hidden rows, or set their keys to null.
    assert has_deleted or hidden(pair) == before


def test_a_related_resource_that_is_hidden_cannot_be_written(written_pair: Pair) -> None:
    pair = written_pair
    pair.reset()
    before, statuses = hidden(pair), set[int]()
    for (type_name, key), target in KEYS.items():
        for row in pair.rows[type_name] if type_name in pair.types else ():
            path = f"{pair.catalog.by_type[type_name].path}/{quote_all(str(row['id']))}/{key.removesuffix('_id')}"
            document = {"data": {"type": target, "id": str(row[key]), "attributes": {}}}
            hiding, bare = pair.write("PATCH", path, document)
            assert (hiding.status, hiding.body) == (bare.status, bare.body), path
            statuses.add(hiding.status)
    assert statuses == {200, 404}
    assert hidden(pair) == before


@given(data=st.data())
def test_operations(written_pair: Pair, data: DataObject) -> None:
    pair = written_pair
    pair.reset()
    body = data.draw(operation_bodies(pair.catalog).filter(lambda found: not CHANCE & set(found.split(b'"'))))
    headers = (*HEADERS, ("Content-Type", EXTENDED))
    hiding, bare = [server.raw("POST", b"/operations", headers, body) for server in (pair.hiding, pair.bare)]
    assert hiding.status < 500, body
    if 409 not in (hiding.status, bare.status):
        assert (hiding.status, hiding.body) == (bare.status, bare.body), body


CHANCE = {b"article", b"node"}
"""Types whose ids are random, so that they differ between the two servers."""


def hidden(pair: Pair) -> list[Any]:
    """Return the hidden rows in the tables, and their links."""
    found: list[Any] = []
    by_type = hidden_ids(pair.rows, pair.types)
    if "article" in by_type:
        sql = "SELECT article_id, tag_id FROM corner.article_tags WHERE article_id = ANY($1) OR tag_id = ANY($2)"
        found += sorted(map(tuple, pair.hiding.sql((sql, by_type["article"], by_type["tag"]))))
    for type_name, ids in by_type.items():
        resource = pair.catalog.by_type[type_name]
        place = f'"{resource.schema or "public"}"."{resource.table}"'
        sql = f'SELECT t::text FROM {place} t WHERE "{resource.id.key.columns[0]}"::text = ANY($1) ORDER BY 1'
        found += [tuple(row) for row in pair.hiding.sql((sql, [str(one) for one in ids]))]
    return found


@st.composite
def writes(draw: Any, pair: Pair) -> tuple[str, str, Any]:
    resource = pair.catalog.by_type[draw(st.sampled_from([one for one in pair.types if one != "node"]))]
    path = f"{resource.path}/{quote_all(draw(ids_of(pair, resource.type)))}"
    relationship = draw(st.sampled_from(resource.relationships)) if resource.relationships else None
    kind = draw(st.integers(0, 9 if relationship else 4))
    if kind == 0 or relationship is None:
        return draw(st.sampled_from([("DELETE", path, None), ("POST", resource.path, None)]))
    if kind <= 2:
        return "POST", resource.path, {"data": draw(resource_objects(pair, resource, is_new=True))}
    if kind <= 4:
        identified = {"id": unquote(path.rpartition("/")[2])}
        return "PATCH", path, {"data": draw(resource_objects(pair, resource, is_new=False)) | identified}
    if kind <= 7:
        method = draw(st.sampled_from(("POST", "PATCH", "PATCH", "DELETE")))
        return method, f"{path}/relationships/{relationship.name}", {"data": draw(linkages(pair, relationship))}
    target = pair.catalog.by_type[relationship.target]
    if relationship.is_to_many:
        return "POST", f"{path}/{relationship.name}", {"data": draw(resource_objects(pair, target, is_new=True))}
    path = f"{path}/{relationship.name}"
    changed = draw(resource_objects(pair, target, is_new=False)) | {"id": draw(ids_of(pair, target.type))}
    return draw(st.sampled_from([("DELETE", path, None), ("PATCH", path, {"data": changed})]))


def ids_of(pair: Pair, type_name: str) -> Any:
    return st.sampled_from([str(row["id"]) for row in pair.rows[type_name]] + ["77"])


@st.composite
def resource_objects(draw: Any, pair: Pair, resource: Resource, *, is_new: bool) -> dict[str, Any]:
    attributes = {
        attribute.name: draw(near(attribute))
        for attribute in resource.attributes
        if attribute.is_writable(on_create=is_new) and (attribute.required or draw(st.integers(0, 5)) == 0)
    }
    relationships = {}
    for relationship in resource.relationships:
        is_required = is_new and isinstance(relationship, ToOne) and relationship.is_required
        if relationship.target in pair.types and (is_required or draw(st.integers(0, 2)) == 0):
            relationships[relationship.name] = {"data": draw(linkages(pair, relationship))}
    # A random id would differ between the two servers.
    chosen = {"id": draw(st.sampled_from(("new", "newer")))} if is_new and resource.type == "article" else {}
    return {"type": resource.type, "attributes": attributes, "relationships": relationships} | chosen


@st.composite
def linkages(draw: Any, pair: Pair, relationship: Any) -> Any:
    one = ids_of(pair, relationship.target).map(lambda id_text: {"type": relationship.target, "id": id_text})
    if relationship.is_to_many:
        return draw(st.lists(one, max_size=3))
    return draw(st.one_of(one, one, st.none()))
