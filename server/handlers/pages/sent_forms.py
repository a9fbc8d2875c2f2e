"""Reads forms, and checks that a page of this server has sent them."""

from __future__ import annotations

from urllib.parse import parse_qsl

from tornado.httputil import HTTPFile, HTTPInputError, parse_body_arguments

from server.errors import ForeignOrigin, RequestFault
from server.http.allowed_hosts import own_origin
from server.http.negotiation import FILE_FORM, FORM
from server.http.request import Request

MAX_FIELDS = 5000
"""How many fields a form has at most."""


def check_own_page(request: Request) -> None:
    """Check that a page of this server has sent a form. Browsers send where it comes from. Raises ForeignOrigin."""
    headers = request.headers
    site = headers.get("Sec-Fetch-Site")
    if site is None:
        origin = headers.get("Origin")
        is_own = origin is not None and origin.lower() == own_origin(request)
    else:
        is_own = site == "same-origin"
    if not is_own:
        raise ForeignOrigin("Only the pages of this server may send forms.", header="Origin")


def read_fields(body: bytes, content_type: str = FORM.name) -> dict[str, str]:
    """Return the fields of a form. That of a file has its text, if a file was chosen. Raises RequestFault."""
    try:
        if content_type.partition(";")[0].strip().lower() == FILE_FORM.name:
            return _parts(body, content_type)
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"))
    except (ValueError, UnicodeDecodeError, HTTPInputError) as error:
        raise RequestFault(f"The form cannot be read: {error}.") from error


def _parts(body: bytes, content_type: str) -> dict[str, str]:
    """Return the fields of a form with files. Raises HTTPInputError, UnicodeDecodeError."""
    fields: dict[str, list[bytes]] = {}
    files: dict[str, list[HTTPFile]] = {}
    parse_body_arguments(content_type, body, fields, files)
    fields_sent = {name: values[-1].decode() for name, values in fields.items()}
    return fields_sent | {name: chosen[-1].body.decode() for name, chosen in files.items() if chosen[-1].filename}
