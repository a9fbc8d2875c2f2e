"""Finds out what an issuer offers: where its keys are, and where people sign in (OpenID Connect Discovery 1.0; RFC
8414).

It must not know: keys, tokens, requests.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from server.authentication.fetching import Fetcher, FetchError


class Metadata(msgspec.Struct, frozen=True):
    """What an issuer says of itself, by the names of RFC 8414, 2. What only a sign-in needs may be absent."""

    issuer: str
    jwks_uri: str
    authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    revocation_endpoint: str | None = None
    end_session_endpoint: str | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] | None = None
    authorization_response_iss_parameter_supported: bool | None = None


def metadata_urls(issuer: str) -> tuple[str, str]:
    """Return where an issuer describes itself: OpenID Connect Discovery 1.0, 4; RFC 8414, 3.

    >>> metadata_urls("https://id.example.org/shop")[1]
    'https://id.example.org/.well-known/oauth-authorization-server/shop'
    """
    plain, parts = issuer.rstrip("/"), urlsplit(issuer)
    path = parts.path.rstrip("/")
    return (
        f"{plain}/.well-known/openid-configuration",
        f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{path}",
    )


async def fetch_metadata(fetcher: Fetcher, issuer: str) -> Metadata:
    """Return what an issuer says of itself. Raises FetchError."""
    first, second = metadata_urls(issuer)
    try:
        document, url = await fetcher.get(first), first
    except FetchError as error:
        if error.status is None or error.status >= 500:
            raise
        try:
            document, url = await fetcher.get(second), second
        except FetchError:
            raise error from None
    try:
        metadata = msgspec.json.decode(document, type=Metadata)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise FetchError(f"{url} is not the description of an issuer") from None
    if metadata.issuer != issuer:
        raise FetchError(f"{url} is about the issuer {metadata.issuer[:200]!r}, and auth_issuer is {issuer!r}")
    return metadata
