"""A document that is decoded and planned in one step has the same plan and values as one that is decoded and planned
step by step. A document with an error is never decoded in one step."""

from __future__ import annotations

import copy
import json
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from querybuild.declarations.resource import Resource, ToOne
from querybuild.errors import ApiError
from querybuild.planning.changes import PlannedWrite
from querybuild.query import Change, ChangeKind
from serializers.decode import decode_resource_document, with_id
from serializers.errors import MalformedJson
from server.engine import ANYBODY, Engine
from server.schema.live_schema import LiveSchema
from server.settings import Settings
from tests.catalog import CATALOG, SAMPLE, SAMPLE_TYPE
from tests.property.values import dump, near, texts, trees
from waterspout import INT, TEXT, Attribute, Catalog

ENGINE = Engine(Settings(statement_cache_entries=100_000), CATALOG, LiveSchema())
TOKEN = "123e4567-e89b-12d3-a456-426614174000"

VALID: dict[str, dict[str, Any]] = {
    "sample": SAMPLE,
    "rule": {
        **{"must": "x", "may": "x", "sized": "abc", "ranged": 3, "since": "2024-05-31", "patterned": "a-1"},
        **{"chosen": "one", "shaped": {"a": [1]}, "listed": ["a"], "on_update": "x", "unfilterable": "x"},
    },
    "article": {"title": "x", "pages": 3},
    "node": {"title": "x", "weight": 3},
    "author": {"given-name": "x", "family-name": "x", "born": 3},
}
REQUIRED = {"rule": ["must", "on_update"], "article": ["title"], "node": ["title"]}
REQUIRED["author"] = ["given-name", "family-name"]
IDS = {"node": TOKEN}
wrong_ids = st.sampled_from([{"id": one} for one in ("01", "x", "", 1, None, "2", TOKEN.upper())])


class Case(NamedTuple):
    """valid: a body without errors. body: one with the same members, which may have errors."""

    resource: Resource
    kind: ChangeKind
    valid: bytes
    body: bytes


def path_id(resource: Resource) -> str:
    return IDS.get(resource.type, "1")


def _identifier(type_name: str) -> dict[str, str]:
    return {"type": type_name, "id": IDS.get(type_name, "1")}


@st.composite
def cases(draw: DrawFn) -> Case:
    """Draw a document, and another one with the same members, most of whose values are valid."""
    resource = CATALOG.by_type[draw(st.sampled_from([*VALID]))]
    known = VALID[resource.type]
    required = REQUIRED.get(resource.type, [])
    names = {*required, *draw(st.lists(st.sampled_from([*known]), max_size=3))}
    kind: ChangeKind = draw(st.sampled_from(["create", "update"]))
    valid: dict[str, Any] = {"type": resource.type, "attributes": {name: known[name] for name in names}}
    if kind == "update" or resource.client_ids:
        valid["id"] = path_id(resource)
    linked = draw(st.lists(st.sampled_from(resource.relationships), unique=True)) if resource.relationships else []
    linked += [
        one for one in resource.relationships if isinstance(one, ToOne) and one.is_required and one not in linked
    ]
    if linked:
        one = {one.name: _identifier(one.target) for one in linked}
        valid["relationships"] = {
            each.name: {"data": [one[each.name]] if each.is_to_many else one[each.name]} for each in linked
        }
    return Case(
        resource,
        kind,
        json.dumps({"data": valid}, ensure_ascii=False).encode(),
        draw(changed(resource, valid)).encode(errors="replace"),
    )


@st.composite
def changed(draw: DrawFn, resource: Resource, valid: dict[str, Any]) -> str:
    """Draw a document with the same members and other values, or with something unusual."""
    data = copy.deepcopy(valid)
    for name in draw(st.lists(st.sampled_from([*data["attributes"]]), max_size=2)) if data["attributes"] else []:
        attribute = resource.attribute(name)
        assert attribute is not None
        data["attributes"][name] = draw(near(attribute) | texts | trees)
    for one in data.get("relationships", {}).values():
        items = one["data"] if isinstance(one["data"], list) else [one["data"]]
        if draw(st.integers(0, 9)) == 0:
            del items[0]["type"]
        if draw(st.integers(0, 4)) == 0:
            items[0] |= draw(st.sampled_from([{"meta": {}}, {"lid": "a"}, {"type": "sample"}]) | wrong_ids)
        if isinstance(one["data"], list):
            items += draw(st.lists(st.sampled_from([items[0], {**items[0], "id": "2"}]), max_size=2))
    if draw(st.integers(0, 4)) == 0:
        data |= draw(st.sampled_from([{"lid": "a"}, {"links": {}}, {"type": "tag"}, {"meta": {}}]) | wrong_ids)
    text = dump({"data": data})
    if draw(st.integers(0, 4)) == 0:
        name = json.dumps(draw(st.sampled_from(["data", "type", "id", "attributes", *data["attributes"]])))
        again = draw(st.sampled_from([f"{name}:1,{name}:", f"{name} :1,{name}:", f"{name}\n:{name},{name}:"]))
        text = text.replace(f"{name}:", again, 1)
    return text.replace(":", draw(st.sampled_from([":"] * 9 + [" :", ": ", "\t:\n"])))


def content(planned: PlannedWrite) -> dict[str, Any]:
    """Return what is written where, without the order of the slots."""
    plan, values = planned.plan, planned.values
    found = {one.column: repr(values[one.slot]) for one in plan.assignments}
    for link in plan.links:
        items = planned.item_pointers[link.slot]
        found[link.relationship.name] = repr((values[link.slot], items, link.mode))
    if plan.id_slot is not None:
        found["the id"] = repr(values[plan.id_slot])
    places = sorted([(repr(place), repr(value)) for place, value in zip(planned.places, values, strict=True)])
    return found | {"places": places, "lids": planned.has_lids, "pointers": (planned.pointer, planned.id_pointer)}


def step_by_step(resource: Resource, kind: ChangeKind, body: bytes) -> PlannedWrite | None:
    errors: list[ApiError] = []
    try:
        change = decode_resource_document(body, Change(kind=kind, type=None), errors, ENGINE.limits)
    except MalformedJson:
        return None
    if change is not None and kind == "update":
        change = with_id(change, path_id(resource), errors)
    planned = None if change is None else ENGINE.writes.prepare(resource, change, ANYBODY, errors).planned
    return None if errors else planned


def in_one_step(resource: Resource, kind: ChangeKind, body: bytes) -> PlannedWrite | None:
    asked = Change(kind=kind, type=None, id=path_id(resource) if kind == "update" else None)
    typed = ENGINE.writes.prepare_typed(resource, asked, body, ANYBODY)
    return None if typed is None else typed.write.planned


def sample(valid: str, text: str) -> Case:
    bodies = [f'{{"data":{{"type":"sample","attributes":{one}}}}}'.encode() for one in (valid, text)]
    return Case(CATALOG.by_type["sample"], "create", bodies[0], bodies[1])


def article(valid: str, author: str) -> Case:
    """Return creates of an article whose title has a colon."""
    bodies = [
        f'{{"data":{{"type":"article","attributes":{{"title":"a:b"}},"relationships":{{"author":{{"data":{one}}}}}}}}}'
        for one in (valid, author)
    ]
    return Case(CATALOG.by_type["article"], "create", bodies[0].encode(), bodies[1].encode())


def rule(own_id: str, **changed: Any) -> Case:
    data = [
        {"type": "rule", "id": each, "attributes": VALID["rule"] | new} for each, new in (("1", {}), (own_id, changed))
    ]
    return Case(CATALOG.by_type["rule"], "update", *[json.dumps({"data": one}).encode() for one in data])


TYPED = b'{"data":{"type":"sample","attributes":{"words":"x"}}}'
AUTHOR = '{"type":"author","id":"1"}'
WORDS, TREE = '{"words":"a"}', '{"tree":{}}'


@given(case=cases())
@example(case=sample(WORDS, '{"words":"a","words":"b"}'))
@example(case=sample(WORDS, '{"words" :"a","words":"b:"}'))
@example(case=Case(SAMPLE_TYPE, "create", TYPED, b'{"data":{"attributes":{"words":"a:b"}}}'))
@example(case=article(AUTHOR, '{"id":"1"}'))
@example(case=sample(WORDS, '{"words":"a\\u0000"}'))
@example(case=sample(WORDS, '{"words":"a\\ud800"}'))
@example(case=sample(WORDS, '{"wor\\u0064s":"a\\u00e4"}'))
@example(case=sample(TREE, '{"tree":{"a":1,"a":2}}'))
@example(case=sample(TREE, '{"tree":' + "[" * 61 + "]" * 61 + "}"))
@example(case=sample(TREE, '{"tree":' + "[" * 62 + "]" * 62 + "}"))
@example(case=sample('{"large":1,"exact":"1"}', '{"exact":0.10,"large":9223372036854775808}'))
@example(case=rule("1", ranged=11))
@example(case=rule("1", ranged=-2))
@example(case=rule("1", sized="a"))
@example(case=rule("1", sized="abcdef"))
@example(case=rule("1", listed=[]))
@example(case=rule("1", listed=["a", "b", "c"]))
@example(case=rule("1", patterned="-"))
@example(case=rule("1", shaped={"a": ["1"]}))
@example(case=rule("1", on_update=None))
@example(case=rule("2"))
def test_one_step_is_as_good_as_several(case: Case) -> None:
    resource, kind, valid, body = case
    planned = step_by_step(resource, kind, valid)
    assert planned is not None
    sent = json.loads(valid)["data"].get("relationships", {})
    may_contradict = len(sent) > 1 and any(one.target == resource.type for one in map(resource.relationship, sent))
    # Several links are written in the order of the document.
    assert (in_one_step(resource, kind, valid) is not None) == (len(planned.plan.links) < 2 and not may_contradict)
    found = in_one_step(resource, kind, body)
    if found is not None:
        expected = step_by_step(resource, kind, body)
        assert expected is not None, "a document with an error was accepted"
        assert content(found) == content(expected)


@pytest.mark.parametrize(
    "attribute",
    [
        Attribute("one", INT, nullable=True, minimum=10**30),
        Attribute("one", INT, nullable=True, maximum=-(10**30)),
        Attribute("one", TEXT, nullable=True, min_length=10**30),
        Attribute("one", TEXT, nullable=True, max_length=10**30),
    ],
)
def test_limits_may_be_larger_than_those_of_msgspec(attribute: Attribute) -> None:
    resource = Resource("item", "/items", "items", (attribute,))
    engine = Engine(Settings(), Catalog([resource]), LiveSchema())
    body = b'{"data":{"type":"item","attributes":{"one":null}}}'
    assert engine.writes.prepare_typed(resource, Change(kind="create", type=None), body, ANYBODY) is not None
