"""Describes the server as a protected resource (RFC 9728), so that clients find the issuer by themselves."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from server.settings import Settings

WELL_KNOWN = "/.well-known/oauth-protected-resource"
_ALL = "*"


class ResourceMetadata(msgspec.Struct, frozen=True):
    """The description. origin: that of the resource; None for that of each request. path: of the description.
    resource_path: of the resource. issuer: who gives tokens for it."""

    origin: str | None
    path: str
    resource_path: str
    issuer: str | None

    def url(self, origin: str) -> str:
        """Return where clients find the description. origin: that of the request."""
        return f"{self.origin or origin}{self.path}"

    def document(self, origin: str) -> bytes:
        """Return the description as JSON."""
        resource = f"{self.origin or origin}{self.resource_path}"
        described: dict[str, object] = {"resource": resource, "bearer_methods_supported": ["header"]}
        if self.issuer is not None:
            described["authorization_servers"] = [self.issuer]
        return msgspec.json.encode(described)


def resource_metadata(settings: Settings) -> ResourceMetadata | None:
    """Return the description. None without tokens, and if the server has neither an absolute `public_url` nor names of
    its own: with `allowed_hosts=*`, a request may name any host.

    The well-known part comes before the path of the resource: RFC 9728, 3.1."""
    if not settings.takes_tokens:
        return None
    parts = urlsplit(settings.public_url or settings.path_prefix)
    origin = f"{parts.scheme}://{parts.netloc}" if parts.netloc else None
    if origin is None and _ALL in (settings.allowed_hosts or "").split(","):
        return None
    return ResourceMetadata(origin, WELL_KNOWN + parts.path, parts.path, settings.auth_issuer)
