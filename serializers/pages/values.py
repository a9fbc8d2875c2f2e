"""Writes values as HTML, by their types. What comes in: values as msgspec encodes them. What goes out: HTML, as texts.
Every text of a value is escaped here. `view.py` declares it to be safe for Jinja2: to do so for each value would take
most of the time of a page.

It must not know: SQL, HTTP.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import msgspec
from markupsafe import escape as _escape

from querybuild.declarations.resource import Attribute

CELL_CHARACTERS, TEXT_CHARACTERS, LABEL_CHARACTERS = 80, 400, 80
"""How many characters of a text a cell, a page and a label show."""

NULL = '<span class="null">null</span>'
NOTHING = '<span class="null">empty</span>'

_LINK = re.compile(r"(?:https?://|mailto:)[^\s<>\"]+", re.IGNORECASE)
_SPECIAL = re.compile("[&<>'\"]")
_ENCODER = msgspec.json.Encoder()


def escape(text: str) -> str:
    """Return a text as HTML. Most texts have nothing to escape, and markupsafe makes an object for each."""
    return text if _SPECIAL.search(text) is None else str(_escape(text))


def is_number(attribute: Attribute) -> bool:
    """Return whether the values are numbers, which tables show at the right."""
    return attribute.type.family == "number"


def shown_value(attribute: Attribute) -> Callable[[Any], Any]:
    """Return the function that converts a value of a row to the one that is shown."""
    show = attribute.type.json.shown
    return (lambda value: value) if show is None else show


def cell(value: Any) -> str:
    """Return a value in a cell of a table. Long texts are cut."""
    if value is None:
        return NULL
    if isinstance(value, str):
        return _text_cell(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if type(value) is int:
        return str(value)
    if isinstance(value, int | float):
        return _json(value)
    if isinstance(value, date):
        return moment(value)
    if isinstance(value, bytes):
        return f'<span class="bytes">{_size(len(value))}</span>'
    if isinstance(value, list) and value and not any(isinstance(item, list | dict) for item in value):
        return _text_cell(", ".join([_scalar(item) for item in value]))
    text = _json(value)
    is_plain = not text.startswith(("{", "["))
    return escape(_cut(text.strip('"'), CELL_CHARACTERS)) if is_plain else _code(_cut(text, CELL_CHARACTERS))


def whole(value: Any) -> str:
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
    short = _code(_cut(text, CELL_CHARACTERS))
    return f'<details><summary>{short}</summary><pre dir="auto">{escape(pretty)}</pre></details>'


IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
MAX_IMAGE_BYTES = 1_048_576
"""The largest image that a page shows."""


def image_type(value: bytes) -> str | None:
    """Return the media type of an image that a page may show, by its first bytes. SVG may contain scripts, so it is
    none."""
    if len(value) > MAX_IMAGE_BYTES:
        return None
    for begin, media_type in IMAGES.items():
        if value.startswith(begin):
            return media_type
    if value[:4] == b"RIFF" and value[8:12] == b"WEBP":
        return "image/webp"
    return "image/avif" if value[4:8] == b"ftyp" and value[8:12] in (b"avif", b"avis") else None


def file_link(value: bytes, url: str) -> str:
    """Return bytes on the page of their resource: a link to save them, and the image if they are one. url: of the
    bytes."""
    size, shown = _size(len(value)), ""
    if image_type(value) is not None:
        shown = f'<br><img src="{escape(url)}?shown=1" alt="" loading="lazy">'
    return f'{size} · <a href="{escape(url)}" download>save</a>{shown}'


def label_text(value: Any, row_id: Any) -> str:
    """Return the text that a row is known by: its label, or its id without one."""
    text = str(value).strip() if value is not None else ""
    return _cut(text, LABEL_CHARACTERS) if text else str(row_id)


def short_text(value: Any) -> str:
    """Return a number, a day, a moment or a text as a part of a summary. A moment has no seconds."""
    if value is None or isinstance(value, str):
        return _cut(value or "", LABEL_CHARACTERS)
    if isinstance(value, datetime):
        at = value if value.tzinfo is None else value.astimezone(UTC)
        return at.isoformat(sep=" ", timespec="minutes").replace("+00:00", " UTC")
    text = _json(value)
    return text[1:-1] if text.startswith('"') else text


def moment(value: date) -> str:
    """Return a date, or a time in UTC, to which the script of the page adds the reader's zone."""
    iso = _json(value)[1:-1]
    if not isinstance(value, datetime):
        return f'<time datetime="{iso}">{iso}</time>'
    if value.tzinfo is None:
        return f'<time datetime="{iso}">{iso.replace("T", " ")}</time>'
    at = value.astimezone(UTC).isoformat(sep=" ").removesuffix("+00:00")
    return f'<time datetime="{iso}" data-utc>{at} UTC</time>'


def _text_cell(text: str) -> str:
    if not text:
        return NOTHING
    shown = _cut(text, CELL_CHARACTERS)
    return _link(text, shown) if ":" in text and _LINK.fullmatch(text) else f"<bdi>{escape(shown)}</bdi>"


def _whole_text(text: str) -> str:
    if not text:
        return NOTHING
    if _LINK.fullmatch(text):
        return _link(text, text)
    if len(text) <= TEXT_CHARACTERS:
        return f'<span class="text" dir="auto">{escape(text)}</span>'
    begin, rest = escape(text[:TEXT_CHARACTERS]), escape(text[TEXT_CHARACTERS:])
    more = f'<details class="more"><summary>more</summary><span class="text">{rest}</span></details>'
    return f'<span class="text" dir="auto">{begin}</span>{more}'


def _scalar(value: Any) -> str:
    return value if isinstance(value, str) else _json(value).strip('"')


def _link(url: str, shown: str) -> str:
    return f'<a href="{escape(url)}" rel="noopener noreferrer nofollow">{escape(shown)}</a>'


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"


def _json(value: Any) -> str:
    return _ENCODER.encode(value).decode()


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"


def _size(count: int) -> str:
    return f"{count:,} byte" + ("" if count == 1 else "s")
