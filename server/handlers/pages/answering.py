"""Sends pages, and makes those of errors."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from querybuild.declarations.resource import Resource
from querybuild.errors import Unauthenticated
from serializers.json_api import MEDIA_TYPE
from serializers.pages.rendering import CONTENT_SECURITY_POLICY, render
from server.error_answers import ErrorAnswer
from server.errors import ERRORS, NotAcceptable, SignInFailed, SignInRefused
from server.handlers import telling
from server.handlers.pages.frames import make_frame
from server.handlers.pages.reads import Asked
from server.http.negotiation import BROWSED, HTML, preferred_type
from server.routes import PAGES, below_prefix

if TYPE_CHECKING:
    from server.handlers.base import Handler

UNAUTHENTICATED = ERRORS[Unauthenticated].code
OF_SIGN_IN = {ERRORS[error].code for error in (SignInFailed, SignInRefused)}

NO_PAGES = "/-/"
"""Below this path programs ask, but for the pages themselves."""


def asked_of(handler: Handler, resource: Resource | None, owner: str = "") -> Asked:
    """Return what a page knows of the request of a handler. resource: of its rows, None if it shows a value. owner: as
    in `Asked`."""
    route, engine = handler.route, handler.engine
    assert route is not None
    timing = telling.timing(handler.stages) if telling.sends_timing(engine, handler.request) else ""
    may_explain = telling.may_explain(engine, handler.request, handler.sender)
    known = engine, handler.request, route, resource, handler.catalog, handler.context
    return Asked(*known, engine.base_url + route.path, timing, may_explain, owner)


def finish_page(handler: Handler, page: bytes, status: int = 200, *, is_kept: bool = True) -> None:
    """Send a page. Only the browser of the principal may keep it. is_kept: False if it may not either."""
    tell_of_page(handler)
    if status >= 400 or not is_kept:
        handler.set_header("Cache-Control", "no-store")
    elif not handler.answers_pages:
        handler.set_header("Link", f'<{handler.request.uri}>; rel="alternate"; type="{MEDIA_TYPE}"')
    if is_kept and status < 400:
        if handler.engine.has_authentication and handler.sender.is_private:
            handler.set_header("Cache-Control", "private, no-cache")
        else:
            handler.tell_caches()
    handler.finish_document(page, status)


def lead_to(handler: Handler, url: str) -> None:
    """Lead a browser to another page."""
    handler.set_status(303)
    handler.set_header("Location", url)
    handler.set_header("Cache-Control", "no-store")
    handler.clear_header("Content-Type")
    handler.finish()


def tell_of_page(handler: Handler) -> None:
    """Set the headers of a page: its media type, what it may load, and what it depends on. It is compressed for every
    client that accepts it: a list of 30 rows has 26 KB, and then 4."""
    handler.always_compresses = True
    handler.set_header("Content-Type", HTML.content_type)
    handler.set_header("Content-Security-Policy", CONTENT_SECURITY_POLICY)
    handler.set_header("Referrer-Policy", "same-origin")
    handler.set_header("Vary", "Accept, Authorization, Cookie, Accept-Encoding")


def wants_page(handler: Handler) -> bool:
    """Return whether a request is one of a person, who gets errors as pages: a GET that prefers HTML, but not on custom
    routes, and below `/-/` only for pages. Forms always have pages."""
    request = handler.request
    if handler.answers_pages:
        return True
    if request.method not in ("GET", "HEAD") or not handler.engine.settings.pages or not handler.has_pages:
        return False
    path = below_prefix(request.path, handler.engine.settings.path_prefix)
    if path is not None and path.startswith(NO_PAGES) and not path.startswith(PAGES):
        return False
    try:
        return preferred_type(request.headers.by_name.get("Accept"), request.query, BROWSED) is HTML
    except NotAcceptable:
        return False


def error_page(handler: Handler, made: ErrorAnswer) -> bytes:
    """Return the page of an error, and set its headers."""
    errors = [
        {**error, "source": ": ".join([f"{key} {value}" for key, value in error.get("source", {}).items()])}
        for error in json.loads(made.body)["errors"]
    ]
    tell_of_page(handler)
    engine = handler.engine
    codes = {error["code"] for error in errors}
    title = errors[0]["title"] if len(errors) == 1 else HTTPStatus(made.status).phrase
    frame = make_frame(engine, handler.request, handler.sender.principal, title)
    asks_to_sign_in = bool(frame.sign_in_url) and codes == {UNAUTHENTICATED}
    if asks_to_sign_in:
        frame = msgspec.structs.replace(frame, title="Sign in to see this")
    return render(
        "error.html",
        frame,
        errors=errors,
        asks_to_sign_in=asks_to_sign_in,
        is_of_sign_in=bool(codes & OF_SIGN_IN),
        without_url=engine.base_url + handler.route.path if made.status == 400 and handler.route is not None else "",
        status=made.status,
        request_id=handler.request_id,
    )
