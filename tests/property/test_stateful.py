"""Any sequence of writes has the result of the model in plain Python: creates, updates, deletes, writes of
relationships and of related resources, and atomic operations. After each write everything is read and compared.

In a hunt each run has more steps than in the suite.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from hypothesis.strategies import DataObject, SearchStrategy

from tests.property import linked_requests as drawn
from tests.property.linked_catalog import CATALOG, DDL, EMPTY
from tests.property.linked_model import NEW, Json, Model, Outcome, is_canonical
from tests.property.linked_requests import ATOMIC, OWN_IDS, PLAIN, Request, foresee
from tests.property.linked_types import TYPES, Key, Linked, Reverse
from tests.property.served import MEDIA_TYPE, PUBLIC_URL, Answer, Served, served

JSONAPI = {"version": "1.0"}


def _add(type_name: str, lid: str, attributes: Json, **keys: str) -> Json:
    """Return an operation that adds a resource. keys: relationship -> the type whose first resource it refers to."""
    links = {name: {"data": {"type": target, "lid": "1"}} for name, target in keys.items()}
    return {"op": "add", "data": {"type": type_name, "lid": lid, "attributes": attributes, "relationships": links}}


BEGINNING = (
    _add("team", "1", {"name": "one"}),
    _add("person", "1", {"name": "Ada"}, team="team"),
    _add("person", "2", {"name": "Bo"}),
    _add("task", "1", {"title": "dig"}, owner="person"),
    _add("task", "2", {"title": "sow"}, owner="person"),
    _add("passport", "1", {"number": "P"}, person="person"),
    _add("badge", "1", {"colour": "red"}, person="person"),
    _add("skill", "1", {"name": "swim"}),
    _add("node", "1", {"title": "root"}),
    _add("node", "2", {"title": "leaf"}, parent="node"),
)
"""A few resources of each type."""


class Writes(RuleBasedStateMachine):
    """One run: the model and the server."""

    server: Served

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.server.sql((EMPTY,))

    @initialize()
    def begin(self) -> None:
        self.send(Request("POST", "operations", (), {"atomic:operations": list(BEGINNING)}))

    @rule(data=st.data())
    def create(self, data: DataObject) -> None:
        self.draw(data, drawn.creates(self.model))

    @rule(data=st.data())
    def update(self, data: DataObject) -> None:
        self.draw(data, drawn.updates(self.model))

    @precondition(lambda self: self.model.count() > len(BEGINNING) - 2)
    @rule(data=st.data())
    def delete(self, data: DataObject) -> None:
        self.draw(data, drawn.deletes(self.model))

    @rule(data=st.data())
    def write_linkage(self, data: DataObject) -> None:
        self.draw(data, drawn.linkages(self.model))

    @rule(data=st.data())
    def write_related(self, data: DataObject) -> None:
        self.draw(data, drawn.related_writes(self.model))

    @rule(data=st.data())
    def operate(self, data: DataObject) -> None:
        self.draw(data, drawn.batches(self.model))

    def teardown(self) -> None:
        """Check that no transaction has outlived its request."""
        states = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'"
        assert self.server.sql((states,)) == []

    def draw(self, data: DataObject, requests: SearchStrategy[Request]) -> None:
        self.send(data.draw(requests))

    def send(self, request: Request) -> None:
        before = self.model.state.copy()
        outcome = foresee(self.model, request)
        body = None if request.document is None else json.dumps(request.document).encode()
        headers = () if body is None else (("Content-Type", request.media_type),)
        answer = self.server.raw(request.method, request.path.encode(), headers, body)
        if answer.status >= 400:
            check_refusal(request, outcome, answer)
            self.model.state = before
        else:
            assert outcome.can_succeed, (request, outcome, answer)
            check_success(self.model, request, outcome, answer)
        self.read_all()
        self.read_touched()

    def get(self, path: str) -> Json:
        answer = self.server.raw("GET", path.encode())
        assert answer.status == 200, (path, answer)
        assert isinstance(answer.document, dict)
        return answer.document

    def read_all(self) -> None:
        """Read each collection, with all related resources."""
        for type_name, kind in TYPES.items():
            names = tuple(kind.relationships)
            document = self.get(f"{kind.path}?page[size]=0&include={','.join(names)}")
            ids = self.model.ids(type_name)
            assert [one["id"] for one in document["data"]] == ids, type_name
            for resource in document["data"]:
                check_resource(self.model, resource, type_name, resource["id"], names)
            check_included(self.model, document["included"], [(type_name, one) for one in ids], names)
            assert document["meta"] == {"count": len(ids), "total": len(ids), "totalPages": int(bool(ids))}

    def read_touched(self) -> None:
        """Read the routes of some relationships that the request wrote."""
        for type_name, id_text, name in list(dict.fromkeys(self.model.touched))[:4]:
            if id_text in self.model.state.rows[type_name]:
                relationship, path = TYPES[type_name].relationships[name], path_of(type_name, id_text)
                query = "?page[size]=0" if relationship.is_many else ""
                linkage = self.get(f"{path}/relationships/{name}{query}")["data"]
                assert sorted_linkage(linkage) == expected_linkage(self.model, type_name, id_text, name)
                related = self.get(f"{path}/{name}{query}")["data"]
                for one in related if isinstance(related, list) else [related] if related else []:
                    check_resource(self.model, one, relationship.target, one["id"], ())
                assert identifiers(related) == expected_linkage(self.model, type_name, id_text, name)


# resources


def path_of(type_name: str, id_text: str) -> str:
    return f"{TYPES[type_name].path}/{quote(id_text, safe='')}"


def identifiers(data: Any) -> Any:
    if isinstance(data, list):
        return sorted_linkage([identifiers(one) for one in data])
    return None if data is None else {"type": data["type"], "id": data["id"]}


def sorted_linkage(data: Any) -> Any:
    return sorted(data, key=lambda one: str(one["id"])) if isinstance(data, list) else data


def expected_linkage(model: Model, type_name: str, id_text: str, name: str) -> Any:
    relationship = TYPES[type_name].relationships[name]
    found = [{"type": relationship.target, "id": key} for key in sorted(model.linked(type_name, id_text, name))]
    if relationship.is_many:
        return found
    assert len(found) < 2
    return found[0] if found else None


def check_resource(model: Model, resource: Json, type_name: str, id_text: str, shown: tuple[str, ...]) -> None:
    """Compare a resource with the model. shown: the relationships whose linkage it shows."""
    assert (resource["type"], resource["id"]) == (type_name, id_text)
    assert resource["attributes"] == model.attributes(type_name, id_text), resource
    assert unquote(resource["links"]["self"]) == PUBLIC_URL + unquote(path_of(type_name, id_text))
    relationships = resource["relationships"]
    assert set(relationships) == set(TYPES[type_name].relationships)
    for name, relationship in relationships.items():
        assert ("data" in relationship) == (name in shown), (name, resource)
        if name in shown:
            expected = expected_linkage(model, type_name, id_text, name)
            assert sorted_linkage(relationship["data"]) == expected, (name, resource)


def check_included(model: Model, included: list[Json], primary: list[tuple[str, str]], names: tuple[str, ...]) -> None:
    """Compare the included resources. names: the relationships of the primary resources that are included."""
    expected = {
        (TYPES[type_name].relationships[name].target, key)
        for type_name, id_text in primary
        for name in names
        for key in model.linked(type_name, id_text, name)
    } - set(primary)
    found = [(one["type"], one["id"]) for one in included]
    assert sorted(found) == sorted(expected)
    for one in included:
        check_resource(model, one, one["type"], one["id"], ())


# answers


def check_success(model: Model, request: Request, outcome: Outcome, answer: Answer) -> None:
    if request.kind == "operations":
        check_results(model, request, outcome, answer)
        return
    is_create = request.kind == "collection" or (request.kind == "related" and request.method == "POST")
    assert answer.status == (201 if is_create else 200), (request, answer)
    assert answer.headers["content-type"] == MEDIA_TYPE
    if request.kind == "linkage":
        check_linkage_answer(model, request, answer)
    elif request.method == "DELETE":
        assert answer.document == {"jsonapi": JSONAPI, "meta": {"message": "Object successfully deleted"}}
    else:
        check_resource_answer(model, request, outcome, answer)


def check_linkage_answer(model: Model, request: Request, answer: Answer) -> None:
    made, done = "Relationship successfully created", "Relationship successfully updated"
    document = answer.document
    assert document["meta"]["message"] == (made if request.method == "POST" else done)
    assert document["jsonapi"] == JSONAPI
    if request.method == "PATCH":
        type_name, id_text, name = request.route
        assert sorted_linkage(document["data"]) == expected_linkage(model, type_name, id_text, name)
    else:
        assert set(document) == {"jsonapi", "meta"}


def check_resource_answer(model: Model, request: Request, outcome: Outcome, answer: Answer) -> None:
    document = answer.document
    [written] = outcome.written
    assert written is not None
    type_name, id_text, _ = written
    id_text = known_id(model, type_name, id_text, document["data"]["id"])
    data = request.document["data"]
    shown = {*data.get("relationships", {}), *request.include}
    if answer.status == 201:
        assert answer.headers["location"] == document["data"]["links"]["self"] == document["links"]["self"]
        shown |= {inverse_of(request.route)} if request.kind == "related" else set()
    check_resource(model, document["data"], type_name, id_text, tuple(shown))
    assert ("included" in document) == bool(request.include)
    check_included(model, document.get("included", []), [(type_name, id_text)], request.include)


def inverse_of(route: tuple[str, ...]) -> str:
    """Return the relationship of a new resource to the resource that it is created below."""
    match TYPES[route[0]].relationships[route[2]]:
        case Reverse() as reverse:
            return reverse.key
        case Linked() as linked:
            others = TYPES[linked.target].relationships.items()
            return next(
                name
                for name, other in others
                if isinstance(other, Linked) and (other.table, other.is_source) == (linked.table, not linked.is_source)
            )
        case Key():
            raise AssertionError(route)


def known_id(model: Model, type_name: str, id_text: str, answered: str) -> str:
    """Put the id that the server has chosen into the model."""
    if id_text.startswith(NEW):
        assert is_canonical(TYPES[type_name], answered)
        model.rename(type_name, id_text, answered)
        return answered
    return id_text


def check_results(model: Model, request: Request, outcome: Outcome, answer: Answer) -> None:
    operations = request.document["atomic:operations"]
    if all(operation["op"] == "remove" for operation in operations):
        assert (answer.status, answer.body) == (204, b"")
        return
    assert answer.status == 200, (request, answer)
    assert answer.headers["content-type"].replace("; ", ";") == request.media_type.replace("; ", ";")
    assert list(answer.document) == ["atomic:results"]
    results = answer.document["atomic:results"]
    assert len(results) == len(operations)
    ids: dict[str, str] = {}
    for operation, written, result in zip(operations, outcome.written, results, strict=True):
        assert set(result) == ({"data"} if request.media_type == ATOMIC else {"data", "meta"})
        assert result.get("meta") is None
        if written is None or "relationship" in operation.get("ref", {}):
            assert result["data"] is None, (request, answer)
            continue
        type_name, id_text, attributes = written
        ids.setdefault(id_text, result["data"]["id"] if id_text.startswith(NEW) else id_text)
        check_result(result["data"], {"type": type_name, "id": ids[id_text], "attributes": attributes}, request)
    for written in outcome.written:
        if written is not None and written[1] in ids:
            known_id(model, written[0], written[1], ids.pop(written[1]))


def check_result(found: Json, expected: Json, request: Request) -> None:
    """Compare a result with the resource as it was after its operation."""
    assert found == expected, request


def check_refusal(request: Request, outcome: Outcome, answer: Answer) -> None:
    if request.kind == "operations" and request.media_type == PLAIN:
        check_detail(request, outcome, answer)
        return
    assert answer.status in outcome.refusals, (request, outcome, answer)
    assert answer.headers["content-type"].startswith(MEDIA_TYPE)
    errors = answer.document["errors"]
    assert {error["status"] for error in errors} == {str(answer.status)} or answer.status == 400
    for error in errors:
        pointer = error.get("source", {}).get("pointer")
        if pointer is not None:
            check_pointer(request, pointer)
        if request.kind == "operations":
            assert pointer is not None
            assert int(pointer.split("/")[2]) in outcome.places, (request, outcome, answer)


def check_pointer(request: Request, pointer: str) -> None:
    """Check that a pointer refers to a part of the document, or to a missing member of an existing part."""
    found = request.document
    *path, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    for part in path:
        is_there = part in found if isinstance(found, dict) else isinstance(found, list) and int(part) < len(found)
        if not is_there:
            # `attributes` and `relationships` may be missing as a whole.
            assert part in ("attributes", "relationships"), (request, pointer)
            return
        found = found[part] if isinstance(found, dict) else found[int(part)]
    assert isinstance(found, dict) or int(last) < len(found), (request, pointer)


def check_detail(request: Request, outcome: Outcome, answer: Answer) -> None:
    """Check that the failure has the form of service.md."""
    assert outcome.refusals, (request, outcome, answer)
    assert answer.status == 422, (request, outcome, answer)
    assert answer.headers["content-type"] == "application/json"
    detail = answer.document["detail"]
    assert set(detail) == {"data", "errors", "message", "ref"}
    assert detail["errors"]
    place = int(detail["message"].split("at position ")[1].rstrip(")"))
    operation = request.document["atomic:operations"][place]
    assert place in outcome.places, (request, outcome, answer)
    assert detail["message"].endswith(f"on operation {operation['op']} (at position {place})")
    assert detail["ref"] == operation.get("ref")


@pytest.fixture(scope="module")
def server(postgres_url: str) -> Iterator[Served]:
    with served(postgres_url, CATALOG, DDL) as server:
        yield server


def runs(server: Served) -> type[Writes]:
    """Return the class for a server. Hypothesis creates its runs without arguments."""
    return type("Run", (Writes,), {"server": server})


def test_writes_leave_what_the_model_says(server: Served) -> None:
    profile = settings()
    examples, steps = (40, 12) if profile.derandomize else (profile.max_examples // 10, 50)
    shortest_alone = settings(max_examples=examples, stateful_step_count=steps, report_multiple_bugs=False)
    run_state_machine_as_test(runs(server), settings=shortest_alone)


PERSON = {"type": "person", "id": OWN_IDS["uuid"][0]}
NEW_PERSON = {"op": "add", "data": {**PERSON, "lid": "x", "attributes": {"name": "Cy"}}}
FOUND: dict[str, list[Json]] = {
    "each result is of its own operation": [
        {"op": "update", "data": {"type": "task", "id": "1"}},
        {"op": "update", "data": {"type": "task", "id": "1", "attributes": {"title": "b"}}},
    ],
    "so it is where one resource goes by two names": [
        NEW_PERSON,
        {"op": "update", "data": {"type": "person", "lid": "x"}},
        {"op": "update", "data": {**PERSON, "attributes": {"name": "b"}}},
    ],
    "a to-one is not removed from": [
        NEW_PERSON,
        {"op": "remove", "ref": {**PERSON, "relationship": "team"}, "data": {"type": "team", "id": "1"}},
    ],
    "a to-one is not added to": [
        NEW_PERSON,
        {"op": "add", "ref": {**PERSON, "relationship": "team"}, "data": {"type": "team", "id": "1"}},
    ],
}
"""Examples that hunts have found."""


@pytest.mark.parametrize("name", FOUND)
def test_found_before(server: Served, name: str) -> None:
    run = runs(server)()
    run.begin()
    run.send(Request("POST", "operations", (), {"atomic:operations": FOUND[name]}, media_type=ATOMIC))


def test_an_array_for_the_owner_is_one_fault(server: Served) -> None:
    run = runs(server)()
    run.begin()
    links = {"team": {"data": [{"type": "team", "id": "1"}]}}
    data = {"type": "person", "attributes": {"name": "b"}, "relationships": links}
    run.send(Request("POST", "related", ("team", "1", "members"), {"data": data}))
