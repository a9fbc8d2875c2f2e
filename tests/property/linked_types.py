"""The types of `linked_catalog.py`, declared again for the model of `linked_model.py`. Nothing is imported from the
catalog, so that an error there shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

IdKind = Literal["smallint", "numeric", "bigint", "uuid", "text,text", "int,uuid"]
NUMBERS = ("smallint", "numeric", "bigint")
ID_FORMS: dict[IdKind, str] = {
    "smallint": r"0|-?[1-9]\d{0,3}",
    "numeric": r"0|-?[1-9]\d*",
    "bigint": r"0|-?[1-9]\d{0,17}",
    "uuid": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "text,text": r"([^\\,]|\\[\\,])*,([^\\,]|\\[\\,])*",
    "int,uuid": r"(0|-?[1-9]\d{0,8}),[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
}
RANDOM = ("uuid", "text,text", "int,uuid")
"""Ids that the database makes as it makes no others."""
SPEECH: dict[str, Literal["add", "replace", "remove"]] = {"add": "add", "update": "replace", "remove": "remove"}
"""The operations of a relationship, with the mode of each."""


class Row(msgspec.Struct):
    """A row of the model. keys: relationship -> the id in the row itself."""

    attributes: dict[str, Any]
    keys: dict[str, str | None]

    def copy(self) -> Row:
        return Row(dict(self.attributes), dict(self.keys))


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A to-one whose key is in the row itself. on_delete: what happens to the row when the related row is deleted."""

    target: str
    is_required: bool = False
    is_unique: bool = False
    on_delete: Literal["cascade", "null", "restrict"] = "null"
    is_many: bool = False


class Reverse(msgspec.Struct, frozen=True):
    """The reverse side of a Key. key: its name in the target."""

    target: str
    key: str
    is_many: bool


class Linked(msgspec.Struct, frozen=True):
    """A many-to-many relationship. is_source: whether this side's id is the first one of a pair."""

    target: str
    table: str
    is_source: bool
    is_many: bool = True

    def pair(self, own: str, other: str) -> tuple[str, str]:
        return (own, other) if self.is_source else (other, own)


Relationship = Key | Reverse | Linked


class Type(msgspec.Struct, frozen=True, kw_only=True):
    """A type. attributes: name -> the Python types of its values, for attributes that can be written. defaults: the
    values of attributes that need not be sent."""

    path: str
    id: IdKind
    relationships: dict[str, Relationship]
    attributes: dict[str, Any]
    defaults: dict[str, Any] = {}
    unique: tuple[str, ...] = ()
    computed: dict[str, Callable[[dict[str, Any]], Any]] = {}
    client_ids: bool = False
    is_hooked: bool = False

    @property
    def required(self) -> list[str]:
        return [name for name in self.attributes if name not in self.defaults]

    def own_keys(self) -> Iterator[tuple[str, Key]]:
        for name, relationship in self.relationships.items():
            if isinstance(relationship, Key):
                yield name, relationship

    def key(self, name: str) -> Key:
        found = self.relationships[name]
        assert isinstance(found, Key)
        return found


TYPES = {
    "team": Type(
        path="/teams",
        id="smallint",
        attributes={"name": str},
        unique=("name",),
        computed={"label": lambda row: f"<{row['name']}>"},
        relationships={"members": Reverse("person", "team", True)},
    ),
    "person": Type(
        path="/people",
        id="uuid",
        client_ids=True,
        attributes={"name": str, "email": str | None, "score": int},
        defaults={"email": None, "score": 1},
        unique=("email",),
        computed={"shout": lambda row: f"{row['name'].upper()}!"},
        relationships={
            "team": Key(target="team", on_delete="restrict"),
            "mentor": Key(target="person"),
            "pupils": Reverse("person", "mentor", True),
            "badge": Reverse("badge", "person", False),
            "passport": Reverse("passport", "person", False),
            "tasks": Reverse("task", "owner", True),
            "reviews": Reverse("task", "reviewer", True),
            "skills": Linked("skill", "person_skills", True),
        },
    ),
    "badge": Type(
        path="/badges",
        id="text,text",
        client_ids=True,
        attributes={"colour": str},
        relationships={
            "person": Key(target="person", is_unique=True),
            "nodes": Linked("node", "node_badges", False),
        },
    ),
    "passport": Type(
        path="/passports",
        id="bigint",
        client_ids=True,
        attributes={"number": str},
        unique=("number",),
        relationships={"person": Key(target="person", is_required=True, is_unique=True, on_delete="cascade")},
    ),
    "task": Type(
        path="/tasks",
        id="bigint",
        attributes={"title": str},
        relationships={
            "owner": Key(target="person", is_required=True, on_delete="cascade"),
            "reviewer": Key(target="person"),
            "blockers": Linked("task", "task_blockers", True),
            "blocks": Linked("task", "task_blockers", False),
        },
        is_hooked=True,
    ),
    "skill": Type(
        path="/skills",
        id="numeric",
        attributes={"name": str},
        unique=("name",),
        relationships={"people": Linked("person", "person_skills", False)},
    ),
    "node": Type(
        path="/forest/nodes",
        id="int,uuid",
        client_ids=True,
        attributes={"title": str},
        relationships={
            "parent": Key(target="node", on_delete="cascade"),
            "children": Reverse("node", "parent", True),
            "next": Key(target="node", is_unique=True),
            "previous": Reverse("node", "next", False),
            "badges": Linked("badge", "node_badges", True),
        },
    ),
}

LINK_TABLES = {
    "person_skills": ("person", "skill"),
    "task_blockers": ("task", "task"),
    "node_badges": ("node", "badge"),
}
"""Link table -> the types of its two sides."""
RESTRICTED = ("person_skills", "skill")
"""The side of a link table whose resources cannot be deleted while they are linked."""
