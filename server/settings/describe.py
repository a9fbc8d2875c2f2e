"""Describes the types and values of settings for people: the allowed values in words and as a placeholder, and a URL
without its passwords.

It must not know: the settings.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from urllib.parse import unquote

from msgspec import Meta

_WORDS = {
    bool: "true or false",
    int: "a whole number from {ge} to {le}",
    float: "a number above {gt} and up to {le}",
    str: "a text that is not empty",
    Path: "a path",
}


def alternatives(form: Any, bounds: Mapping[str, float] | None = None) -> list[str]:
    """Return the allowed values of a type in words, in the order of the declaration.

    >>> alternatives(Literal["on", "off"] | Annotated[int, Meta(ge=1, le=9)])
    ['on', 'off', 'a whole number from 1 to 9']
    """
    origin, arguments, bounds = get_origin(form), get_args(form), bounds or {}
    if origin is Annotated:
        return alternatives(arguments[0], _bounds(form.__metadata__))
    if origin in (Union, UnionType):
        return [words for member in arguments for words in alternatives(member)]
    if origin is Literal:
        return list(arguments)
    if form is type(None):
        return []
    return [_WORDS[form].format(**bounds)]


def literals(form: Any) -> tuple[str, ...]:
    """Return the allowed words of a type.

    >>> literals(Literal["on", "off"] | Annotated[int, Meta(ge=1, le=9)])
    ('on', 'off')
    """
    if get_origin(form) is Literal:
        return get_args(form)
    members = get_args(form)[:1] if get_origin(form) is Annotated else get_args(form)
    return tuple([word for member in members for word in literals(member)])


def _bounds(metadata: tuple[object, ...]) -> dict[str, float]:
    metas = [meta for meta in metadata if isinstance(meta, Meta)]
    return {name: bound for meta in metas for name in ("ge", "gt", "le") if (bound := getattr(meta, name)) is not None}


def placeholder(name: str, choices: list[str]) -> str:
    """Return the placeholder of a setting's value for `--help`."""
    number = "SECONDS" if name.endswith("_seconds") else "BYTES" if name.endswith("_bytes") else "N"
    return "|".join(number if " number " in words else words for words in choices)


def listed(choices: list[str]) -> str:
    """Return the choices as text, with "or" before the last."""
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def mask_passwords(url: str) -> str:
    """Return a database URL without its passwords.

    >>> mask_passwords("postgresql://ann:s3cret@db/shop?sslpassword=key")
    'postgresql://ann:***@db/shop?sslpassword=***'
    """
    url = re.sub(r"^((?:\w+://)?+[^:@]*):.*@", r"\1:***@", url, flags=re.DOTALL)
    head, mark, query = url.partition("?")
    return head + mark + "&".join(map(_mask_pair, query.split("&")))


def _mask_pair(pair: str) -> str:
    name, _, _ = pair.partition("=")
    return f"{name}=***" if "password" in unquote(name).lower() else pair
