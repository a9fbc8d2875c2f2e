"""Reads the docs page and its files: Swagger UI, from the package `swagger-ui-bundle-v2`, and the few lines that start
it. It loads nothing from other hosts, and no script or style is in the page itself.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources

from server.describing.descriptions import Description, description

VIEWER, FOLDER = "swagger_ui_bundle", "vendor/swagger-ui-5.31.0"

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)

_TYPES = {"html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
_OF_VIEWER = {"viewer.js": "swagger-ui-bundle.js", "viewer.css": "swagger-ui.css"}


@cache
def viewer_file(name: str) -> Description:
    """Return a file of the page, or the page itself: `docs`."""
    if name == "docs":
        return description(_page(), _TYPES["html"])
    return description(_read(name), _TYPES[name.rpartition(".")[2]])


def _read(name: str) -> bytes:
    if name in _OF_VIEWER:
        return resources.files(VIEWER).joinpath(FOLDER, _OF_VIEWER[name]).read_bytes()
    return resources.files(__package__).joinpath(name).read_bytes()


def _page() -> bytes:
    """Return the page. The browser refuses a file that is not the one that it names."""
    text = _read("page.html").decode()
    for name in ("viewer.js", "viewer.css", "page.js", "page.css"):
        digest = base64.b64encode(hashlib.sha384(_read(name)).digest()).decode()
        text = text.replace(f'"docs/{name}"', f'"docs/{name}" integrity="sha384-{digest}"')
    return text.encode()
