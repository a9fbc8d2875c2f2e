"""Reads and writes JSON texts. What comes in: the text of a filter, a body or a cursor. What goes out: a Python tree
without duplicate names, of limited depth, and only with strings that PostgreSQL can store. It must not know: where in a
request the text is, attributes.

It uses the decoder of the standard library, because that of msgspec does not report duplicate names in an object. Long
texts are read by msgspec and checked for them afterwards (`docs/adr/0003-json-in.md`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from itertools import chain, compress
from typing import Any, Never

import msgspec

MAX_DEPTH = 64
"""The limit for nested arrays and objects. PostgreSQL's limit depends on its stack and is much higher."""

_JSON_OUT = msgspec.json.Encoder(decimal_format="number")


class JsonFault(ValueError):
    """A text that is not JSON according to RFC 8259 and I-JSON. The text says what is wrong and where."""


def load_json(text: str, max_depth: int = MAX_DEPTH, *, allows_nul: bool = False) -> Any:
    """Parse a JSON text: dict, list, str, int, Decimal (any number with a point or exponent), bool, None.

    Raises JsonFault for invalid JSON, a duplicate name in an object, nesting over max_depth, and strings that
    PostgreSQL cannot store: lone surrogates, and U+0000. allows_nul: the caller checks each value for U+0000.
    """
    return parse_json(text, max_depth, allows_nul=allows_nul).checked()


def parse_json(text: str, max_depth: int, *, allows_nul: bool = False) -> ParsedJson:
    """Do the same, but leave a long text to be checked. Raises JsonFault."""
    containers = text.count("[") + text.count("{")
    # One character is found in a twentieth of the time of two.
    has_escapes = "\\" in text and "\\u" in text
    if containers > max_depth and not has_escapes:
        try:
            return ParsedJson(_LONG_JSON_IN.decode(text), text, containers, max_depth, allows_nul, False)
        except (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError):
            pass
    tree = _load_checked(text, containers, max_depth, has_escapes=has_escapes, allows_nul=allows_nul)
    return ParsedJson(tree, text, containers, max_depth, allows_nul, True)


def _load_checked(text: str, containers: int, max_depth: int, *, has_escapes: bool, allows_nul: bool) -> Any:
    """Parse a text and check it. Raises JsonFault."""
    try:
        tree = _JSON_IN.decode(text)
    except json.JSONDecodeError as error:
        # The messages of the decoder depend on the version of Python.
        raise JsonFault(f"unexpected text at line {error.lineno}, column {error.colno}") from error
    except RecursionError as error:
        raise JsonFault(f"nested deeper than {max_depth} levels") from error
    except JsonFault:
        raise
    except (ValueError, ArithmeticError) as error:
        raise JsonFault("a number has too many digits") from error
    if has_escapes:
        _walk(tree, 0, max_depth, check_surrogates if allows_nul else check_text)
    elif containers > max_depth and count_names([tree], containers, max_depth) is None:
        raise JsonFault(f"nested deeper than {max_depth} levels")
    return tree


class ParsedJson(msgspec.Struct, frozen=True):
    """The tree of a JSON text. msgspec parses a long text in half the time, but it does not report duplicate names, and
    allows any depth. is_checked: whether the tree has none of these faults. containers: an upper limit for the number
    of its objects and arrays."""

    tree: Any
    text: str
    containers: int
    max_depth: int
    allows_nul: bool
    is_checked: bool

    def has_names(self, count: int | None) -> bool:
        """Return whether no object has a duplicate name, if the tree has this many names in all."""
        return self.is_checked if self.is_checked or count is None else has_all_names(self.text, count)

    def checked(self) -> Any:
        """Return the tree if it has no fault. Raises JsonFault."""
        if self.is_checked or self.has_names(count_names([self.tree], self.containers, self.max_depth)):
            return self.tree
        # The other decoder finds the error.
        allows_nul, has_escapes = self.allows_nul, False
        return _load_checked(self.text, self.containers, self.max_depth, has_escapes=has_escapes, allows_nul=allows_nul)


def load_unchecked(text: str, max_depth: int) -> tuple[Any, bool]:
    """Return what `load_json` returns, and whether no object has a duplicate name. A short text is read in a third of
    the time, but then this is not known: the caller counts the names for `has_all_names`. Raises JsonFault."""
    if "\\" not in text and "\0" not in text and text.count("[") + text.count("{") <= max_depth:
        try:
            return _LONG_JSON_IN.decode(text), False
        except (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError):
            pass
    return load_json(text, max_depth), True


def has_all_names(text: str, count: int) -> bool:
    """Return whether no object of a text has a duplicate name, if its tree has this many names in all.

    A colon comes after each name, and a quotation mark or a blank before the colon. If the text has as many of these as
    the tree has names, there is no duplicate. If it has more, there may be one, or a colon in a string."""
    return text.count(":") == count or text.encode().translate(_QUOTES_AS_BLANKS).count(b" :") == count


def check_values(text: str, limit: int) -> None:
    """Check that the arrays and objects of a JSON text have at most this many values; an empty one counts as one. The
    text is not parsed for this, because parsing millions of values takes too long. Raises JsonFault."""
    if len(text) <= limit or _marks(text) <= limit:
        return
    # Marks in strings do not count. Each string is a name or a value.
    pieces = text.replace("\\\\", "").replace('\\"', "")
    if pieces.count('"') > 4 * (limit + 1) or _marks("".join(pieces.split('"')[::2])) > limit:
        raise JsonFault(f"more than {limit} values")


def _marks(text: str) -> int:
    return text.count(",") + text.count("[") + text.count("{")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise JsonFault(f"the name {json.dumps(name[:80])} occurs twice in one object")
            seen.add(name)
    return result


def _constant(name: str) -> Never:
    raise JsonFault(f"{name} is not JSON")


_JSON_IN = json.JSONDecoder(object_pairs_hook=_object, parse_float=Decimal, parse_constant=_constant)
_LONG_JSON_IN = msgspec.json.Decoder(float_hook=Decimal)
_QUOTES_AS_BLANKS = bytes.maketrans(b'"\t\n\r', b"    ")
_CONTAINERS = frozenset({dict, list})


def count_names(values: Iterable[Any], containers: int, max_depth: int) -> int | None:
    """Return how many names the objects of trees have, or None if one is nested deeper than max_depth. containers: at
    least as many as they have. All values of one level are looked at together, in a fifth of the time of `_walk`."""
    names, level = 0, _containers(values)
    for _ in range(max_depth):
        names += sum([len(container) for container in level if type(container) is dict])
        containers -= len(level)
        if not level or not containers:
            return names
        level = _containers(
            chain.from_iterable([container.values() if type(container) is dict else container for container in level])
        )
    return None if level else names


def _containers(values: Iterable[Any]) -> list[Any]:
    containers = list(values)
    return list(compress(containers, map(_CONTAINERS.__contains__, map(type, containers))))


def _walk(tree: Any, depth: int, max_depth: int, check: Callable[[str], None]) -> None:
    match tree:
        case str():
            check(tree)
        case dict() | list() if depth == max_depth:
            raise JsonFault(f"nested deeper than {max_depth} levels")
        case dict():
            for name, value in tree.items():
                check(name)
                _walk(value, depth + 1, max_depth, check)
        case list():
            for value in tree:
                _walk(value, depth + 1, max_depth, check)


def check_text(text: str) -> None:
    """Check that PostgreSQL can store a text. Raises JsonFault."""
    if "\0" in text:
        raise JsonFault("a string contains U+0000, which PostgreSQL cannot store")
    check_surrogates(text)


def check_surrogates(text: str) -> None:
    """Check that a text has no lone surrogates. Raises JsonFault."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise JsonFault("a string contains half of a surrogate pair") from error


def check_texts(value: Any) -> None:
    """Check that no string in the result of `load_json` has U+0000. Raises JsonFault."""
    match value:
        case str():
            if "\0" in value:
                raise JsonFault("a string contains U+0000, which PostgreSQL cannot store")
        case dict():
            for name, inner in value.items():
                check_texts(name)
                check_texts(inner)
        case list():
            for inner in value:
                check_texts(inner)
        case _:
            pass


def dump_json(tree: Any) -> str:
    """Return the result of `load_json` as JSON text, with all digits of numbers."""
    try:
        return _JSON_OUT.encode(tree).decode()
    except OverflowError:  # msgspec before 0.21 writes integers of at most 64 bits
        return _JSON_OUT.encode(_with_decimals(tree)).decode()


def dump_lines(values: Sequence[Any]) -> list[bytes]:
    """Return the JSON of each value, all from one call. The values have no numbers."""
    return _JSON_OUT.encode_lines(values).split(b"\n")[:-1]


def _with_decimals(tree: Any) -> Any:
    match tree:
        case dict():
            return {name: _with_decimals(value) for name, value in tree.items()}
        case list():
            return [_with_decimals(value) for value in tree]
        case int() if not isinstance(tree, bool):
            return Decimal(tree)
        case _:
            return tree
