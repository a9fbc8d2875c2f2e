"""The documents that the floor receives, as Structs. It takes bytes and returns values, which only PostgreSQL checks.

Dates stay text. Unknown members are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec


class NewUser(msgspec.Struct, gc=False):
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
    age: int | None
    email: str | None


class NewComputer(msgspec.Struct, gc=False):
    name: str
    serial: str | None


class Identifier(msgspec.Struct, gc=False):
    id: str


class ToOne(msgspec.Struct, gc=False):
    data: Identifier


class ToGroup(msgspec.Struct, gc=False):
    group: ToOne


class UserResource(msgspec.Struct, gc=False, tag_field="type", tag="user"):
    attributes: NewUser
    relationships: ToGroup

    @property
    def group_id(self) -> int:
        return int(self.relationships.group.data.id)

    @property
    def values(self) -> tuple[Any, ...]:
        """The values in the order of the columns of an INSERT."""
        return (*msgspec.structs.astuple(self.attributes), self.group_id)


class ComputerResource(msgspec.Struct, gc=False, tag_field="type", tag="computer"):
    """A computer whose owner is the user that the operation before created."""

    attributes: NewComputer


class UserDocument(msgspec.Struct, gc=False):
    data: UserResource


class ChangeResource(msgspec.Struct, gc=False):
    attributes: UserChange


class ChangeDocument(msgspec.Struct, gc=False):
    data: ChangeResource


class LinkageDocument(msgspec.Struct, gc=False):
    data: list[Identifier]


class Add(msgspec.Struct, gc=False):
    data: UserResource | ComputerResource


class OperationsDocument(msgspec.Struct, gc=False, rename={"operations": "atomic:operations"}):
    operations: list[Add]


read_user = msgspec.json.Decoder(UserDocument).decode
read_change = msgspec.json.Decoder(ChangeDocument).decode
read_linkage = msgspec.json.Decoder(LinkageDocument).decode
read_operations = msgspec.json.Decoder(OperationsDocument).decode
_encode = msgspec.json.Encoder().encode


def rows_text(users: Sequence[UserResource]) -> str:
    """Rows as JSON for PostgreSQL."""
    return _encode([UserRow(*user.values) for user in users]).decode()
