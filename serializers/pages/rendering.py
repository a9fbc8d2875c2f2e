"""Renders pages from templates of Jinja2, which escapes every value that is not Markup.

It must not know: SQL, HTTP.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import Any

import msgspec
from jinja2 import Environment, FunctionLoader, StrictUndefined

from serializers.pages.view import anchor

FILES = {"pages.css": "text/css; charset=utf-8", "pages.js": "text/javascript; charset=utf-8"}
"""The files that pages load, with their media types."""

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)


class Crumb(msgspec.Struct, frozen=True):
    """A step of the way from the start page to this one. url: empty for this page."""

    text: str
    url: str = ""


class Frame(msgspec.Struct, frozen=True):
    """What every page has around its content. base_url: what links begin with. title: of the window. json_url: of the
    same in JSON, empty if there is nothing. docs_url: of the description of the API, empty without one. who: the name
    of who is known, empty for others. sign_in_url, sign_out_url: where to sign in or out, empty if that is not
    possible. is_signed_out: whether somebody has sent a form who is not signed in any more. choices: whom a person may
    choose to be, to try rules; chosen: one of these, or empty."""

    base_url: str
    title: str
    crumbs: tuple[Crumb, ...] = ()
    json_url: str = ""
    docs_url: str = ""
    who: str = ""
    sign_in_url: str = ""
    sign_out_url: str = ""
    is_signed_out: bool = False
    choices: tuple[str, ...] = ()
    chosen: str = ""


def render(template: str, frame: Frame, **values: Any) -> bytes:
    """Return a page. values: those of its template."""
    return _environment().get_template(template).render(frame=frame, files=version(), **values).encode()


@cache
def file_of(name: str) -> bytes:
    """Return a file that pages load."""
    return resources.files(__package__).joinpath("static", name).read_bytes()


@cache
def version() -> str:
    """Return what changes with the files, so that browsers may keep them."""
    return hashlib.sha256(b"".join(map(file_of, FILES))).hexdigest()[:12]


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_template),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters["anchor"] = anchor
    environment.filters["count"] = _count
    return environment


def _template(name: str) -> str:
    return resources.files(__package__).joinpath("templates", name).read_text(encoding="utf-8")


def _count(number: int) -> str:
    return f"{number:,}"
