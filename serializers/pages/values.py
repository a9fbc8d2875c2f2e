"""Writes values as HTML, by their types. What comes in: values as msgspec encodes them. What goes out: Markup, which
Jinja2 does not escape again. Every text of a value is escaped here.

It must not know: SQL, HTTP.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import msgspec
from markupsafe import Markup, escape

from querybuild.declarations.resource import Attribute

CELL_CHARACTERS, TEXT_CHARACTERS, LABEL_CHARACTERS = 80, 400, 80
"""How many characters of a text a cell, a page and a label show."""

NULL = Markup('<span class="null">null</span>')
NOTHING = Markup('<span class="null">empty</span>')

_LINK = re.compile(r"(?:https?://|mailto:)[^\s<>\"]+", re.IGNORECASE)
_ENCODER = msgspec.json.Encoder()

Write = Callable[[Any], Markup]
"""Writes a value."""


def is_number(attribute: Attribute) -> bool:
    """Return whether the values are numbers, which tables show at the right."""
    return attribute.type.family == "number"


def shown_value(attribute: Attribute) -> Callable[[Any], Any]:
    """Return the function that converts a value of a row to the one that is shown."""
    show = attribute.type.shown
    return (lambda value: value) if show is None else show


def cell(value: Any) -> Markup:
    """Return a value in a cell of a table. Long texts are cut."""
    if value is None:
        return NULL
    if isinstance(value, str):
        return _text_cell(value)
    if isinstance(value, bool):
        return Markup("true" if value else "false")
    if isinstance(value, int | float):
        return Markup(_json(value))
    if isinstance(value, date):
        return moment(value)
    if isinstance(value, bytes):
        return Markup(f'<span class="bytes">{_size(len(value))}</span>')
    if isinstance(value, list) and value and not any(isinstance(one, list | dict) for one in value):
        return _text_cell(", ".join([_scalar(one) for one in value]))
    text = _json(value)
    is_plain = not text.startswith(("{", "["))
    return escape(_cut(text.strip('"'), CELL_CHARACTERS)) if is_plain else _code(_cut(text, CELL_CHARACTERS))


def whole(value: Any) -> Markup:
    """Return a value on the page of its resource: all of it, long texts and JSON folded."""
    if isinstance(value, str):
        return _whole_text(value)
    if value is None or isinstance(value, bool | int | float | date | bytes):
        return cell(value)
    text = _json(value)
    if not text.startswith(("{", "[")):
        return escape(text.strip('"'))
    if len(text) <= CELL_CHARACTERS:
        return _code(text)
    pretty = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    folded = Markup('<details><summary>{}</summary><pre dir="auto">{}</pre></details>')
    return folded.format(_code(_cut(text, CELL_CHARACTERS)), pretty)


def label_text(value: Any, row_id: Any) -> str:
    """Return the text that a row is known by: its label, or its id without one."""
    text = str(value).strip() if value is not None else ""
    return _cut(text, LABEL_CHARACTERS) if text else str(row_id)


def moment(value: date) -> Markup:
    """Return a date, or a time in UTC, to which the script of the page adds the reader's zone."""
    iso = _json(value)[1:-1]
    if not isinstance(value, datetime):
        return Markup(f'<time datetime="{iso}">{iso}</time>')
    if value.tzinfo is None:
        return Markup(f'<time datetime="{iso}">{iso.replace("T", " ")}</time>')
    at = value.astimezone(UTC).isoformat(sep=" ").removesuffix("+00:00")
    return Markup(f'<time datetime="{iso}" data-utc>{at} UTC</time>')


def _text_cell(text: str) -> Markup:
    if not text:
        return NOTHING
    shown = _cut(text, CELL_CHARACTERS)
    return _link(text, shown) if _LINK.fullmatch(text) else Markup("<bdi>{}</bdi>").format(shown)


def _whole_text(text: str) -> Markup:
    if not text:
        return NOTHING
    if _LINK.fullmatch(text):
        return _link(text, text)
    if len(text) <= TEXT_CHARACTERS:
        return Markup('<span class="text" dir="auto">{}</span>').format(text)
    begin, rest = text[:TEXT_CHARACTERS], text[TEXT_CHARACTERS:]
    more = '<details class="more"><summary>more</summary><span class="text">{}</span></details>'
    return Markup('<span class="text" dir="auto">{}</span>' + more).format(begin, rest)


def _scalar(value: Any) -> str:
    return value if isinstance(value, str) else _json(value).strip('"')


def _link(url: str, shown: str) -> Markup:
    return Markup('<a href="{}" rel="noopener noreferrer nofollow">{}</a>').format(url, shown)


def _code(text: str) -> Markup:
    return Markup("<code>{}</code>").format(text)


def _json(value: Any) -> str:
    return _ENCODER.encode(value).decode()


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"


def _size(count: int) -> str:
    return f"{count:,} byte" + ("" if count == 1 else "s")
