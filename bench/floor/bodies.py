"""The documents that the floor receives, as Structs. It takes bytes and returns values, which only PostgreSQL checks.

Dates stay text. Unknown members are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec


class NewUser(msgspec.Struct, gc=False):
    """The attributes of a user to create."""

    first_name: str
    last_name: str
    age: int | None
    email: str | None
    birth_date: str | None
    gender: str | None
    words: list[str]


class UserRow(NewUser, gc=False):
    """The columns of an INSERT."""

    group_id: int


class UserChange(msgspec.Struct, gc=False):
    """The attributes of an update."""

    age: int | None
    email: str | None


class NewComputer(msgspec.Struct, gc=False):
    """The attributes of a computer to create."""

    name: str
    serial: str | None


class Identifier(msgspec.Struct, gc=False):
    """A resource identifier object."""

    id: str


class ToOne(msgspec.Struct, gc=False):
    """A to-one relationship."""

    data: Identifier


class ToGroup(msgspec.Struct, gc=False):
    """The relationships of a user."""

    group: ToOne


class UserResource(msgspec.Struct, gc=False, tag_field="type", tag="user"):
    """A user to create."""

    attributes: NewUser
    relationships: ToGroup

    @property
    def group_id(self) -> int:
        """The id of the group."""
        return int(self.relationships.group.data.id)

    @property
    def values(self) -> tuple[Any, ...]:
        """The values in the order of the columns of an INSERT."""
        return (*msgspec.structs.astuple(self.attributes), self.group_id)


class ComputerResource(msgspec.Struct, gc=False, tag_field="type", tag="computer"):
    """A computer whose owner is the user that the operation before created."""

    attributes: NewComputer


class UserDocument(msgspec.Struct, gc=False):
    """The document of a POST."""

    data: UserResource


class ChangeResource(msgspec.Struct, gc=False):
    """A user to update."""

    attributes: UserChange


class ChangeDocument(msgspec.Struct, gc=False):
    """The document of a PATCH."""

    data: ChangeResource


class LinkageDocument(msgspec.Struct, gc=False):
    """The document of a relationship route."""

    data: list[Identifier]


class Add(msgspec.Struct, gc=False):
    """An operation."""

    data: UserResource | ComputerResource


class OperationsDocument(msgspec.Struct, gc=False, rename={"operations": "atomic:operations"}):
    """The document of atomic operations."""

    operations: list[Add]


read_user = msgspec.json.Decoder(UserDocument).decode
read_change = msgspec.json.Decoder(ChangeDocument).decode
read_linkage = msgspec.json.Decoder(LinkageDocument).decode
read_operations = msgspec.json.Decoder(OperationsDocument).decode
_encode = msgspec.json.Encoder().encode


def rows_text(users: Sequence[UserResource]) -> str:
    """Return rows as JSON for PostgreSQL."""
    return _encode([UserRow(*user.values) for user in users]).decode()
