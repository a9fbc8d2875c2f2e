"""Strategies for requests that write, and the expected outcome of each. What comes in: a Model. What goes out: requests
as documents, and the Outcome of each. With `is_odd` some requests have an error."""

from __future__ import annotations

import json
from typing import Any, Literal
from urllib.parse import quote

import msgspec
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tests.property.linked_model import (
    Json,
    Mode,
    Model,
    Outcome,
    Owner,
    Reader,
    Write,
    common,
    read_operations,
)
from tests.property.linked_types import NUMBERS, TYPES, Key, Reverse, Type

ATOMIC = 'application/vnd.api+json; ext="https://jsonapi.org/ext/atomic"'
PLAIN = "application/vnd.api+json"
MODES: dict[str, Mode] = {"POST": "add", "PATCH": "replace", "DELETE": "remove"}
OWN_IDS = {
    "uuid": [f"00000000-0000-0000-0000-00000000000{digit}" for digit in "12ab"],
    "text,text": ["a,a", "B,", "a/b c,\\,", ",ß%2F", "\\\\,."],
    "int,uuid": [f"{number},00000000-0000-0000-0000-00000000000{digit}" for number in (1, 10, -2) for digit in "1a"],
    "bigint": ["1", "2", "3", "4", "5", "-1"],
}
ABSENT_IDS = {
    "smallint": ["999", "07", "no", "32768"],
    "numeric": ["999", "07", "no", "1.0", "1e1", "99999999999999999999"],
    "bigint": ["999", "07", "no", "9223372036854775808"],
    "text,text": ["nobody,x", "a", "a,b,c", "a,\\b"],
    "int,uuid": ["1", "1,1", "01,00000000-0000-0000-0000-000000000001", "1,ffffffff-0000-0000-0000-00000000000F"],
    "uuid": ["ffffffff-0000-0000-0000-000000000000", "FFFFFFFF-0000-0000-0000-000000000000", "1"],
}
TEXTS = ["a", "b", "c", "D", "é", "a b", "", *"efghijklmnop"]


class Request(msgspec.Struct, frozen=True):
    """A request. route: type, id and relationship, as many as the path has. include: the parameter for the answer."""

    method: str
    kind: Literal["collection", "resource", "linkage", "related", "operations"]
    route: tuple[str, ...] = ()
    document: Any = None
    include: tuple[str, ...] = ()
    media_type: str = PLAIN

    @property
    def path(self) -> str:
        if self.kind == "operations":
            return "/operations"
        type_name, *rest = self.route
        if self.kind == "linkage":
            rest.insert(1, "relationships")
        path = "/".join((TYPES[type_name].path, *(quote(part, safe="") for part in rest)))
        return f"{path}?include={','.join(self.include)}" if self.include else path

    def __repr__(self) -> str:
        extension = " (ext)" if self.media_type == ATOMIC else ""
        return f"{self.method} {self.path}{extension} {json.dumps(self.document, ensure_ascii=False)}"


# expected outcomes


def foresee(model: Model, request: Request) -> Outcome:
    """Return the expected outcome. Afterwards the model has the state that a success leaves."""
    if request.kind == "operations":
        writes = read_operations(request.document["atomic:operations"], is_extended=request.media_type == ATOMIC)
        return model.operations(writes)
    if request.kind == "linkage":
        return _linkage(model, request)
    if request.kind == "related":
        return _related(model, request)
    if request.kind == "collection":
        return model.write(Reader().resource("create", request.route[0], request.document["data"], None))
    return model.write(_resource(request, *request.route))


def _resource(request: Request, type_name: str, id_text: str) -> Write:
    """Return the update or the delete of a resource."""
    if request.method == "DELETE":
        return Write(kind="delete", type=type_name, id=id_text)
    data = request.document["data"]
    write = Reader().resource("update", type_name, data, None)
    if "id" not in data:
        write.faults.append(422)
    elif str(data["id"]) != id_text:
        write.faults.append(409)
    write.id = id_text
    return write


def _linkage(model: Model, request: Request) -> Outcome:
    type_name, id_text, name = request.route
    if request.method != "PATCH" and not TYPES[type_name].relationships[name].is_many:
        return Outcome(refusals={405}, can_succeed=False)
    write = Write(kind="update", type=type_name, id=id_text)
    Reader().linkage(write, name, MODES[request.method], request.document["data"])
    return model.write(write)


def _related(model: Model, request: Request) -> Outcome:
    type_name, id_text, name = request.route
    relationship = TYPES[type_name].relationships[name]
    if (request.method == "POST") != relationship.is_many:
        return Outcome(refusals={405}, can_succeed=False)
    if relationship.is_many:
        owner = Owner(type_name, id_text, name)
        return model.write(Reader().resource("create", relationship.target, request.document["data"], owner))
    related = model.linked(*request.route) if id_text in model.state.rows[type_name] else []
    write = _resource(request, relationship.target, related[0] if related else "")
    return model.write(write) if related else Outcome(refusals={404} | common(write.faults), can_succeed=False)


# strategies


class _Drawing:
    """Draws one request. types: the types that it may write. added: type -> identifiers that earlier operations of it
    add."""

    def __init__(self, draw: DrawFn, model: Model, is_odd: bool) -> None:
        self.draw = draw
        self.model = model
        self.is_odd = is_odd
        self.types = list(TYPES)
        self.added: dict[str, list[Json]] = {}

    def chance(self, of: int) -> bool:
        return bool(self.draw(st.integers(0, of - 1)) == of - 1)

    def odd(self, of: int = 6) -> bool:
        return self.is_odd and self.chance(of)

    def one_of(self, items: Any) -> Any:
        return self.draw(st.sampled_from(list(items)))

    def id(self, type_name: str) -> str:
        ids = list(self.model.state.rows[type_name])
        if not ids or self.odd():
            return str(self.one_of(ABSENT_IDS[TYPES[type_name].id]))
        return str(self.one_of(ids))

    def kept_type(self) -> str:
        """Draw a type, in most cases one with resources."""
        kept = [name for name in self.types if self.model.state.rows[name] or name in self.added]
        return str(self.one_of(kept if kept and not self.odd() else self.types))

    def number_or_text(self, type_name: str, id_text: str) -> Any:
        is_number = TYPES[type_name].id in NUMBERS and id_text.isdecimal() and id_text[0] != "0"
        return int(id_text) if is_number and self.chance(6) else id_text

    def identifier(self, type_name: str) -> Json:
        if self.odd(12):
            type_name = self.one_of(TYPES)
        added = self.added.get(type_name)
        if added and self.chance(2):
            return dict(self.one_of(added))
        if self.added and self.odd(12):
            return {"type": type_name, "lid": "other"}
        return {"type": type_name, "id": self.number_or_text(type_name, self.id(type_name))}

    def current(self, route: tuple[str, str, str]) -> list[Json]:
        if route[1] not in self.model.state.rows[route[0]]:
            return []
        target = TYPES[route[0]].relationships[route[2]].target
        return [{"type": target, "id": key} for key in self.model.linked(*route) if not key.startswith("new")]

    def linkage(self, type_name: str, id_text: str, name: str, mode: Mode = "replace") -> Any:
        relationship = TYPES[type_name].relationships[name]
        is_many = relationship.is_many != self.odd(15)
        if is_many:
            count = self.draw(st.integers(0, 3))
            found = [self.identifier(relationship.target) for _ in range(count)]
            keeps = mode == "replace" and isinstance(relationship, Reverse) and self.chance(2)
            return [*found, *self.current((type_name, id_text, name))] if keeps else found
        must = isinstance(relationship, Key) and relationship.is_required
        is_null = self.odd() if must else self.chance(3)
        return None if is_null else self.identifier(relationship.target)

    def attributes(self, kind: Type, *, is_create: bool) -> Json:
        found: Json = {}
        for name, expected in kind.attributes.items():
            must = is_create and name in kind.required
            if (must and not self.odd(12)) or (not must and self.chance(3)):
                found[name] = self.draw(st.integers(0, 5)) if expected is int else self.text(kind, name)
        if self.odd(12):
            found["nothing"] = 1
        return found

    def text(self, kind: Type, name: str) -> Any:
        if self.odd(12):
            return 7
        if kind.attributes[name] is not str and self.chance(3):
            return None
        return self.one_of(TEXTS)

    def resource(self, type_name: str, id_text: str | None, owner: str = "") -> Json:
        """Draw a resource object. Without an id it is a new resource. owner: its relationship to the resource that it
        is created below."""
        kind, is_create = TYPES[type_name], id_text is None
        data: Json = {"type": self.one_of(TYPES) if self.odd(20) else type_name}
        attributes = self.attributes(kind, is_create=is_create)
        if id_text in self.model.state.rows[type_name] and kind.computed and self.chance(6):
            name = self.one_of(kind.computed)
            attributes[name] = "?" if self.odd(2) else self.model.attributes(type_name, str(id_text))[name]
        links: Json = {}
        for name, relationship in kind.relationships.items():
            must = is_create and isinstance(relationship, Key) and relationship.is_required and name != owner
            if (must and not self.odd(12)) or (not must and self.chance(4)):
                links[name] = {"data": self.linkage(type_name, id_text or "", name)}
        if attributes:
            data["attributes"] = attributes
        if links:
            names = self.draw(st.permutations(list(links))) if len(links) > 1 else list(links)
            data["relationships"] = {name: links[name] for name in names}
        return data

    def client_id(self, type_name: str) -> Json:
        """Draw the id of a client, or often none."""
        kind = TYPES[type_name]
        if not kind.client_ids:
            return {"id": "1"} if self.odd(12) else {}
        if not self.chance(3):
            return {}
        return {"id": self.one_of(ABSENT_IDS[kind.id] if self.odd() else OWN_IDS[kind.id])}

    def include(self, type_name: str) -> tuple[str, ...]:
        if not self.chance(4):
            return ()
        return tuple(
            self.draw(st.lists(st.sampled_from(list(TYPES[type_name].relationships)), max_size=3, unique=True))
        )

    def route(self) -> tuple[str, str, str]:
        type_name = self.kept_type()
        return type_name, self.id(type_name), self.one_of(TYPES[type_name].relationships)

    # operations

    def operation(self, number: int, op: str) -> Json:
        match op:
            case "add":
                return self.add(number)
            case "update":
                return self.update()
            case "remove":
                return {"op": "remove", "ref": self.target(self.kept_type())}
            case _:
                return self.relationship_operation()

    def add(self, number: int) -> Json:
        data = self.resource(self.one_of(self.types), None)
        type_name = data["type"]
        data |= self.client_id(type_name)
        made = self.added.setdefault(type_name, [])
        if self.chance(3):
            data["lid"] = "0" if self.odd() else str(number)
        made += [{"type": type_name, name: data[name]} for name in ("lid", "id") if name in data]
        if not made:
            del self.added[type_name]
        return {"op": "add", "data": data}

    def target(self, type_name: str) -> Json:
        """Draw the target of an operation: a `ref`, or the document of an update."""
        added = self.added.get(type_name)
        if added and self.chance(2):
            return dict(self.one_of(added))
        return {"type": type_name, "id": self.id(type_name)}

    def update(self) -> Json:
        target = self.target(self.kept_type())
        data = self.resource(target["type"], target.get("id", ""))
        data["type"] = target["type"]
        if self.chance(3):
            return {"op": "update", "ref": target, "data": data}
        return {"op": "update", "data": {**target, **data}}

    def relationship_operations(self, is_many: bool) -> list[str]:
        return ["update", "add", "remove"] if is_many or self.odd() else ["update"]

    def relationship_operation(self) -> Json:
        target = self.target(self.kept_type())
        kind = TYPES[target["type"]]
        name = self.one_of(kind.relationships)
        op = self.one_of(self.relationship_operations(kind.relationships[name].is_many))
        mode: Mode = "replace" if op == "update" else op
        data = self.linkage(target["type"], target.get("id", ""), name, mode)
        return {"op": op, "ref": {**target, "relationship": name}, "data": data}


@st.composite
def creates(draw: DrawFn, model: Model) -> Request:
    drawing = _Drawing(draw, model, draw(st.integers(0, 3)) == 3)
    type_name = drawing.one_of(TYPES)
    data = drawing.resource(type_name, None) | drawing.client_id(type_name)
    return Request("POST", "collection", (type_name,), {"data": data}, drawing.include(type_name))


@st.composite
def updates(draw: DrawFn, model: Model) -> Request:
    drawing = _Drawing(draw, model, draw(st.integers(0, 3)) == 3)
    type_name = drawing.kept_type()
    id_text = drawing.id(type_name)
    data = drawing.resource(type_name, id_text)
    if not drawing.odd(12):
        data["id"] = drawing.number_or_text(type_name, drawing.id(type_name) if drawing.odd(12) else id_text)
    return Request("PATCH", "resource", (type_name, id_text), {"data": data}, drawing.include(type_name))


@st.composite
def deletes(draw: DrawFn, model: Model) -> Request:
    drawing = _Drawing(draw, model, draw(st.integers(0, 3)) == 3)
    type_name = drawing.kept_type()
    return Request("DELETE", "resource", (type_name, drawing.id(type_name)))


@st.composite
def linkages(draw: DrawFn, model: Model) -> Request:
    drawing = _Drawing(draw, model, draw(st.integers(0, 3)) == 3)
    route = drawing.route()
    is_many = TYPES[route[0]].relationships[route[2]].is_many or drawing.odd()
    method = drawing.one_of(["PATCH", "POST", "DELETE"] if is_many else ["PATCH"])
    return Request(method, "linkage", route, {"data": drawing.linkage(*route, MODES[method])})


@st.composite
def related_writes(draw: DrawFn, model: Model) -> Request:
    """Draw a write of a related route: a POST for a to-many, a PATCH or DELETE for a to-one."""
    drawing = _Drawing(draw, model, draw(st.integers(0, 3)) == 3)
    route = drawing.route()
    relationship = TYPES[route[0]].relationships[route[2]]
    target = relationship.target
    is_many = relationship.is_many != drawing.odd(12)
    if is_many:
        owner = relationship.key if isinstance(relationship, Reverse) else ""
        data = drawing.resource(target, None, owner) | drawing.client_id(target)
        if owner in data.get("relationships", {}) and not drawing.odd():
            data["relationships"][owner] = {"data": {"type": route[0], "id": route[1]}}
        return Request("POST", "related", route, {"data": data}, drawing.include(target))
    if drawing.chance(3):
        return Request("DELETE", "related", route)
    current = [one["id"] for one in drawing.current(route)]
    id_text = current[0] if current and not drawing.odd() else drawing.id(target)
    data = drawing.resource(target, id_text) | {"id": id_text}
    return Request("PATCH", "related", route, {"data": data}, drawing.include(target))


@st.composite
def batches(draw: DrawFn, model: Model) -> Request:
    drawing = _Drawing(draw, model, draw(st.integers(0, 3)) == 3)
    is_extended = draw(st.booleans())
    # With few types and few kinds, more consecutive operations are sent as one batch.
    drawing.types = draw(st.lists(st.sampled_from(drawing.types), min_size=1, unique=True))
    ops = ["add", "update", "remove", *(["linkage"] if is_extended or drawing.odd() else [])]
    kinds = draw(st.lists(st.sampled_from(ops), min_size=1, max_size=6))
    count = draw(st.integers(1, 6))
    operations = [drawing.operation(number, drawing.one_of(kinds)) for number in range(count)]
    media_type = ATOMIC if is_extended else PLAIN
    return Request("POST", "operations", (), {"atomic:operations": operations}, media_type=media_type)
