"""Encodes and decodes cursors: the position of a row in a sorted list, as a text that is opaque for clients. What comes
in: the values of the sort keys, as PostgreSQL writes them. What goes out: a cursor. Decoding returns the values.

A cursor is only valid for the list, sort and filter that it was created for. It is not secret: its values are checked
like any others.
"""

from __future__ import annotations

import base64
import hashlib
from binascii import b2a_base64
from collections.abc import Container, Iterable, Sequence
from typing import Any

import msgspec

from querybuild.declarations.json_texts import JsonFault, dump_lines, load_json
from querybuild.declarations.values import ValueFault

Values = list[str | tuple[str] | None]

MAX_VALUE_CHARACTERS = 256
"""How many characters of a value a cursor has, so that a URL can hold it. Of a longer value it has the beginning. Then
PostgreSQL looks up the value of the row."""


OF_THIS_LIST = "a cursor of this list, with the same sort and filter"

_DEPTH = 2


class Cursor(msgspec.Struct, frozen=True):
    """A position in a sorted list. mark: a hash of the list. parent: the id of the resource whose related resources the
    list contains, "" for a collection. values: those of the sort keys. is_cut: of each, whether it is only the
    beginning of the value."""

    mark: str
    parent: str
    values: tuple[str | None, ...]
    is_cut: tuple[bool, ...]

    @property
    def known(self) -> tuple[str, ...]:
        """The values that are not null."""
        return tuple([value for value in self.values if value is not None])

    def check(self, mark: str, count: int) -> None:
        """Check that the cursor belongs to the requested list. mark: that of the list. count: the number of its sort
        keys. Raises ValueFault."""
        if self.mark != mark or len(self.values) != count or self.values[-1] is None:
            raise ValueFault(OF_THIS_LIST)


def mark_of(name: str, vals: Sequence[Any]) -> str:
    """Return the hash of a list for its cursors. name: by `list_name`. vals: the values of the filter, in their
    order."""
    return hashlib.blake2b(f"{name}{vals!r}".encode(errors="surrogatepass"), digest_size=6).hexdigest()


def encode_cursor(mark: str, values: Sequence[str | None], parent: str = "", ids: Container[int] = ()) -> str:
    """Return a cursor. ids: the indexes of the values that are the id or a part of it. They are never cut."""
    [cursor] = encode_cursors(mark, [(parent, values)], ids)
    return cursor.decode()


def encode_cursors(
    mark: str, positions: Iterable[tuple[str, Sequence[str | None]]], ids: Container[int] = ()
) -> list[bytes]:
    """Return the cursors of lists with the same mark. positions: for each its parent and its values. ids: as for
    `encode_cursor`. Of a long value a cursor has a list with its beginning."""
    texts: list[list[Any]] = [[mark, parent, *values] for parent, values in positions]
    lines = dump_lines(texts)
    if max(map(len, lines), default=0) > MAX_VALUE_CHARACTERS:
        for text in texts:
            for index, value in enumerate(text[2:]):
                if value is not None and len(value) > MAX_VALUE_CHARACTERS and index not in ids:
                    text[2 + index] = [value[:MAX_VALUE_CHARACTERS]]
        lines = dump_lines(texts)
    # `urlsafe_b64encode` takes twice as long.
    return [b2a_base64(line, newline=False).translate(_URL_SAFE, b"=") for line in lines]


_URL_SAFE = bytes.maketrans(b"+/", b"-_")


def decode_cursor(text: str) -> Cursor:
    """Decode a cursor. Raises ValueFault."""
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        mark, parent, *sent = msgspec.convert(load_json(decoded.decode(), _DEPTH), Values)
    except (ValueError, JsonFault, msgspec.ValidationError) as error:
        raise ValueFault("a cursor from links.next or links.prev") from error
    if not isinstance(mark, str) or not isinstance(parent, str) or not sent or isinstance(sent[-1], tuple):
        raise ValueFault(OF_THIS_LIST)
    is_cut = tuple([isinstance(each, tuple) for each in sent])
    return Cursor(mark, parent, tuple([each[0] if isinstance(each, tuple) else each for each in sent]), is_cut)
