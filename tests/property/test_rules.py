"""Whatever rules are declared and whoever asks: every answer is byte for byte that of a server whose database does not
have the rows that the rules hide, and whose declarations do not have the fields that they hide."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, DrawFn

from querybuild.declarations.catalog import Catalog
from querybuild.declarations.resource import Resource, ToOne
from server.resources import built_in
from tests import catalog as corner
from tests.first_rows import set_first_rows
from tests.principals import HEADER, as_header
from tests.property.filters import CORNER_TYPES, KINDS, NULLS, TYPES, filters, relationships_of, sorts
from tests.property.model import OWN_KEY, REVERSE_TO_ONE, Model, Rows
from tests.property.rows import DATES, TEXTS, make_corner_rows, make_rows, store, store_corner
from tests.property.served import Answer, Headers, Served, served
from tests.property.test_hidden_rows import (
    CHANCE,
    EXTENDED,
    HEADERS,
    OPEN_CORNER_KEYS,
    OPEN_KEYS,
    includes,
    nullable,
    pages,
    without_hidden,
    writes,
)
from tests.property.test_hidden_rows import Pair as HiddenPair
from tests.property.test_operations import bodies
from tests.property.wild import quote_all, targets
from waterspout import ANONYMOUS, ANYONE, NOW, SIGNED_IN, SUBJECT, Allow, Attribute, Claim, Principal, Role, Scope

REQUESTS = 12
"""How many requests each example sends."""
ACTIONS = (("read",), ("read", "create"), ("all",), ("create", "update"))


def is_long(principal: Principal) -> bool:
    """Stands for a function of a user."""
    return len(principal.subject) > 2


AUDIENCES: tuple[Any, ...] = (ANYONE, SIGNED_IN, Role("a"), Role("b"), Scope("s"), is_long)
MISSING = (None, "\0", {"a": "\0"})


class Scene(msgspec.Struct):
    """Rules, who asks, and what that means. catalog: with the rules. bare: without their filters, and without the
    hidden fields. visible: the rows of the tables without the hidden ones. ids: the rows that may be read, by type."""

    catalog: Catalog
    bare: Catalog
    principal: Principal
    visible: Rows
    refused: set[str]


class Drawn(msgspec.Struct):
    """What a scene has so far. subject, claims: of the principal."""

    subject: str = ""
    claims: dict[str, Any] = {}


@st.composite
def rule_filters(draw: DrawFn, type_name: str, rows: Rows, drawn: Drawn) -> tuple[Any, Any, Any]:
    """Draw the filter of a rule. Return it with what it means for the principal, and for the anonymous: filters
    without values of the principal."""
    tree = draw(filters(type_name, rows, 2))

    def open_value(val: Any, op: str) -> tuple[Any, Any, bool]:
        """Return the value, what it is, and whether the principal has it."""
        if op == "match":
            # PostgreSQL alone knows which patterns are valid, so none comes from the principal.
            return val, val, True
        kind = draw(st.integers(0, 7))
        if op in DATED and isinstance(val, str) and len(val) == 10 and val[4] == "-" and kind < 3:
            return NOW, datetime.now(UTC).date().isoformat(), True
        if kind == 0 and isinstance(val, str) and val and drawn.subject in ("", val):
            drawn.subject = val
            return SUBJECT, val, True
        if kind < 4:
            name = f"c{len(drawn.claims)}"
            drawn.claims[name] = val
            is_missing = draw(st.integers(0, 5)) == 0
            if is_missing:
                drawn.claims[name] = draw(st.sampled_from(MISSING))
            # What every value contains says nothing.
            is_missing = is_missing or (op == "jsonb_contains" and val in ({}, []))
            return Claim(f"own.{name}"), val, not is_missing
        if isinstance(val, list) and op in ("in_", "in", "notin_", "between"):
            items = [open_value(item, "") for item in val]
            return [one for one, _, _ in items], [other for _, other, _ in items], all(known for _, _, known in items)
        return val, val, True

    def opened(node: Any, at: Place) -> tuple[Any, Any, Any]:
        if isinstance(node, list):
            found = [opened(item, at) for item in node]
            return [one for one, _, _ in found], [one for _, one, _ in found], [one for _, _, one in found]
        if "val" not in node and "field" not in node:
            ((op, inner),) = node.items()
            one, other, anonymous = opened(inner, at.negated() if op == "not" else at)
            return {op: one}, {op: other}, {op: anonymous}
        if "field" in node or node["val"] is None:
            return node, node, node
        if node["op"] in ("any", "has"):
            one, other, anonymous = opened(node["val"], at.beyond(node["name"]))
            return node | {"val": one}, node | {"val": other}, node | {"val": anonymous}
        is_count = node["op"] == "count"
        compared = node["val"] if is_count else node
        one, other, is_known = open_value(compared["val"], compared["op"])
        is_public = "Claim(" not in repr(one) and "SUBJECT" not in repr(one)
        if is_count:
            one, other = compared | {"val": one}, compared | {"val": other}
        unmet, met = at.any_value(node) if at.is_negated else NO_ROW, node | {"val": other}
        return node | {"val": one}, met if is_known else unmet, met if is_public else unmet

    return opened(tree, Place(type_name))


NO_ROW = {"name": "id", "op": "in_", "val": []}
"""What a comparison with a missing value means: it is not met."""


class Place(msgspec.Struct, frozen=True):
    """Where a node of a filter is. type_name: of the rows that it filters. is_negated: whether it is below an odd
    number of `not`. knows_null: whether it is below a `not` that filters the same rows."""

    type_name: str
    is_negated: bool = False
    knows_null: bool = False

    def negated(self) -> Place:
        return Place(self.type_name, not self.is_negated, True)

    def beyond(self, path: str) -> Place:
        type_name = self.type_name
        for step in path.split("."):
            type_name = relationships_of(type_name)[step]
        return Place(type_name, self.is_negated)

    def any_value(self, node: Any) -> Any:
        """Return what a comparison with a missing value means below `not`. It is true for each row that its path leads
        to, so that the negation is not met."""
        steps: list[str] = []
        type_name, names = self.type_name, node["name"].split(".")
        for number, step in enumerate(names):
            if step not in relationships_of(type_name) or (number == len(names) - 1 and node["op"] == "count"):
                break
            is_end = names[number + 1 :] in ([], ["id"])
            matches_null = node["op"] in NULLS or (self.knows_null and not steps)
            if is_end and (step in OWN_KEY[type_name] or (step in REVERSE_TO_ONE and matches_null)):
                # The id of a to-one is a value of the row before it.
                break
            steps.append(step)
            type_name = relationships_of(type_name)[step]
        return {"name": ".".join((*steps, "id")), "op": "isnot", "val": None}


DATED = ("eq", "ne", "lt", "le", "gt", "ge")
Means = tuple[Allow, Any]
"""A rule, and what its filter means for the principal and for the anonymous: True for all rows."""


@st.composite
def rules_of(draw: DrawFn, type_name: str, rows: Rows, drawn: Drawn) -> list[Means]:
    found: list[Means] = []
    for _ in range(draw(st.integers(0, 3))):
        to, actions = draw(st.sampled_from(AUDIENCES)), draw(st.sampled_from(ACTIONS))
        if draw(st.integers(0, 4)) == 0:
            found.append((Allow(to, *actions), (True, True)))
        else:
            rule, *meanings = draw(rule_filters(type_name, rows, drawn))
            found.append((Allow(to, *actions, rows=rule), tuple(meanings)))
    return found


@st.composite
def scenes(draw: DrawFn, catalog: Catalog, types: tuple[str, ...], rows: Rows) -> Scene:
    drawn = Drawn(claims={})
    rules = {name: draw(rules_of(name, rows, drawn)) for name in types}
    principal = ANONYMOUS
    if draw(st.integers(0, 5)) or drawn.subject:
        roles, scopes = [draw(st.frozensets(st.sampled_from(some))) for some in (("a", "b"), ("s", "t"))]
        subject = drawn.subject or draw(st.sampled_from(("x", "long")))
        principal = Principal(subject=subject, roles=roles, scopes=scopes, claims={"own": drawn.claims})
    hides: dict[str, Any] = {}
    refused = set[str]()
    for name in types:
        reading = [
            meanings[principal is ANONYMOUS]
            for rule, meanings in rules[name]
            if rule.allows("read") and has(rule.to, principal)
        ]
        ids = visible_ids(name, reading, rows)
        if rules[name]:
            hides[name] = (None, lambda row, _, ids=ids: row["id"] in ids)
            refused |= {name} if not reading else set()
    fields = {name: draw(st.frozensets(st.sampled_from(found))) for name in types if (found := optional(catalog, name))}
    return Scene(
        with_rules(catalog, {name: [rule for rule, _ in some] for name, some in rules.items()}, fields),
        bare_catalog(nullable(catalog, rows), rules, fields),
        principal,
        without_hidden(rows, hides),
        refused,
    )


def has(audience: Any, principal: Principal) -> bool:
    return bool(audience(principal) if callable(audience) else audience.has(principal))


def visible_ids(type_name: str, meanings: list[Any], rows: Rows) -> set[Any]:
    if any(meaning is True for meaning in meanings):
        return {row["id"] for row in rows[type_name]}
    return {row["id"] for meaning in meanings for row in Model(rows).matching(type_name, meaning)}


def optional(catalog: Catalog, type_name: str) -> list[str]:
    """Return the fields that may be hidden: no other field and no create needs them."""
    resource = catalog.by_type[type_name]
    needed = {name for attribute in resource.attributes for name in attribute.of}
    attributes = [
        one.name for one in resource.attributes if one.readable and not one.required and one.name not in needed
    ]
    return attributes + [one.name for one in resource.relationships if not (isinstance(one, ToOne) and one.is_required)]


def _hidden(field: Any) -> dict[str, Any]:
    """Return the rights of a field that nobody may read or write. An attribute that may only be written is known."""
    is_attribute = isinstance(field, Attribute)
    is_written = is_attribute and any(field.is_writable(on_create=on_create) for on_create in (True, False))
    return {"read_by": Role("nobody")} | ({"write_by": Role("nobody")} if is_written else {})


def with_rules(catalog: Catalog, rules: dict[str, list[Allow]], fields: dict[str, frozenset[str]]) -> Catalog:
    def hidden(resource: Resource, declared: tuple[Any, ...]) -> tuple[Any, ...]:
        names = fields.get(resource.type, frozenset())
        return tuple([msgspec.structs.replace(one, **(_hidden(one) if one.name in names else {})) for one in declared])

    return Catalog(
        [
            msgspec.structs.replace(
                one,
                access=tuple(rules.get(one.type, ())),
                attributes=hidden(one, one.attributes),
                relationships=hidden(one, one.relationships),
            )
            for one in catalog
        ]
    )


def bare_catalog(catalog: Catalog, rules: dict[str, list[Means]], fields: dict[str, frozenset[str]]) -> Catalog:
    """Return the catalog with the same actions for the same principals, and without the fields."""

    def left(resource: Resource, declared: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([one for one in declared if one.name not in fields.get(resource.type, ())])

    return Catalog(
        [
            msgspec.structs.replace(
                one,
                access=tuple([Allow(rule.to, *rule.actions) for rule, _ in rules.get(one.type, ())]),
                attributes=left(one, one.attributes),
                relationships=left(one, one.relationships),
            )
            for one in catalog
        ]
    )


class Pair(msgspec.Struct):
    """Two servers. ruled: its rules hide rows. bare: its database does not have these rows. rows: those of `ruled`."""

    ruled: Served
    bare: Served
    catalog: Catalog
    types: tuple[str, ...]
    rows: Rows
    fill: Callable[[Served, Rows], None]

    def set(self, scene: Scene) -> None:
        self.ruled.use(scene.catalog)
        self.bare.use(scene.bare)
        self.fill(self.bare, scene.visible)

    def check(self, target: bytes, principal: Principal) -> Answer:
        """Check that both servers give the same answer."""
        known = () if principal is ANONYMOUS else ((HEADER, as_header(principal)),)
        headers: Headers = (("X-Request-Id", "the-same"), *known)
        ruled, bare = [server.raw("GET", target, headers) for server in (self.ruled, self.bare)]
        assert (ruled.status, told(ruled), ruled.body) == (bare.status, told(bare), bare.body), target
        assert ruled.status < 500, target
        return ruled


def told(answer: Answer) -> dict[str, str]:
    """Return the headers that do not depend on the time. A version that is `xmin` counts transactions."""
    headers = {name: value for name, value in answer.headers.items() if name not in ("date", "server-timing")}
    return headers | {"etag": re.sub(r'(?<=[":])[0-9]+(?=\.[0-9a-f]{16})', "xmin", headers.get("etag", ""))}


@pytest.fixture(scope="module", params=["people", "corner"])
def pair(postgres_url: str, request: pytest.FixtureRequest) -> Iterator[Pair]:
    is_people = request.param == "people"
    catalog, ddl = (built_in(), "") if is_people else (corner.CATALOG, corner.DDL)
    open_keys = ddl + (OPEN_KEYS if is_people else OPEN_CORNER_KEYS)
    rows = make_rows(0) if is_people else make_corner_rows(0)
    fill = store if is_people else store_corner
    with served(postgres_url, catalog, ddl) as ruled, served(postgres_url, nullable(catalog, rows), open_keys) as bare:
        fill(ruled, rows)
        yield Pair(ruled, bare, catalog, TYPES if is_people else CORNER_TYPES, rows, fill)


@st.composite
def requests(draw: DrawFn, pair: Pair) -> str:
    """Draw a request of any route."""
    type_name = draw(st.sampled_from(pair.types))
    resource = pair.catalog.by_type[type_name]
    names = [relationship.name for relationship in resource.relationships]
    pairs: list[tuple[str, str]] = []
    if draw(st.booleans()) and names:
        pairs.append(("include", ",".join(draw(includes(pair.catalog, resource)))))
    if draw(st.integers(0, 2)) == 0:
        row = draw(st.sampled_from(pair.rows[type_name]))
        path = f"{resource.path}/{quote_all(str(row['id']))}"
        route = draw(
            st.sampled_from([path, *(f"{path}/{part}{name}" for part in ("", "relationships/") for name in names)])
        )
        if route != path:
            pairs = draw(st.sampled_from(([], [("include", route.rpartition("/")[2])])))
        return f"{route}?{urlencode(pairs, quote_via=quote)}" if pairs else route
    if draw(st.booleans()):
        pairs.append(("filter", json.dumps([draw(filters(type_name, pair.rows))])))
    if draw(st.booleans()):
        pairs.append(("sort", draw(sorts(type_name))))
    if draw(st.integers(0, 3)) == 0:
        pairs.append(("searchText", draw(st.sampled_from(TEXTS))))
    measured = [name for name, kind in KINDS[type_name].items() if kind in ("int", "date")]
    if measured and not any(name in ("sort", "searchText") for name, _ in pairs) and draw(st.booleans()):
        name = draw(st.sampled_from(measured))
        number = str(draw(st.integers(0, 20)))
        pairs.append((f"nearTo[{name}]", number if KINDS[type_name][name] == "int" else draw(st.sampled_from(DATES))))
    else:
        pairs += draw(pages)
    return f"{resource.path}?{urlencode(pairs, quote_via=quote)}"


@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_every_answer_is_that_without_the_hidden_rows(pair: Pair, data: DataObject) -> None:
    scene = data.draw(scenes(pair.catalog, pair.types, pair.rows))
    pair.set(scene)
    for name in pair.types:
        answer = pair.check(f"{pair.catalog.by_type[name].path}?page[size]=0".encode(), scene.principal)
        assert (answer.status in (401, 403)) == (name in scene.refused)
        if answer.status == 200:
            assert sorted(answer.ids) == sorted(str(row["id"]) for row in scene.visible[name])
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            # Lists without pages are streams.
            set_first_rows(patch, 0, pair.ruled.engine, pair.bare.engine)
        for _ in range(REQUESTS):
            target = data.draw(st.one_of(requests(pair).map(str.encode), targets(pair.catalog).filter(is_exact)))
            answer = pair.check(target, scene.principal)
            links = answer.document.get("links", {}) if answer.status == 200 else {}
            if onward := links.get("next"):
                pair.check(onward.removeprefix("http://api.example.org").encode(), scene.principal)


def is_exact(target: bytes) -> bool:
    return b"estimated" not in target and b"/-/" not in target


@pytest.fixture(scope="module", params=["people", "corner"])
def alike(postgres_url: str, request: pytest.FixtureRequest) -> Iterator[HiddenPair]:
    """Two servers with the same rows."""
    is_people = request.param == "people"
    catalog, ddl = (built_in(), "") if is_people else (corner.CATALOG, corner.DDL)
    rows = make_rows(1) if is_people else make_corner_rows(1)
    with served(postgres_url, catalog, ddl) as ruled, served(postgres_url, catalog, ddl) as bare:
        types, fill = (TYPES, store) if is_people else (CORNER_TYPES, store_corner)
        yield HiddenPair(ruled, bare, catalog, types, rows, rows, fill)


@settings(max_examples=settings().max_examples // 4)
@given(data=st.data())
def test_writes_do_not_know_fields_that_are_hidden(alike: HiddenPair, data: DataObject) -> None:
    fields = {
        name: data.draw(st.frozensets(st.sampled_from(found)))
        for name in alike.types
        if (found := optional(alike.catalog, name))
    }
    alike.hiding.use(with_rules(alike.catalog, {}, fields))
    alike.bare.use(bare_catalog(alike.catalog, {}, fields))
    alike.reset()
    for _ in range(4):
        method, path, document = data.draw(writes(alike))
        ruled, bare = alike.write(method, path, document)
        assert (ruled.status, ruled.body) == (bare.status, bare.body), (method, path, document, fields)
        assert ruled.status < 500, (method, path, document)
    # The errors of operations show what was sent. Random ids would differ.
    body = data.draw(bodies(alike.catalog).filter(lambda found: not CHANCE & set(found.split(b'"'))))
    headers = (*HEADERS, ("Content-Type", EXTENDED))
    ruled, bare = [server.raw("POST", b"/operations", headers, body) for server in (alike.hiding, alike.bare)]
    assert (ruled.status, ruled.body) == (bare.status, bare.body), (body, fields)
