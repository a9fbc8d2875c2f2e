"""Checks requests with a body before it arrives: writes, and reads by QUERY.

It must not know: documents, the database, handlers.
"""

from __future__ import annotations

from querybuild.errors import ParameterError
from server.engine import Engine
from server.errors import ReadOnlyServer, RequestFault, UnsupportedMediaType
from server.handlers.received_body import ReceivedBody
from server.http.headers import Headers
from server.http.negotiation import ANY, FORM, MediaType, check_content_type
from server.http.preconditions import check_preconditions
from server.http.preferences import wants_rollback
from server.http.request import Request
from server.routes import QUERY, Method


def check_writable(engine: Engine) -> None:
    """Check that the server accepts writes. Raises ReadOnlyServer."""
    if engine.settings.read_only:
        raise ReadOnlyServer("This server only answers reads.")


def max_body(method: Method, engine: Engine) -> int:
    """Return how many bytes a body may have."""
    return engine.settings.max_query_bytes if method.name == QUERY else engine.settings.max_body_bytes


def check_query(request: Request, received: ReceivedBody) -> None:
    """Check a QUERY: its parameters are in its body. Raises RequestFault, Overloaded."""
    headers = request.headers
    media_type = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if not media_type:
        raise RequestFault(f"A QUERY needs a Content-Type: {FORM.name}.", header="Content-Type")
    if media_type != FORM.name:
        raise UnsupportedMediaType(f"The Content-Type of a QUERY must be {FORM.name}.", header="Content-Type")
    _check_encoding(headers)
    if request.query:
        name = request.query.partition("=")[0].partition("&")[0]
        raise ParameterError("A QUERY has its parameters in its body, and none in its URL.", parameter=name)
    received.check_length()


def check_write(
    engine: Engine, headers: Headers, received: ReceivedBody, method: Method
) -> tuple[frozenset[str], bool]:
    """Check a write against the row of its method. Returns the URIs that the body has as `ext` of its media type, and
    whether the write is only tried. Raises RequestFault, Overloaded."""
    check_writable(engine)
    if method.preconditions is not None:
        check_preconditions(headers, method.preconditions)
    is_possible = engine.settings.allow_rollback and method.preconditions is not None
    is_tried = wants_rollback(headers, is_possible=is_possible)
    accepted = method.body
    if accepted is None:
        return frozenset(), is_tried
    return check_body(headers, received, accepted), is_tried


def check_body(headers: Headers, received: ReceivedBody, accepted: MediaType) -> frozenset[str]:
    """Check the media type and the length of a body. Returns the URIs that it has as `ext` of its media type. Raises
    RequestFault, Overloaded."""
    extensions: frozenset[str] = frozenset() if accepted is ANY else _check_media_type(headers, received, accepted)
    received.check_length()
    return extensions


def _check_media_type(headers: Headers, received: ReceivedBody, accepted: MediaType) -> frozenset[str]:
    """Check the media type and the encoding of the body. Raises UnsupportedMediaType."""
    extensions: frozenset[str] = frozenset()
    if "Content-Type" in headers.by_name:
        extensions = check_content_type(headers["Content-Type"], accepted)
    elif received.content_length() or "Transfer-Encoding" in headers.by_name:
        check_content_type(None, accepted)
    _check_encoding(headers)
    return extensions


def _check_encoding(headers: Headers) -> None:
    if "Content-Encoding" in headers.by_name and headers["Content-Encoding"].lower() != "identity":
        raise UnsupportedMediaType("A body must not be compressed.", header="Content-Encoding")
