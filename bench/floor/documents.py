"""Writes resource objects and documents as bytes. It takes rows by position and returns what the server would write,
byte for byte.

The text around the values is made once for each form of an object. It is joined by the id, which occurs in it many
times. The attributes of all rows are encoded by one call and split at line breaks, which JSON never contains raw.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bench.floor.connections import Row

_ENCODER = msgspec.json.Encoder()
_encode, _encode_lines = _ENCODER.encode, _ENCODER.encode_lines


class User(msgspec.Struct, gc=False):
    """The attributes of a user. The dates are text: PostgreSQL writes them as in JSON:API, and Python creates no date
    objects.
    """

    first_name: str
    last_name: str
    display_name: str
    age: int | None
    email: str | None
    status: str
    birth_date: str | None
    gender: str | None
    words: list[str]
    date_create: str


class NamedUser(msgspec.Struct, gc=False):
    """The attributes of a user in the sparse fieldset."""

    first_name: str
    last_name: str
    age: int | None


class Computer(msgspec.Struct, gc=False):
    """The attributes of a computer."""

    name: str
    serial: str | None


class Group(msgspec.Struct, gc=False):
    """The attributes of a group."""

    name: str


class Form:
    """The text of objects of one type with one set of relationships:
    `,{"type":"user","id":"7","attributes":{...},"relationships":...}`. Each object begins with a comma, so that a
    document is joined in one call, and no part of it twice.

    linked: the one relationship that has data, or "".
    """

    def __init__(self, type_name: str, path: str, relationships: Sequence[str], linked: str = "") -> None:
        self.head = f',{{"type":"{type_name}","id":"'.encode()
        members = ",".join([_relationship(path, name, has_data=name == linked) for name in relationships])
        text = f',"relationships":{{{members}}}' if members else ""
        text += f',"links":{{"self":"{path}/\0"}}}}'
        before, _, after = text.encode().partition(b"\1")
        self.before = before.split(b"\0")
        self.after = after.split(b"\0")


def _relationship(path: str, name: str, *, has_data: bool) -> str:
    """\\0 stands for the id, \\1 for linkage."""
    data = ',"data":\1' if has_data else ""
    return f'"{name}":{{"links":{{"self":"{path}/\0/relationships/{name}","related":"{path}/\0/{name}"}}{data}}}'


_OF_USER = ("computers", "posts", "bio", "group")
USER = Form("user", "/users", _OF_USER)
USER_WITH_COMPUTERS = Form("user", "/users", _OF_USER, linked="computers")
USER_WITH_GROUP = Form("user", "/users", _OF_USER, linked="group")
USER_ALONE = Form("user", "/users", ())
COMPUTER = Form("computer", "/computers", ("owner",))
COMPUTER_WITH_OWNER = Form("computer", "/computers", ("owner",), linked="owner")
GROUP = Form("group", "/groups", ("users",))

_MID = b'","attributes":'


def ids_of(rows: Sequence[Row]) -> list[bytes]:
    """Return the ids of rows."""
    return [b"%d" % row[0] for row in rows]


def users_of(rows: Sequence[Row], begin: int = 1) -> list[bytes]:
    """Return the attributes of users, from rows in which they begin at this position."""
    end = begin + 10
    return _encode_lines([User(*row[begin:end]) for row in rows]).split(b"\n")


def named_users_of(rows: Sequence[Row]) -> list[bytes]:
    """Return the attributes of users in the sparse fieldset."""
    return _encode_lines([NamedUser(*row[1:4]) for row in rows]).split(b"\n")


def computers_of(rows: Sequence[Row]) -> list[bytes]:
    """Return the attributes of computers."""
    return _encode_lines([Computer(row[1], row[2]) for row in rows]).split(b"\n")


def groups_of(names: Sequence[str]) -> list[bytes]:
    """Return the attributes of groups."""
    return _encode_lines([Group(name) for name in names]).split(b"\n")


def objects(form: Form, ids: Sequence[bytes], attributes: Sequence[bytes]) -> list[bytes]:
    """Resource objects without linkage."""
    head, text, join = form.head, form.before, b"".join
    return [join((head, own, _MID, one, own.join(text))) for own, one in zip(ids, attributes, strict=False)]


def linked_objects(
    form: Form, ids: Sequence[bytes], attributes: Sequence[bytes], linkage: Sequence[bytes]
) -> list[bytes]:
    """Resource objects with the linkage of one relationship."""
    head, before, after, join = form.head, form.before, form.after, b"".join
    return [
        join((head, own, _MID, one, own.join(before), data, own.join(after)))
        for own, one, data in zip(ids, attributes, linkage, strict=False)
    ]


def results(form: Form, ids: Sequence[bytes], attributes: Sequence[bytes]) -> list[bytes]:
    """Return the results of atomic operations, which show only attributes."""
    head = b',{"data":' + form.head[1:]
    return [head + own + _MID + one + b'},"meta":null}' for own, one in zip(ids, attributes, strict=False)]


def user_object(row: Row) -> bytes:
    """Return the resource object of one user, without a comma."""
    own = b"%d" % row[0]
    return b"".join((USER.head[1:], own, _MID, _encode(User(*row[1:11])), own.join(USER.before)))


def to_user(own: int | None) -> bytes:
    """Linkage to a user."""
    return b"null" if own is None else b'{"type":"user","id":"%d"}' % own


def to_group(own: int | None) -> bytes:
    """Linkage to a group."""
    return b"null" if own is None else b'{"type":"group","id":"%d"}' % own


def computers_linkage(ids: Sequence[bytes]) -> bytes:
    """Linkage to computers."""
    if not ids:
        return b"[]"
    return b'[{"type":"computer","id":"' + b'"},{"type":"computer","id":"'.join(ids) + b'"}]'


_HEAD = b'{"jsonapi":{"version":"1.0"},"data":'
LIST_HEAD = _HEAD + b"["


def listed(objects: Sequence[bytes]) -> Sequence[bytes]:
    """Return the objects, the first one without its comma."""
    return [objects[0][1:], *objects[1:]] if objects else ()


def document(data: bytes, path: bytes) -> bytes:
    """Return a document with one resource or null."""
    return b"".join((_HEAD, data, b',"links":{"self":"', path, b'"}}'))


def list_tail(links: bytes, meta: bytes) -> bytes:
    """Return the end of a document with a list."""
    return b"".join((b'],"links":', links, b',"meta":', meta, b"}"))


def list_document(data: Sequence[bytes], links: bytes, meta: bytes) -> bytes:
    """Return a document with a list."""
    return b"".join((LIST_HEAD, *listed(data), list_tail(links, meta)))


def compound_document(data: Sequence[bytes], included: Sequence[bytes], links: bytes, meta: bytes) -> bytes:
    """Return a document with a list and included resources."""
    tail = list_tail(links, meta)
    return b"".join((LIST_HEAD, *listed(data), b'],"included":[', *listed(included), tail))


def results_document(data: Sequence[bytes]) -> bytes:
    """Return the document of atomic operations."""
    return b'{"atomic:results":[' + b"".join(data)[1:] + b"]}"
