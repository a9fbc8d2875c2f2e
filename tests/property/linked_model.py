"""A model of writes in plain Python: resources are dicts, and links are pairs. What comes in: requests as documents.
What goes out: the statuses that the answer may have, and the resources and links after the request.

The model is written from the contract and shares no code with the server, so that errors of the server show. A document
may contradict itself, for example a node that is its own parent and has no children. Then the keys in its own row are
written first, and the other relationships follow in the order of the document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import msgspec

from tests.property.linked_types import (
    ID_FORMS,
    LINK_TABLES,
    NUMBERS,
    RANDOM,
    RESTRICTED,
    SPEECH,
    TYPES,
    Key,
    Linked,
    Reverse,
    Row,
    Type,
)

Json = dict[str, Any]
Mode = Literal["add", "replace", "remove"]
ANY_STATUS = 0
"""An error that may have any status, because the contract does not name one."""
NEW = "new"
"""The prefix of ids that only the server knows. They are replaced when the answer shows them."""


class Lid(msgspec.Struct, frozen=True):
    type: str
    lid: str


Ref = str | Lid


def parts(id_text: str) -> list[str]:
    """Return the parts of an id of several columns."""
    marked = id_text.replace("\\\\", "\x01").replace("\\,", "\x02").split(",")
    return [part.replace("\x01", "\\").replace("\x02", ",") for part in marked]


def _numbered(id_text: str) -> tuple[int, str]:
    number, rest = id_text.split(",")
    return int(number), rest


ORDERS: dict[str, Callable[[str], Any]] = {**dict.fromkeys(NUMBERS, int), "text,text": parts, "int,uuid": _numbered}
"""What ids are sorted by."""


class Links(msgspec.Struct):
    """The links that a document contains. name: that of the relationship."""

    name: str
    mode: Mode
    ids: list[Ref]


class Owner(msgspec.Struct, frozen=True):
    """The resource of a related route, and its relationship."""

    type: str
    id: str
    name: str


class Write(msgspec.Struct, kw_only=True):
    """A decoded document. faults: the statuses of its errors that do not depend on the existing resources."""

    kind: Literal["create", "update", "delete"]
    type: str
    id: Ref | None = None
    lid: str | None = None
    attributes: Json = {}
    links: list[Links] = []
    owner: Owner | None = None
    faults: list[int] = []


class Outcome(msgspec.Struct, kw_only=True):
    """The expected outcome of a request. refusals: the statuses of a refusal. can_succeed: whether it may succeed. Then
    the state of the model is the state after it. written: (type, id, attributes) of each write, None for a delete.
    places: the positions of the operations that fail."""

    refusals: set[int] = set()
    can_succeed: bool = True
    written: list[tuple[str, str, Json] | None] = []
    places: set[int] = set()


class State(msgspec.Struct):
    """The resources and links. rows: type -> id -> row. links: link table -> pairs of ids."""

    rows: dict[str, dict[str, Row]]
    links: dict[str, set[tuple[str, str]]]

    def copy(self) -> State:
        rows = {name: {key: row.copy() for key, row in rows.items()} for name, rows in self.rows.items()}
        return State(rows, {name: set(pairs) for name, pairs in self.links.items()})


def empty() -> State:
    return State({name: {} for name in TYPES}, {name: set() for name in LINK_TABLES})


class Model:
    """The model of one run. touched: (type, id, relationship) of the links that the last request writes."""

    def __init__(self) -> None:
        self.state = empty()
        self.touched: list[tuple[str, str, str]] = []
        self._lids: dict[Lid, str] = {}
        self._made = 0

    # reading

    def ids(self, type_name: str) -> list[str]:
        """Return the ids of a type, in the order of the collection."""
        return sorted(self.state.rows[type_name], key=ORDERS.get(TYPES[type_name].id, str))

    def count(self) -> int:
        return sum(len(rows) for rows in self.state.rows.values())

    def attributes(self, type_name: str, id_text: str) -> Json:
        row = self.state.rows[type_name][id_text]
        computed = TYPES[type_name].computed
        return {**row.attributes, **{name: compute(row.attributes) for name, compute in computed.items()}}

    def linked(self, type_name: str, id_text: str, name: str) -> list[str]:
        """Return the related ids. A to-one has at most one."""
        match TYPES[type_name].relationships[name]:
            case Key():
                key = self.state.rows[type_name][id_text].keys[name]
                return [] if key is None else [key]
            case Reverse() as reverse:
                rows = self.state.rows[reverse.target]
                return [key for key, row in rows.items() if row.keys[reverse.key] == id_text]
            case Linked() as linked:
                place = 0 if linked.is_source else 1
                pairs = self.state.links[linked.table]
                return [pair[1 - place] for pair in pairs if pair[place] == id_text]

    # requests

    def write(self, write: Write) -> Outcome:
        """Apply a request with one write. If it is refused, discard the new state."""
        self._begin()
        found: set[int] = set()
        unsure: set[int] = set()
        # Hooks see a document before its values are checked, so its errors may be reported in two parts.
        refusals = common(write.faults) | (set(write.faults) if TYPES[write.type].is_hooked else set())
        is_there = self._is_there(write)
        if refusals:
            return Outcome(refusals=refusals if is_there else refusals | {404}, can_succeed=False)
        written = self._apply(write, found, unsure)
        return Outcome(refusals=found or unsure, can_succeed=not found, written=[written])

    def operations(self, writes: list[Write]) -> Outcome:
        """Apply atomic operations. Errors in a document are reported first, except in documents that hooks see first.
        Then the first operation that fails is reported."""
        self._begin()
        unsure: set[int] = set()
        faulty = {place for place, write in enumerate(writes) if write.faults}
        known = {place for place in faulty if not TYPES[writes[place].type].is_hooked}
        faults = [fault for place in known or faulty for fault in writes[place].faults]
        if known:
            every = [fault for place in faulty for fault in writes[place].faults]
            return Outcome(refusals=common(faults) | common(every), can_succeed=False, places=faulty)
        written: list[tuple[str, str, Json] | None] = []
        for place, write in enumerate(writes):
            found: set[int] = set()
            written.append(None if write.faults else self._apply(write, found, unsure))
            if found or write.faults:
                refusals = found | common(write.faults) | common(faults) | unsure
                return Outcome(refusals=refusals, can_succeed=False, places={place, *faulty})
        return Outcome(refusals=unsure, written=written, places=set(range(len(writes))))

    def _begin(self) -> None:
        self._lids = {}
        self.touched = []

    def _is_there(self, write: Write) -> bool:
        """Return whether the resource that the path names exists."""
        if write.kind == "create":
            return write.owner is None or write.owner.id in self.state.rows[write.owner.type]
        return write.id in self.state.rows[write.type]

    def rename(self, type_name: str, made: str, id_text: str) -> None:
        """Replace a placeholder by the id that the server has chosen, also for a resource that was deleted since."""
        own = self.state.rows[type_name]
        if made in own:
            assert id_text not in own, f"the id {id_text} is of another {type_name}"
            own[id_text] = own.pop(made)
        for row in (row for rows in self.state.rows.values() for row in rows.values()):
            row.keys = {name: id_text if key == made else key for name, key in row.keys.items()}
        for table, pairs in self.state.links.items():
            renamed = {tuple(id_text if key == made else key for key in pair) for pair in pairs}
            self.state.links[table] = renamed  # type: ignore[assignment]
        self.touched = [(kind, id_text if key == made else key, name) for kind, key, name in self.touched]

    # one write

    def _apply(self, write: Write, found: set[int], unsure: set[int]) -> tuple[str, str, Json] | None:
        """Apply one write. Adds the statuses of errors that must be reported to `found`, and of errors that may be
        reported to `unsure`."""
        if write.kind == "delete":
            self._delete(write, found)
            return None
        is_create = write.kind == "create"
        id_text = self._create(write, found, unsure) if is_create else self._updated(write, found)
        if id_text is None or found:
            return None
        return write.type, id_text, self.attributes(write.type, id_text)

    def _create(self, write: Write, found: set[int], unsure: set[int]) -> str:
        rows, kind = self.state.rows[write.type], TYPES[write.type]
        if write.owner is not None and write.owner.id not in self.state.rows[write.owner.type]:
            found.add(404)
        id_text = self._resolved(write.id) if write.id is not None else self._new(kind)
        if id_text in rows:
            found.add(409)
        elif write.id is not None and kind.id not in RANDOM and any(known.startswith(NEW) for known in rows):
            # The server may have chosen this id for an earlier operation of the same request.
            unsure.add(409)
        keys: dict[str, str | None] = {name: None for name, _ in kind.own_keys()}
        rows[id_text] = Row({**kind.defaults, **write.attributes}, keys)
        if write.lid is not None:
            self._lids[Lid(write.type, write.lid)] = id_text
        self._link_all(write, id_text, found)
        if write.owner is not None and not found:
            self._link(write.owner.type, write.owner.id, Links(write.owner.name, "add", [id_text]), found)
        self._check_unique(write.type, id_text, found)
        return id_text

    def _updated(self, write: Write, found: set[int]) -> str | None:
        id_text = self._there(write, found)
        if id_text is None:
            return None
        row, kind = self.state.rows[write.type][id_text], TYPES[write.type]
        before = self.attributes(write.type, id_text)
        if any(write.attributes.get(name, before[name]) != before[name] for name in kind.computed):
            found.add(422)
        row.attributes.update({name: value for name, value in write.attributes.items() if name in kind.attributes})
        self._link_all(write, id_text, found)
        return id_text

    def _delete(self, write: Write, found: set[int]) -> None:
        id_text = self._there(write, found)
        if id_text is None:
            return
        gone = {(write.type, id_text)}
        waiting = [(write.type, id_text)]
        while waiting:
            for type_name, key, name, rule in self._referring(*waiting.pop()):
                if rule == "cascade" and (type_name, key) not in gone:
                    gone.add((type_name, key))
                    waiting.append((type_name, key))
                elif rule == "null":
                    self.state.rows[type_name][key].keys[name] = None
                elif rule == "restrict":
                    found.add(409)
        for type_name, key in gone:
            del self.state.rows[type_name][key]
        for table, types in LINK_TABLES.items():
            for place, type_name in enumerate(types):
                leaving = {pair for pair in self.state.links[table] if (type_name, pair[place]) in gone}
                if leaving and (table, type_name) == RESTRICTED:
                    found.add(409)
                self.state.links[table] -= leaving

    def _referring(self, type_name: str, id_text: str) -> Iterator[tuple[str, str, str, str]]:
        """Return (type, id, key, effect of a delete) for each row that refers to this one."""
        for other, kind in TYPES.items():
            for name, key in kind.own_keys():
                if key.target == type_name:
                    for own, row in self.state.rows[other].items():
                        if row.keys[name] == id_text:
                            yield other, own, name, key.on_delete

    def _there(self, write: Write, found: set[int]) -> str | None:
        id_text = None if write.id is None else self._resolved(write.id)
        if id_text not in self.state.rows[write.type]:
            found.add(404)
            return None
        return id_text

    def _link_all(self, write: Write, id_text: str, found: set[int]) -> None:
        """Write all links of a document, beginning with the keys in the row itself."""
        relationships = TYPES[write.type].relationships
        own = [links for links in write.links if isinstance(relationships[links.name], Key)]
        for links in own:
            self._link(write.type, id_text, links, found)
        self._check_unique(write.type, id_text, found)
        for links in write.links:
            if links not in own:
                self._link(write.type, id_text, links, found)

    def _link(self, type_name: str, id_text: str, links: Links, found: set[int]) -> None:
        self.touched.append((type_name, id_text, links.name))
        relationship = TYPES[type_name].relationships[links.name]
        there = self.state.rows[relationship.target]
        ids = {self._resolved(ref) for ref in links.ids}
        if links.mode != "remove" and not ids <= there.keys():
            found.add(404)
            ids &= there.keys()
        current = set(self.linked(type_name, id_text, links.name)) if id_text in self.state.rows[type_name] else set()
        leaving = {"add": set(), "replace": current - ids, "remove": current & ids}[links.mode]
        joining = set() if links.mode == "remove" else ids
        match relationship:
            case Key():
                self.state.rows[type_name][id_text].keys[links.name] = next(iter(ids), None)
            case Reverse() as reverse:
                if leaving and TYPES[reverse.target].key(reverse.key).is_required:
                    found.add(403)
                for key in leaving | joining:
                    there[key].keys[reverse.key] = id_text if key in joining else None
            case Linked() as linked:
                pairs = self.state.links[linked.table]
                pairs -= {linked.pair(id_text, key) for key in leaving}
                pairs |= {linked.pair(id_text, key) for key in joining}

    def _check_unique(self, type_name: str, id_text: str, found: set[int]) -> None:
        rows, kind = self.state.rows[type_name], TYPES[type_name]
        row = rows[id_text]
        others = [other for key, other in rows.items() if key != id_text]
        for name in kind.unique:
            value = row.attributes.get(name)
            if value is not None and any(other.attributes[name] == value for other in others):
                found.add(409)
        for name, key in kind.own_keys():
            if key.is_unique and row.keys[name] and any(other.keys[name] == row.keys[name] for other in others):
                found.add(409)

    def _resolved(self, ref: Ref) -> str:
        return self._lids[ref] if isinstance(ref, Lid) else ref

    def _new(self, kind: Type) -> str:
        self._made += 1
        return f"{NEW} {self._made}"


def common(faults: Iterable[int]) -> set[int]:
    """Return the status of the answer: errors of one status keep it, and different ones together are a 400."""
    statuses = set(faults)
    if ANY_STATUS in statuses:
        return {400, 403, 405, 422}
    return statuses if len(statuses) < 2 else {400}


# documents


class Reader:
    """Decodes the documents of one request. made: the lids of earlier operations. None outside of atomic operations."""

    def __init__(self, made: set[Lid] | None = None) -> None:
        self.made = made

    def resource(self, kind: Literal["create", "update"], type_name: str, data: Json, owner: Owner | None) -> Write:
        """Decode a resource object, and record its errors."""
        write = Write(kind=kind, type=type_name, owner=owner)
        if "id" in data:
            write.id = str(data["id"])
            if kind == "create":
                self._client_id(write)
        if data["type"] != type_name:
            write.faults.append(409)
            return write
        write.lid = data.get("lid")
        write.attributes = data.get("attributes", {})
        self._attributes(write)
        for name, sent in data.get("relationships", {}).items():
            self.linkage(write, name, "replace", sent["data"])
        if kind == "create":
            self._missing(write, data)
        return write

    def _client_id(self, write: Write) -> None:
        kind = TYPES[write.type]
        if not kind.client_ids:
            write.faults.append(403)
        elif not is_canonical(kind, str(write.id)):
            write.faults.append(422)

    def _attributes(self, write: Write) -> None:
        kind = TYPES[write.type]
        for name, value in write.attributes.items():
            if name in kind.computed:
                write.faults += [422] if write.kind == "create" else []
            elif name not in kind.attributes or not isinstance(value, kind.attributes[name]):
                write.faults.append(422)

    def _missing(self, write: Write, data: Json) -> None:
        kind = TYPES[write.type]
        sent = set(data.get("relationships", {}))
        if write.owner is not None:
            relationship = TYPES[write.owner.type].relationships[write.owner.name]
            if isinstance(relationship, Reverse):
                self._check_owner(write, write.owner, relationship, data.get("relationships", {}))
                sent.add(relationship.key)
        missing = [name for name, key in kind.own_keys() if key.is_required and name not in sent]
        missing += [name for name in kind.required if name not in write.attributes]
        write.faults += [422 for _ in missing]

    def _check_owner(self, write: Write, owner: Owner, reverse: Reverse, sent: Json) -> None:
        """Compare the owner in the document with that of the path. Only linkage without an error is compared."""
        named = [links.ids for links in write.links if links.name == reverse.key]
        is_null = bool(named) and sent[reverse.key]["data"] is None
        if is_null and TYPES[write.type].key(reverse.key).is_required:
            return
        if named and (named[0] or is_null) and named != [[owner.id]]:
            write.faults.append(409)

    def linkage(self, write: Write, name: str, mode: Mode, data: Any) -> None:
        """Decode linkage: adds its links and its errors to the write."""
        relationship = TYPES[write.type].relationships.get(name)
        if relationship is None or relationship.is_many != isinstance(data, list):
            write.faults.append(422)
            return
        is_key = isinstance(relationship, Key)
        if data is None and isinstance(relationship, Key) and relationship.is_required:
            write.faults.append(422 if write.kind == "create" else 403)
        if mode != "replace" and not relationship.is_many:
            # A to-one can only be replaced.
            write.faults.append(ANY_STATUS)
        refs = []
        for identifier in data if isinstance(data, list) else [data] if data else []:
            ref = self._ref(identifier, relationship.target, mode, write)
            refs += [] if ref is None else [ref]
        write.links = [*write.links, Links(name, mode, refs[:1] if is_key else refs)]

    def _ref(self, identifier: Json, target: str, mode: Mode, write: Write) -> Ref | None:
        if identifier["type"] != target:
            write.faults.append(409)
        elif "id" not in identifier:
            return self.lid(identifier["type"], identifier["lid"], write)
        elif is_canonical(TYPES[target], str(identifier["id"])):
            return str(identifier["id"])
        elif mode != "remove":
            write.faults.append(404)
        return None

    def lid(self, type_name: str, lid: str, write: Write) -> Lid | None:
        if self.made is not None and Lid(type_name, lid) in self.made:
            return Lid(type_name, lid)
        write.faults.append(422)
        return None


def is_canonical(kind: Type, id_text: str) -> bool:
    return re.fullmatch(ID_FORMS[kind.id], id_text) is not None


# operations


def read_operations(operations: list[Json], *, is_extended: bool) -> list[Write]:
    made: set[Lid] = set()
    return [_operation(operation, Reader(made), made, is_extended) for operation in operations]


def _operation(operation: Json, reader: Reader, made: set[Lid], is_extended: bool) -> Write:
    ref, data = operation.get("ref"), operation.get("data")
    if ref is not None and "relationship" in ref:
        write = Write(kind="update", type=ref["type"], faults=[] if is_extended else [400])
        write.id = _target(ref, reader, write)
        reader.linkage(write, ref["relationship"], SPEECH[operation["op"]], data)
        return write
    if operation["op"] == "remove":
        assert ref is not None
        write = Write(kind="delete", type=ref["type"])
        write.id = _target(ref, reader, write)
        return write
    assert isinstance(data, dict)
    if operation["op"] == "update":
        write = reader.resource("update", data["type"], data, None)
        write.id = _target(ref or data, reader, write)
        return write
    write = reader.resource("create", data["type"], data, None)
    if write.lid is not None:
        write.faults += [422] if Lid(write.type, write.lid) in made else []
        made.add(Lid(write.type, write.lid))
    return write


def _target(ref: Json, reader: Reader, write: Write) -> Ref | None:
    if "id" not in ref:
        return reader.lid(ref["type"], ref["lid"], write)
    if not is_canonical(TYPES[write.type], str(ref["id"])):
        write.faults.append(404)
    return str(ref["id"])
