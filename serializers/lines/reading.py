"""Reads files with lines: CSV and NDJSON. What comes in: a binary file. What goes out: batches of records, as the
changes that create a resource for each.

The head of a file is its line 1. A record of CSV that has line breaks in its texts has the number of its first line.

Sources: RFC 4180; PostgreSQL "COPY", "CSV Format". It must not know: SQL, HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Protocol

import msgspec

from querybuild.declarations.json_texts import JsonFault, load_json
from querybuild.declarations.resource import Attribute, Resource, ToOne
from querybuild.declarations.types import is_structure
from querybuild.errors import ApiError, Errors, Several, listed, nearest, quoted
from querybuild.query import Change, Identifier, LinkageChange
from serializers.decode import Decoder
from serializers.errors import InvalidDocument, MalformedLines
from serializers.lines.texts import NEVER_FORMULAS, begins_formula
from serializers.operations.requests import UniformAdds
from serializers.pointers import attribute_pointer, relationship_pointer, tokens

BATCH = 512
"""How many records are read at once."""

MAX_FAULTS = 100
"""How many faults are reported."""

_FIELD = re.compile(r'(?:"((?:[^"]|"")*)"|([^",]*))(,|\Z)', re.DOTALL)
_WHOLE = re.compile(r"-?[0-9]{1,40}").fullmatch
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?").fullmatch

Fields = Sequence[str | None]


class Batch(Protocol):
    """Some records of a file. numbers: of their lines. suffix: what follows the name of a to-one in that of its
    column."""

    numbers: Sequence[int]
    suffix: str

    def uniform(self) -> UniformAdds | None:
        """Return the records as columns, if they are alike."""

    def change(self, index: int, errors: list[ApiError]) -> Change | None:
        """Return the change that creates the resource of a record. Appends to errors."""


def at(error: ApiError, line: int, column: str = "", suffix: str = "") -> ApiError:
    """Return the error with its place in the file, in its text and in its `meta`. column: if its pointer does not tell.
    suffix: as of a batch."""
    if isinstance(error, Several):
        return Several([at(fault, line, suffix=suffix) for fault in error.errors])
    if not column and error.pointer:
        names = tokens(error.pointer)
        column = names[2] if len(names) > 2 else names[-1] if names[-1] == "id" else ""
        column += suffix if names[1:2] == ["relationships"] else ""
    where = f"line {line}" + (f", column {quoted(column)}" if column else "")
    error.detail = f"{where[0].upper()}{where[1:]}: {error.detail}"
    error.meta = {"line": str(line)} | ({"column": column} if column else {})
    error.pointer = None
    return error


def csv_batches(
    file: BinaryIO, resource: Resource, asked: Change, read_only: frozenset[str], max_bytes: int, *, is_safe: bool
) -> Iterator[Batch]:
    """Yield the records of a file of CSV. asked: the change without a record. read_only: fields that the principal may
    not write. max_bytes: of a record. is_safe: whether the marks of formulas are taken away.

    Raises MalformedLines, for the head Several with all of its faults."""
    file.seek(0)
    records = _records(file, max_bytes)
    _, names = next(records, (1, None))
    if names is None:
        raise at(MalformedLines("It has no head with the names of the fields."), 1)
    head = _Head([name or "" for name in names], resource, read_only, is_safe=is_safe)
    numbers, rows = list[int](), list[Fields | None]()
    for number, row in records:
        numbers.append(number)
        rows.append(row)
        if len(rows) == BATCH:
            yield _CsvBatch(head, asked, numbers, rows)
            numbers, rows = [], []
    if rows:
        yield _CsvBatch(head, asked, numbers, rows)


def _records(file: BinaryIO, max_bytes: int) -> Iterator[tuple[int, list[str | None] | None]]:
    """Yield the records, each with the number of its line; None for one with misplaced quotes. Null is an empty field
    without quotes."""
    number = 0
    while raw := file.readline(max_bytes + 1):
        number += 1
        first = number
        while raw.count(b'"') % 2 and (more := file.readline(max_bytes + 1)):
            raw += more
            number += 1
            if len(raw) > max_bytes:
                break
        if len(raw) > max_bytes:
            raise at(MalformedLines(f"It has more than {max_bytes} bytes."), first)
        text = _text(raw.removesuffix(b"\n").removesuffix(b"\r"), first)
        if first == 1:
            text = text.removeprefix("\ufeff")
        if '"' in text:
            yield first, _quoted_fields(text)
        elif text or first == 1:
            yield first, [field or None for field in text.split(",")]


def _text(raw: bytes, number: int) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise at(MalformedLines("It is not UTF-8."), number) from error


def _quoted_fields(text: str) -> list[str | None] | None:
    fields: list[str | None] = []
    end = 0
    while True:
        match = _FIELD.match(text, end)
        if match is None:
            return None
        inner, plain, after = match.groups()
        fields.append(inner.replace('""', '"') if inner is not None else plain or None)
        end = match.end()
        if not after:
            return fields


class _Column(msgspec.Struct, frozen=True):
    """A column of a file. read: the JSON value of a field that is not null. Raises JsonFault. One of the others is set:
    attribute, link; none for the id."""

    name: str
    read: Callable[[str], Any]
    attribute: Attribute | None = None
    link: ToOne | None = None


class _Head:
    """The columns of a file. Raises Several with the faults of their names."""

    def __init__(self, names: list[str], resource: Resource, read_only: frozenset[str], *, is_safe: bool) -> None:
        self.resource = resource
        errors = Errors()
        known = {
            attribute.name: _Column(attribute.name, _reader(attribute, is_safe=is_safe), attribute=attribute)
            for attribute in resource.attributes
            if attribute.is_writable(on_create=True) and attribute.name not in read_only
        }
        for relationship in resource.relationships:
            if isinstance(relationship, ToOne) and relationship.is_own_key and relationship.name not in read_only:
                known[f"{relationship.name}.id"] = _Column(
                    f"{relationship.name}.id", _unmarked if is_safe else str, link=relationship
                )
        if resource.client_ids:
            known["id"] = _Column("id", _unmarked if is_safe else str)
        for name in dict.fromkeys(names):
            if name not in known:
                detail = f"There is no such field to write.{nearest(name, known)} There are: {listed(known)}."
                errors.append(at(MalformedLines(detail), 1, name))
            elif names.count(name) > 1:
                errors.append(at(MalformedLines("It occurs more than once."), 1, name))
        if errors:
            raise Several(errors)
        self.columns = [known[name] for name in names]


def _reader(attribute: Attribute, *, is_safe: bool) -> Callable[[str], Any]:
    """Return the function that makes the JSON value of a field. What is no value of the type stays a text, and the
    server says what it must be."""
    if is_structure(attribute.type):
        return lambda text: load_json(text, 100)
    if attribute.type.family == "bool":
        return lambda text: {"true": True, "t": True, "false": False, "f": False}.get(text, text)
    if attribute.type.family == "number" and attribute.type.name != "numeric":
        return _number
    return _unmarked if is_safe and attribute.type.family not in NEVER_FORMULAS else str


def _number(text: str) -> Any:
    if _WHOLE(text):
        return int(text)
    return load_json(text, 1) if _NUMBER(text) and not text.lstrip("-").startswith("0" * 2) else text


def _unmarked(text: str) -> str:
    return text[1:] if text.startswith("'") and begins_formula(text) else text


class _CsvBatch:
    suffix = ".id"

    def __init__(self, head: _Head, asked: Change, numbers: Sequence[int], rows: Sequence[Fields | None]) -> None:
        self.numbers = numbers
        self._head, self._asked, self._rows = head, asked, rows

    def uniform(self) -> UniformAdds | None:
        attributes, linked, ids = list[Sequence[Any]](), list[tuple[str, Sequence[str]]](), False
        errors = Errors()
        first = self.change(0, errors)
        width = len(self._head.columns)
        rows = [row for row in self._rows if row is not None and len(row) == width]
        if len(rows) < len(self._rows):
            return None
        try:
            for column, values in zip(self._head.columns, zip(*rows, strict=True), strict=True):
                read = column.read
                if column.attribute is not None:
                    attributes.append([None if value is None else read(value) for value in values])
                elif column.link is None or None in values:
                    ids = True
                else:
                    linked.append((column.link.target, list(map(read, values))))
        except JsonFault:
            return None
        return None if errors or first is None or ids else UniformAdds([], first, attributes, linked)

    def change(self, index: int, errors: list[ApiError]) -> Change | None:
        attributes: dict[str, Any] = {}
        relationships: dict[str, LinkageChange] = {}
        row_id = None
        is_faulty = False
        row, width = self._rows[index], len(self._head.columns)
        if row is None or len(row) != width:
            if row is None:
                detail = "A quote is neither at both ends of a field nor doubled."
            else:
                detail = f"It has {len(row)} field{'s' * (len(row) != 1)}, and the head has {width}."
            errors.append(MalformedLines(detail))
            return None
        for column, text in zip(self._head.columns, row, strict=True):
            if column.attribute is not None:
                try:
                    attributes[column.name] = None if text is None else column.read(text)
                except JsonFault as error:
                    pointer = attribute_pointer("/data", column.name)
                    errors.append(InvalidDocument(f"It must be JSON: {error}.", pointer=pointer))
                    is_faulty = True
            elif column.link is None:
                row_id = None if text is None else column.read(text)
            else:
                pointer = relationship_pointer("/data", column.link.name)
                value = () if text is None else (Identifier(column.link.target, column.read(text), pointer),)
                relationships[column.link.name] = LinkageChange(value, False, pointer)
        if is_faulty:
            return None
        return msgspec.structs.replace(
            self._asked,
            type=self._head.resource.type,
            id=row_id,
            attributes=attributes,
            relationships=relationships,
            pointer="/data",
        )


def ndjson_batches(file: BinaryIO, asked: Change, max_bytes: int) -> Iterator[Batch]:
    """Yield the records of a file of NDJSON, each a resource object. Empty lines are ignored. Raises MalformedLines."""
    file.seek(0)
    numbers, texts, number = list[int](), list[str](), 0
    while raw := file.readline(max_bytes + 1):
        number += 1
        if len(raw) > max_bytes:
            raise at(MalformedLines(f"It has more than {max_bytes} bytes."), number)
        text = _text(raw, number).strip()
        if text:
            numbers.append(number)
            texts.append(text)
        if len(texts) == BATCH:
            yield _NdjsonBatch(asked, numbers, texts)
            numbers, texts = [], []
    if texts:
        yield _NdjsonBatch(asked, numbers, texts)


class _NdjsonBatch:
    suffix = ""

    def __init__(self, asked: Change, numbers: Sequence[int], texts: Sequence[str]) -> None:
        self.numbers = numbers
        self._asked, self._texts = asked, texts

    def uniform(self) -> UniformAdds | None:
        return None

    def change(self, index: int, errors: list[ApiError]) -> Change | None:
        try:
            value = load_json(self._texts[index], 100)
        except (JsonFault, RecursionError) as error:
            errors.append(MalformedLines(f"It is not JSON: {error}."))
            return None
        known = len(errors)
        change = Decoder(errors, takes_lids=False).resource(value, "/data", self._asked)
        return change if len(errors) == known else None
