"""Describes the server as a protected resource (RFC 9728), so that clients find the issuer by themselves."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from server.settings import Settings

WELL_KNOWN = "/.well-known/oauth-protected-resource"


class ResourceMetadata(msgspec.Struct, frozen=True):
    """The description. url: where clients find it. path: of the URL. document: as JSON."""

    url: str
    path: str
    document: bytes


def resource_metadata(settings: Settings) -> ResourceMetadata | None:
    """Return the description, or None without tokens or without an absolute `public_url`, which names the resource.

    The well-known part comes before the path of the resource: RFC 9728, 3.1."""
    resource = settings.public_url
    if not settings.takes_tokens or resource is None or resource.startswith("/"):
        return None
    parts = urlsplit(resource)
    path = WELL_KNOWN + parts.path
    described: dict[str, object] = {"resource": resource, "bearer_methods_supported": ["header"]}
    if settings.auth_issuer is not None:
        described["authorization_servers"] = [settings.auth_issuer]
    return ResourceMetadata(f"{parts.scheme}://{parts.netloc}{path}", path, msgspec.json.encode(described))
