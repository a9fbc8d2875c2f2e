"""Reads forms, and checks that a page of this server has sent them."""

from __future__ import annotations

from urllib.parse import parse_qsl

from server.errors import ForeignOrigin, RequestFault
from server.http.allowed_hosts import own_origin
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


def read_fields(body: bytes) -> dict[str, str]:
    """Return the fields of a form. Raises RequestFault."""
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"))
    except (ValueError, UnicodeDecodeError) as error:
        raise RequestFault(f"The form cannot be read: {error}.") from error
